"""Jobs of a CI run: which part of which suite each runs, the resulting checks, and a matrix of them."""

import datetime
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tileyard.artifacts.digests import find_problem
from tileyard.base.decoding import Text
from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork, Digest, Record, Step
from tileyard.base.places import Document, Place, Strict, decode
from tileyard.devices.base import class_of
from tileyard.store.base import RunTime
from tileyard.targets.registry import COMMAND, DEFAULT_TARGET
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.plan.budget import target_of
from tileyard.verbs.test.plan.choosing import choose, find_policy
from tileyard.verbs.test.plan.content import (
    Change,
    Contents,
    Touched,
    find_root,
    find_touched,
    list_filters,
    touches_step,
)
from tileyard.verbs.test.plan.durations import DEFAULT_S
from tileyard.verbs.test.plan.files.parameters import refuse_idle_pattern
from tileyard.verbs.test.plan.files.tables import Seconds
from tileyard.verbs.test.plan.pieces import Costs, assign_shards
from tileyard.verbs.test.plan.plan import make_plan, say_seconds
from tileyard.verbs.test.result.result import Expected, Selection, Suite, SuiteCase, Time

_PARTS = re.compile(r"(?::(?P<policy>[^@?]*))?(?:@(?P<on>[^?]*))?(?:\?(?P<select>.*))?", re.DOTALL)
MOST_JOBS = 256
"""Maximum number of jobs of a matrix in GitHub Actions."""


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


class MatrixRequest(Record):
    """Either ``jobs`` is not 0, or ``max_s``, the limit of a job's time. Each job runs cases on ``slots``
    after ``setup_s``. ``durations`` is the path of the times with which jobs cut the shards; without it the
    number of cases cuts them, as jobs share only the suite for sure.
    """

    wish: Wish
    jobs: int = 0
    max_s: float = 0.0
    slots: int = 1
    setup_s: float = 0.0
    startup_s: float = 0.0
    durations: str = ""
    change: Change | None = None


class MatrixJob(Record):
    """A job: its arguments of ``tileyard test SUITE``, quoted for a shell, and wall time with set-up."""

    shard: str
    cases: int
    expected_s: float
    families: tuple[str, ...]
    arguments: str


class CommandJob(Record):
    """A job that runs a command. ``because`` is the changed file that requires it, empty if none does."""

    job: str
    command: str
    is_touched: bool = True
    because: str = ""


class Matrix(Record):
    """The jobs with something to run, of the ``suite`` at a path from the top of its checkout. ``left_out``
    counts the cases that no change touches; ``total_s`` is the serial time of all. ``filters`` are per family
    the files on which it depends. ``commands`` are the jobs that run one, None if not requested.
    """

    suite: str
    policy: str
    jobs: tuple[MatrixJob, ...]
    cases: int
    total_s: float
    left_out: int = 0
    guessed: int = 0
    touched: Touched | None = None
    notes: tuple[str, ...] = ()
    filters: dict[str, list[str]] = {}
    commands: tuple[CommandJob, ...] | None = None

    @property
    def github(self) -> str:
        """The value of ``strategy.matrix``, on one line."""
        rows = [
            {
                "shard": job.shard,
                "cases": job.cases,
                "expected_s": round(job.expected_s, 1),
                "families": ", ".join(job.families),
                "arguments": job.arguments,
            }
            for job in self.jobs
        ]
        return json.dumps({"include": rows}, separators=(",", ":"))


def decide_commands(
    drafts: Iterable[DraftJob], change: Change | None, file: Path
) -> tuple[CommandJob, ...]:
    """The jobs of a file that run a command, and whether a change, also of the file, requires it."""
    found = []
    for draft in drafts:
        if draft.command is not None:
            because = "" if change is None else touches_step(draft.command, change, (str(file),))
            found.append(
                CommandJob(
                    job=draft.name,
                    command=shlex.join(draft.command.argv),
                    is_touched=change is None or bool(because),
                    because=because,
                )
            )
    return tuple(found)


