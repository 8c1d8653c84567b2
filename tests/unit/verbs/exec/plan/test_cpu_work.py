"""What of a Program is work on a CPU."""

from tileyard.base.model import Kernel
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.verbs.exec.plan.grounds import as_cpu_work

PROGRAM = """def scale(X: float32[64], Y: out.float32[64]):
    bx: grid[2]
    threads(128)
    t: shared.float32[16]

    for k in pipelined(2, stages=3):
        copy(X[bx * 32 + k * 16 : +16], t)
        copy(t, Y[bx * 32 + k * 16 : +16])
"""


def test_threads_and_stages_are_no_work() -> None:
    """Programs that differ in them alone come to the same text, which is a Program's; no other does."""
    others = {
        PROGRAM.replace("threads(128)", "threads(32, 4)"),
        PROGRAM.replace("stages=3", "stages=2"),
        PROGRAM.replace("    threads(128)\n", ""),
    }
    found = {as_cpu_work(Kernel(name="scale", program=text)).program for text in {PROGRAM, *others}}
    expected = 1
    assert len(found) == expected
    (work,) = found
    assert print_program(read_program(work)) == work
    assert as_cpu_work(Kernel(name="scale", program=PROGRAM.replace("[2]", "[1]"))).program != work
