"""The tables of a suite file as they are written, decoded strictly: an error names file, line and key."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Literal, TypeVar

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
_PART = re.compile(r"\[([^\]]+)\]|([^.\[]+)")
"""An index or a key in a path of msgspec's."""


class Strict(Record, forbid_unknown_fields=True):
    """A table that refuses keys it does not know. Fields of type ``object`` are decoded on their own."""


class StepTable(Strict):
    """A step. A list in its place is its ``argv``."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    inputs: tuple[Text, ...] = ()
    cwd: str = ""
    limit_s: Seconds | None = None


class BuildTable(StepTable):
    """A build step; ``target`` is what a case needs of it."""

    target: str = ""


class RunTable(StepTable):
    """A run step; ``hot`` is how several cases run in one process."""

    hot: object = None


class HotTable(StepTable, kw_only=True):
    """A process that runs several cases."""

    began: Text
    ended: Text
    verdicts: dict[str, Outcome]


class OutputTable(Strict):
    """A file to compare. What it leaves out is the case's."""

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
    """Limits that take the place of more general ones."""

    elaborate_s: Seconds | None = None
    golden_s: Seconds | None = None
    build_s: Seconds | None = None
    run_s: Seconds | None = None
    memory_bytes: Annotated[int, msgspec.Meta(gt=0, lt=1 << 60)] | None = None


class MeasureTable(Strict):
    """A number that the run step prints, with what that is; or which time ``of`` it counts."""

    of: Literal["cpu_time", "wall_time", "printed"] = "printed"
    pattern: Text | None = None
    unit: Text | None = None
    better: Better | None = None


class CommonTable(Strict):
    """What a suite, a testcase and a case may all say; the narrower one wins."""

    family: str | None = None
    dtype: str | None = None
    tags: tuple[Text, ...] = ()
    eps: Distance | None = None
    rtol: Distance | None = None
    atol: Distance | None = None
    limits: LimitsTable = LimitsTable()
    vars: dict[str, Value] = {}


class StepsTable(CommonTable):
    """What a suite and a testcase may say: the steps. Those of a testcase take the suite's place."""

    build: object = None
    golden: object = None
    run: object = None
    check: object = None
    output: object = None
    measure: object = None
    env: dict[str, str] = {}
    list: object = None


class SuiteTable(StepsTable, kw_only=True):
    """The file itself."""

    name: Name
    include: tuple[Text, ...] = ()
    testcase: tuple[Table, ...] = ()
    policies: dict[str, Table] = {}
    allow: tuple[Table, ...] = ()
    skip: tuple[Table, ...] = ()
    quarantine: tuple[Table, ...] = ()


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
    smoke: bool = False
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    arguments: dict[str, Value] = {}
    config: dict[str, Value] = {}


class ListedCaseTable(CaseTable):
    """A case that a command printed. ``where`` says where it is declared."""

    testcase: str = ""
    where: str = ""


Decoded = TypeVar("Decoded", bound=Record)


def decode(raw: object, kind: type[Decoded], place: Place) -> Decoded:
    """The table that stands at a place. Raises UsageError with file, line and key."""
    if not isinstance(raw, dict):
        place.fail(f"is no table but {'a list' if isinstance(raw, list) else repr(raw)}")
    known = kind.__struct_fields__
    for key in raw:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            meant = f"did you mean {near[0]!r}" if near else f"known are {', '.join(known)}"
            (place / key).fail("unknown key", meant)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        problem, _, tail = str(error).partition(" - at ")
        for key in _read_path(tail):
            place = place / key
        place.fail(_reword(problem))


def decode_all(rows: Iterable[object], kind: type[Decoded], place: Place) -> tuple[Decoded, ...]:
    """The tables of the list that stands at a place. Raises UsageError."""
    return tuple(decode(raw, kind, place / number) for number, raw in enumerate(rows))


def check_name(name: str, place: Place) -> None:
    """Raise UsageError for a name that cannot be a relative path: names become those of folders."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or not name.isprintable() or " " in name:
        place.fail(f"{name!r} is no name: it may hold neither spaces nor empty or dotted parts")


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
    """msgspec's words in those of TOML."""
    if "RFC3339 encoded date" in problem:
        return "is no date of the form 2026-12-31"
    if problem.startswith("Object missing required field"):
        return f"misses the key {problem.rpartition(' ')[2]}"
    words = problem[:1].lower() + problem[1:]
    return words.replace("`object", "`table").replace("array`", "list`")
