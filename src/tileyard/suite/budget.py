"""A budget of wall time: the most valuable cases that fit, and why the others are left out.

First what was changed, then what failed recently, then the cheapest case of each family that nothing
covers yet, then whatever finds most failures for its time.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from tileyard.errors import UsageError
from tileyard.model import INFRASTRUCTURE, WELL, Outcome, Record
from tileyard.store.base import RunTime
from tileyard.suite.pieces import NO_COSTS, Costs
from tileyard.suite.plan import make_plan, say_seconds
from tileyard.suite.records import Expected, LeftOut

SQUEEZE = 0.98
"""How much less is tried where a choice does not fit its budget when it is planned."""


class Reason(enum.IntEnum):
    """Why a case is worth its time; the first ones go before the others."""

    CHANGED = 0
    FAILED = 1
    UNCOVERED = 2
    VALUE = 3


class CaseFacts(Record):
    """What a case's worth depends on: ``failures`` of its last ``runs``, and whether it was changed."""

    expected: Expected
    family: str
    is_changed: bool = False
    failures: int = 0
    runs: int = 0

    @property
    def value(self) -> float:
        """How likely it fails, for each second; a case that never ran is as likely to as not."""
        return (self.failures + 1) / (self.runs + 2) / max(self.expected.seconds, 1e-9)


class Budgeted(Record):
    """The cases that run, in the order of the suite, why each does, and those that do not."""

    cases: tuple[str, ...]
    reasons: dict[str, Reason]
    left_out: tuple[LeftOut, ...]
    predicted_s: float


def gather_facts(
    expected: Sequence[Expected],
    families: Sequence[str],
    times: Sequence[RunTime] = (),
    changed: Collection[str] = (),
) -> tuple[CaseFacts, ...]:
    """The facts of cases with these families, from what runs told and from the ids that changed."""
    runs = Counter(time.case for time in times if time.outcome not in INFRASTRUCTURE)
    failures = Counter(time.case for time in times if is_failure(time.outcome))
    return tuple(
        CaseFacts(
            expected=one,
            family=family,
            is_changed=one.case in changed,
            failures=failures[one.case],
            runs=runs[one.case],
        )
        for one, family in zip(expected, families, strict=True)
    )


def is_failure(outcome: Outcome) -> bool:
    """Whether an outcome says that something is wrong with the case."""
    return outcome not in WELL and outcome not in INFRASTRUCTURE


def fit_budget(
    facts: Sequence[CaseFacts], budget_s: float, slots: int, costs: Costs = NO_COSTS
) -> Budgeted:
    """The most valuable cases whose plan on ``slots`` ends within ``budget_s``.

    Raises UsageError where not a single one fits.
    """
    if slots < 1:
        raise UsageError(f"{slots} slots run nothing", "there must be at least one")
    ranked = rank(facts)
    room_s = budget_s * slots
    while True:
        chosen, left_out = _choose(ranked, budget_s, room_s, costs)
        if not chosen:
            shortest_s = min((one.expected.seconds for one in facts), default=0.0)
            raise UsageError(
                f"no case fits into a budget of {say_seconds(budget_s)}:"
                f" the shortest of {len(facts)} is expected to take {say_seconds(shortest_s)}"
            )
        expected = [one.expected for one in facts if one.expected.case in chosen]
        plan = make_plan(expected, slots, "auto", costs)
        if plan.predicted_s <= budget_s * (1 + 1e-9):
            return Budgeted(
                cases=tuple([one.case for one in expected]),
                reasons=chosen,
                left_out=tuple(
                    LeftOut(case=one.expected.case, reason=left_out[one.expected.case])
                    for one in facts
                    if one.expected.case in left_out
                ),
                predicted_s=plan.predicted_s,
            )
        # Slots end unevenly, or processes start late: less must do, by as much as it was too much.
        used_s = sum(one.seconds for one in expected)
        room_s = min(room_s, used_s) * min(SQUEEZE, budget_s / plan.predicted_s)


def rank(facts: Sequence[CaseFacts]) -> list[tuple[Reason, CaseFacts]]:
    """All cases, the one that is to run first in front."""
    by_value = sorted(facts, key=lambda one: -one.value)
    covered = {one.family for one in facts if one.is_changed or one.failures}
    cheapest: dict[str, CaseFacts] = {}
    for one in sorted(by_value, key=lambda one: one.expected.seconds):
        if one.family not in covered:
            cheapest.setdefault(one.family, one)

    def reason_of(one: CaseFacts) -> Reason:
        if one.is_changed:
            return Reason.CHANGED
        if one.failures:
            return Reason.FAILED
        return Reason.UNCOVERED if cheapest.get(one.family) is one else Reason.VALUE

    ranked = [(reason_of(one), one) for one in by_value]
    return sorted(ranked, key=lambda pair: pair[0])  # stable: within a reason by value


def _choose(
    ranked: Iterable[tuple[Reason, CaseFacts]], budget_s: float, room_s: float, costs: Costs
) -> tuple[dict[str, Reason], dict[str, str]]:
    """As many as there is room for, in their order; and why each of the others has none."""
    chosen: dict[str, Reason] = {}
    left_out: dict[str, str] = {}
    started: set[str] = set()
    for reason, one in ranked:
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
            chosen[case] = reason
            started.add(testcase)
            room_s -= needs_s
    return chosen, left_out
