"""A budget of wall time: selects the most valuable cases that fit, and says why others are left out. First
cases that failed recently, then the cheapest case of each uncovered family, then most failures per second.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from tileyard.base.errors import UsageError
from tileyard.base.model import INFRASTRUCTURE, WELL, Outcome, Record
from tileyard.store.base import RunTime
from tileyard.verbs.test.plan.pieces import NO_COSTS, Costs
from tileyard.verbs.test.plan.plan import make_plan, say_seconds
from tileyard.verbs.test.result.records import Expected

SQUEEZE = 0.98
"""Upper limit of the factor that shrinks the room when a selection does not fit its budget."""


class CaseFacts(Record):
    """The facts that decide a case's worth: ``failures`` of its last ``runs``, and its family."""

    expected: Expected
    family: str
    failures: int = 0
    runs: int = 0

    @property
    def value(self) -> float:
        """Probability of failure per second; 0.5 for a case that never ran."""
        return (self.failures + 1) / (self.runs + 2) / max(self.expected.seconds, 1e-9)


def gather_facts(
    expected: Sequence[Expected],
    families: Sequence[str],
    times: Sequence[RunTime] = (),
) -> tuple[CaseFacts, ...]:
    """The facts of cases with these families, from the records of runs."""
    runs = Counter(time.case for time in times if time.outcome not in INFRASTRUCTURE)
    failures = Counter(time.case for time in times if is_failure(time.outcome))
    return tuple(
        CaseFacts(
            expected=one,
            family=family,
            failures=failures[one.case],
            runs=runs[one.case],
        )
        for one, family in zip(expected, families, strict=True)
    )


def is_failure(outcome: Outcome) -> bool:
    """Whether an outcome shows an error in the case."""
    return outcome not in WELL and outcome not in INFRASTRUCTURE


def fit_budget(
    facts: Sequence[CaseFacts], budget_s: float, slots: int, costs: Costs = NO_COSTS
) -> dict[str, str]:
    """The cases that are left out, in suite order, each with its reason. The others are the most valuable
    whose plan on ``slots`` ends within ``budget_s``. Raises UsageError if none fits.
    """
    if slots < 1:
        raise UsageError(f"{slots} slots run nothing", "there must be at least one")
    ranked = rank(facts)
    room_s = budget_s * slots
    while True:
        left_out = _leave_out(ranked, budget_s, room_s, costs)
        expected = [one.expected for one in facts if one.expected.case not in left_out]
        if not expected:
            shortest_s = min((one.expected.seconds for one in facts), default=0.0)
            raise UsageError(
                f"no case fits into a budget of {say_seconds(budget_s)}:"
                f" the shortest of {len(facts)} is expected to take {say_seconds(shortest_s)}"
            )
        plan = make_plan(expected, slots, "auto", costs)
        if plan.predicted_s <= budget_s * (1 + 1e-9):
            cases = (one.expected.case for one in facts)
            return {case: left_out[case] for case in cases if case in left_out}
        # Slots end unevenly, or processes start late: shrink the room in proportion to the excess.
        used_s = sum(one.seconds for one in expected)
        room_s = min(room_s, used_s) * min(SQUEEZE, budget_s / plan.predicted_s)


def rank(facts: Sequence[CaseFacts]) -> list[CaseFacts]:
    """All cases, the first to run at the front."""
    by_value = sorted(facts, key=lambda one: -one.value)
    covered = {one.family for one in facts if one.failures}
    cheapest: dict[str, CaseFacts] = {}
    for one in sorted(by_value, key=lambda one: one.expected.seconds):
        if one.family not in covered:
            cheapest.setdefault(one.family, one)

    def place(one: CaseFacts) -> int:
        if one.failures:
            return 0
        return 1 if cheapest.get(one.family) is one else 2

    return sorted(by_value, key=place)  # stable: in each place by value


def _leave_out(
    ranked: Iterable[CaseFacts], budget_s: float, room_s: float, costs: Costs
) -> dict[str, str]:
    """Take as many as there is room for, in their order; returns why each of the others has no room."""
    left_out: dict[str, str] = {}
    started: set[str] = set()
    for one in ranked:
        case, testcase = one.expected.case, one.expected.testcase
        start_s = costs.case_s + (0.0 if testcase in started else costs.piece_s)
        needs_s = one.expected.seconds + start_s
        if one.expected.seconds + costs.process_s > budget_s:
            left_out[case] = (
                f"takes {say_seconds(one.expected.seconds + costs.process_s)} alone,"
                f" more than the budget of {say_seconds(budget_s)}"
            )
        elif needs_s > room_s:
            left_out[case] = (
                f"takes {say_seconds(needs_s)}, and {say_seconds(room_s)} of all slots' time"
                " were left when its turn came"
            )
        else:
            started.add(testcase)
            room_s -= needs_s
    return left_out
