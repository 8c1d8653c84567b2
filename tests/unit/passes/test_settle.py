"""The pass that makes asynchronous Programs synchronous: text in, text out, and statements' origins."""

import pytest
from hypothesis import HealthCheck, given, settings

from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.walk import walk
from tileyard.passes.settle import settle
from tileyard.testing.programs import programs

BEFORE = """\
def f(A: float32[8, 4], B: out.float32[8, 4]):
    threads(32)
    a: shared.float32[2, 4]

    with issue("cp_async"):
        copy(A[0, :], a[0, :])
    commit_group(unit="cp_async")
    for k in serial(8):
        if k > 0:
            wait_group(1, unit="cp_async")
        else:
            wait_group(0, unit="cp_async")
            with issue("cp_async"):
                for i in parallel(4):
                    a[1, i] = A[1, i]
        copy(a[k % 2, :], B[k, :])
"""
AFTER = """\
def f(A: float32[8, 4], B: out.float32[8, 4]):
    threads(32)
    a: shared.float32[2, 4]

    copy(A[0, :], a[0, :])
    for k in serial(8):
        if k > 0:
            pass
        else:
            for i in parallel(4):
                a[1, i] = A[1, i]
        copy(a[k % 2, :], B[k, :])
"""


def test_what_is_issued_is_done_at_once() -> None:
    """Issues become what they hold; commits and waits are gone, with no trace."""
    assert print_program(settle(read_program(BEFORE)).program) == AFTER


def test_every_statement_knows_where_it_comes_from() -> None:
    """By the number of the statement before the pass, so lines survive it."""
    before = read_program(BEFORE)
    settled = settle(before)
    statements = list(walk(before.body))
    assert settled.origins == (1, 3, 4, 8, 9, 10)
    for origin, stmt in zip(settled.origins, walk(settled.program.body), strict=True):
        assert type(statements[origin]) is type(stmt)


def test_a_schedule_of_a_loop_is_gone() -> None:
    """A loop that has nothing else of a pipeline is an ordinary one, as it is without a schedule."""
    text = """\
def f(B: out.float32[4]):

    for i in pipelined(2, order=(1, 0), stage=(0, 1)):
        B[i] = 1.0
    for j in pipelined(2, stages=2, group=((0,),)):
        B[j + 2] = 1.0
"""
    settled = print_program(settle(read_program(text)).program)
    assert "for i in serial(2):" in settled
    assert "for j in pipelined(2, stages=2):" in settled


def test_threads_are_iterations() -> None:
    """One after the other, which is an order that they may take."""
    text = "def f(B: out.float32[4]):\n    threads(4)\n\n    for t in threads(4):\n        B[t] = 1.0\n"
    settled = print_program(settle(read_program(text)).program)
    assert settled == text.replace("in threads(4)", "in serial(4)")


def test_a_barrier_that_is_given_is_gone() -> None:
    """Only those of the kernel itself are waited at."""
    text = """\
def f(B: out.float32[2]):
    threads(2)

    with roles:
        with role(0, 1):
            B[0] = 1.0
            sync(threads=1, count=2, given=True)
        with role(1, 2):
            sync(threads=1, count=2, given=True)
            B[1] = 1.0
"""
    program = read_program(text)
    assert print_program(program) == text
    settled = print_program(settle(program).program)
    assert "sync" not in settled
    assert "given" not in settled


def test_a_layout_is_gone() -> None:
    """Where elements lie is for GPUs."""
    text = (
        "def f(A: int32[8, 8]):\n    t: shared.int32[8, 8] = layout(i0, i1 ^ i0)\n"
        "    A = layout(i1, i0)\n\n    pass\n"
    )
    assert print_program(settle(read_program(text)).program) == text.replace(
        " = layout(i0, i1 ^ i0)\n    A = layout(i1, i0)", ""
    )


def test_a_role_that_only_waits_is_gone() -> None:
    """A role without a statement is none."""
    text = """\
def f(B: out.float32[1]):
    with roles:
        with role:
            wait_group(0, unit="cp_async")
        with role:
            B[0] = 1.0
"""
    settled = settle(read_program(text))
    assert print_program(settled.program).count("with role:") == 1
    assert settled.origins == (0, 2)


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_a_synchronous_program_stays_as_it_is(program: Program) -> None:
    """Nothing to settle, nothing changed: each statement comes from itself."""
    settled = settle(program)
    assert settled.program == program
    assert settled.origins == tuple(range(len(settled.origins)))
