"""Describes which number of a program is compared between two versions of it."""

from typing import Literal

import msgspec

Better = Literal["lower", "higher"]
"""Which of two numbers is better."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a run step in nanoseconds, or a number that it prints.

    ``cpu_time`` is the CPU time of the step and of the processes that it waited for, ``wall_time`` that from its start to its
    exit. For ``printed``, the number is the first group of the regular expression ``pattern``, in the last line of standard output
    that matches it.
    """

    of: Literal["cpu_time", "wall_time", "printed"]
    pattern: str = ""
    unit: str = "ns"
    better: Better = "lower"
