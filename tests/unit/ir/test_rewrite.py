"""Copies of statements: names of their own, other expressions, and where they come from."""

from tileyard.ir.nodes import Const, Expr, For, Let, Load, Op, Region, Stmt, Var
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.rewrite import Copies, Names, rewrite, with_expressions
from tileyard.ir.walk import replace_parts, walk

TEXT = """\
def f(A: float32[8], B: out.float32[8]):
    x_1: shared.float32[4]

    for k in serial(2):
        x = k * 4
        for i in parallel(4):
            x_1[i] = A[x + i]
        copy(x_1, B[x : +4])
"""


def test_copies_have_names_and_origins() -> None:
    """Variables get names that nothing else has, and each statement is followed to its source."""
    program = read_program(TEXT)
    copies = Copies(Names(program))

    def twice(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, For) or stmt.var.name != "k":
            return (stmt,)
        return (stmt, *copies.copy(stmt.body, {stmt.var: Const(7, "int32")}))

    done = rewrite(program, twice, copies)
    assert (
        print_program(done.program)
        == TEXT
        + """\
    x_2 = 7 * 4
    for i_1 in parallel(4):
        x_1[i_1] = A[x_2 + i_1]
    copy(x_1, B[x_2 : +4])
"""
    )
    assert done.origins == (0, 1, 2, 3, 4, 1, 2, 3, 4)


def test_a_copy_of_a_copy_comes_from_the_same_statement() -> None:
    """However often it is copied."""
    program = read_program(TEXT)
    copies = Copies(Names(program))
    change = copies.copy

    def again(stmt: Stmt) -> tuple[Stmt, ...]:
        return change(change((stmt,), {}), {}) if isinstance(stmt, Let) else (stmt,)

    assert rewrite(program, again, copies).origins == (0, 1, 2, 3, 4)


def test_all_expressions_of_a_statement_change() -> None:
    """Indices, regions, values and the variables that are bound."""
    program = read_program(TEXT)
    known: dict[Expr, Expr] = {Var("x", "int32"): Const(3, "int32")}
    stmts = [with_expressions(s, lambda e: replace_parts(e, known.get)) for s in walk(program.body)]
    store, copy = stmts[3], stmts[4]
    assert Load("A", (Op("add", (Const(3, "int32"), Var("i", "int32")), "int32"),), "float32") == (
        store.value
    )
    assert copy.dst == Region("B", (Const(3, "int32"),), (Const(4, "int32"),))


def test_comments_stand_behind_statements() -> None:
    """By their numbers, and they are not read."""
    program = read_program(TEXT)
    text = print_program(program, {0: "line 3", 3: "line 5"})
    assert "    for k in serial(2):  # line 3\n" in text
    assert "            x_1[i] = A[x + i]  # line 5\n" in text
    assert read_program(text) == program
