"""The tables of a suite file as they are written, decoded strictly: an error names file, line and key.

One module because the tables and the words for what is wrong with them change together.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Annotated, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tileyard.clock import LONGEST_S
from tileyard.decoding import Text
from tileyard.measures import Better
from tileyard.model import NanPolicy, Outcome, Record, Value
from tileyard.suite.files.places import Place, Table

Name = Annotated[str, msgspec.Meta(max_length=200)]
Shape = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)]
Distance = Annotated[float, msgspec.Meta(ge=0)]
LISTED = 8
"""Number of unknown keys that a message names before it counts the others."""
EnvTable = dict[str, str] | tuple[str, ...]
"""Variables that are set, or as a list ``NAME`` for one that is passed on and ``NAME=text`` for one that is set."""
_EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]*)`(?P<limit>.*?)(, got `(?P<got>[^`]*)`)?")
_KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "a table",
}
"""What msgspec calls kinds of values, in the words of messages."""
_PART = re.compile(r"\[([^\]]+)\]|([^.\[]+)")
"""An index or a key in a path of msgspec's."""


class Strict(Record, forbid_unknown_fields=True):
    """A table that refuses keys it does not know. Fields of type ``object`` are decoded on their own."""


class StepTable(Strict):
    """A step. A list in its place is its ``argv``."""

    argv: tuple[str, ...]
    env: EnvTable = {}
    inherit: bool | None = None
    runs: tuple[Text, ...] | None = None
    version: object = None
    inputs: tuple[Text, ...] = ()
    cwd: str = ""
    limit_s: Seconds | None = None


class BuildTable(StepTable):
    """A build step; ``target`` is the part that a case needs, and depends on ``target_inputs`` besides ``inputs``."""

    target: str = ""
    target_inputs: tuple[Text, ...] = ()


class GoldenTable(StepTable):
    """A golden step; ``part`` is the part of its result that a case gets, as links unless ``link`` is set otherwise."""

    part: str = ""
    link: bool | None = None


class RunTable(StepTable):
    """A run step; ``hot`` is how several cases run in one process."""

    hot: object = None


class HotTable(StepTable, kw_only=True):
    """A process that runs several cases."""

    began: Text
    ended: Text
    verdicts: dict[str, Outcome]


class OutputTable(Strict):
    """A file to compare. Fields that it leaves out are the case's."""

    file: Text
    golden: Text
    dtype: str = ""
    shape: Shape | str | None = None
    valid_shape: Shape | str | None = None
    eps: Distance | None = None
    rtol: Distance | None = None
    atol: Distance | None = None
    nan: NanPolicy = "equal"


class LimitsTable(Strict):
    """Limits that replace more general ones."""

    elaborate_s: Seconds | None = None
    golden_s: Seconds | None = None
    build_s: Seconds | None = None
    run_s: Seconds | None = None
    memory_bytes: Annotated[int, msgspec.Meta(gt=0, lt=1 << 60)] | None = None


class MeasureTable(Strict):
    """A number that the run step prints, with its description; or ``of``: which of the step's times counts."""

    of: Literal["cpu_time", "wall_time", "printed"] = "printed"
    pattern: Text | None = None
    unit: Text | None = None
    better: Better | None = None


class CommonTable(Strict):
    """Fields that a suite, a testcase and a case may all have; the narrower one wins."""

    family: str | None = None
    dtype: str | None = None
    tags: tuple[Text, ...] = ()
    eps: Distance | None = None
    rtol: Distance | None = None
    atol: Distance | None = None
    limits: LimitsTable = LimitsTable()
    devices: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    vars: dict[str, Value] = {}


class StepsTable(CommonTable):
    """Fields of a suite and a testcase: the steps. Those of a testcase replace the suite's."""

    build: object = None
    golden: object = None
    run: object = None
    check: object = None
    output: object = None
    measure: object = None
    env: EnvTable = {}
    inherit: bool | None = None
    list: object = None


