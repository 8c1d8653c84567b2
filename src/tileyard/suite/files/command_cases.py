"""From the tables of a testcase of programs to the work of each of its cases."""

from collections.abc import Mapping
from pathlib import Path

from tileyard.model import Tolerance
from tileyard.suite.dtypes import canonical_dtype
from tileyard.suite.files.places import Place
from tileyard.suite.files.steps import (
    OF_TESTCASE,
    Text,
    read_build,
    read_env,
    read_run,
    read_step,
    read_text,
)
from tileyard.suite.files.tables import (
    CommonTable,
    OutputTable,
    Shape,
    StepsTable,
    TestcaseTable,
    decode,
)
from tileyard.suite.records import CommandWork
from tileyard.targets.command.records import HotRun, OutputCheck

Level = tuple[StepsTable, Place]
"""A table that may name steps, and where it stands."""


class OutputPlan:
    """A comparison whose templates are read."""

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
                f"{show_shape(valid)} is no part of {show_shape(shape)} ({case.where})"
            )
        said = self._dtype.fill(values)
        dtype = canonical_dtype(said)
        if not dtype:
            self._dtype.place.fail(f"{said!r} is no type that can be compared ({case.where})")
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
    """What all cases of a testcase of programs share, ready to be filled in for each."""

    def __init__(self, testcase: Level, suite: Level, home: Path) -> None:
        """``home`` is the folder of the whole suite. Raises UsageError with file, line and key."""
        self._home = home
        levels = (testcase, suite)
        own, general = (read_env(table.env, place / "env") for table, place in levels)
        env = {**general, **own}
        place = testcase[1]
        build, run = _find("build", levels), _find("run", levels)
        golden, check, output = (_find(name, levels) for name in ("golden", "check", "output"))
        if not run:
            (place / "run").fail("is missing, here and in the suite")
        self._build = read_build(*build, env) if build else None
        self._golden = read_step(golden[0], "golden", golden[1], env) if golden else None
        self._run, self._hot = read_run(*run, env)
        self._check = read_step(check[0], "check", check[1], env) if check else None
        self._outputs = _read_outputs(*output) if output else ()
        self._check_sources()

    def _check_sources(self) -> None:
        """Refuse a step that asks for what no step makes."""
        made = {"build": self._build, "golden": self._golden}
        hot = None if self._hot is None else self._hot[1]
        for plan in (self._run, self._check, hot):
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
        """The work of one case, which stands at ``case``."""
        build, target, hot = None, "", None
        if self._build is not None:
            plan, wanted = self._build
            build = plan.fill_in(values, self._home)
            target = wanted.fill(values)
        if self._hot is not None:
            table, step = self._hot
            shared = {name: value for name, value in values.items() if name in OF_TESTCASE}
            hot = HotRun(
                step=step.fill_in(shared, self._home),
                began=table.began,
                ended=table.ended,
                verdicts=table.verdicts,
            )
        golden = self._golden.fill_in(values, self._home) if self._golden is not None else None
        check = self._check.fill_in(values, self._home) if self._check is not None else None
        return CommandWork(
            run=self._run.fill_in(values, self._home),
            build=build,
            target=target,
            golden=golden,
            check=check,
            outputs=tuple(plan.fill(values, shapes, tolerance, case) for plan in self._outputs),
            hot=hot,
        )


def read_tolerance(table: CommonTable | OutputTable, place: Place) -> Tolerance | None:
    """What a table says of tolerances: ``eps`` for both, or each by its name; None for nothing."""
    if table.eps is not None:
        if table.rtol is not None or table.atol is not None:
            (place / "eps").fail("stands for both rtol and atol, so neither can stand beside it")
        return Tolerance(rtol=table.eps, atol=table.eps)
    if table.rtol is None and table.atol is None:
        return None
    return Tolerance(rtol=table.rtol or 0.0, atol=table.atol or 0.0)


def show_shape(shape: Shape) -> str:
    """``16x64``."""
    return "x".join(str(size) for size in shape)


def _find(name: str, levels: tuple[Level, ...]) -> tuple[object, Place] | None:
    """The step of the narrowest table that says something of it; ``false`` says that there is none."""
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


def is_of_kernels(table: TestcaseTable, place: Place) -> bool:
    """Whether a testcase is one of kernels. Raises UsageError where it is half one and half other."""
    if not table.file:
        for key in ("kernel", "reference", "arguments", "config"):
            if getattr(table, key):
                (place / key).fail("belongs to a testcase of kernels, which needs `file`")
        return False
    for key in ("build", "golden", "run", "check", "output"):
        if getattr(table, key) not in (None, False):
            (place / key).fail("is a step of programs, and `file` says that this one is of kernels")
    return True


def _read_shape(said: Shape | str | None, place: Place) -> Shape | Text | None:
    return read_text(said, place) if isinstance(said, str) else said


def _fill_shape(shape: Shape | Text | None, values: Mapping[str, str]) -> Shape | None:
    if not isinstance(shape, Text):
        return shape
    text = shape.fill(values)
    parts = text.replace(",", "x").replace(" ", "").split("x") if text else []
    if not all(part.isdecimal() for part in parts):
        shape.place.fail(f"{text!r} is no shape; one is written as 16x64")
    return tuple(int(part) for part in parts)
