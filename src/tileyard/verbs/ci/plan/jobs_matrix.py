"""Divides a suite into the matrix of a CI run: N jobs of equal expected time, or jobs below a time limit."""

import datetime
import json
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.verbs.ci.plan.jobs import DraftJob
from tileyard.verbs.test.options.suites import Wish
from tileyard.verbs.test.plan.choosing import choose, find_policy
from tileyard.verbs.test.plan.content import (
    Change,
    Touched,
    find_root,
    find_touched,
    list_filters,
    touches_step,
)
from tileyard.verbs.test.plan.durations import DEFAULT_S
from tileyard.verbs.test.plan.pieces import Costs
from tileyard.verbs.test.plan.plan import make_plan, say_seconds
from tileyard.verbs.test.plan.shards import assign_shards
from tileyard.verbs.test.result.records import Expected, Selection, Suite, SuiteCase

MOST_JOBS = 256
"""Maximum number of jobs of a matrix in GitHub Actions."""


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
