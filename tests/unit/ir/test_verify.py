"""The verifier: what is legal passes, and each broken rule names its statement."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tileyard.base.errors import InvalidProgramError
from tileyard.ir.nodes import Buffer, Const, Layout, Program, Tensor, Var
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.testing.programs import programs

HEAD = """\
def f(A: float32[m, 8], B: out.float16[8], I: inout.int32[m, 8], n: int64, x: float32):
    m: dim
    bx: grid[4]
    t: local.int32[4]
    a: shared.float32[8, 4]
    b: shared.float32[4, 8]
    c: fragment.float32[8, 8]
    row: fragment.float32[8]
    flag: local.bool[8]

    t[0] = 1
"""


def program_of(*lines: str) -> Program:
    """A Program with a standard head, one statement, and these lines."""
    return read_program(HEAD + "".join(f"    {line}\n" for line in lines))


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_generated_programs_are_legal(program: Program) -> None:
    """The verifier accepts every Program of the generator."""
    expected = None
    assert verify(program) is expected  # type: ignore[func-returns-value]


def test_legal_program_passes() -> None:
    """Every statement in its legal form is accepted."""
    expected = None
    program = program_of(
        "copy(A[bx * 8 : +8, 0 : +4], a)",
        "copy(a[:, 0], row)",
        "gemm(a, b, c)",
        "gemm(b, a, c[0 : +4, 0 : +4], transpose_a=False)",
        "gemm(a, a, c, transpose_b=True)",
        'reduce(c, row, kind="max", axis=0, clear=False)',
        'reduce(c, c[0, :], kind="sum", axis=0)',
        "v = x * 2.0",
        "for l in pipelined(4, order=(1, 0), stage=(0, 1), group=((0,), (1,))):",
        "    t[0] = l",
        "for k in pipelined(4, stages=2):",
        "    if k > 2:",
        "        break",
        "while t[0] > 0:",
        "    t[0] = t[0] - 1",
        "for i, j in parallel(8, 8):",
        "    I[bx, j] = int32(c[i, j]) + I[i, j]",
        "B[0] = float16(v)",
        "old = atomic_max(c[0, 0], v)",
        'print("old", old, t[0])',
        'assert old > 0.0, "not positive"',
    )
    assert verify(program) is expected  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["A[0, 0] = 1.0"], "A is an `in` parameter, and it is written in `A[0, 0] = 1.0`"),
        (["fill(A, 1)"], "A is an `in` parameter, and it is written in `fill(A, 1)`"),
        (["t[0] = typed(q, int32)"], "q is used before it is bound in `t[0] = typed(q, int32)`"),
        (["t[0] = typed(n, int32)"], "n is int64, and is read as int32 in `t[0] = typed(n, int32)`"),
        (["t[0] = 1.5"], "t holds int32, the value is float32 in `t[0] = 1.5`"),
        (["atomic_add(A[0, 0], 1.0)"],
         "A is an `in` parameter, and it is written in `atomic_add(A[0, 0], 1.0)`"),
        (["atomic_or(c[0, 0], 1.0)"], "atomic or does not take float32 in `atomic_or(c[0, 0], 1.0)`"),
        (["atomic_add(flag[0], True)"], "atomic add does not take bool in `atomic_add(flag[0], True)`"),
        (["v: int64 = atomic_add(t[0], 1)"], "v is int64, t holds int32 in `v: int64 = atomic_add(t[0], 1)`"),
        (["assert t[0]"], "the condition is int32, not bool in `assert t[0]`"),
        (["print(\"t\", typed(q, int32))"],
         "q is used before it is bound in `print(\"t\", typed(q, int32))`"),
        (["t[0, 0] = 1"], "t has 1 dimensions, not 2 in `t[0, 0] = 1`"),
        (["t[x] = 1"], "an index of t is float32, not an integer in `t[x] = 1`"),
        (["t[0] = t[1] + n"], "add has arguments of different types: int32, int64 in `t[0] = t[1] + n`"),
        (["t[0] = exp(t[1])"], "exp does not take int32 in `t[0] = exp(t[1])`"),
        (["t[0] = 1 if t[0] else 2"],
         "the condition of select is int32, not bool in `t[0] = 1 if t[0] else 2`"),
        (["t[0] = reinterpret(n, int32)"],
         "reinterpret changes the width: int64 to int32 in `t[0] = reinterpret(n, int32)`"),
        (["t[0] = max(1)"], "max takes 2 arguments, not 1 in `t[0] = max(1)`"),
        (["v: int64 = t[0]"], "v is int64, its value int32 in `v: int64 = t[0]`"),
        (["v = 1", "v = 2"], "v is declared twice in `v = 2`"),
        (["for n in serial(3):", "    t[0] = 1"], "n is declared twice in `for n in serial(3):`"),
        (["for i in serial(n):", "    t[0] = 1"], "i is int32, the extent int64 in `for i in serial(n):`"),
        (["for i in serial(4, stages=2):", "    t[0] = i"],
         "a serial loop has 2 stages in `for i in serial(4, stages=2):`"),
        (["for i in serial(4, order=(0,), stage=(0,)):", "    t[0] = i"],
         "a serial loop has a schedule in `for i in serial(4, order=(0,), stage=(0,)):`"),
        (["for i in pipelined(4, order=(0,)):", "    t[0] = i"],
         "a schedule has the places of 1 statements and the stages of 0 in `for i in pipelined(4, "
         "order=(0,)):`"),
        (["for i in pipelined(4, order=(1, 2), stage=(0, 1)):", "    t[0] = i"],
         "(1, 2) is not an order of 2 statements in `for i in pipelined(4, order=(1, 2), stage=(0, 1)):`"),
        (["for i in pipelined(4, order=(1, 0), stage=(0, -1)):", "    t[0] = i"],
         "(0, -1) has a stage before the first in `for i in pipelined(4, order=(1, 0), stage=(0, -1)):`"),
        (["for i in pipelined(4, group=((0,), (0, 1))):", "    t[0] = i"],
         "((0,), (0, 1)) are no groups of statements in `for i in pipelined(4, group=((0,), (0, 1))):`"),
        (["if t[0]:", "    t[0] = 1"], "the condition is int32, not bool in `if t[0]:`"),
        (["while x:", "    t[0] = 1"], "the condition is float32, not bool in `while x:`"),
        (["break"], "break has no serial loop to leave in `break`"),
        (["for i in parallel(4):", "    break"], "break has no serial loop to leave in `break`"),
        (["copy(a, b)"], "the extents of a and b are not seen to match in `copy(a, b)`"),
        (["copy(A[0 : +m, 0], row)"],
         "the extents of A and row are not seen to match in `copy(A[:, 0], row)`"),
        (["copy(a[4 : +8, :], a)"],
         "out of bounds: a[4:12, 0:4] is outside of a's shape (8, 4) in `copy(a[4 : +8, :], a)`"),
        (["fill(a[0], 1)"], "a has 2 dimensions, not 1 in `fill(a[0], 1)`"),
        (["gemm(a, a, c)"], "gemm's operands differ in n in `gemm(a, a, c)`"),
        (["gemm(b, a, c)"], "gemm's operands differ in m in `gemm(b, a, c)`"),
        (["gemm(a, b, t)"], "t is not a matrix in `gemm(a, b, t)`"),
        (["gemm(a, b, I[0 : +8, :])"],
         "gemm does not take float32, float32, int32 in `gemm(a, b, I[0 : +8, :])`"),
        (['reduce(c, row, kind="sum", axis=2)'],
         'axis 2 is not one of the 2 of c in `reduce(c, row, kind="sum", axis=2)`'),
        (['reduce(c, t, kind="sum", axis=0)'],
         'the extents of t are not those of c without one axis in `reduce(c, t, kind="sum", axis=0)`'),
        (['reduce(c, row, kind="bitor", axis=0)'],
         'reduce bitor does not give float32 in `reduce(c, row, kind="bitor", axis=0)`'),
        (['reduce(c, flag, kind="sum", axis=0)'],
         'reduce sum does not give bool in `reduce(c, flag, kind="sum", axis=0)`'),
        (["if n > 3:", "    v = 1", "t[0] = v"], "v is used before it is bound in `t[0] = v`"),
        (["for i in serial(3):", "    v = 1", "t[0] = i"], "i is used before it is bound in `t[0] = i`"),
        (["for i in serial(3):", "    v = 1", "t[0] = v"], "v is used before it is bound in `t[0] = v`"),
    ],
)  # fmt: skip
def test_broken_rule_quotes_its_statement(lines: list[str], message: str) -> None:
    """A Program that breaks a rule is refused with the rule and the statement."""
    expected = message
    with pytest.raises(InvalidProgramError) as caught:
        verify(program_of(*lines))
    assert caught.value.message == expected


def test_culprit_is_numbered_in_pre_order() -> None:
    """The number counts statements before the culprit, nested bodies included."""
    program = program_of(
        "for i in serial(3):",
        "    if i > 1:",
        "        t[0] = 2",
        "    else:",
        "        t[0] = 3",
        "t[0] = x",
    )
    expected = 5
    with pytest.raises(InvalidProgramError) as caught:
        verify(program)
    assert caught.value.statement == expected


I0 = Var("i0", "int32")


def _replace(program: Program, **changes: object) -> Program:
    return msgspec.structs.replace(program, **changes)


def _tile(**changes: object) -> Buffer:
    tile = Buffer("q", "float32", (Const(4, "int32"),), "shared")
    return msgspec.structs.replace(tile, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a b"}, "'a b' cannot be a name"),
        ({"dims": (Var("m", "int32"), Var("k", "int32"))}, "no parameter has k as one of its dimensions"),
        ({"dims": (Var("m", "float32"),)}, "m is float32, not an integer"),
        ({"dims": ()}, "m is used before it is bound"),
        ({"threads": (0,)}, "a block of (0,) threads is empty"),
        ({"buffers": (_tile(strides=(Const(2, "int32"),)),)}, "q has strides and is not a parameter"),
        ({"buffers": (_tile(view_of="r"),)}, "q cannot be a view of r"),
        ({"buffers": (_tile(view_of="A"),)}, "q cannot be a view of A"),
        ({"buffers": (_tile(name="r"), _tile(view_of="r", dtype="int8"))}, "q has 32 bits, r 128"),
        ({"buffers": (_tile(shape=(Var("m", "int32"),)),)}, "q is tile-local and its layout is not constant"),
        ({"buffers": (_tile(shape=(Const(-1, "int32"),)),)}, "the shape of q is negative"),
        ({"buffers": (_tile(name="A"),)}, "A is declared twice"),
        ({"buffers": (_tile(dtype="float31"),)}, "float31 is not a scalar type"),
        ({"buffers": (_tile(layout=Layout(())),)}, "the layout of q has no place"),
        ({"buffers": (_tile(layout=Layout((I0,), thread=I0)),)},
         "the layout of a fragment, and of nothing else, says threads: q"),
        ({"buffers": (_tile(scope="fragment", layout=Layout((I0,))),)},
         "the layout of a fragment, and of nothing else, says threads: q"),
        ({"buffers": (_tile(scope="fragment", layout=Layout((I0,), thread=Var("copy", "int32"))),)},
         "copy is used before it is bound"),
        ({"buffers": (_tile(layout=Layout((Var("bx", "int32"),))),)}, "bx is used before it is bound"),
        ({"buffers": (_tile(layout=Layout((Const(1.0, "float32"),))),)},
         "the layout of q is float32, not an integer"),
        ({"buffers": (_tile(name="r"), _tile(view_of="r", layout=Layout((I0,))))},
         "q has no elements of its own that a layout could place"),
        ({"params": (Tensor(_tile(scope="global", layout=Layout(())), "in"),), "dims": ()},
         "the layout of q has no place"),
        ({"params": (Tensor(_tile(), "in"),), "dims": ()}, "parameter q is not in global memory"),
    ],
)  # fmt: skip
def test_broken_head_is_refused(changes: dict[str, object], message: str) -> None:
    """Parameters, dimensions, grid and buffers are checked before any statement."""
    expected = (message, -1)
    with pytest.raises(InvalidProgramError) as caught:
        verify(_replace(program_of(), **changes))
    assert (caught.value.message, caught.value.statement) == expected


@pytest.mark.parametrize(
    ("literal", "message"),
    [
        (Const(300, "int8"), "300 is not a value of int8"),
        (Const(1.5, "int32"), "1.5 is not a value of int32"),
        (Const(float("nan"), "float32"), "nan is not a value of float32"),
        (Const(1, "bool"), "1 is not a value of bool"),
        (Const(1, "int31"), "int31 is not a scalar type"),
    ],
)
def test_literal_outside_its_type_is_refused(literal: Const, message: str) -> None:
    """A literal must be a value of its type."""
    expected = message
    program = program_of()
    tile = _tile(shape=(literal,))
    with pytest.raises(InvalidProgramError) as caught:
        verify(_replace(program, buffers=(tile,)))
    assert caught.value.message == expected
