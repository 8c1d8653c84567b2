"""A suite as a source of cases: its pieces, longest first; then again what failed, if it may be flaky."""

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from tileyard.model import (
    Batch,
    Case,
    CheckPolicy,
    Limits,
    Outcome,
    Trial,
    Value,
)
from tileyard.suite.author import ATTEMPT, CASE
from tileyard.suite.records import (
    KernelWork,
    Piece,
    SuiteCase,
    case_of_attempt,
    is_retried,
    name_attempt,
)


class SuiteSource:
    """A CaseSource. Each case runs once, and up to ``retries`` times more while it fails.

    ``trials`` are all that were told, by the suite's case, in the order of the attempts.
    """

    def __init__(
        self,
        cases: Sequence[SuiteCase],
        pieces: Sequence[Piece],
        expected_s: Mapping[str, float],
        retries: int = 0,
    ) -> None:
        """``pieces`` hold every one of ``cases`` once; the longest is to come first."""
        self._cases = {case.id: case for case in cases}
        self._pieces = deque(enumerate(pieces))
        self._expected_s = expected_s
        self._retries = retries
        self._again: deque[Batch] = deque()
        self._pending = 0
        self._is_stopped = False
        self.trials: dict[str, list[Trial]] = {}

    def ask(self, limit: int) -> Sequence[Batch]:
        """The next pieces, or what is to be tried again."""
        batches: list[Batch] = []
        while len(batches) < limit and self._again:
            batches.append(self._again.popleft())
        while len(batches) < limit and self._pieces:
            number, piece = self._pieces.popleft()
            cases = tuple(self._make_case(name, 1) for name in piece.cases)
            batches.append(Batch(id=f"piece-{number}", cases=cases))
        self._pending += sum(len(batch.cases) for batch in batches)
        return batches

    def tell(self, trial: Trial) -> None:
        """Take in a trial; one that failed is tried again while it may be."""
        self._pending -= 1
        name = case_of_attempt(trial.case)
        attempts = self.trials.setdefault(name, [])
        attempts.append(trial)
        if trial.outcome is Outcome.NOT_RUN:
            self._is_stopped = True
        if self._is_stopped or not is_retried(trial.outcome, len(attempts), self._retries):
            return
        case = self._make_case(name, len(attempts) + 1)
        self._again.append(Batch(id=case.id, cases=(case,), process="fresh"))

    def done(self) -> bool:
        """All is asked and told."""
        return not (self._pieces or self._again or self._pending)

    def _make_case(self, name: str, attempt: int) -> Case:
        case = self._cases[name]
        arguments: dict[str, Value] = {CASE: case.name}
        if attempt > 1:
            arguments[ATTEMPT] = attempt
        tolerance = case.work.tolerance if isinstance(case.work, KernelWork) else None
        return Case(
            id=name_attempt(name, attempt),
            kernel=case.testcase,
            arguments=arguments,
            check=CheckPolicy(tolerance=tolerance),
            timing=None,
            limits=_limit_runner(case),
            expected_s=self._expected_s.get(name),
        )


def _limit_runner(case: SuiteCase) -> Limits:
    """The limits of what runs a case: memory is a matter of its programs, not of who starts them."""
    if isinstance(case.work, KernelWork):
        return case.limits
    run_s = case.work.run.limit_s or case.limits.run_s
    return msgspec.structs.replace(case.limits, run_s=run_s, memory_bytes=0)
