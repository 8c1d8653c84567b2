"""Asynchronous operations: in text, by the rules, and in both meanings."""

import re
from pathlib import Path

import numpy as np
import pytest

from tileyard.base.errors import InvalidProgramError, KernelFault
from tileyard.ir.asynchronous import Wait
from tileyard.ir.clocks import Moment
from tileyard.ir.hazard_records import Hazard
from tileyard.ir.hazards import LateRun
from tileyard.ir.interpret import interpret
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify

PIPELINE = (Path(__file__).parent / "pipeline.tile").read_text(encoding="utf-8")
A = np.arange(36, dtype=np.float32).reshape(9, 4)


def run_late(text: str, *arrays: np.ndarray) -> tuple[list[Hazard], list[np.ndarray]]:
    """The hazards of a Program and its results where everything arrives as late as it may."""
    program = read_program(text)
    verify(program)
    run = LateRun(program, arrays or [A])
    run.grid()
    return list(run.hazards.values()), run.written()


def changed(before: str, after: str) -> str:
    """The pipeline with one mistake."""
    assert before in PIPELINE
    return PIPELINE.replace(before, after)


def test_asynchronous_statements_survive_text() -> None:
    """Printed and read again they are the same."""
    program = read_program(PIPELINE)
    assert read_program(print_program(program)) == program
    assert print_program(program) == PIPELINE


def test_a_correct_pipeline_has_one_result_and_no_hazard() -> None:
    """Done at once or as late as possible, its copies give the same."""
    (at_once,) = interpret(read_program(PIPELINE), [A])
    hazards, (late,) = run_late(PIPELINE)
    assert hazards == []
    np.testing.assert_array_equal(at_once, A * 2)
    np.testing.assert_array_equal(late, A * 2)


def test_a_wait_for_too_few_groups_leaves_the_read_without_its_data() -> None:
    """The hazard names read, issue and wait, and how many groups may be left."""
    hazards, _ = run_late(changed("wait_group(2", "wait_group(3"))
    wait = Moment(number=9, loops=(("k", 0),))
    assert hazards[0] == Hazard(
        kind="read before arrival",
        buffer="a",
        access=Moment(number=11, loops=(("k", 0),)),
        other=Moment(number=1, loops=(("p", 0),)),
        unit="cp_async",
        committed=True,
        most=2,
        left_by=Wait(moment=wait, count=3, most=2),
        block=(),
    )


def test_what_has_not_arrived_is_poison() -> None:
    """Whatever the tile held before."""
    text = """
def f(A: float32[4], B: out.float32[4]):
    a: shared.float32[4]

    fill(a, 1.0)
    with issue("cp_async"):
        copy(A[0 : +2], a[0 : +2])
    copy(a, B)
"""
    _, (late,) = run_late(text, np.zeros(4, np.float32))
    np.testing.assert_array_equal(late, [np.nan, np.nan, 1, 1])


def test_a_dropped_wait_is_a_read_that_nothing_orders() -> None:
    """No wait is named, because none came after the copy."""
    hazards, _ = run_late(changed('        wait_group(2, unit="cp_async")\n', ""))
    assert {hazard.left_by for hazard in hazards} == {None}
    assert "read before arrival" in {hazard.kind for hazard in hazards}


def test_what_is_not_committed_is_covered_by_no_wait() -> None:
    """Even one for all groups."""
    text = PIPELINE.replace('        commit_group(unit="cp_async")\n', "").replace(
        "wait_group(2", "wait_group(0"
    )
    hazards, _ = run_late(text)
    assert not any(hazard.committed for hazard in hazards)
    assert all(hazard.left_by and hazard.left_by.most is None for hazard in hazards)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("a[(k + 2) % 3, :]", "a[(k + 1) % 3, :]", "overwritten in flight"),
        ("a[(k + 2) % 3, :]", "a[k % 3, :]", "read before arrival"),
        ("a[k % 3, i] *", "a[(k + 1) % 3, i] *", "read before arrival"),
        ("C[k, i] = a[k % 3, i] * 2.0", "a[(k + 2) % 3, i] = 0.0", "overwritten in flight"),
    ],
)
def test_a_wrong_stage_is_a_hazard(before: str, after: str, kind: str) -> None:
    """Whether the copy goes to it, or what reads or writes the tile."""
    hazards, _ = run_late(changed(before, after))
    assert kind in {hazard.kind for hazard in hazards}


def test_what_a_copy_reads_must_not_change_before_its_end() -> None:
    """A copy may read its source as late as it writes its destination."""
    text = """
def f(A: inout.float32[4]):
    a: shared.float32[4]

    with issue("cp_async"):
        copy(A, a)
    commit_group(unit="cp_async")
    A[0] = 1.0
    wait_group(0, unit="cp_async")
    A[1] = a[0]
"""
    hazards, _ = run_late(text, np.zeros(4, np.float32))
    (hazard,) = hazards
    assert (hazard.kind, hazard.buffer, hazard.access.number) == (
        "source changed in flight",
        "A",
        3,
    )
    assert run_late(text.replace("    A[0] = 1.0\n", ""), np.zeros(4, np.float32))[0] == []


