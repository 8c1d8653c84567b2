"""Describes which number of a program is compared between two versions of it."""

from typing import Literal

import msgspec

Better = Literal["lower", "higher"]
"""Which of two numbers is better."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a run step in nanoseconds, or a number that it prints. ``cpu_time`` includes the
    processes it waited for, ``wall_time`` is from start to exit. ``printed``: the first group of
    ``pattern`` in the last line of standard output that matches.
    """

    of: Literal["cpu_time", "wall_time", "printed"]
    pattern: str = ""
    unit: str = "ns"
    better: Better = "lower"
