"""What is said of a hazard."""

import numpy as np

from tileyard.check.findings import Words
from tileyard.ir.hazards import LateRun
from tileyard.ir.text import read_program

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
    assert finding.fix == "let one thread do it, as in T.Parallel(1), or use an atomic update"
