"""Finds targets by name, built-in ones and those of plugins. Each is loaded at its first use."""

import importlib
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from tileyard.base.errors import UsageError
from tileyard.base.model import Device

if TYPE_CHECKING:
    from tileyard.targets.base import Target

PROGRAM_FILE = "program.tile"
"""The file with the Program's text, which every artifact contains beside its target's files."""
COMMAND = "command"
"""The target of cases that are programs."""
BUILT_IN: dict[str, str] = {
    "cpu": "tileyard.targets.cpu.target:CpuTarget",
    "cuda": "tileyard.targets.cuda.target:CudaTarget",
    COMMAND: "tileyard.targets.command.target:CommandTarget",
}
"""Target names, each with its ``module:Class``. The module ``needs`` beside it holds its NEEDS."""
DEFAULT_TARGET = "cpu"


class Needs(NamedTuple):
    """The devices and options that a target needs, and what can be shown of its artifacts.

    ``device_class`` is the default class of devices. Artifacts of a target that ``is_bound`` run on no
    device of another target's class. If it ``loads_ahead``, artifacts can be loaded before their device is
    held. ``takes_level`` and ``takes_debug``: a CPU level, and ``debug=1``, may follow the name.
    ``is_timed_by_policy``: launches can be timed with a flushed cache, and as graphs. ``takes_pipelines``:
    it accepts our pipelines of passes. ``uses_all_cores``: a build starts threads of its own.

    ``emits`` maps the words of ``--emit`` to the files of the texts that it generates. ``figures`` are those
    that its compilers report of a binary, as limits name them; None if that is not known ahead.
    ``facts`` are the numbers of a binary, known once it is built, that a study can bound; None likewise.
    ``has_launch_record``: an artifact's details are those of ``targets.cuda.records``.

    ``fit`` names a function of the target's name and a device that raises UsageError if artifacts do not run
    there; empty for none. ``native`` names one of a device that returns the text after the colon for it, if
    the target requires one; ``spelling`` one of the target's name that returns the one to record, if options
    have several spellings; ``shift`` one of the target's name that returns the targets that build the same
    code at other places in memory. ``sanitizes`` is the option after the name for sanitized builds, whose
    times say nothing; empty for none. ``units`` names a function of a device that returns how many blocks
    run there side by side; empty for 1.
    """

    device_class: str = "cpu"
    is_bound: bool = True
    loads_ahead: bool = False
    takes_level: bool = False
    takes_debug: bool = False
    is_timed_by_policy: bool = False
    takes_pipelines: bool = False
    uses_all_cores: bool = False
    emits: Mapping[str, str] = {}
    figures: tuple[str, ...] | None = ()
    facts: tuple[str, ...] | None = ()
    has_launch_record: bool = False
    fit: str = ""
    native: str = ""
    spelling: str = ""
    shift: str = ""
    sanitizes: str = ""
    units: str = ""


OF_PLUGINS = Needs(is_bound=False, is_timed_by_policy=True, figures=None, facts=None)
"""The needs of a plugin's target: it runs on any device that is named for it."""
OF_SIMULATORS = OF_PLUGINS._replace(device_class="sim")
"""The needs of a plugin's target called ``sim``."""


def find_needs(target: str) -> Needs:
    """The needs of the target of this name. An unknown name is taken for a plugin's."""
    base = target.partition(":")[0]
    if base not in BUILT_IN:
        return OF_SIMULATORS if base == OF_SIMULATORS.device_class else OF_PLUGINS
    package = BUILT_IN[base].rpartition(".")[0]
    needs: Needs = importlib.import_module(f"{package}.needs").NEEDS
    return needs


def count_units(target: str, device: Device) -> int:
    """The number of cores, or multiprocessors, of a device that run the blocks of a launch."""
    count = find_needs(target).units
    return max(resolve_name(count)(device), 1) if count else 1


def spell_target(target: str) -> str:
    """The target's name as recorded, the same for all spellings of its options. Raises UsageError."""
    spelling = find_needs(target).spelling
    return str(resolve_name(spelling)(target)) if spelling else target


def list_shifted(target: str) -> tuple[str, ...]:
    """Targets that build the same code at other places in memory; none if the target has no such variants."""
    shift = find_needs(target).shift
    return tuple(resolve_name(shift)(target)) if shift else ()


def is_timed(target: str) -> bool:
    """Whether the times of a target's builds say anything about the kernel: not those of sanitized ones."""
    mark = find_needs(target).sanitizes
    return not mark or mark not in target.partition(":")[2].split(",")


def list_texts() -> dict[str, str]:
    """The generated texts of all targets: words of ``--emit``, each with its file in an artifact."""
    texts = {"program": PROGRAM_FILE}
    for name in BUILT_IN:
        texts.update(find_needs(name).emits)
    return texts


def make_target(name: str, plugins: Mapping[str, str]) -> "Target":
    """The target called ``name``; text after a colon, as in ``cpu:x86-64-v3``, goes to its class.
    ``plugins`` maps further names to ``module:Class``. Raises UsageError for an unknown name, or a
    plugin that cannot be loaded.
    """
    base, _, option = name.partition(":")
    known = {**BUILT_IN, **plugins}
    if base not in known:
        raise UsageError(
            f"there is no target {name}", hint=f"known targets: {', '.join(sorted(known))}"
        )
    module, _, attribute = known[base].partition(":")
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"target {base} cannot be loaded from {known[base]}: {error}") from error
    target: Target = make(option) if option else make()
    return target
