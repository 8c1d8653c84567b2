"""What a run would come to, told without running anything: the plan, and what is usual instead."""

from collections import Counter
from collections.abc import Sequence

from tileyard.model import Record
from tileyard.suite.pieces import NO_COSTS, Costs
from tileyard.suite.plan import Split, WhatIf, compare, make_plan
from tileyard.suite.records import Expected, LeftOut, Plan
from tileyard.suite.shards import Shard


class Prediction(Record):
    """A plan beside other ways to run the same cases.

    ``floor_s`` is max(longest case, total / slots) without any start-up: no split can be faster.
    ``sources`` counts what the expected times come from. ``shards_s`` is what each shard takes in all.
    ``then`` is what runs afterwards: programs and kernels of one suite are parts of its run.
    """

    cases: int
    testcases: int
    floor_s: float
    plan: Plan
    instead: tuple[WhatIf, ...]
    sources: dict[str, int]
    left_out: tuple[LeftOut, ...] = ()
    shard: Shard | None = None
    shards_s: tuple[float, ...] = ()
    then: tuple["Prediction", ...] = ()

    @property
    def predicted_s(self) -> float:
        """When the last part ends."""
        return self.plan.predicted_s + sum(part.predicted_s for part in self.then)


def predict(
    expected: Sequence[Expected], slots: int, split: Split = "auto", costs: Costs = NO_COSTS
) -> Prediction:
    """The plan for these cases, and what is usual. Raises UsageError where no plan can be made."""
    plan = make_plan(expected, slots, split, costs)
    return Prediction(
        cases=len(expected),
        testcases=len({one.testcase for one in expected}),
        floor_s=find_floor_s(expected, slots),
        plan=plan,
        instead=compare(expected, slots, costs),
        sources=dict(Counter(one.source for one in expected)),
    )


def find_floor_s(expected: Sequence[Expected], slots: int) -> float:
    """No split of testcases and no order of their cases can be faster than this."""
    seconds = [one.seconds for one in expected]
    return max(*seconds, sum(seconds) / slots)
