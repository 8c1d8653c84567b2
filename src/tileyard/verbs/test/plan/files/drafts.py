"""The state of a suite while it is read: combined tables, cases, and open questions."""

import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from tileyard.artifacts.compat import Prerequisites, find_fault
from tileyard.base.errors import UsageError
from tileyard.base.model import (
    PLACES,
    WHOLE,
    BuildPart,
    CommandWork,
    HotRun,
    KernelWork,
    Limits,
    Measure,
    OutputCheck,
    Step,
    Tolerance,
)
from tileyard.base.places import Document, Place, decode
from tileyard.base.quarantine import Quarantine
from tileyard.base.wording import count_of
from tileyard.devices.base import NAME
from tileyard.devices.classes import CLASSES
from tileyard.verbs.test.plan.choosing import canonical_dtype, is_about, nearest
from tileyard.verbs.test.plan.files.parameters import InputFiles, show_value
from tileyard.verbs.test.plan.files.steps import (
    OF_TESTCASE,
    BuildPlan,
    Env,
    GoldenPlan,
    HotPlan,
    StepPlan,
    Text,
    join_env,
    read_env,
    read_late_step,
    read_pattern,
    read_text,
)
from tileyard.verbs.test.plan.files.tables import (
    CaseTable,
    CommonTable,
    ListedCaseTable,
    MeasureTable,
    OutputTable,
    Shape,
    StepsTable,
    TestcaseTable,
    check_name,
)
from tileyard.verbs.test.result.result import Belonging, Policy, Rule, Suite, SuiteCase

TAKEN = frozenset(
    {*PLACES, "suite", "python", "testcase", "case", "dtype", "shape", "valid_shape", "seed"}
)
"""Names in templates that a case's own ``vars`` cannot have."""
UNSTATED = 0
"""Memory if a suite does not state it: programs then have no limit, kernels the usual one."""
Level = tuple[StepsTable, Place]
"""A table that may name steps, and its place."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """The combined settings of a case, from wide tables to narrow ones."""

    family: str = ""
    dtype: str = ""
    tags: tuple[str, ...] = ()
    tolerance: Tolerance | None = None
    limits: Limits = field(default_factory=partial(Limits, memory_bytes=UNSTATED))
    devices: int = 1
    vars: dict[str, str] = field(default_factory=dict)

    def narrowed(self, table: CommonTable, place: Place) -> "Common":
        """These settings with the additions and replacements of a narrower table."""
        for name in table.vars:
            if name in TAKEN or not name.isidentifier():
                (place / "vars" / name).fail(
                    "is not a name" if name not in TAKEN else "has another meaning already"
                )
        limits = msgspec.structs.asdict(table.limits)
        stated = {name: value for name, value in limits.items() if value is not None}
        texts = {name: show_value(value) for name, value in table.vars.items()}
        return Common(
            family=self.family if table.family is None else table.family,
            dtype=self.dtype if table.dtype is None else table.dtype,
            tags=tuple(dict.fromkeys((*self.tags, *table.tags))),
            tolerance=read_tolerance(table, place) or self.tolerance,
            limits=msgspec.structs.replace(self.limits, **stated),
            devices=table.devices or self.devices,
            vars={**self.vars, **texts},
        )


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a file's steps get beside its tables: a script's variables, parameters; ``files`` finds inputs."""

    env: Env
    parameters: frozenset[str]
    files: InputFiles


@dataclass(frozen=True, kw_only=True)
class KernelFile:
    """Kernels without listed cases: one case per kernel, or only that of ``work``, and per shape. With an
    empty ``testcase`` each kernel is a testcase of its own.
    """

    where: str
    work: KernelWork
    testcase: str = ""
    common: Common


