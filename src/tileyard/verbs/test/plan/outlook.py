"""Which cases of a suite, or of an imported history, will run, and how long each should take."""

import datetime
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tileyard.base.model import CommandWork, Record
from tileyard.store.base import RunTime
from tileyard.targets.registry import COMMAND
from tileyard.verbs.test.options.suites import Wish
from tileyard.verbs.test.plan.budget import fit_budget, gather_facts
from tileyard.verbs.test.plan.choosing import choose, find_policy, find_uncovered
from tileyard.verbs.test.plan.durations import Known, expect, learn
from tileyard.verbs.test.plan.pieces import NO_COSTS, Costs
from tileyard.verbs.test.plan.shards import Shard, measure_shards, take_shard
from tileyard.verbs.test.result.records import Expected, LeftOut, Selection, Suite, SuiteCase

IN_SHARD = "another shard than"
"""Beginning of the reason of a case that another job runs."""


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


Expecting = Callable[[Sequence[RunTime]], dict[str, Expected]]
"""Returns the expected time of every case of a suite by these times, by its id."""


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