def make_matrix(suite: Suite, request: MatrixRequest, expected: Mapping[str, Expected]) -> Matrix:
    """The matrix for a policy's selection of a suite, or for the part that a change touches, maybe nothing.
    Shards are those of ``tileyard test --shard``, without empty ones. Raises UsageError if the policy selects
    nothing.
    """
    today = datetime.datetime.now(tz=datetime.UTC).astimezone().date()
    shared = expected
    if not request.durations:  # jobs without times treat all cases alike
        shared = {
            case: Expected(case=case, testcase=one.testcase, seconds=DEFAULT_S, source="default")
            for case, one in expected.items()
        }
    expected_s = {case: one.seconds for case, one in shared.items()}
    selection = choose(suite, request.wish, today, expected_s)
    notes = list(selection.notes)
    change = request.change
    root = find_root([Path(suite.folder)]) if change is None else change.root
    touched = None
    filters: dict[str, list[str]] = {}
    cases = selection.cases
    if change is not None:
        touched = find_touched(suite, change)
        filters = list_filters(suite, cases, root)
        ids = frozenset(touched.cases)
        cases = tuple(case for case in cases if case.id in ids)
    select = request.wish.select
    if 0 < len(cases) < len(selection.cases):
        select = _name_cases(suite, request.wish, expected_s, selection, cases)
    jobs: tuple[MatrixJob, ...] = ()
    if cases:
        times = [expected[case.id] for case in cases]
        budget_s = find_policy(suite, request.wish.policy).budget_s
        weights = [shared[case.id] for case in cases]
        cut = _Cut(
            cases=cases,
            times=times,
            weights=weights,
            request=request,
            budget_s=budget_s,
            settings=suite.settings,
        )
        count = _choose_count(cut, request, notes)
        jobs = tuple(cut.jobs(count, select))
        if not request.durations:
            notes.append("without --durations jobs are cut by the number of cases, not by time")
    return Matrix(
        suite=os.path.relpath(suite.path, root),
        policy=selection.policy,
        jobs=jobs,
        cases=len(cases),
        total_s=sum(expected[case.id].seconds for case in cases),
        left_out=len(selection.cases) - len(cases),
        guessed=sum(expected[case.id].source != "history" for case in cases),
        touched=touched,
        notes=tuple(notes),
        filters=filters,
    )


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """Cases that can be cut into any number of shards, by their ``weights``."""

    cases: Sequence[SuiteCase]
    times: Sequence[Expected]
    weights: Sequence[Expected]
    request: MatrixRequest
    budget_s: float
    settings: tuple[str, ...]

    def shards(self, count: int) -> dict[int, list[int]]:
        """For each shard that has cases, their indexes."""
        shards: dict[int, list[int]] = {}
        for index, number in enumerate(assign_shards(self.weights, count)):
            shards.setdefault(number, []).append(index)
        return dict(sorted(shards.items()))

    def predict_s(self, indexes: Sequence[int]) -> float:
        """The wall time of a job that runs these cases; a policy's budget holds for each job."""
        costs = Costs(startup_s=self.request.startup_s)
        plan = make_plan([self.times[i] for i in indexes], self.request.slots, "auto", costs)
        return self.request.setup_s + min(plan.predicted_s, self.budget_s or math.inf)

    def longest_s(self, count: int) -> float:
        """The wall time of the longest of this number of jobs."""
        return max(self.predict_s(indexes) for indexes in self.shards(count).values())

    def jobs(self, count: int, select: Sequence[str]) -> Iterator[MatrixJob]:
        """That number of jobs, fewer if some would have no case."""
        for number, indexes in self.shards(count).items():
            shard = f"{number}/{count}"
            families = (self.cases[i].family or self.cases[i].testcase for i in indexes)
            arguments = ["--policy", self.request.wish.policy, "--shard", shard]
            if self.request.durations:
                arguments += ["--durations", self.request.durations]
            arguments += [part for text in select for part in ("--select", text)]
            arguments += [part for text in self.request.wish.skip for part in ("--skip", text)]
            arguments += [part for text in self.settings for part in ("--set", text)]
            yield MatrixJob(
                shard=shard,
                cases=len(indexes),
                expected_s=self.predict_s(indexes),
                families=tuple(dict.fromkeys(families)),
                arguments=shlex.join(arguments),
            )


def _choose_count(cut: _Cut, request: MatrixRequest, notes: list[str]) -> int:
    """Number of shards: the requested one, or the smallest tried for which each shard is short enough."""
    most = min(MOST_JOBS, len(cut.times))
    if request.jobs:
        if request.jobs > MOST_JOBS:
            raise UsageError(f"{request.jobs} jobs are too many: a matrix has at most {MOST_JOBS}")
        return request.jobs
    alone_s = cut.predict_s([max(range(len(cut.times)), key=lambda i: cut.times[i].seconds)])
    limit_s = request.max_s
    if alone_s > limit_s:
        notes.append(
            f"no job can end within {say_seconds(limit_s)}: the longest case alone"
            f" needs {say_seconds(alone_s)}"
        )
        limit_s = alone_s
    count = 1
    while count < most and (longest_s := cut.longest_s(count)) > limit_s * (1 + 1e-9):
        work_s = max(longest_s - request.setup_s, 1e-9)
        room_s = max(limit_s - request.setup_s, 1e-9)
        # Half of the way at a time, because shards are never quite equal and the right count is not known.
        count = min(most, max(count + 1, math.ceil(count * (1 + work_s / room_s) / 2)))
    if cut.longest_s(count) > limit_s * (1 + 1e-9):
        notes.append(
            f"{count} jobs are the most there can be, and the longest takes more than asked"
        )
    return count


def _name_cases(
    suite: Suite,
    wish: Wish,
    expected_s: Mapping[str, float],
    selection: Selection,
    cases: Sequence[SuiteCase],
) -> tuple[str, ...]:
    """Texts for ``--select`` with which the wish selects exactly these cases: testcases if that is enough."""
    wanted = {case.id for case in cases}
    parts: dict[str, list[str]] = {}
    for case in selection.cases:
        parts.setdefault(case.testcase, []).append(case.id)
    texts: list[str] = []
    for testcase, ids in parts.items():
        found = [case for case in ids if case in wanted]
        texts += [testcase] if len(found) == len(ids) else found
    today = datetime.date.min
    again = choose(suite, msgspec.structs.replace(wish, select=tuple(texts)), today, expected_s)
    if {case.id for case in again.cases} == wanted:
        return tuple(texts)
    return tuple(case.id for case in cases)
