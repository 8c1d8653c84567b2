"""Defaults of options from the project's file: which options have one, and where it is written. Order:
command line, environment variable, table of the verb, top level of the file. Without typer, for ``lease``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from tileyard.base.settings import DECLARED, find_project_file
from tileyard.base.wording import find_similar

if TYPE_CHECKING:
    from tileyard.base.places import Place

PATHS = {"FILE", "DIR"}
"""Metavars of options whose value is a path."""
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")

Kind: TypeAlias = Literal["switch", "list", "whole", "number", "text"]
VerbPath: TypeAlias = tuple[str, ...]
"""The words that name a verb, as in ``("ci", "matrix")``."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """An option: its parameter, flags, possible values, flags that turn a switch off
    (``negations``), and the environment ``variable`` that sets it.
    """

    name: str
    flags: tuple[str, ...]
    negations: tuple[str, ...] = ()
    kind: Kind
    choices: tuple[str, ...] = ()
    least: float | None = None
    metavar: str = ""
    variable: str = ""

    @property
    def key(self) -> str:
        """Its name in the file: its first long flag, without dashes."""
        return next(flag for flag in self.flags if flag.startswith("--")).removeprefix("--")

    @property
    def all_flags(self) -> tuple[str, ...]:
        """All flags that set it on the command line."""
        return (*self.flags, *self.negations)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A default of the file for a verb: its option, its value as typer takes it, and its place."""

    known: Known
    value: object
    place: "Place"

    @property
    def where(self) -> str:
        """``file:line``."""
        return self.place.where

    @property
    def line(self) -> int:
        """The line in the file."""
        return int(self.where.rpartition(":")[2])

    @property
    def key(self) -> str:
        """The key in the file, after the name of our table."""
        return self.place.key.removeprefix("tool.tileyard.").replace("_", "-")


Verbs: TypeAlias = Mapping[VerbPath, Mapping[str, Known]]
"""The options of each verb by their keys."""


@dataclass
class Defaults:
    """The defaults of a file, by verb and key, without those that an environment variable replaces."""

    file: Path | None = None
    of: dict[VerbPath, dict[str, Setting]] = field(default_factory=dict)
    _dropped: set[str] = field(default_factory=set)

    def as_map(self) -> dict[str, Any]:
        """The defaults in typer's form: by the words that name a verb, then by parameter."""
        found: dict[str, Any] = {}
        for path, settings in self.of.items():
            inner = found
            for word in path:
                inner = inner.setdefault(word, {})
            inner.update(
                (one.known.name, one.value)
                for one in settings.values()
                if one.known.key not in self._dropped
            )
        return found

    def drop(self, flag: str, arguments: Sequence[str]) -> bool:
        """Drop a default that has no effect on the requested command; False if it is not the file's."""
        for setting in self._used(arguments):
            if flag in setting.known.all_flags:
                self._dropped.add(setting.known.key)
                return True
        return False

    def explain(self, message: str, arguments: Sequence[str]) -> str:
        """A message, with the place of each option that it names and the file sets."""
        named = set(_FLAG.findall(message))
        places = [
            f"{setting.known.flags[0]} is set in {setting.where}"
            for setting in self._used(arguments)
            if named & {*setting.known.all_flags}
        ]
        return f"{message} ({'; '.join(places)})" if places else message

    def _used(self, arguments: Sequence[str]) -> Iterator[Setting]:
        given = {argument.partition("=")[0] for argument in arguments}
        path = max((path for path in self.of if path == (*arguments[: len(path)],)), default=())
        for setting in self.of.get(path, {}).values():
            if setting.known.key not in self._dropped and given.isdisjoint(setting.known.all_flags):
                yield setting


def read_defaults(environ: Mapping[str, str], cwd: Path, verbs: Verbs) -> Defaults:
    """The defaults of the project's file for some verbs, or all: only then are unknown verbs
    refused. Raises UsageError, with file, line and key, for an unknown name or an invalid value.
    """
    path = find_project_file(environ.get("TILEYARD_CONFIG", ""), cwd)
    if path is None:
        return Defaults()
    from tileyard.base.places import open_tables  # a lease without a file does not pay for it

    table, root = open_tables(path)
    reader = _Reader(path.parent, verbs, is_whole=len(verbs) > 1)
    of = reader.read(table, root)
    for settings in of.values():
        for key in [key for key, one in settings.items() if environ.get(one.known.variable)]:
            del settings[key]
    return Defaults(file=path, of=of)