def test_a_view_shares_what_is_in_flight() -> None:
    """Bytes count, not names: the second half of a tile may be read while the first one is copied to."""
    text = """
def f(A: float32[4], B: out.int32[2]):
    a: shared.float32[8]
    v: shared.int32[2, 4] = a

    with issue("cp_async"):
        copy(A, a[0 : +4])
    commit_group(unit="cp_async")
    a[4] = 1.0
    B[0] = v[1, 0]
    B[1] = v[0, 3]
"""
    hazards, _ = run_late(text, np.zeros(4, np.float32))
    (hazard,) = hazards
    assert (hazard.buffer, hazard.access.number) == ("v", 5)


def test_elements_are_copied_asynchronously_too() -> None:
    """A store in an issue has its indices and conditions from there, and its value later."""
    text = """
def f(A: float32[4], B: out.float32[4], n: int32):
    a: shared.float32[4]

    for i in parallel(4):
        with issue("cp_async"):
            if i < n:
                a[i] = A[i]
            else:
                a[i] = 0.0
    commit_group(unit="cp_async")
    wait_group(0, unit="cp_async")
    copy(a, B)
"""
    program = read_program(text)
    verify(program)
    run = LateRun(program, [np.ones(4, np.float32)], [3])
    run.grid()
    assert run.hazards == {}
    np.testing.assert_array_equal(run.written()[0], [1, 1, 1, 0])


def test_what_an_index_reads_is_over_at_once() -> None:
    """It may be written while the copy that it chose is in flight; the element that is copied may not."""
    text = """
def f(A: inout.float32[4]):
    a: shared.float32[4]
    at: shared.int32[1]

    at[0] = 2
    with issue("cp_async"):
        if at[0] > 1:
            a[0] = A[at[0]]
    at[0] = 3
    A[1] = 0.0
    A[2] = 0.0
"""
    hazards, _ = run_late(text, np.zeros(4, np.float32))
    (hazard,) = hazards
    assert (hazard.kind, hazard.access.number) == ("source changed in flight", 6)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('with issue("cp_async"):\n        pass', "nothing is issued"),
        (
            'with issue("cp_async"):\n        fill(a, 0.0)',
            "cp_async copies, and cannot be asked for this fill",
        ),
        (
            'with issue("cp_async"):\n        a[0] = A[0] * 2.0',
            "cp_async copies, and cannot be asked for this store",
        ),
        (
            'with issue("cp_async"):\n        copy(a, A)',
            "cp_async copies from global memory, and a is shared",
        ),
        (
            'with issue("cp_async"):\n        copy(A, r)',
            "cp_async copies to shared memory, and r is fragment",
        ),
        (
            'with issue("cp_async"):\n        copy(A, h)',
            "cp_async converts nothing, and A is float32, h is float16",
        ),
        (
            'for i in parallel(4):\n        commit_group(unit="cp_async")',
            "iterations of a parallel loop do not wait for others",
        ),
        ('wait_group(1.0, unit="cp_async")', "a wait for float32 groups"),
    ],
)
def test_broken_rules(lines: str, message: str) -> None:
    """Each names its statement."""
    head = (
        "def f(A: inout.float32[4]):\n    a: shared.float32[4]\n    r: fragment.float32[4]\n"
        "    h: shared.float16[4]\n\n    "
    )
    with pytest.raises(InvalidProgramError, match=re.escape(message)):
        verify(read_program(f"{head}{lines}\n"))


def test_an_unknown_unit_is_refused() -> None:
    """The reader knows what carries out asynchronous operations."""
    with pytest.raises(InvalidProgramError, match="dma carries out nothing asynchronous"):
        read_program('def f(A: float32[4]):\n    with issue("dma"):\n        pass\n')


def test_a_negative_count_is_a_fault() -> None:
    """No wait leaves fewer than no groups."""
    with pytest.raises(KernelFault, match="a wait for all but the latest -1 groups in `wait_group"):
        run_late(changed("wait_group(2", "wait_group(-1"))


@pytest.mark.parametrize(
    ("place", "value", "is_race"),
    [("tx", "A[0, tx]", False), ("0", "A[0, tx]", True), ("tx // 2", "A[0, tx // 2]", False)],
)
def test_threads_that_write_one_element_are_a_race(place: str, value: str, is_race: bool) -> None:
    """If they write different values, in one statement that all of them do."""
    text = f"""
def f(A: float32[9, 4], B: out.float32[4]):
    threads(4)
    a: shared.float32[4]

    fill(a, 0.0)
    for tx in threads(4):
        a[{place}] = {value}
    for tx_1 in threads(4):
        B[tx_1] = a[0]
"""
    hazards, _ = run_late(text)
    assert [(one.kind, one.access.number) for one in hazards] == [("race", 2)] * is_race
