"""What of an imported history runs here: one shard of it, and of that what fits into a budget.

For suites, which have policies and lists too, ``outlook`` does the same.
"""

from collections.abc import Sequence

from tileyard.model import Record
from tileyard.suite.budget import CaseFacts, fit_budget
from tileyard.suite.pieces import NO_COSTS, Costs
from tileyard.suite.records import Expected, LeftOut
from tileyard.suite.shards import Shard, measure_shards, take_shard

IN_SHARD = "another shard than"
"""Begins the reason of a case that another job runs."""


class Narrowed(Record):
    """The cases that run, in the order of the suite, and those that do not, each with its reason.

    ``shards_s`` is how long each shard is expected to take in all, empty where none was asked for.
    """

    expected: tuple[Expected, ...]
    left_out: tuple[LeftOut, ...] = ()
    shard: Shard | None = None
    shards_s: tuple[float, ...] = ()


def narrow(
    facts: Sequence[CaseFacts],
    shard: Shard | None = None,
    budget_s: float = 0.0,
    slots: int = 1,
    costs: Costs = NO_COSTS,
) -> Narrowed:
    """The shard of these cases, and what of it fits into ``budget_s`` of wall time, if not 0.

    Raises UsageError where nothing is left.
    """
    left_out: dict[str, str] = {}
    shards_s: tuple[float, ...] = ()
    kept = list(facts)
    if shard is not None:
        whole = [one.expected for one in facts]
        shards_s = measure_shards(whole, shard.count)
        taken = {one.case for one in take_shard(whole, shard)}
        reason = f"{IN_SHARD} {shard.number}/{shard.count} runs it"
        left_out = {one.case: reason for one in whole if one.case not in taken}
        kept = [one for one in facts if one.expected.case in taken]
    if budget_s:
        budgeted = fit_budget(kept, budget_s, slots, costs)
        left_out.update({left.case: left.reason for left in budgeted.left_out})
    return Narrowed(
        expected=tuple(one.expected for one in facts if one.expected.case not in left_out),
        left_out=tuple(
            LeftOut(case=one.expected.case, reason=left_out[one.expected.case])
            for one in facts
            if one.expected.case in left_out
        ),
        shard=shard,
        shards_s=shards_s,
    )
