"""Shards: a suite in parts of equal expected time, with stable cuts. Testcases lie end to end on a line, each
as long as its expected time, in an order by hashes: similar names, whose times may be wrong together, lie
apart. The line is cut into equal parts, and a case is in the part of its middle. So a shard exceeds the mean
by one longest case at most, a testcase is in one shard unless cut, and an added case moves only cases next to
cuts.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.verbs.test.result.records import Expected

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})", re.ASCII)


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