@dataclass(kw_only=True)
class Draft:
    """A suite as far as its files define it; authors are still to be asked about ``kernel_files``. ``texts``
    are those with which each policy, or file, names cases, and their places.
    """

    name: str
    path: Path
    folder: Path
    cases: list[SuiteCase | KernelFile] = field(default_factory=list)
    policies: dict[str, Policy] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    texts: dict[str, list[tuple[str, Place]]] = field(default_factory=dict)
    allow: list[Rule] = field(default_factory=list)
    skip: list[Rule] = field(default_factory=list)
    quarantine: list[Quarantine] = field(default_factory=list)
    require: Prerequisites = field(default_factory=Prerequisites)
    belongs: list[Belonging] = field(default_factory=list)

    def finish(self, cases: Iterable[SuiteCase]) -> Suite:
        """The suite with these cases. Raises UsageError for two of one name, or a policy without one."""
        known: dict[str, SuiteCase] = {}
        for case in cases:
            first = known.setdefault(case.id, case)
            if first is not case:
                raise UsageError(
                    f"{case.where}: case {case.id} appears twice, also at {first.where}"
                )
        if not known:
            raise UsageError(f"{self.path}: has no case")
        for text, place in (one for texts in self.texts.values() for one in texts):
            # With another value of a parameter it may match some.
            if not (self.parameters and "@" in text):
                refuse_idle(text, tuple(known.values()), place)
        return Suite(
            name=self.name,
            path=str(self.path),
            folder=str(self.folder),
            cases=tuple(known.values()),
            policies=self.policies,
            parameters=self.parameters,
            allow=tuple(self.allow),
            skip=tuple(self.skip),
            quarantine=tuple(self.quarantine),
            require=self.require,
            belongs=tuple(self.belongs),
        )


def refuse_idle(text: str, cases: Sequence[SuiteCase], place: Place) -> None:
    """Raise UsageError for a text of a policy that matches none of the cases."""
    if not any(is_about(text, case) for case in cases):
        near = nearest(text, cases)
        hint = f"did you mean {' or '.join(near)}?" if near else ""
        place.fail(f"{text!r} matches none of the {count_of(len(cases), 'case')}", hint)


def make_case(
    testcase: str, row: CaseTable, common: Common, work: CommandWork | KernelWork, place: Place
) -> SuiteCase:
    """A case from its row. Raises UsageError for an invalid name."""
    check_name(row.name, place / "name")
    where = row.where if isinstance(row, ListedCaseTable) else ""
    return SuiteCase(
        testcase=testcase,
        name=f"{row.name}{work.variant if isinstance(work, CommandWork) else ''}",
        work=work,
        family=common.family or testcase,
        dtype=common.dtype,
        shape=row.shape if not isinstance(row.shape, str) else (),
        tags=common.tags,
        smoke=bool(row.smoke),
        only_smoke=row.smoke == "only",
        seed=find_seed(row),
        limits=common.limits if isinstance(work, CommandWork) else limit_kernel(common.limits),
        where=where or place.where,
    )


def limit_kernel(stated: Limits) -> Limits:
    """The limits of a case that is a kernel."""
    if stated.memory_bytes != UNSTATED:
        return stated
    return msgspec.structs.replace(stated, memory_bytes=Limits().memory_bytes)


def find_seed(row: CaseTable) -> int:
    """The seed of a case's data: the stated one, otherwise the crc32 of its name."""
    return binascii.crc32(row.name.encode()) if row.seed is None else row.seed


# ---- cases of programs --------------------------------------------------------------------------


class OutputPlan:
    """A comparison whose templates are parsed."""

    def __init__(self, raw: object, place: Place) -> None:
        self._table = decode(raw, OutputTable, place)
        self._place = place
        self._file = read_text(self._table.file, place / "file")
        self._golden = read_text(self._table.golden, place / "golden")
        self._dtype = read_text(self._table.dtype or "{dtype}", place / "dtype")
        self._tolerance = read_tolerance(self._table, place)
        self._shape = _read_shape(self._table.shape, place / "shape")
        self._valid_shape = _read_shape(self._table.valid_shape, place / "valid_shape")

    def fill(
        self,
        values: Mapping[str, str],
        shapes: tuple[Shape, Shape],
        tolerance: Tolerance | None,
        case: Place,
    ) -> OutputCheck:
        """The comparison for a case; ``shapes`` are its shape and the valid part of it."""
        shape = _fill_shape(self._shape, values)
        valid = _fill_shape(self._valid_shape, values)
        said_by = self._place
        if shape is None:
            if not shapes[0]:
                (self._place / "shape").fail(f"no shape is known for {case.where}")
            if valid is None:
                valid, said_by = shapes[1], case
            shape = shapes[0]
        valid = valid or ()
        if valid and (
            len(valid) != len(shape)
            or any(part > whole for part, whole in zip(valid, shape, strict=True))
        ):
            (said_by / "valid_shape").fail(
                f"{show_shape(valid)} is not part of {show_shape(shape)} ({case.where})"
            )
        said = self._dtype.fill(values)
        dtype = canonical_dtype(said)
        if not dtype:
            self._dtype.place.fail(f"{said!r} is not a type that can be compared ({case.where})")
        return OutputCheck(
            file=self._file.fill(values),
            golden=self._golden.fill(values),
            dtype=dtype,
            shape=shape,
            valid_shape=valid,
            tolerance=self._tolerance or tolerance,
            nan=self._table.nan,
        )


