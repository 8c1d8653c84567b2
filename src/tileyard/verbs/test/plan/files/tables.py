"""The tables of a suite file as they are written, decoded strictly: an error names file, line and key."""

from typing import Annotated, Literal

import msgspec

from tileyard.base.clock import LONGEST_S
from tileyard.base.decoding import Text
from tileyard.base.model import Better, NanPolicy, Outcome, Value
from tileyard.base.places import Place, Strict, Table

Name = Annotated[str, msgspec.Meta(max_length=200)]
Shape = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)]
Distance = Annotated[float, msgspec.Meta(ge=0)]
EnvTable = dict[str, str | Table] | tuple[str, ...]
"""Variables that are set, or a list: ``NAME`` for one passed on, ``NAME=text`` for one that is set."""


class VariableTable(Strict):
    """A variable for some kinds of steps; without a ``value`` it is passed on."""

    steps: Annotated[
        tuple[Literal["build", "golden", "run", "check", "list"], ...], msgspec.Meta(min_length=1)
    ]
    value: str | None = None


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
    """A build step; ``target`` is the part that a case needs, which depends on ``target_inputs`` besides
    ``inputs``; its files are ``products`` in ``{cache}``, not those in ``{out}``.
    """

    target: str = ""
    target_inputs: tuple[Text, ...] = ()
    products: tuple[Text, ...] = ()


class GoldenTable(StepTable):
    """A golden step; ``part`` of its result is a case's, as links unless ``link`` is set otherwise."""

    part: str = ""
    link: bool | None = None


class RunTable(StepTable):
    """A run or check step; ``hot`` is how one process does it for several cases."""

    hot: object = None


class HotTable(StepTable, kw_only=True):
    """A process that runs or checks several cases."""

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
    """A number that the run step prints, described; or ``of``: which of the step's times counts."""

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
    belongs: tuple[Table, ...] = ()
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


def check_name(name: str, place: Place) -> None:
    """Raise UsageError for a name that cannot be a relative path: names become those of folders."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or not name.isprintable() or " " in name:
        place.fail(f"{name!r} is not a name: it may hold neither spaces nor empty or dotted parts")
