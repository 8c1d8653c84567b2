"""Reads the user's own pipelines from TOML: passes by name in order, each with options.

    architecture = "sm_80"

    [[passes]]
    name = "plan-pipeline"
    architecture = "sm_90a"

Options are the fields of a pass. The file's architecture is the default for all of them.
"""

import dataclasses
from typing import get_type_hints

import msgspec

from tileyard.base.decoding import decode_toml
from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.passes.base import Pass
from tileyard.passes.instructions import ARCHITECTURES
from tileyard.passes.pipeline import FOLLOWS, PASSES


class _File(Record, forbid_unknown_fields=True):
    passes: tuple[dict[str, object], ...]
    architecture: str = ""


def read_pipeline(text: str, file: str, architecture: str = "sm_80") -> tuple[Pass, ...]:
    """The passes in a ``file``'s ``text``, for its ``architecture`` or this. UsageError has file
    and entry.
    """
    try:
        read = msgspec.convert(decode_toml(text), _File)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{file}: {error}") from None
    options: dict[str, object] = {"architecture": read.architecture or architecture}
    found: list[Pass] = []
    for number, entry in enumerate(read.passes, 1):
        name = entry.get("name")
        where = f"{file}: pass {number}"
        if not isinstance(name, str) or name not in PASSES:
            what = f"there is no pass {name!r}" if name else "it has no name"
            raise UsageError(f"{where}: {what}", f"there are {', '.join(PASSES)}")
        where = f"{where}, {name}"
        earlier = [one.name for one in found]
        if name in earlier:
            raise UsageError(f"{where}: it is pass {earlier.index(name) + 1} already")
        missing = [one for one in FOLLOWS.get(name, ()) if one not in earlier]
        if missing:
            raise UsageError(f"{where}: it must follow {missing[0]}")
        found.append(_make(PASSES[name], entry, options, where))
    return tuple(found)


def _make(kind: type[Pass], entry: dict[str, object], known: dict[str, object], where: str) -> Pass:
    types = get_type_hints(kind)
    fields = [f for f in dataclasses.fields(kind) if f.name != "name"]  # type: ignore[arg-type]
    names = [field.name for field in fields]
    options = {key: value for key, value in entry.items() if key != "name"}
    unknown = [key for key in options if key not in names]
    if unknown:
        hint = f"it has {', '.join(names)}" if names else "it has none"
        raise UsageError(f"{where}: there is no option {unknown[0]!r}", hint)
    options = {key: value for key, value in known.items() if key in names} | options
    for key, value in options.items():
        try:
            options[key] = msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            raise UsageError(f"{where}: option {key}: {error}") from None
    if options.get("architecture") not in (None, *ARCHITECTURES):
        raise UsageError(
            f"{where}: there are no rules for architecture {options['architecture']!r}",
            f"there are those of {', '.join(ARCHITECTURES)}",
        )
    return kind(**options)