class CommandPlan:
    """The parts shared by all cases of a testcase of programs, ready to be filled in for each."""

    def __init__(self, testcase: Level, suite: Level, home: Path, given: Given) -> None:
        """``home`` is the folder of the whole suite. Raises UsageError with file, line and key."""
        self._home = home
        self._shared = OF_TESTCASE | given.parameters
        self._files = given.files
        levels = (testcase, suite)
        own, general = (read_env(table, place) for table, place in levels)
        env = join_env(join_env(given.env, general), own)
        place = testcase[1]
        build, run = _find("build", levels), _find("run", levels)
        golden, check, output = (_find(name, levels) for name in ("golden", "check", "output"))
        measure = _find("measure", levels)
        if not run:
            (place / "run").fail("is missing, here and in the suite")
        self._build = BuildPlan(*build, env) if build else None
        self._golden = GoldenPlan(*golden, env) if golden else None
        self._run, self._hot = read_late_step(run[0], "run", run[1], env)
        self._check: StepPlan | None = None
        self._check_hot: HotPlan | None = None
        if check:
            self._check, self._check_hot = read_late_step(check[0], "check", check[1], env)
        self._outputs = _read_outputs(*output) if output else ()
        self._measure = _read_measure(*measure) if measure else None
        self._check_sources()

    def _check_sources(self) -> None:
        """Refuse a step that asks for something that no step makes."""
        made = {"build": self._build, "golden": self._golden}
        hot = [one[1] for one in (self._hot, self._check_hot) if one is not None]
        for plan in (self._run, self._check, *hot):
            if plan is None:
                continue
            for name in sorted(plan.names & made.keys()):
                if made[name] is None:
                    plan.place.fail(f"asks for {{{name}}}, and there is no {name} step")

    def fill_in(
        self,
        values: Mapping[str, str],
        shapes: tuple[Shape, Shape],
        tolerance: Tolerance | None,
        case: Place,
    ) -> CommandWork:
        """The work of one case, which is declared at ``case``."""
        build, target = None, ""
        target_part = BuildPart()
        if self._build is not None:
            build = self._fill_in(self._build.step, values)
            target = self._build.target.fill(values)
            target_part = self._build.find_part(values)
            self._files.look(self._build.inputs, target_part.inputs)
        golden, part = None, WHOLE
        if self._golden is not None:
            golden = self._fill_in(self._golden.step, values)
            part = self._golden.find_part(values)
        check = self._fill_in(self._check, values) if self._check is not None else None
        return CommandWork(
            run=self._fill_in(self._run, values),
            build=build,
            target=target,
            target_part=target_part,
            golden=golden,
            part=part,
            check=check,
            check_hot=self._fill_hot(self._check_hot, values),
            outputs=tuple(plan.fill(values, shapes, tolerance, case) for plan in self._outputs),
            hot=self._fill_hot(self._hot, values),
            measure=self._measure,
        )

    def _fill_hot(self, plan: HotPlan | None, values: Mapping[str, str]) -> HotRun | None:
        if plan is None:
            return None
        table, step = plan
        shared = {name: value for name, value in values.items() if name in self._shared}
        return HotRun(
            step=self._fill_in(step, shared),
            began=table.began,
            ended=table.ended,
            verdicts=table.verdicts,
        )

    def _fill_in(self, plan: StepPlan, values: Mapping[str, str]) -> Step:
        step = plan.fill_in(values, self._home)
        self._files.look(plan.inputs, step.inputs)
        return step


