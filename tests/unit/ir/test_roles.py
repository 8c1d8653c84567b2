"""Roles: bodies that advance side by side, in text, by the rules, and interpreted."""

import re

import numpy as np
import pytest

from tileyard.base.errors import InvalidProgramError, KernelFault
from tileyard.ir.interpret import interpret
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.passes.settle import settle

PIPE = """
def pipe(A: float32[6, 4], B: out.float32[6, 4]):
    full: shared.int32[1]
    free: shared.int32[1]
    tile: shared.float32[4]
    fill(full, 0)
    fill(free, 0)
    with roles:
        with role:
            for k in serial(6):
                wait(free[0] & 1 != (k + 1) % 2, "for a free tile")
                copy(A[k, :], tile)
                full[0] = full[0] + 1
        with role:
            for j in serial(6):
                wait(full[0] & 1 != j % 2, "for a full tile")
                copy(tile, B[j, :])
                free[0] = free[0] + 1
"""


def test_roles_keep_in_step() -> None:
    """Every tile is used before it is filled again."""
    expected = np.arange(24, dtype=np.float32).reshape(6, 4)
    (got,) = interpret(read_program(PIPE), [expected])
    np.testing.assert_array_equal(got, expected)


def test_roles_survive_text() -> None:
    """Printed and read again they are the same."""
    program = read_program(PIPE)
    verify(program)
    assert read_program(print_program(program)) == program


def test_a_deadlock_names_every_wait() -> None:
    """Of the roles that have not ended."""
    program = read_program(PIPE.replace("free[0] = free[0] + 1", "pass"))
    expected = "deadlock: nothing ends the wait for a free tile; deadlock: nothing ends the wait for a full"
    with pytest.raises(KernelFault, match=re.escape(expected)):
        interpret(program, [np.zeros((6, 4), np.float32)])


def test_what_nobody_can_end_is_a_deadlock_without_roles_too() -> None:
    """A wait outside of roles holds at once, or never."""
    text = """
def alone(n: int32, Y: out.int32[1]):
    wait(n > 0, "at home")
    Y[0] = n
"""
    (got,) = interpret(read_program(text), [], [3])
    assert list(got) == [3]
    with pytest.raises(KernelFault, match="deadlock: nothing ends the wait at home"):
        interpret(read_program(text), [], [0])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("with role:\n            for j", "if True:\n            for j"), "`with role:`"),
        (("wait(free[0] & 1 != (k + 1) % 2,", "wait(free[0],"), "int32, not bool"),
        (("for k in serial(6)", "for k in parallel(6)"), "do not wait"),
    ],
)
def test_what_makes_no_sense_is_refused(change: tuple[str, str], expected: str) -> None:
    """By reader or verifier."""
    with pytest.raises(InvalidProgramError, match=re.escape(expected)):
        verify(read_program(PIPE.replace(*change)))


def test_roles_stand_in_no_loop() -> None:
    """Each has loops of its own."""
    text = """
def again(Y: out.int32[1]):
    for r in serial(2):
        with roles:
            with role:
                Y[0] = r
"""
    with pytest.raises(InvalidProgramError, match="roles stand in no loop"):
        verify(read_program(text))


HINTS = """\
def asked(A: float16[64, 64], B: out.float32[64, 64]):
    bx: grid[1]
    threads(256)
    a: shared.float16[64, 64]
    c: fragment.float32[64, 64]
    full: barrier[128]

    init_barrier(full)
    with roles:
        with role(0, 128, registers=24):
            copy(A, a)
            arrive(full[0], count=128)
        with role(128, 256, registers={count}):
            wait_barrier(full[0], 0)
            gemm(a, a, c, clear=True, policy="full_row")
            copy(c, B)
"""


def test_hints_survive_text_and_change_no_result() -> None:
    """Registers of roles, and how warps share a product; what is settled has neither."""
    program = read_program(HINTS.format(count=240))
    verify(program)
    text = print_program(program)
    assert read_program(text) == program
    assert "with role(128, 256, registers=240):" in text
    settled = print_program(settle(program).program)
    assert "registers" not in settled
    assert "policy" not in settled


@pytest.mark.parametrize("count", [8, 25, 264])
def test_registers_are_what_a_thread_can_ask_for(count: int) -> None:
    """A multiple of 8 from 24 to 256."""
    with pytest.raises(InvalidProgramError, match=rf"\(24, {count}\) registers: a multiple of 8"):
        verify(read_program(HINTS.format(count=count)))


def test_a_role_says_nothing_else() -> None:
    """Another word for a role is refused."""
    with pytest.raises(InvalidProgramError, match="a role has no warps"):
        read_program(HINTS.replace("registers={count}", "warps=4"))
