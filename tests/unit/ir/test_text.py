"""The text of Programs: exact both ways, readable, and clear about mistakes."""

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileyard.base.errors import InvalidProgramError
from tileyard.ir.meanings import OPS
from tileyard.ir.nodes import (
    Axis,
    Break,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Program,
    Store,
    Tensor,
    Var,
)
from tileyard.ir.printer import print_expr, print_program, print_statement
from tileyard.ir.reader import read_program
from tileyard.ir.specs import tensors
from tileyard.testing.programs import programs

MATMUL = Path(__file__).parent / "matmul.tile"

HEAD = """\
def f(A: float32[m, 8], B: out.float16[8], n: int64):
    m: dim
    bx: grid[4]
    t: local.int32[4]

"""


def read_body(*lines: str) -> Program:
    """A Program with a standard head and these statements."""
    return read_program(HEAD + "".join(f"    {line}\n" for line in lines))


def make(*body: object) -> Program:
    """A Program over a few names, with these statements."""
    a = Buffer("A", "float32", (Const(8, "int32"),), "global")
    h = Buffer("H", "float16", (Const(8, "int32"),), "global")
    return Program(
        name="f",
        params=(Tensor(a, "inout"), Tensor(h, "in")),
        dims=(),
        grid=(Axis(Var("i", "int32"), Const(8, "int32")),),
        threads=(),
        buffers=(),
        body=body,  # type: ignore[arg-type]
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_any_program_reads_back_as_itself(program: Program) -> None:
    """Text is exact: reading what was printed gives an equal Program and the same text."""
    expected = program
    text = print_program(program)
    got = read_program(text)
    assert got == expected
    assert print_program(got) == text


def test_handwritten_program_is_its_own_canon() -> None:
    """A hand-written file in canonical form prints as it was written."""
    expected = MATMUL.read_text(encoding="utf-8")
    assert print_program(read_program(expected)) == expected


def test_comments_and_spacing_do_not_count() -> None:
    """Text that differs in comments, blank lines and parentheses is the same Program."""
    expected = read_body("t[0] = t[1] + t[2] * 3")
    assert read_body("# a comment", "", "t[0]   = (t[1] + ((t[2] * 3)))  # more") == expected


@pytest.mark.parametrize(
    "value", [0.1, -0.0, 1e-45, 1.7976931348623157e308, math.inf, -math.inf, 1e300, 2.0**-1074]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_floats_are_exact_in_text(value: float, dtype: str) -> None:
    """A float literal comes back with the same bits, sign of zero and infinities included."""
    expected = value.hex()
    store = Store("A", (Var("i", "int32"),), Cast(Const(value, dtype), "float32"))
    (got,) = read_program(print_program(make(store))).body
    assert got == store
    assert isinstance(got, Store)
    assert isinstance(got.value, Cast)
    assert isinstance(got.value.value, Const)
    assert float(got.value.value.value).hex() == expected


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_operation_reads_back(name: str) -> None:
    """Each operation of the table has a spelling that reads back, with literals in any place."""
    dtype = "bool" if OPS[name].accepts == "bool" else "int32"
    if OPS[name].accepts == "float":
        dtype = "float32"
    row = OPS[name]
    leaf: dict[str, list[Expr]] = {
        "bool": [Op("lt", (Var("i", "int32"), Const(3, "int32")), "bool"), Const(True, "bool")],
        "int32": [Var("i", "int32"), Const(-2, "int32"), Const(3, "int32")],
        "float32": [
            Load("A", (Var("i", "int32"),), "float32"),
            *(Const(-2.5, "float32"), Const(math.inf, "float32")),
        ],
    }
    result = {"bool": "bool", "same": dtype, "given": "float32"}[row.result]
    for first in range(len(leaf[dtype])):
        args = [leaf[dtype][(number + first) % len(leaf[dtype])] for number in range(row.arity)]
        if row.condition:
            args[0] = leaf["bool"][0]
        op = Op(name, tuple(args), result)
        expected = make(Let(Var("x", result), op))
        assert read_program(print_program(expected)) == expected


@pytest.mark.parametrize(
    ("outer", "inner"), [(a, b) for a in ("sub", "shl", "lt", "neg", "select") for b in sorted(OPS)]
)
def test_nesting_keeps_its_shape(outer: str, inner: str) -> None:
    """Whatever stands inside whatever, parentheses keep the tree."""
    i = Var("i", "int32")
    row = OPS[inner]
    dtype = {"float": "float32", "bool": "bool"}.get(row.accepts, "int32")
    leaf: Expr = {
        "int32": i,
        "float32": Load("A", (i,), "float32"),
        "bool": Op("eq", (i, i), "bool"),
    }[dtype]
    args = [leaf] * row.arity
    if row.condition:
        args[0] = Op("eq", (i, i), "bool")
    part = Op(inner, tuple(args), {"bool": "bool", "same": dtype, "given": "int32"}[row.result])
    whole = [part] * OPS[outer].arity
    if outer == "select":
        whole[0] = Op("and", (Op("eq", (i, i), "bool"), Op("ne", (i, i), "bool")), "bool")
    result = "bool" if OPS[outer].result == "bool" else part.dtype
    expected = make(Let(Var("x", result), Op(outer, tuple(whole), result)))
    assert read_program(print_program(expected)) == expected


def test_numbers_take_the_type_beside_them() -> None:
    """A bare number has the dtype of its neighbour or of the element stored to, else 32 bits."""
    i = Var("i", "int32")
    half = Load("H", (i,), "float16")
    program = read_program(
        "def f(A: inout.float32[8], H: float16[8]):\n"
        "    i: grid[8]\n\n"
        "    x = H[i] * 2.0\n"
        "    y = 2.0\n"
        "    A[i] = 3.0\n"
        "    z = H[i] + float32(1.0)\n"
    )
    expected = (
        Let(Var("x", "float16"), Op("mul", (half, Const(2.0, "float16")), "float16")),
        Let(Var("y", "float32"), Const(2.0, "float32")),
        Store("A", (i,), Const(3.0, "float32")),
        Let(Var("z", "float16"), Op("add", (half, Const(1.0, "float32")), "float16")),
    )
    assert program.body == expected


def test_nested_loops_of_one_kind_share_a_line() -> None:
    """A nest of plain loops is one line of text; loops of different kinds are not merged."""
    nest = read_body("for i in parallel(4):", "    for j in parallel(8):", "        t[0] = i + j")
    mixed = read_body("for i in parallel(4):", "    for j in serial(8):", "        t[0] = i + j")
    expected = read_body("for i, j in parallel(4, 8):", "    t[0] = i + j")
    assert nest == expected
    assert "for i, j in parallel(4, 8):" in print_program(nest)
    assert "for j in serial(8):" in print_program(mixed)


@pytest.mark.parametrize(
    "loop",
    [
        For(Var("k", "int32"), Const(0, "int32"), Const(4, "int32"), "pipelined", (), 3),
        For(Var("k", "int32"), Var("i", "int32"), Const(4, "int32"), "pipelined", (), 3),
        For(
            Var("k", "int32"),
            Const(0, "int32"),
            Const(4, "int32"),
            "pipelined",
            (),
            order=(1, 0),
            stage=(0, 2),
        ),
        For(
            Var("k", "int32"),
            Const(0, "int32"),
            Const(4, "int32"),
            "pipelined",
            (),
            2,
            group=((0,), (1, 2)),
        ),
        For(Var("k", "int32"), Const(0, "int32"), Const(4, "int32"), "parallel", (), order=(0,)),
        For(Var("k", "int64"), Const(2, "int64"), Const(4, "int64"), "vectorized", ()),
        For(Var("k", "int32"), Const(1, "int32"), Var("i", "int32"), "unroll", (Break(),)),
    ],
)
def test_loops_keep_their_bounds(loop: For) -> None:
    """Start, extent, type, kind, stages and schedule of a loop come back from text."""
    expected = make(loop)
    assert read_program(print_program(expected)) == expected


def test_statement_and_expression_print_alone() -> None:
    """Messages can quote one statement by its first line, or one expression."""
    program = read_body("if n > 3:", "    t[0] = 1")
    branch = program.body[0]
    expected = ("if n > 3:", "n > 3")
    assert isinstance(branch, If)
    assert (print_statement(program, branch), print_expr(program, branch.cond)) == expected


@pytest.mark.parametrize(
    "lines",
    [
        ["atomic_add(t[0], 1)", "x = atomic_exchange(t[n], t[1])", "t[0] = x"],
        ["B[0] = 0.5", "half = atomic_min(B[2], 0.5)", "B[1] = half + 1.0"],
        ['print("50 % of \\"it\\"\\n")', 'print("größe", t[0], n)'],
        ["assert n > 3", 'assert n > 3, "n"'],
    ],
)
def test_what_acts_on_elements_is_its_own_canon(lines: list[str]) -> None:
    """Atomic updates, prints and assertions are printed as they are read."""
    program = read_body(*lines)
    expected = [f"    {line}" for line in lines]
    text = print_program(program)
    assert text.splitlines()[-len(lines) :] == expected
    assert read_program(text) == program


def test_workspaces_and_views_stand_among_the_buffers() -> None:
    """A buffer in global memory, and one that is the storage of another, read back."""
    head = """\
def f(A: float32[m, 8]):
    m: dim
    W: memory.float16[m, 4]
    flat: memory.int32[m * 8] = A
    t: local.int32[4]
    u: local.uint8[16] = t

    pass
"""
    expected = read_program(head)
    assert print_program(expected) == head
    assert [buffer.view_of for buffer in expected.buffers] == ["", "A", "", "t"]


def test_layouts_stand_behind_their_buffers() -> None:
    """With the indices as they are called there, whatever these names mean elsewhere."""
    head = """\
def f(A: float32[8], i1: float32):
    t: shared.float16[4, 8] = layout(i0, i1 ^ i0 % 4)
    u: fragment.float32[8] = layout(i0 // 4, thread=i0 % 4 + copy * 4, copies=2)
    A = layout(i0 ^ 1)

    x = i1 + 1.0
"""
    expected = read_program(head)
    assert print_program(expected) == head
    (array,) = tensors(expected)
    assert array.buffer.layout is not None
    layout = expected.buffers[1].layout
    assert layout is not None
    assert layout.copies == 2


def test_ill_typed_nodes_survive_text() -> None:
    """What breaks the typing rules is stated with ``typed``, so that messages and dumps are exact."""
    odd = Op("add", (Var("i", "int64"), Load("Z", (), "float32")), "float16")
    expected = make(Let(Var("x", "int8"), odd))
    text = print_program(expected)
    assert "typed(" in text
    assert read_program(text) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("t[0] = q", "line 6: q is not a variable"),
        ("q[0] = 1", "line 6: q is not a buffer"),
        ("copy(A[0 : 4, :], t)", "line 6: a slice is `start : +extent` or `:`"),
        ("copy(A)", "line 6: copy takes src, dst"),
        ("gemm(A, A, A, clear=3)", "line 6: gemm, clear: Expected `bool`, got `int`"),
        ("gemm(A, A, A, what=True)", "line 6: gemm has no what"),
        ("reduce(A, t, axis=0)", "line 6: reduce: Missing required argument 'kind'"),
        ("fly(A)", "line 6: fly(A) is not a statement"),
        ("t[0] = fly(1)", "line 6: fly is not a scalar operation"),
        ("t[0] = 1 < 2 < 3", "line 6: 1 < 2 < 3 is not an expression"),
        ("for i in parallel(4, 5):", "line 6: 1 variables and 2 extents"),
        ("for i in pipelined(4, order=1):", "line 6: 1: Expected `array`, got `int`"),
        ("for i in range(4):", "line 6: for i in range(4): is not a statement"),
        ("x: what = 3", "line 6: what is not a scalar type"),
        ("t[0] = (1", "line 6: '(' was never closed"),
        ("atomic_add(t, 1)", "line 6: atomic_add takes an element and a value"),
        ("print(n)", "line 6: n is not a plain value"),
        ("t[0] = 'text'", "line 6: 'text' is not an expression"),
    ],
)
def test_mistakes_in_text_name_their_line(line: str, message: str) -> None:
    """Text that cannot be read says in which line, and what is wrong."""
    expected = message
    with pytest.raises(InvalidProgramError) as caught:
        read_body(line, "    pass") if line.endswith(":") else read_body(line)
    assert caught.value.message == expected


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("x = 1", "the text of a Program is one `def`"),
        ("def f(A):\n    pass", "line 1: A has no type"),
        ("def f(A: float33[8]):\n    pass", "line 1: float33 is not a scalar type"),
        ("def f(*A: float32[8]):\n    pass", "line 1: a parameter is `name: type`"),
        ("def f(A: shared.int32[8]):\n    pass", "line 1: shared is not a role"),
        ("def f():\n    t: shared.int32[8] = A\n    pass", "line 2: A is not a buffer"),
        (
            "def f():\n    t: shared.int32[8] = layout(i1)\n    pass",
            "line 2: i1 is not a variable",
        ),
        (
            "def f():\n    t: shared.int32[8] = layout(i0, by=3)\n    pass",
            "line 2: layout(i0, by=3) is neither a buffer nor a layout",
        ),
        (
            "def f():\n    t: shared.int32[8]\n    t = layout(i0)\n    pass",
            "line 3: t is not a parameter, and has its layout where it is declared",
        ),
        (
            "def f():\n    t: far.float32[8]\n    pass",
            "line 2: t: far.float32[8] declares neither a dim, a grid nor a buffer",
        ),
    ],
)
def test_mistakes_in_the_head_are_named(head: str, message: str) -> None:
    """A head that cannot be read says what is wrong with it."""
    expected = message
    with pytest.raises(InvalidProgramError) as caught:
        read_program(head)
    assert caught.value.message == expected


def test_illegal_name_is_not_printed() -> None:
    """A name that is not an identifier cannot be put into text, and the error quotes it."""
    expected = "'a b' cannot be a name in a Program"
    with pytest.raises(InvalidProgramError) as caught:
        print_program(make(Let(Var("a b", "int32"), Const(1, "int32"))))
    assert caught.value.message == expected


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from(["int64", "uint64", "int8"]))
def test_integers_are_exact_in_text(value: int, dtype: str) -> None:
    """An integer literal of any width and sign comes back as it was."""
    expected = make(Let(Var("x", dtype), Const(value, dtype)))
    assert read_program(print_program(expected)) == expected
