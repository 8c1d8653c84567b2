"""Places in files of TOML, with which messages begin: our own scanner finds lines, which parsers lack. Tables
are decoded strictly: an error names file, line, key and what may have been meant.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tileyard.base.decoding import decode_toml
from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.settings import PYPROJECT
from tileyard.base.wording import shorten_path

Table = dict[str, object]
KeyPath = tuple[str | int, ...]
"""Keys and indexes on the way to a value, such as ``("testcase", 2, "run", "argv", 0)``."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# The longest form first: three quotes also begin with one.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class Document:
    """A file: its table, and the line of each key."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError if the file cannot be read or is not TOML."""
        self.path = path
        self.folder = path.parent
        try:
            self._text = path.read_text(encoding="utf-8")
            self.table: Table = decode_toml(self._text)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is not UTF-8") from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}: is not valid TOML: {error}") from error

    @cached_property
    def lines(self) -> dict[KeyPath, int]:
        """The line of each key."""
        return key_lines(self._text.replace("\r\n", "\n"))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a file, for messages. ``note`` is added, as for a listed case."""

    document: Document
    keys: KeyPath = ()
    note: str = ""

    def __truediv__(self, key: str | int) -> "Place":
        """The place below a key or an index."""
        return Place(document=self.document, keys=(*self.keys, key), note=self.note)

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.document.path}:{self._line()}"

    @property
    def key(self) -> str:
        """The key in the user's notation, with indexes in brackets."""
        parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys]
        return "".join(parts).removeprefix(".")

    def fail(self, problem: str, hint: str = "") -> NoReturn:
        """Raise UsageError with the place, the key and the problem."""
        parts = [self.where, self.key, self.note, problem]
        raise UsageError(": ".join(part for part in parts if part), hint)

    def _line(self) -> int:
        lines = self.document.lines
        # What is in no file, such as rows that a command printed, has the line of its origin.
        for length in range(len(self.keys), 0, -1):
            if self.keys[:length] in lines:
                return lines[self.keys[:length]]
        return 1


def open_tables(path: Path) -> tuple[Table, Place]:
    """A file's tables, of ``pyproject.toml`` its ``[tool.tileyard]``, and their place. Raises UsageError."""
    document = Document(Path(shorten_path(str(path))))
    place, table = Place(document=document), document.table
    for word in ("tool", "tileyard") if path.name == PYPROJECT else ():
        inner = table.get(word)
        place, table = place / word, inner if isinstance(inner, dict) else {}
    return table, place


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, on which each table, key and element of an array of ``text`` begins."""
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.lines


@dataclass
class _Scanner:
    text: str
    at: int = 0
    lines: dict[KeyPath, int] = field(default_factory=dict)
    _counted: int = 0
    _line: int = 1
    _counts: dict[KeyPath, int] = field(default_factory=dict)

    def scan(self) -> None:
        """Read the whole document."""
        prefix: KeyPath = ()
        self._take(_BLANK)
        while self.at < len(self.text):
            if self._is_next("["):
                prefix = self._header()
            else:
                self._pair(prefix)
            self._take(_BLANK)

    def _header(self) -> KeyPath:
        line = self._here()
        is_array = self._is_next("[[")
        self.at += 2 if is_array else 1
        keys = self._keys()
        self.at += 2 if is_array else 1
        path: KeyPath = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            self.lines.setdefault(path, line)
            if is_array and number == len(keys) - 1:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                # A name in a header refers to the array's last table so far.
                path = (*path, self._counts[path] - 1)
        # A table that dotted names made before begins at its header.
        self.lines[path] = line
        return path

    def _pair(self, prefix: KeyPath) -> None:
        line = self._here()
        path = prefix
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.at += 1  # the equals sign
        self._take(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        """A dotted key, up to what follows it."""
        keys = []
        while True:
            self._take(_SPACE)
            if self._is_next('"') or self._is_next("'"):
                keys.append(str(decode_toml(f"key = {self._take(_STRING)}")["key"]))
            else:
                keys.append(self._take(_BARE_KEY))
            self._take(_SPACE)
            if not self._is_next("."):
                return keys
            self.at += 1

    def _value(self, path: KeyPath) -> None:
        self.lines.setdefault(path, self._here())
        if self._is_next("["):
            for number in self._elements("]"):
                self._value((*path, number))
        elif self._is_next("{"):
            for _ in self._elements("}"):
                self._pair(path)
        elif self._is_next('"') or self._is_next("'"):
            self._take(_STRING)
        else:
            self._take(_SCALAR)

    def _elements(self, end: str) -> Iterator[int]:
        """Stop at each element of an array or inline table, which the caller skips; yields their numbers."""
        self.at += 1
        self._take(_BLANK)
        number = 0
        while not self._is_next(end):
            if self._is_next(","):
                self.at += 1
            else:
                yield number
                number += 1
            self._take(_BLANK)
        self.at += 1

    def _is_next(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise AssertionError(f"no TOML at line {self._here()}")
        self.at = found.end()
        return found.group()

    def _here(self) -> int:
        """The current line; the walk only goes forward, so each line is counted once."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line


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
