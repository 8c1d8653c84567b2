"""Jobs of a CI run: which part of which suite each runs, and the resulting checks.

A file lists the jobs, so that work which several of them do can be found.

[jobs.simulator]
select = ["suites/reduce.toml:smoke", "suites/cast.toml?rowsum,colsum"]
on = "sim"
setup_s = 90

[jobs.wheel]
independent = true
argv = ["python", "-m", "build"]
inputs = ["pyproject.toml", "src"]
seconds = 300
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tileyard.artifacts.digests import find_problem
from tileyard.base.decoding import Text
from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork, Digest, Record, Step
from tileyard.base.places import Document, Place
from tileyard.base.strict import Strict, decode
from tileyard.devices.names import class_of
from tileyard.store.base import RunTime
from tileyard.targets.registry import COMMAND, DEFAULT_TARGET
from tileyard.verbs.test.plan.content import Contents
from tileyard.verbs.test.plan.files.inputs import refuse_idle_pattern
from tileyard.verbs.test.plan.files.tables import Seconds
from tileyard.verbs.test.plan.outlook import target_of
from tileyard.verbs.test.result.records import Expected, SuiteCase, Time

_PARTS = re.compile(r"(?::(?P<policy>[^@?]*))?(?:@(?P<on>[^?]*))?(?:\?(?P<select>.*))?", re.DOTALL)


class Wanted(Record):
    """The part of a suite that a job runs. ``on`` is the target of kernels or the class of devices of
    programs, if it matters. ``toolchain`` is any text: another text is another toolchain. ``select`` is as
    for ``tileyard test --select``.
    """

    suite: str
    policy: str = "full"
    on: str = ""
    toolchain: str = ""
    select: tuple[str, ...] = ()

    @property
    def kernels(self) -> str:
        """The target of kernels."""
        return self.on or DEFAULT_TARGET

    def find_classes(self, times: Iterable[RunTime]) -> dict[str, str]:
        """For each target the class of devices whose times count; empty for all, also if ``on`` has none."""
        is_known = any(class_of(time.device) == self.on for time in times)
        return {self.kernels: "", COMMAND: self.on if is_known else ""}


class Check(Record):
    """One thing that a job runs. ``is_guess``: it never ran, so ``seconds`` is a guess. Unless the job
    ``can_keep`` it for others, one of these has to.
    """

    identity: Digest
    name: str
    seconds: float
    is_guess: bool = False
    can_keep: bool = True


class CiJob(Record):
    """A job and its checks; one that ``is_independent`` stays. ``setup_s`` is saved if nothing is left."""

    name: str
    checks: tuple[Check, ...] = ()
    is_independent: bool = False
    setup_s: float = 0.0


class JobTable(Strict):
    """One ``[jobs.NAME]``."""

    select: tuple[Text, ...] = ()
    on: str = ""
    toolchain: str = ""
    independent: bool = False
    setup_s: Time = 0.0
    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    inputs: tuple[Text, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    seconds: Seconds | None = None
    does: str = ""


class JobsTable(Strict):
    """The file itself."""

    jobs: dict[str, object] = {}


class DraftJob(Record):
    """A job as requested; ``where`` begins messages about it. ``command`` is what it runs besides cases, with
    absolute inputs, for ``seconds`` (0 if unstated). Jobs whose label ``does`` is the same do the same.
    """

    name: str
    where: str
    wanted: tuple[Wanted, ...] = ()
    is_independent: bool = False
    setup_s: float = 0.0
    on: str = ""
    command: Step | None = None
    seconds: float = 0.0
    does: str = ""


def parse_selection(text: str) -> Wanted:
    """``SUITE[:POLICY][@ON][?TEXT,TEXT...]``, SUITE the longest existing path. Raises UsageError."""
    ends = [found.start() for found in re.finditer("[:@?]", text)]
    prefixes = [text[:end] for end in (len(text), *reversed(ends))]
    suite = next((one for one in prefixes if one and Path(one).exists()), prefixes[-1])
    parts = _PARTS.fullmatch(text[len(suite) :])
    if not suite or parts is None:
        raise UsageError(f"{text!r} names no suite", "write SUITE, SUITE:POLICY or SUITE?TEXT")
    for part, name in (("policy", "policy"), ("on", "target or class"), ("select", "case")):
        if parts[part] is not None and not parts[part].strip(","):
            raise UsageError(f"{text!r}: no {name} is named behind its sign")
    return Wanted(
        suite=suite,
        policy=parts["policy"] or "full",
        on=parts["on"] or "",
        select=tuple(one for one in (parts["select"] or "").split(",") if one),
    )


def list_checks(
    cases: Iterable[SuiteCase],
    folder: Path,
    wanted: Wanted,
    expected: Mapping[str, Expected],
    contents: Contents,
) -> Iterator[Check]:
    """The checks that these cases of a suite in ``folder`` make, each with its expected time."""
    for case in cases:
        on = wanted.on if isinstance(case.work, CommandWork) else target_of(case, wanted.kernels)
        one = expected[case.id]
        yield Check(
            identity=contents.identify(case, folder, " ".join((on, wanted.toolchain)).strip()),
            name=case.id,
            seconds=one.seconds,
            is_guess=one.source != "history",
        )


def read_jobs(path: Path) -> dict[str, DraftJob]:
    """The jobs of a file by their names. Raises UsageError that names file, line and key."""
    document = Document(path.absolute())
    top = Place(document=document)
    table = decode(document.table, JobsTable, top)
    if not table.jobs:
        top.fail("has no job", "write one as [jobs.NAME]")
    return {name: _read_job(name, raw, top / "jobs" / name) for name, raw in table.jobs.items()}


def add_selections(
    jobs: dict[str, DraftJob], given: tuple[str, ...], independent: tuple[str, ...]
) -> dict[str, DraftJob]:
    """The jobs, with the additions of the command line, and its further jobs. Raises UsageError."""
    jobs = dict(jobs)
    for text in given:
        name, equals, selection = text.partition("=")
        if not (name and equals and selection):
            raise UsageError(f"{text!r} is not of the form JOB=SELECTION")
        job = jobs.get(name, DraftJob(name=name, where=text))
        jobs[name] = replace(job, wanted=(*job.wanted, parse_selection(selection)))
    for name in independent:
        if name not in jobs:
            raise UsageError(f"--independent {name}: there is no such job")
        jobs[name] = replace(jobs[name], is_independent=True)
    if not jobs:
        raise UsageError(
            "no job is named",
            "write JOB=SUITE:POLICY, name workflows, or give a file with --jobs-file",
        )
    return jobs


def _read_job(name: str, raw: object, place: Place) -> DraftJob:
    table = decode(raw, JobTable, place)
    if table.argv is None:
        for key in ("inputs", "env", "cwd", "seconds"):
            if getattr(table, key) and not (key == "seconds" and table.does):
                (place / key).fail("belongs to a command, which needs `argv`")
        if not table.select and not table.independent and not table.does:
            place.fail("runs nothing", "give it `select`, or `argv` and `inputs`, or `does`")
    return DraftJob(
        name=name,
        where=place.where,
        wanted=tuple(
            _read_wanted(text, table, place / "select" / number)
            for number, text in enumerate(table.select)
        ),
        is_independent=table.independent,
        setup_s=table.setup_s,
        on=" ".join((table.on, table.toolchain)).strip(),
        command=_read_command(table, place),
        seconds=table.seconds or 0.0,
        does=table.does,
    )


def _read_wanted(text: str, table: JobTable, place: Place) -> Wanted:
    """A selection, whose suite is relative to the file's folder."""
    try:
        wanted = parse_selection(str(place.document.folder / text))
    except UsageError as error:
        place.fail(error.message, error.hint)
    if not Path(wanted.suite).exists():
        place.fail(f"there is no suite {wanted.suite}")
    return replace(wanted, on=wanted.on or table.on, toolchain=table.toolchain)


def _read_command(table: JobTable, place: Place) -> Step | None:
    """A job's command. The inputs that it names must exist: only they identify it."""
    if table.argv is None:
        return None
    folder = place.document.folder
    if not table.inputs:
        place.fail("names no `inputs`, so nothing says what the command's result depends on")
    for number, text in enumerate(table.inputs):
        if problem := find_problem(folder / text):
            (place / "inputs" / number).fail(problem)
        if not _is_there(folder / text):
            refuse_idle_pattern(str(folder / text), place / "inputs" / number)
    return Step(
        argv=table.argv,
        env=table.env,
        inputs=tuple(str(folder / text) for text in table.inputs),
        cwd=str(folder / table.cwd),
    )


def _is_there(pattern: Path) -> bool:
    base = Path(pattern.anchor)
    return pattern.exists() or any(True for _ in base.glob(str(pattern.relative_to(base))))
