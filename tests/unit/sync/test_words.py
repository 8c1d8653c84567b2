"""The words for a hazard."""

import numpy as np

from tileyard.ir.hazards import LateRun
from tileyard.ir.reader import read_program
from tileyard.sync.words import Words

SUMS = """
def f(x: out.float32[4]):
    threads(128)
    with roles:
        with role(0, 64):
            x[3] = 0.0
        with role(64, 128):
            for i in parallel(8):
                x[i % 2] = cast(i, float32)
"""


def test_a_race_of_the_threads_of_one_statement_is_no_matter_of_barriers() -> None:
    """Whatever role they are in."""
    run = LateRun(read_program(SUMS), [np.zeros(4, np.float32)])
    run.grid()
    (finding,) = (Words({}).describe(hazard) for hazard in run.hazards.values())
    assert (finding.kind, finding.roles) == ("race", (2, 2))
    assert (
        finding.fix
        == "let one thread do it, as in T.Parallel(1) or T.serial, or use an atomic update or a reduction"
    )


def fixes_of(text: str) -> dict[str, str]:
    """The fix that each kind names."""
    run = LateRun(read_program(text), [np.zeros(4, np.float32)])
    run.grid()
    found = [Words({}).describe(hazard) for hazard in run.hazards.values()]
    return {finding.kind: finding.fix for finding in found}


CIRCLE = """
def f(x: out.float32[4]):
    threads(2)
    free: barrier[1]
    full: barrier[1]

    init_barrier(free)
    init_barrier(full)
    with roles:
        with role(0, 1):
            for k in serial(2):
                if k >= 0:
                    wait_barrier(free[0], 0)
                x[0] = 1.0
            arrive(full[0])
        with role(1, 2):
            wait_barrier(full[0], 0)
            x[1] = 1.0
            arrive(free[0])
"""
UNKNOWN = "an arrive is missing or comes too late, or a parity is wrong"


def test_first_waits_that_block_each_other_are_named() -> None:
    """Only if they come first of all: a later one may wait for what is really missing."""
    assert fixes_of(CIRCLE)["deadlock"].startswith("each waits for what another one does ")
    assert fixes_of(CIRCLE.replace("k >= 0", "k >= 1"))["deadlock"] == UNKNOWN


TOO_MANY = """
def f(x: out.float32[4]):
    threads(2)
    full: barrier[3]

    init_barrier(full)
    with roles:
        with role(0, 1):
            arrive(full[0], count=2)
            x[0] = 1.0
            arrive(full[0], count=2)
        with role(1, 2):
            wait_barrier(full[0], 0)
            x[1] = 1.0
"""


def test_arrivals_that_were_too_many_are_not_called_missing() -> None:
    """They have not counted, so the wait behind them says nothing."""
    fixes = fixes_of(TOO_MANY)
    assert (
        fixes["extra arrive"] == "an arrive is doubled, or the barrier's arrive_count is too small"
    )
    assert fixes["deadlock"] == UNKNOWN
    missing = fixes_of(
        TOO_MANY.replace("            arrive(full[0], count=2)\n        with", "        with")
    )
    assert missing["deadlock"].startswith("1 more arrivals at full[0] are missing ")
