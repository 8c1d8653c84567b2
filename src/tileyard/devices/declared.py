"""Devices declared in TOML, so that anything with a command-line runner can be shared. A later file
replaces whole entries: ``/etc/tileyard/devices.toml``, ``$TILEYARD_HOME/devices.toml``, and the
project's, whose defaults of options the command line reads.
"""

import os
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Device, Record
from tileyard.base.places import Place, Strict, Table, decode, open_tables
from tileyard.base.settings import DECLARED, Settings
from tileyard.base.wording import find_similar
from tileyard.devices.base import NAME, class_of, device_lock, index_of
from tileyard.devices.classes import find_class
from tileyard.devices.cpu import core_locks, parse_cores

NO_CLASSES = frozenset({"auto", "queue"})
"""Names for devices of several classes."""
MAX_SLOTS = 4096
PROBE_LIMIT_S = 30.0
BRACES = "write {{ for a literal brace"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Slots = Annotated[int, msgspec.Meta(ge=0, le=MAX_SLOTS)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Declaration(Strict):
    """One ``[[device]]``: ``name`` is ``class:which``; ``id``, a UUID or PCI address, is the lock.
    ``env`` and ``probe`` may contain ``{id}``, ``{index}`` and ``{name}``. ``identity`` describes
    silicon and settings, ``cores`` are its CPUs, as in ``0-3``.
    """

    name: str
    id: Text
    identity: str = ""
    env: dict[str, str] | None = None
    probe: tuple[Text, ...] = ()
    probe_limit_s: Seconds = PROBE_LIMIT_S
    cores: str = ""


class Simulators(Strict):
    """``[simulators]``: how many of them may run at once on this host, 0 if no file says so."""

    slots: Slots | None = None


class ClassOptions(Strict):
    """``[classes.NAME]``: whether the class's own variable hides its other devices from a holder."""

    mask: bool | None = None


class Declarations(Record):
    """The declarations of one file, or of all together."""

    device: tuple[Declaration, ...] = ()
    classes: dict[str, ClassOptions] = {}
    simulators: Simulators = Simulators()


def read_devices(settings: Settings) -> tuple[tuple[Device, ...], int]:
    """All declared devices in order, and the number of simulator slots. Raises UsageError with the place."""
    devices: dict[str, Device] = {}
    slots = 0
    files = tuple(read_files(settings))
    masked = _read_masks(files)
    for found, place in files:
        if found.simulators.slots is not None:
            slots = found.simulators.slots
        for number, declaration in enumerate(found.device):
            at = place / "device" / number
            has_mask = masked.get(class_of(declaration.name), True)
            made = make_device(declaration, f"{at.where}: {at.key}", settings, has_mask=has_mask)
            devices[declaration.name] = made
    return tuple(devices.values()), slots


def is_masked(kind: str, settings: Settings) -> bool:
    """Whether this class's devices are masked by default. Raises UsageError as above."""
    return bool(find_class(kind).masks) and _read_masks(read_files(settings)).get(kind, True)


def _read_masks(files: Iterable[tuple[Declarations, Place]]) -> dict[str, bool]:
    """What the files say of masks, by class; the later file wins."""
    return {
        kind: options.mask
        for found, _ in files
        for kind, options in found.classes.items()
        if options.mask is not None
    }


def declaration_files(settings: Settings) -> tuple[Path, ...]:
    """The files that may declare devices, the later one wins. Raises UsageError for one that others
    may have written, in a folder that no variable names.
    """
    files = (settings.host_config / "devices.toml", settings.home / "devices.toml")
    for path in files:
        if os.path.lexists(path):
            settings.require_trusted(path)
    return (*files, *((settings.project_file,) if settings.project_file is not None else ()))


def read_files(settings: Settings) -> Iterator[tuple[Declarations, Place]]:
    """What each file declares, and its place. Raises UsageError with file, line and key."""
    for path in declaration_files(settings):
        if path.exists():
            table, place = open_tables(path)
            yield _read_table(table, place, is_project=path == settings.project_file), place


def _read_table(tables: Table, place: Place, *, is_project: bool) -> Declarations:
    for key, value in tables.items():
        if key not in DECLARED and not (is_project and _is_default(value)):
            near = DECLARED.get(find_similar(key, DECLARED))
            known = ", ".join(DECLARED.values())
            (place / key).fail("unknown table", f"write {near}" if near else f"known are {known}")
    own = {key: tables[key] for key in Declarations.__struct_fields__ if key in tables}
    found = decode(own, Declarations, place)
    for kind in found.classes:
        if not find_class(kind).masks or find_class(kind).prefixes:
            (place / "classes" / kind).fail(
                "the devices of this class are not masked by a declaration"
            )
    names: set[str] = set()
    for number, declaration in enumerate(found.device):
        at = place / "device" / number / "name"
        _check_name(declaration.name, at)
        if declaration.name in names:
            at.fail(f"{declaration.name!r} appears twice")
        names.add(declaration.name)
    return found


def _is_default(value: object) -> bool:
    """Whether it may be the default of an option or a verb: anything but several tables of one name."""
    return not (isinstance(value, list) and value and isinstance(value[0], dict))


def is_declarable(name: str) -> bool:
    """Whether devices of this name's class are declared one by one."""
    kind = class_of(name)
    return kind not in NO_CLASSES and find_class(kind).is_declarable


def make_device(
    declaration: Declaration, where: str, settings: Settings, *, has_mask: bool = True
) -> Device:
    """A declaration's device, masked as its class if it ``has_mask``. Raises UsageError, led by ``where``."""
    name = declaration.name
    kind = class_of(name)
    values = {"id": declaration.id, "index": index_of(name), "name": name}
    usual, masks = find_class(kind).env, find_class(kind).masks
    usual = {key: text for key, text in usual.items() if has_mask or key not in masks}
    templates = usual if declaration.env is None else declaration.env
    cores = parse_cores(declaration.cores, f"{where}.cores") if declaration.cores else ()
    return Device(
        name=name,
        kind=kind,
        identity=declaration.identity or f"{kind} {declaration.id}",
        # a container may see only some of them; others must not get the rest meanwhile
        cores=tuple(core for core in cores if core in settings.cores),
        # its own lock first, then its cores: the same order for everyone
        locks=(
            device_lock(declaration.id, settings.lock_dir),
            *core_locks(cores, settings.lock_dir),
        ),
        env=_fill_env(templates, values, f"{where}.env"),
        mask=next((name for name in masks if name in templates), ""),
        probe=tuple(
            _fill(text, values, f"{where}.probe[{number}]")
            for number, text in enumerate(declaration.probe)
        ),
        probe_limit_s=declaration.probe_limit_s,
    )


def make_simulators(slots: int, lock_dir: Path) -> Iterable[Device]:
    """Slots for simulators: each is a turn, without silicon."""
    for number in range(slots):
        yield Device(
            name=f"sim:{number}",
            kind="sim",
            identity="simulator",
            locks=(str(lock_dir / f"sim-{number}.lock"),),
        )


def _check_name(name: str, place: Place) -> None:
    if NAME.fullmatch(name) is None:
        place.fail(f"{name!r} is not of the form class:which, as in npu:0")
    if not is_declarable(name):
        place.fail(f"devices of class {class_of(name)!r} are not declared one by one")


def _fill_env(
    templates: Mapping[str, str], values: Mapping[str, str], where: str
) -> dict[str, str]:
    for variable in templates:
        if VARIABLE.fullmatch(variable) is None:
            raise UsageError(f"{where}: {variable!r} is not the name of a variable")
    return {
        variable: _fill(text, values, f"{where}.{variable}") for variable, text in templates.items()
    }


def _fill(template: str, values: Mapping[str, str], where: str) -> str:
    """Fill in the values. ``{{`` and ``}}`` are braces."""
    try:
        for _, field, form, conversion in string.Formatter().parse(template):
            if field is not None and (field not in values or form or conversion):
                known = ", ".join(f"{{{name}}}" for name in values)
                raise UsageError(
                    f"{where}: {template!r} holds {{{field}}}; known are {known}", BRACES
                )
    except ValueError as error:
        raise UsageError(f"{where}: {template!r} is not a template: {error}", BRACES) from error
    filled = template.format_map(values)
    if "\0" in filled:
        raise UsageError(f"{where}: a NUL character cannot be passed on")
    return filled