class SuiteTable(StepsTable, kw_only=True):
    """The file itself."""

    name: Name
    python: Text | None = None
    parameters: dict[str, tuple[Value, ...]] = {}
    env_from: Text | None = None
    include: tuple[Text, ...] = ()
    testcase: tuple[Table, ...] = ()
    policies: dict[str, Table] = {}
    allow: tuple[Table, ...] = ()
    skip: tuple[Table, ...] = ()
    quarantine: tuple[Table, ...] = ()
    require: object = None


class TestcaseTable(StepsTable, kw_only=True):
    """One ``[[testcase]]``: of programs, or with ``file`` of kernels."""

    name: Name
    case: tuple[Table, ...] = ()
    file: str = ""
    kernel: str = ""
    reference: str = ""
    arguments: dict[str, Value] = {}
    config: dict[str, Value] = {}


class CaseTable(CommonTable, kw_only=True):
    """One case. ``shape`` is that of its data; of a kernel, the name of a set of arguments."""

    name: Name
    shape: Shape | str = ()
    valid_shape: Shape = ()
    smoke: bool | Literal["only"] = False
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    arguments: dict[str, Value] = {}
    config: dict[str, Value] = {}


class ListedCaseTable(CaseTable):
    """A case that a command printed. ``where`` is the place of its declaration."""

    testcase: str = ""
    where: str = ""


Decoded = TypeVar("Decoded", bound=Record)


def decode(raw: object, kind: type[Decoded], place: Place) -> Decoded:
    """The table at a place. Raises UsageError with file, line and key."""
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
        words = _reword(problem)
        if keys and str(keys[-1]).endswith("_s"):
            words = words.replace("a number", "a number of seconds")
        place.fail(words, _suggest(problem, kind, keys))


@cache
def _find_inner(kind: type[Record]) -> dict[str, type[Record]]:
    """The keys of a table whose value is a table with keys of its own, or a list of such tables."""
    hints = get_type_hints(kind).items()
    found = {key: get_args(t)[0] if get_origin(t) is tuple else t for key, t in hints}
    return {k: t for k, t in found.items() if isinstance(t, type) and issubclass(t, Record)}


def _refuse_unknown(raw: Table, kind: type[Record], place: Place) -> None:
    """Raise UsageError that names all unknown keys of a table, and the probable meaning of each."""
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
    """The tables of the list at a place. Raises UsageError."""
    return tuple(decode(raw, kind, place / number) for number, raw in enumerate(rows))


def check_name(name: str, place: Place) -> None:
    """Raise UsageError for a name that cannot be a relative path: names become those of folders."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or not name.isprintable() or " " in name:
        place.fail(f"{name!r} is not a name: it may hold neither spaces nor empty or dotted parts")


def _suggest(problem: str, kind: type[Record], keys: list[str | int]) -> str:
    """The probable meaning if the value of a key is none of the allowed words."""
    if not problem.startswith("Invalid enum value") or len(keys) != 1:
        return ""
    words = _find_words(get_type_hints(kind).get(str(keys[0])))
    near = get_close_matches(problem.partition("'")[2].rstrip("'"), words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(words)}"


def _find_words(hint: object) -> list[str]:
    """The words of a type that is, or has among its parts, a Literal or an enum."""
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(word.value) for word in hint]
    return [word for part in get_args(hint) for word in _find_words(part)]


def _read_path(tail: str) -> list[str | int]:
    """msgspec's `` `$.a[1].b` `` as keys; empty for a key that it does not name."""
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
    """msgspec's message in the terms of TOML."""
    if "RFC3339 encoded date" in problem:
        return "must be a date such as 2026-12-31"
    if problem.startswith("Object missing required field"):
        return f"misses the key {problem.rpartition(' ')[2]}"
    if found := _EXPECTED.fullmatch(problem):
        got = f", not {_name_kinds(found['got'])}" if found["got"] else ""
        wanted = _name_kinds(found["kinds"]).replace("a list", "a list such as [...]")
        return f"needs {wanted}{found['limit']}{got}"
    words = problem[:1].lower() + problem[1:]
    return words.replace("`object", "`table").replace("enum value", "value")


def _name_kinds(kinds: str) -> str:
    """msgspec's ``float | null`` in words: what may be left out is not named."""
    words = [_KINDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null"] or ["nothing"]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
