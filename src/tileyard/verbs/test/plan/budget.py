"""A budget of wall time: selects the most valuable cases that fit, and says why others are left out. First
cases that failed recently, then the cheapest case of each uncovered family, then most failures per second.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import INFRASTRUCTURE, WELL, CommandWork, Outcome, Record
from tileyard.store.base import RunTime
from tileyard.targets.registry import COMMAND
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.plan.choosing import choose, find_policy, find_uncovered
from tileyard.verbs.test.plan.durations import Known, expect, learn
from tileyard.verbs.test.plan.pieces import NO_COSTS, Costs, Shard, measure_shards, take_shard
from tileyard.verbs.test.plan.plan import make_plan, say_seconds
from tileyard.verbs.test.result.result import Expected, LeftOut, Selection, Suite, SuiteCase

SQUEEZE = 0.98
"""Upper limit of the factor that shrinks the room when a selection does not fit its budget."""
IN_SHARD = "another shard than"
"""Beginning of the reason of a case that another job runs."""
Expecting = Callable[[Sequence[RunTime]], dict[str, Expected]]
"""Returns the expected time of every case of a suite by these times, by its id."""


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


class Bounds(Record):
    """Limits of a run besides its policy: a shard, and a wall time on ``slots`` devices."""

    shard: Shard | None = None
    budget_s: float = 0.0
    slots: int = 1
    costs: Costs = NO_COSTS


class Narrowed(Record):
    """Cases that run, in the given order, the others with reasons, and each shard's time, if any."""

    expected: tuple[Expected, ...]
    left_out: tuple[LeftOut, ...]
    shards_s: tuple[float, ...]


def narrow(
    expected: Sequence[Expected],
    families: Sequence[str],
    bounds: Bounds,
    times: Sequence[RunTime] = (),
) -> Narrowed:
    """The shard of these cases, with their families, and what of it fits the budget. ``times`` show which
    have failed. Raises UsageError if nothing is left.
    """
    left_out: dict[str, str] = {}
    shards_s: tuple[float, ...] = ()
    if (shard := bounds.shard) is not None:
        shards_s = measure_shards(expected, shard.count)
        taken = {one.case for one in take_shard(expected, shard)}
        reason = f"{IN_SHARD} {shard.number}/{shard.count} runs it"
        left_out = {one.case: reason for one in expected if one.case not in taken}
    if bounds.budget_s:
        facts = gather_facts(expected, families, times)
        kept = [one for one in facts if one.expected.case not in left_out]
        left_out |= fit_budget(kept, bounds.budget_s, bounds.slots, bounds.costs)
    return Narrowed(
        expected=tuple(one for one in expected if one.case not in left_out),
        left_out=tuple(LeftOut(case=case, reason=why) for case, why in left_out.items()),
        shards_s=shards_s,
    )


class Outlook(Record):
    """The cases that run, and the expected time of each, by its id. ``shards_s`` is as in ``Narrowed``."""

    selection: Selection
    expected: dict[str, Expected]
    shards_s: tuple[float, ...]

    def of(self, cases: Sequence[SuiteCase]) -> tuple[Expected, ...]:
        """Expected times of these cases, in their order."""
        return tuple(self.expected[case.id] for case in cases)


def target_of(case: SuiteCase, kernels: str) -> str:
    """The target of a case: for programs their own, for kernels the given one."""
    return COMMAND if isinstance(case.work, CommandWork) else kernels


def hold_one(case: SuiteCase) -> SuiteCase:
    """A case without named devices: it runs on this host, whatever number it would hold."""
    if not isinstance(case.work, CommandWork) or case.work.devices == 1:
        return case
    return msgspec.structs.replace(case, work=msgspec.structs.replace(case.work, devices=1))


def expect_all(
    suite: Suite,
    times: Sequence[RunTime],
    class_of_target: Mapping[str, str],
    targets: Callable[[SuiteCase], str],
    imported: Mapping[str, Known],
) -> dict[str, Expected]:
    """Expected time of every case on its target's class of devices. ``imported`` times count alone: jobs
    agree on shards only if they expect the same, and their stores differ.
    """
    expected: dict[str, Expected] = {}
    for target, kind in class_of_target.items():
        cases = [case for case in suite.cases if targets(case) == target]
        known = imported or learn(times, target, kind)
        expected.update((one.case, one) for one in expect(cases, known))
    return expected


def look_ahead(
    suite: Suite,
    wish: Wish,
    expecting: Expecting,
    bounds: Bounds,
    times: Sequence[RunTime],
) -> Outlook:
    """Select by policy, lists and wish, then take the shard, then what fits the budget. Shards and what fits
    them ignore ``times``, those of the store: jobs must agree, and each has its own. Raises UsageError if
    nothing is left.
    """
    known = expecting(times)
    if bounds.shard is None:
        return _look_ahead(suite, wish, known, bounds, times)
    chosen = _look_ahead(suite, wish, expecting(()), bounds, ())
    return msgspec.structs.replace(chosen, expected=known)


def _look_ahead(
    suite: Suite,
    wish: Wish,
    expected: dict[str, Expected],
    bounds: Bounds,
    times: Sequence[RunTime],
) -> Outlook:
    expected_s = {case: one.seconds for case, one in expected.items()}
    today = datetime.datetime.now(tz=datetime.UTC).astimezone().date()
    selection = choose(suite, wish, today, expected_s)
    budget_s = bounds.budget_s or find_policy(suite, wish.policy).budget_s
    narrowed = narrow(
        [expected[case.id] for case in selection.cases],
        [case.family for case in selection.cases],
        msgspec.structs.replace(bounds, budget_s=budget_s),
        times,
    )
    kept = _keep(selection, narrowed) if narrowed.left_out else selection
    return Outlook(selection=kept, expected=expected, shards_s=narrowed.shards_s)


def _keep(selection: Selection, narrowed: Narrowed) -> Selection:
    kept = {one.case for one in narrowed.expected}
    cases = tuple(case for case in selection.cases if case.id in kept)
    elsewhere = {one.case for one in narrowed.left_out if one.reason.startswith(IN_SHARD)}
    here = (case for case in selection.cases if case.id not in elsewhere)
    return msgspec.structs.replace(
        selection,
        cases=cases,
        left_out=(*selection.left_out, *narrowed.left_out),
        uncovered=(*selection.uncovered, *find_uncovered(here, cases)),
        quarantined={c.id: q for c in cases if (q := selection.quarantined.get(c.id))},
    )
