"""Reordered dependences: two forms of a Program, by hand, with the lines that their statements come from."""

import numpy as np
import pytest

from tileyard.base.model import SourceLine
from tileyard.ir.reader import read_program
from tileyard.ir.walk import walk
from tileyard.sync.dependences import find_reordered
from tileyard.sync.recorder import Form, Recorder

HEAD = """def main(X: inout.float32[5, 4]):
    tile: shared.float32[2, 4]
    total: fragment.float32[4]

"""
WRITTEN = """
    fill(total, 0)  # 1
    for k in serial(4):  # 2
        copy(X[k, :], tile[0, :])  # 3
        for i in parallel(4):  # 4
            total[i] = total[i] + tile[0, i]  # 5
        for i1 in parallel(4):  # 6
            X[k + 1, i1] = X[k + 1, i1] + total[i1]  # 7
"""
IN_LOOP = """        for i in parallel(4):  # 4
            total[i] = total[i] + tile[k % 2, i]  # 5
        for i1 in parallel(4):  # 6
            X[k + 1, i1] = X[k + 1, i1] + total[i1]  # 7
"""
NEXT_TILE = "        copy(X[k + 1, :], tile[(k + 1) % 2, :])  # 3\n"
PROLOGUE = """
    fill(total, 0)  # 1
    copy(X[0, :], tile[0, :])  # 3
    for k in serial(3):  # 2
"""
EPILOGUE = """    for i2 in parallel(4):  # 4
        total[i2] = total[i2] + tile[1, i2]  # 5
    for i3 in parallel(4):  # 6
        X[4, i3] = X[4, i3] + total[i3]  # 7
"""
KEPT = PROLOGUE + IN_LOOP + NEXT_TILE + EPILOGUE
AHEAD = PROLOGUE + NEXT_TILE + IN_LOOP + EPILOGUE
X = np.arange(20, dtype=np.float32).reshape(5, 4) % 7


def form(body: str) -> Form:
    """A Program whose statements come from the lines in their comments."""
    stripped = [line.split("  #")[0] for line in body.splitlines() if line]
    program = read_program(HEAD + "\n".join(stripped) + "\n")
    numbers = [int(line.split("# ")[1]) for line in body.splitlines() if "# " in line]
    assert len(numbers) == len(list(walk(program.body)))
    lines = {n: SourceLine(file="k.py", line=line) for n, line in enumerate(numbers)}
    return Form(program, lines)


def test_what_is_read_too_early_is_found() -> None:
    """With the line that reads, and the one that should have written before."""
    (found,) = find_reordered(form(WRITTEN), form(AHEAD), [X])
    assert (found.kind, found.buffer) == ("dependence reordered", "X")
    assert (found.access, found.other) == (
        SourceLine(file="k.py", line=3),
        SourceLine(file="k.py", line=7),
    )
    assert found.message == (
        "X is read in execution 2 of this line with what was there before; as the kernel is "
        "written, with what line 7 "
        "wrote in its execution 1"
    )


def test_copies_of_statements_count_on() -> None:
    """A prologue, a loop and an epilogue execute a statement as often as the loop before, in this order."""
    assert find_reordered(form(WRITTEN), form(KEPT), [X]) == ()


def test_a_store_of_what_was_there_is_no_difference() -> None:
    """Passes leave it out, and it counts in neither form."""
    idle = "        for j in parallel(4):  # 8\n            tile[0, j] = tile[0, j] * 1.0  # 9\n"
    with_idle = WRITTEN.replace("        for i in", f"{idle}        for i in")
    assert with_idle != WRITTEN
    assert find_reordered(form(with_idle), form(WRITTEN), [X]) == ()


def test_atomic_updates_may_change_places() -> None:
    """Their order is open anyway."""
    first = "    for i in parallel(4):  # 1\n        atomic_add(X[0, i], 1.0)  # 2\n"
    second = "    for j in parallel(4):  # 3\n        atomic_add(X[0, j], 2.0)  # 4\n"
    assert find_reordered(form(first + second), form(second + first), [X]) == ()


def test_each_role_counts_for_itself() -> None:
    """Two roles that execute copies of one statement do not count together."""
    written = "    for k in serial(3):  # 1\n        tile[0, 0] = X[k, 0] + 1.0  # 2\n"
    inner = (
        "            for k in serial(3):  # 1\n                tile[0, 0] = X[k, 0] + 1.0  # 2\n"
    )
    planned = (
        "    with roles:  # 1\n        with role(0, 32):\n"
        + inner
        + "        with role(32, 64):\n"
        + inner.replace("k", "m")
    )
    forms = form(written), form(planned)
    runs = [Recorder(one, [X]) for one in forms]
    for run in runs:
        run.grid()
    assert {execution.number for execution, _, _ in runs[1].reads} == {1, 2, 3}
    assert find_reordered(*forms, [X]) == ()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_form_that_fails_says_nothing_of_the_order(is_first: bool) -> None:
    """It is a mistake by itself, which the check of its blocks reports."""
    failing = form(WRITTEN + "    assert X[0, 0] > 100.0  # 8\n")
    pair = (failing, form(AHEAD)) if is_first else (form(AHEAD), failing)
    assert find_reordered(*pair, [X]) == ()


def test_recording_changes_no_result() -> None:
    """It runs the kernel as the interpreter does."""
    run = Recorder(form(WRITTEN), [X])
    run.grid()
    total, expected = np.zeros(4, np.float32), X.copy()
    for k in range(4):
        total += expected[k]
        expected[k + 1] += total
    np.testing.assert_array_equal(run.written()[0], expected)


def test_what_is_written_last_counts() -> None:
    """Also where nothing in the kernel reads it."""
    first = "    for i in parallel(4):  # 1\n        X[0, i] = 1.0  # 2\n"
    second = "    for j in parallel(2):  # 3\n        X[0, j] = 2.0  # 4\n"
    (found,) = find_reordered(form(first + second), form(second + first), [X])
    assert found.message == (
        "X is left with what line 2 wrote in its execution 1; as the kernel is written, with "
        "what line 4 wrote in its execution 1"
    )


def test_a_statement_that_a_pass_wraps_says_no_numbers() -> None:
    """Executed once for all threads, or by one after the other: the next reader sees the same."""
    once = "    for i in parallel(4):  # 1\n        X[0, i] = 1.0  # 2\n    copy(X[0, :], total)  # 3\n"
    assert find_reordered(form(once.replace("parallel", "serial")), form(once), [X]) == ()
