"""Groups cases into pieces, each in its own order, and pieces into shards."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.verbs.test.result.result import Expected, Piece

Seconds = NDArray[np.float64]
Indices = NDArray[np.int64]
_ROUNDING = 1 + 1e-9
"""Five cases of a minute fit into five minutes, whatever the rounding of their sum."""
_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})", re.ASCII)


class Costs(Record):
    """The cost of starting a process, in seconds: ``startup_s`` before its first case, in whose first
    ``launch_s`` no other can start, and ``lead_s`` before all. A process runs a ``piece``, or each ``case``
    has one. Steps run on ``lanes``, 0 if they do not count; with ``shares_cores`` slots and lanes share as
    many places as the more numerous have.
    """

    startup_s: float = 0.0
    launch_s: float = 0.0
    lead_s: float = 0.0
    lanes: int = 0
    shares_cores: bool = False
    per: Literal["piece", "case"] = "piece"

    @property
    def process_s(self) -> float:
        """The cost of each process; at least its launch."""
        return max(self.startup_s, self.launch_s)

    @property
    def piece_s(self) -> float:
        """The cost of each further piece."""
        return self.process_s if self.per == "piece" else 0.0

    @property
    def case_s(self) -> float:
        """The cost of each case, in whichever piece it is."""
        return self.process_s if self.per == "case" else 0.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """All cases, testcases side by side, with times that include their own process: arrays, because plans for
    100,000 cases are compared. Testcase ``i`` has the cases ``bounds[i]`` to ``bounds[i + 1]``; ``ends_s[j]``
    is the time of the first ``j`` cases, in ``ends_list_s`` too. ``goldens_s`` and ``checks_s`` are times of
    steps beside the device, ``goldens`` the result that each waits for.
    """

    testcases: list[str]
    cases: list[str]
    bounds: Indices
    ends_s: Seconds
    ends_list_s: list[float]
    goldens_s: list[float]
    goldens: list[str]
    checks_s: list[float]

    @property
    def has_steps(self) -> bool:
        """Whether any step runs beside the devices."""
        return any(self.goldens_s) or any(self.checks_s)

    @property
    def totals_s(self) -> Seconds:
        """Time of each testcase."""
        return np.diff(self.ends_s[self.bounds])

    @property
    def counts(self) -> Indices:
        """Number of cases of each testcase."""
        return np.diff(self.bounds)


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """Pieces, the longest first: piece ``i`` has the cases from ``begins[i]`` to ``ends[i]``."""

    begins: Indices
    ends: Indices
    lengths_s: Seconds

    def __len__(self) -> int:
        return len(self.begins)


def gather(expected: Sequence[Expected], costs: Costs) -> Work:
    """Testcases in the order of their first case, their cases in the order given."""
    numbers: dict[str, int] = {}
    members = np.array([numbers.setdefault(one.testcase, len(numbers)) for one in expected])
    order = np.argsort(members, kind="stable")
    seconds = np.array([one.seconds for one in expected])[order] + costs.case_s
    ends_s = np.concatenate(([0.0], np.cumsum(seconds)))
    return Work(
        testcases=list(numbers),
        cases=[expected[place].case for place in order.tolist()],
        bounds=np.searchsorted(members[order], np.arange(len(numbers) + 1)),
        ends_s=ends_s,
        ends_list_s=ends_s.tolist(),
        goldens_s=[expected[place].golden_s for place in order.tolist()],
        goldens=[expected[place].golden for place in order.tolist()],
        checks_s=[expected[place].check_s for place in order.tolist()],
    )


def cut(work: Work, costs: Costs, limit_s: float = inf) -> Cuts:
    """Every case in exactly one piece; a piece takes ``limit_s`` at most, or is a single case."""
    room_s = (limit_s - costs.piece_s) * _ROUNDING
    is_whole = (work.totals_s <= room_s) | (work.counts == 1)
    begins = work.bounds[:-1][is_whole].tolist()
    ends = work.bounds[1:][is_whole].tolist()
    ends_s = work.ends_list_s
    for testcase in np.flatnonzero(~is_whole).tolist():
        begin, last = work.bounds[testcase : testcase + 2].tolist()
        while begin < last:
            # A slice's end, so one less than where the first case that does not fit would end.
            end = bisect_right(ends_s, ends_s[begin] + room_s, begin + 1, last + 1) - 1
            end = max(end, begin + 1)
            begins.append(begin)
            ends.append(end)
            begin = end
    # Differences of long sums: digits below a nanosecond are rounding errors.
    lengths_s = np.round(work.ends_s[ends] - work.ends_s[begins] + costs.piece_s, 9)
    order = np.lexsort((begins, -lengths_s))  # of equals the first one
    return Cuts(
        begins=np.array(begins)[order], ends=np.array(ends)[order], lengths_s=lengths_s[order]
    )


def to_pieces(work: Work, cuts: Cuts) -> tuple[Piece, ...]:
    """The same pieces in the same order, as sent to other processes."""
    owners = np.searchsorted(work.bounds, cuts.begins, side="right") - 1
    columns = (owners.tolist(), cuts.begins.tolist(), cuts.ends.tolist(), cuts.lengths_s.tolist())
    return tuple(
        [
            Piece(
                testcase=work.testcases[owner],
                cases=tuple(work.cases[begin:end]),
                expected_s=length_s,
            )
            for owner, begin, end, length_s in zip(*columns, strict=True)
        ]
    )


NO_COSTS = Costs()


class Shard(Record):
    """Part ``number`` of ``count``, from 1."""

    number: int
    count: int


def parse_shard(text: str) -> Shard:
    """``2/8`` is the second of eight. Raises UsageError."""
    match = _SHARD.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a shard such as 2/8")
    shard = Shard(number=int(match[1]), count=int(match[2]))
    if not 1 <= shard.number <= shard.count:
        raise UsageError(
            f"there is no shard {shard.number} of {shard.count}",
            f"1/{shard.count} to {shard.count}/{shard.count} are" if shard.count else "",
        )
    return shard


def assign_shards(expected: Sequence[Expected], count: int) -> list[int]:
    """The number of each case's shard, from 1. All jobs that share a suite must expect the same times."""
    names = {one.testcase for one in expected}
    hashes = {name: blake2b(name.encode(), digest_size=8).digest() for name in names}
    # The names break the ties of hashes, so that the order of the given cases has no effect.
    order = sorted(
        range(len(expected)),
        key=lambda i: (hashes[expected[i].testcase], expected[i].testcase, expected[i].case),
    )
    times_s = [expected[i].seconds for i in order]
    if not any(times_s):
        times_s = [1.0] * len(order)
    ends_s = list(accumulate(times_s))
    numbers = [1] * len(expected)
    for i, end_s, time_s in zip(order, ends_s, times_s, strict=True):
        middle = (end_s - time_s / 2) / ends_s[-1]
        numbers[i] = min(count, int(middle * count) + 1)
    return numbers


def take_shard(expected: Sequence[Expected], shard: Shard) -> tuple[Expected, ...]:
    """The cases of one shard, in the order given. Raises UsageError if it has none."""
    numbers = assign_shards(expected, shard.count)
    taken = tuple(
        one for one, number in zip(expected, numbers, strict=True) if number == shard.number
    )
    if not taken:  # a job that runs nothing is not green
        raise UsageError(
            f"shard {shard.number}/{shard.count} has no case: there are {len(expected)} in all",
            "take fewer shards",
        )
    return taken


def measure_shards(expected: Sequence[Expected], count: int) -> tuple[float, ...]:
    """The expected total time of each shard."""
    shards_s = [0.0] * count
    for one, number in zip(expected, assign_shards(expected, count), strict=True):
        shards_s[number - 1] += one.seconds
    return tuple(shards_s)
