"""The kinds of hazards, and the causes of barriers that stop a block: names used in all results."""

from typing import Literal

HazardKind = Literal[
    "read before arrival",
    "wait without group",
    "overwritten in flight",
    "source changed in flight",
    "overwritten before release",
    "race",
    "missing fence",
    "uninitialised",
    "never written",
    "out of bounds",
    "deadlock",
    "bytes",
    "extra arrive",
]

Cause = Literal[
    "",
    "given barrier",
    "nobody arrives",
    "too few arrive",
    "overtaken",
    "first waits block",
    "not held back",
    "counts differ",
    "crowded",
    "arrives before bytes",
    "count too small",
    "nobody waits",
]
