"""What of a program is compared between two versions of it."""

from typing import Literal

import msgspec

Better = Literal["lower", "higher"]
"""Which of two numbers is the better one."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a run step in nanoseconds, or a number that it prints.

    ``cpu_time`` is the time for which it and the processes that it waited for had a CPU, ``wall_time`` that from its start to its
    exit. Of what is ``printed`` the first group of the regular expression ``pattern`` is the number, in the last line of standard output
    that has it.
    """

    of: Literal["cpu_time", "wall_time", "printed"]
    pattern: str = ""
    unit: str = "ns"
    better: Better = "lower"
