"""Decodes tables of TOML strictly: an error names file, line, key and what may have been meant."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tileyard.base.model import Record
from tileyard.base.places import Place, Table

LISTED = 8
"""Unknown keys that a message names before it counts the others."""
_PART = re.compile(r"\[([^\]]+)\]|([^.\[]+)")
"""An index or a key in a path of msgspec's."""
_EXPECTED = re.compile(r"^expected `([^`]+)`(?:, got `([^`]+)`)?")
_TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "a table",
}


class Strict(Record, forbid_unknown_fields=True):
    """A table that refuses keys it does not know. Fields of type ``object`` are decoded on their own."""


Decoded = TypeVar("Decoded", bound=Record)


def decode(raw: object, kind: type[Decoded], place: Place) -> Decoded:
    """The table that stands at a place. Raises UsageError with file, line and key."""
    if not isinstance(raw, dict):
        place.fail(f"is not a table but {'a list' if isinstance(raw, list) else repr(raw)}")
    _refuse_unknown(raw, kind, place)
    for name, inner in _find_inner(kind).items():
        found, at = raw.get(name), place / name
        rows = [(one, at / n) for n, one in enumerate(found)] if isinstance(found, list) else []
        for table, where in [*rows, (found, at)]:
            if isinstance(table, dict):
                _refuse_unknown(table, inner, where)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        problem, _, tail = str(error).partition(" - at ")
        keys = _read_path(tail)
        for key in keys:
            place = place / key
        place.fail(_reword(problem), _suggest(problem, kind, keys))


@cache
def _find_inner(kind: type[Record]) -> dict[str, type[Record]]:
    """The keys of a table that hold one with keys of its own, or a list of such tables."""
    hints = get_type_hints(kind).items()
    found = {key: get_args(t)[0] if get_origin(t) is tuple else t for key, t in hints}
    return {k: t for k, t in found.items() if isinstance(t, type) and issubclass(t, Record)}


def _refuse_unknown(raw: Table, kind: type[Record], place: Place) -> None:
    """Raise UsageError that names all unknown keys, and what each may have meant."""
    known = kind.__struct_encode_fields__
    unknown = [key for key in raw if key not in known]
    if not unknown:
        return
    first, *others = unknown
    near = {key: get_close_matches(key, known, n=1) for key in unknown[:LISTED]}
    problem = "unknown key"
    if others:
        more = f" and {len(unknown) - LISTED} more" if len(unknown) > LISTED else ""
        problem += f", and so {'are' if others[1:] else 'is'} {', '.join(unknown[1:LISTED])}{more}"
    meant = ", ".join(
        f"{found[0]!r} for {key!r}" if others else repr(found[0])
        for key, found in near.items()
        if found
    )
    (place / first).fail(
        problem, f"did you mean {meant}?" if meant else f"known are {', '.join(known)}"
    )


def decode_all(rows: Iterable[object], kind: type[Decoded], place: Place) -> tuple[Decoded, ...]:
    """The tables of the list that stands at a place. Raises UsageError."""
    return tuple(decode(raw, kind, place / number) for number, raw in enumerate(rows))


def _suggest(problem: str, kind: type[Record], keys: list[str | int]) -> str:
    """What may have been meant where a key has none of the words that it can have."""
    if not problem.startswith("Invalid enum value") or len(keys) != 1:
        return ""
    words = _find_words(get_type_hints(kind).get(str(keys[0])))
    near = get_close_matches(problem.partition("'")[2].rstrip("'"), words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(words)}"


def _find_words(hint: object) -> list[str]:
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(word.value) for word in hint]
    return [word for part in get_args(hint) for word in _find_words(part)]


def _read_path(tail: str) -> list[str | int]:
    """msgspec's `` `$.a[1].b` `` as keys; of a key that it does not name, nothing."""
    path = tail.strip("`")
    if " in " in path:
        path = path.partition(" in `")[2]
    keys: list[str | int] = []
    for index, key in _PART.findall(path.removeprefix("$")):
        if index and not index.isdigit():
            break
        keys.append(int(index) if index else key)
    return keys


def _reword(problem: str) -> str:
    if "RFC3339 encoded date" in problem:
        return "must be a date such as 2026-12-31"
    if problem.startswith("Object missing required field"):
        return f"misses the key {problem.rpartition(' ')[2]}"
    words = (problem[:1].lower() + problem[1:]).replace("enum value", "value")
    return _EXPECTED.sub(_name_types, words)


def _name_types(found: re.Match[str]) -> str:
    expected, given = (
        " or ".join(_TYPES.get(one, one) for one in kinds.split(" | ") if one != "null")
        for kinds in found.groups("")
    )
    return f"must be {expected}, not {given or 'nothing'}" if found[2] else f"must be {expected}"
