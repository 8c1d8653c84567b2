"""The smoke run: of each operator family and class of dtypes one case at least."""

import math
from collections.abc import Mapping, Sequence

from tileyard.suite.dtypes import dtype_class
from tileyard.suite.records import KernelWork, SuiteCase

Stand = tuple[str, str]
"""A family and a class of dtypes."""


def choose_smoke(
    cases: Sequence[SuiteCase], expected_s: Mapping[str, float]
) -> dict[Stand, tuple[str, ...]]:
    """The ids that stand for each family and class of dtypes.

    These are the cases that are declared as smoke cases; where there is none, the one that is expected
    to be the quickest. A case of which nothing is known comes after those of which something is; of
    equals the one with the least data counts, and then the first of the suite.
    """
    members: dict[Stand, list[SuiteCase]] = {}
    for case in cases:
        members.setdefault(stand_of(case), []).append(case)
    return {
        stand: tuple(case.id for case in those if case.smoke)
        or (min(those, key=lambda case: (expected_s.get(case.id, math.inf), _size(case))).id,)
        for stand, those in members.items()
    }


def stand_of(case: SuiteCase) -> Stand:
    """What a case may stand for."""
    return case.family or case.testcase, dtype_class(case.dtype)


def _size(case: SuiteCase) -> int:
    """How many elements its data has; for a kernel, a number that grows with its sizes."""
    if isinstance(case.work, KernelWork):
        sizes = [
            value for value in case.work.arguments.values() if type(value) is int and value > 0
        ]
        return math.prod(sizes)
    return math.prod(case.shape)
