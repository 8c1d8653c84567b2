"""A suite as a source of cases: its pieces, longest first; then failed cases again, if they may be flaky."""

import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.artifacts.program_files import PYTHON
from tileyard.base.model import (
    Batch,
    BuildPart,
    Case,
    CheckPolicy,
    CommandWork,
    KernelWork,
    Limits,
    Outcome,
    Record,
    Step,
    Trial,
    Work,
    is_retried,
)
from tileyard.targets.command.given import PATH_END
from tileyard.verbs.test.result.result import Plan, SuiteCase


class Part(Record):
    """The cases for one target that hold equally many devices. The plan's pieces have each once, the longest
    first. ``expected_s`` is by case, ``steps_s`` are all expected times of golden and check steps.
    """

    target: str
    cases: tuple[SuiteCase, ...]
    plan: Plan
    expected_s: dict[str, float] = {}
    steps_s: list[float] = []


class SuiteSource:
    """A CaseSource. Each case runs once, and up to ``retries`` more while it fails. ``trials`` are all
    received, by case, in order of attempts. Parts take turns, so that each keeps its devices busy.
    """

    def __init__(
        self,
        suite: str,
        parts: Sequence[Part],
        *,
        retries: int = 0,
        until: Literal["packed", "judged"] = "judged",
    ) -> None:
        self._suite = suite
        self._cases = {case.id: case for part in parts for case in part.cases}
        self._parts = [_Turns(part) for part in parts]
        self._expected_s = {case: s for part in parts for case, s in part.expected_s.items()}
        self._retries = retries
        self._until = until
        self._again: deque[Batch] = deque()
        self._pending = 0
        self._is_stopped = False
        self.trials: dict[str, list[Trial]] = {}

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next pieces, or cases that are tried again."""
        batches: list[Batch] = []
        while len(batches) < limit and self._again:
            batches.append(self._again.popleft())
        while len(batches) < limit and (left := [part for part in self._parts if part.pieces]):
            part = min(left, key=lambda part: part.begun / part.slots)
            part.begun += 1
            number, piece = part.pieces.popleft()
            cases = tuple(self._make_case(name, part.target, 1) for name in piece.cases)
            batches.append(Batch(id=f"{part.name}-{number}", cases=cases))
        self._pending += sum(len(batch.cases) for batch in batches)
        return batches

    def tell(self, trial: Trial) -> None:
        """Receive a trial; a failed case is tried again while it may be."""
        self._pending -= 1
        attempts = self.trials.setdefault(trial.case, [])
        attempts.append(trial)
        if trial.outcome is Outcome.NOT_RUN:
            self._is_stopped = True
        if self._is_stopped or not is_retried(trial.outcome, len(attempts), self._retries):
            return
        case = self._make_case(trial.case, trial.target, len(attempts) + 1)
        self._again.append(Batch(id=case.key, cases=(case,), process="fresh"))

    def done(self) -> bool:
        """Whether everything was asked for and its trials received."""
        return not (self._again or self._pending or any(part.pieces for part in self._parts))

    def _make_case(self, name: str, target: str, attempt: int) -> Case:
        case = self._cases[name]
        tolerance = case.work.tolerance if isinstance(case.work, KernelWork) else None
        return Case(
            id=case.id,
            work=case.work,
            target=target,
            suite=self._suite,
            testcase=case.testcase,
            attempt=attempt,
            seed=case.seed,
            until=self._until,
            check=CheckPolicy(tolerance=tolerance),
            timing=None,
            limits=limit_runner(case),
            expected_s=self._expected_s.get(name),
        )


class _Turns:
    """The pieces of a part that have not begun yet, with their numbers."""

    def __init__(self, part: Part) -> None:
        held = part.cases[0].work.devices
        self.name = part.target + (f"*{held}" if held > 1 else "")
        self.target = part.target
        self.slots = part.plan.slots
        self.pieces = deque(enumerate(part.plan.pieces))
        self.begun = 0


def list_held(work: Work) -> Sequence[Step]:
    """The steps that hold a device."""
    if not isinstance(work, CommandWork):
        return ()
    return (work.run,) if work.hot is None else (work.run, work.hot.step)


def find_pythons(cases: Iterable[SuiteCase]) -> list[str]:
    """The interpreters that steps name which hold a device."""
    found, own = set(), re.compile(re.escape(sys.executable) + PATH_END)
    for step in (step for case in cases for step in list_held(case.work)):
        if any(map(own.search, (*step.argv, *step.env.values()))):
            found.add(sys.executable)
        if PYTHON.fullmatch(Path(step.argv[0]).name):
            found.add(step.argv[0])
    return sorted(found)


def find_targets(cases: Iterable[SuiteCase]) -> dict[str, dict[str, BuildPart]]:
    """For each build step, as canonical JSON, each target that these cases need."""
    found: dict[str, dict[str, BuildPart]] = {}
    for case in cases:
        work = case.work
        if isinstance(work, CommandWork) and work.build is not None and work.target:
            parts, part = found.setdefault(canonical_json(work.build), {}), work.target_part
            known = parts.get(work.target, part)
            parts[work.target] = BuildPart(
                inputs=tuple(dict.fromkeys((*known.inputs, *part.inputs))),
                products=tuple(dict.fromkeys((*known.products, *part.products))),
            )
    return found


def limit_runner(case: SuiteCase) -> Limits:
    """The limits of a case; those of its run step take precedence."""
    if isinstance(case.work, KernelWork):
        return case.limits
    run_s = case.work.run.limit_s or case.limits.run_s
    return msgspec.structs.replace(case.limits, run_s=run_s)