@dataclass(frozen=True)
class _Reader:
    folder: Path
    verbs: Verbs
    is_whole: bool

    def read(self, table: dict[str, object], root: "Place") -> dict[VerbPath, dict[str, Setting]]:
        """A table's settings for each verb."""
        own = {key: value for key, value in table.items() if key not in DECLARED}
        tables = {key: value for key, value in own.items() if isinstance(value, dict)}
        plain = {key: value for key, value in own.items() if key not in tables}
        for key, value in plain.items():
            if isinstance(value, list) and any(isinstance(one, dict) for one in value):
                near = DECLARED.get(find_similar(key, DECLARED))
                (root / key).fail("unknown table", f"write {near}" if near else "")
        of = {
            path: self._settings(plain, root, path, known, is_shared=True)
            for path, known in self.verbs.items()
        }
        if self.is_whole:
            everything = [one for known in self.verbs.values() for one in known.values()]
            for key in plain:
                if not any(one.key == key.replace("_", "-") for one in everything):
                    self._refuse(root / key, key, {**_spellings(everything), **DECLARED})
        for key, value in tables.items():
            self._read_verb((key,), value, root / key, of)
        return of

    def _read_verb(
        self,
        path: VerbPath,
        table: dict[str, object],
        place: "Place",
        of: dict[VerbPath, dict[str, Setting]],
    ) -> None:
        inner = self._list_inner(path)
        if path not in self.verbs and not inner:
            if self.is_whole:
                words = {other[0] for other in self.verbs}
                names = {word: f"[{word}]" for word in words}
                self._refuse(place, path[-1], {**names, **DECLARED})
            return
        known = self.verbs.get(path, {})
        plain = {key: value for key, value in table.items() if key not in inner}
        of.setdefault(path, {}).update(self._settings(plain, place, path, known, is_shared=False))
        for key in inner & table.keys():
            value = table[key]
            if not isinstance(value, dict):
                (place / key).fail(f"tileyard {' '.join((*path, key))} takes a table")
            self._read_verb((*path, key), value, place / key, of)

    def _list_inner(self, path: VerbPath) -> set[str]:
        """The verbs below a word, such as those below ``ci``."""
        return {other[-1] for other in self.verbs if other[:-1] == path}

    def _settings(
        self,
        table: Mapping[str, object],
        place: "Place",
        path: VerbPath,
        known: Mapping[str, Known],
        *,
        is_shared: bool,
    ) -> dict[str, Setting]:
        """A verb's options among the keys of a table; other verbs' keys are allowed if it is shared."""
        found: dict[str, Setting] = {}
        for key, value in table.items():
            one = known.get(key.replace("_", "-"))
            if one is None:
                if not is_shared:
                    words = {
                        word: f"[{'.'.join((*path, word))}]" for word in self._list_inner(path)
                    }
                    self._refuse(place / key, key, {**_spellings(known.values()), **words}, path)
                continue
            if one.key in found:
                (place / key).fail("is given twice")
            found[one.key] = Setting(
                known=one, value=self._convert(one, value, place / key), place=place / key
            )
        return found

    def _refuse(
        self, place: "Place", key: str, names: Mapping[str, str], path: VerbPath = ()
    ) -> NoReturn:
        near = names.get(find_similar(key.replace("_", "-"), names), "")
        words = " ".join(("tileyard", *(path or ("VERB",))))
        problem = f"{words} has no such option" if path else "unknown key"
        place.fail(problem, f"there is {near}" if near else f"`{words} --help` lists the options")

    def _convert(self, known: Known, value: object, place: "Place") -> object:
        """The value in typer's form. Raises UsageError."""
        numbers = (int, float) if known.kind == "number" else int
        if known.kind == "switch":
            if not isinstance(value, bool):
                place.fail(f"must be true or false, not {value!r}")
            return value
        if known.kind == "list":
            items = value if isinstance(value, list) else [value]
            if not all(_is_text(item) for item in items):
                place.fail(f"must be a list of texts, not {value!r}")
            return [self._path(known, str(item)) for item in items]
        if known.kind != "text":
            if not isinstance(value, numbers) or isinstance(value, bool):
                kind = "a number" if known.kind == "number" else "a whole number"
                place.fail(f"must be {kind}, not {value!r}")
            if known.least is not None and value < known.least:
                place.fail(f"{value} is less than {known.least:g}")
            return value
        if not _is_text(value):
            place.fail(f"must be text, not {value!r}")
        if known.choices and value not in known.choices:
            place.fail(f"must be one of {', '.join(known.choices)}, not {value!r}")
        return self._path(known, str(value))

    def _path(self, known: Known, text: str) -> str:
        """A value; a relative path is relative to the folder of the file, and ``-`` stays."""
        kinds = set(known.metavar.split("|"))
        path = self.folder / text
        is_path = kinds <= {*PATHS, "-"} or (bool(kinds & PATHS) and path.exists())
        return str(path) if text not in ("", "-") and is_path else text


def _is_text(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _spellings(known: Iterable[Known]) -> dict[str, str]:
    options = list(known)
    off = {flag: f"{one.key} = false" for one in options for flag in one.negations}
    on = {flag: one.key for one in options for flag in one.flags}
    return {flag.lstrip("-"): text for flag, text in (off | on).items()}