def read_tolerance(table: CommonTable | OutputTable, place: Place) -> Tolerance | None:
    """The tolerances in a table: ``eps`` for both, or each by its name; None if there are none."""
    if table.eps is not None:
        if table.rtol is not None or table.atol is not None:
            (place / "eps").fail("sets both rtol and atol, so neither can be given beside it")
        return Tolerance(rtol=table.eps, atol=table.eps)
    if table.rtol is None and table.atol is None:
        return None
    return Tolerance(rtol=table.rtol or 0.0, atol=table.atol or 0.0)


def show_shape(shape: Shape) -> str:
    """``16x64``."""
    return "x".join(str(size) for size in shape)


def _find(name: str, levels: tuple[Level, ...]) -> tuple[object, Place] | None:
    for table, place in levels:
        raw: object = getattr(table, name)
        if raw is False:
            return None
        if raw is not None:
            return raw, place / name
    return None


def _read_outputs(raw: object, place: Place) -> tuple[OutputPlan, ...]:
    if isinstance(raw, list):
        return tuple(OutputPlan(one, place / number) for number, one in enumerate(raw))
    return (OutputPlan(raw, place),)


def _read_measure(raw: object, place: Place) -> Measure:
    table = decode(raw, MeasureTable, place)
    if table.of != "printed":
        for key in ("pattern", "unit", "better"):
            if getattr(table, key) is not None:
                (place / key).fail(f"belongs to a number that is printed, and not to {table.of}")
        return Measure(of=table.of)
    if table.pattern is None or table.unit is None or table.better is None:
        place.fail("needs `pattern`, `unit` and `better`, or a time in `of`")
    if read_pattern(table.pattern, place / "pattern").groups < 1:
        (place / "pattern").fail(f"{table.pattern!r} has no group (...) that is the number")
    return Measure(of="printed", pattern=table.pattern, unit=table.unit, better=table.better)


def is_of_kernels(table: TestcaseTable, place: Place) -> bool:
    """Whether a testcase is one of kernels. Raises UsageError if it is half one and half other."""
    if not table.file:
        for key in ("kernel", "reference", "arguments", "config"):
            if getattr(table, key):
                (place / key).fail("belongs to a testcase of kernels, which needs `file`")
        return False
    for key in ("build", "golden", "run", "check", "output", "measure"):
        if getattr(table, key) not in (None, False):
            (place / key).fail("belongs to programs, and `file` says that this one is of kernels")
    return True


def _read_shape(said: Shape | str | None, place: Place) -> Shape | Text | None:
    return read_text(said, place) if isinstance(said, str) else said


def _fill_shape(shape: Shape | Text | None, values: Mapping[str, str]) -> Shape | None:
    if not isinstance(shape, Text):
        return shape
    text = shape.fill(values)
    parts = text.replace(",", "x").replace(" ", "").split("x") if text else []
    if not all(part.isdecimal() for part in parts):
        shape.place.fail(f"{text!r} is not a shape; one is written as 16x64")
    return tuple(int(part) for part in parts)


def read_require(raw: object, place: Place) -> Prerequisites:
    """The requirements written at a place. Raises UsageError with file, line and key."""
    needed = decode(raw, Prerequisites, place)
    keys, reason = find_fault(needed)
    if reason:
        for key in keys:
            place = place / key
        place.fail(reason)
    for kind in needed.devices:
        if NAME.fullmatch(f"{kind}:0") is None:
            known = ", ".join(sorted(CLASSES))
            (place / "devices" / kind).fail(f"{kind!r} is not a class of devices", f"as {known}")
    return needed


def read_require_file(path: Path) -> Prerequisites:
    """The requirements in a TOML file, with the keys of ``[require]``. Raises UsageError."""
    document = Document(path)
    return read_require(document.table, Place(document=document))
