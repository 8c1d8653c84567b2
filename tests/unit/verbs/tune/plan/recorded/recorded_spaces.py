"""Recorded spaces for tests, computed."""

from tileyard.base.model import Outcome
from tileyard.verbs.tune.plan.recorded.space import (
    FORMAT,
    Header,
    Recorded,
    RecordedSpace,
    make_space,
)


def make_valley(length: int = 20) -> RecordedSpace:
    """Two parameters and one best config; one in seven configs does not build."""
    values = tuple(range(length))
    configs = [
        Recorded(config={"a": a, "b": b}, outcome=Outcome.COMPILE_ERROR, build_s=0.5)
        if (a + 2 * b) % 7 == 3
        else Recorded(
            config={"a": a, "b": b},
            time_ns=1000.0 + (a - 11) ** 2 + 3 * (b - 6) ** 2,
            build_s=1.0,
            run_s=0.25 * (1 + b % 3),
            facts={"bytes": 1000 * (1 + a) + b, "kind": "x", "some": 1} if a else {"bytes": b},
        )
        for a in values
        for b in values
    ]
    header = Header(
        tileyard=FORMAT,
        kernel="valley",
        configs=len(configs),
        parameters={"a": values, "b": values},
    )
    return make_space(header, configs, "computed")
