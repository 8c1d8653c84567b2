"""The pipeline for TMA on small Programs: a block is split into a producer and a consumer, same results."""

import re
from itertools import product

import numpy as np
import pytest
from tests.passes.cases import body_of, faults_of, is_pipelined, reasons_of, run_text, step_of
from tests.passes.test_pipeline import (
    BRANCHES,
    GUARDED,
    LATE,
    NESTED,
    STAGED,
    SUMS,
    TWO_LOOPS,
    rows,
)
from tests.samples import sampled

from tileyard.ir.nodes import Roles
from tileyard.passes.pipeline import Step

SPLIT = """\
    init_barrier(full)
    init_barrier(empty)
    with roles:
        with role(0, 128):
            for k_1 in serial(n):
                wait_barrier(empty[k_1 % 3], k_1 // 3 % 2 ^ 1)
                arrive(full[k_1 % 3], count=0, bytes=16)
                with issue("tma", full[k_1 % 3]):
                    copy(A[k_1, :], a[k_1 % 3, :])
                arrive(full[k_1 % 3])
        with role(128, 160):
            fill(c, 0.0)
            for k in serial(n):
                wait_barrier(full[k % 3], k // 3 % 2)
                for i in parallel(4):
                    c[i] = c[i] * 2.0 + a[k % 3, i]
                arrive(empty[k % 3], count=32)
            copy(c, C)
"""


def split(text: str) -> tuple[Step, ...]:
    """The steps of a Program in text."""
    return run_text(text, "sm_90a")


def has_roles(steps: tuple[Step, ...]) -> bool:
    """Whether the block is split."""
    return any(isinstance(stmt, Roles) for stmt in steps[-1].program.body)


def test_a_block_becomes_a_producer_and_a_consumer() -> None:
    """The producer has 128 threads more; what only the consumer needs is its own."""
    steps = split(SUMS)
    assert body_of(steps[-1]) == SPLIT
    assert steps[-1].program.threads == (160,)


def test_a_plan_for_roles_is_in_the_loop() -> None:
    """Copies come first, and groups say which of them have barriers together."""
    text = body_of(step_of(split(LATE), "plan-pipeline"))
    assert "order=(0, 1, 2, 3, 4), stage=(0, 0, 2, 2, 2), group=((0,), (1,))" in text


@pytest.mark.parametrize(
    ("trips", "stages"),
    sampled(product(range(10), range(1, 6)), product((0, 1, 3, 9), (1, 2, 4))),
)
def test_every_trip_count_gives_the_same(stages: int, trips: int) -> None:
    """Also none, and fewer than the stages, where the count is not known."""
    steps = split(SUMS.replace("stages=3", f"stages={stages}"))
    assert has_roles(steps)
    assert faults_of(steps, [rows(trips)]) == []


def test_a_guard_advances_phases_only_where_it_holds() -> None:
    """Each role counts the iterations that it does in a register of its own."""
    steps = split(GUARDED)
    text = body_of(steps[-1])
    assert re.search(r"if m > 0:\n(.*\n)+ +used\[0\] = used\[0\] \+ 1\n", text)
    assert re.search(r"if m_1 > 0:\n(.*\n)+ +filled\[0\] = filled\[0\] \+ 1\n", text)
    mask = np.array([1, 0, 3, 0, 0, 6, 7, 2], np.int32)
    assert faults_of(steps, [rows(8), mask]) == []


def test_phases_go_on_from_loop_to_loop() -> None:
    """Two loops that share a tile have its barriers together, and an outer loop's are not made anew."""
    for text, count in ((TWO_LOOPS, 9), (NESTED, 24)):
        steps = split(text)
        assert body_of(steps[-1]).count("init_barrier") == 2
        assert body_of(steps[-1]).count("filled[0] = 0") == 1
        assert faults_of(steps, [rows(count)]) == []


def test_tiles_that_are_used_at_different_places_have_their_own_barriers() -> None:
    """So each is filled anew as soon as it can be."""
    steps = split(LATE)
    text = body_of(steps[-1])
    assert re.findall(r"init_barrier\((\w+)\)", text) == ["a_full", "a_empty", "b_full", "b_empty"]
    arrays = [rows(9), np.arange(9, dtype=np.int32)[::-1].copy(), rows(9), np.zeros((10, 4), "f4")]
    assert faults_of(steps, arrays) == []


def test_a_copy_in_a_branch_fills_nothing_where_its_condition_does_not_hold() -> None:
    """The barriers are outside of the branch, where others need them, too."""
    steps = split(BRANCHES)
    assert has_roles(steps)
    for bound in (0, 5, 9):
        mask = np.arange(bound, bound - 9, -1, dtype=np.int32)
        assert faults_of(steps, [rows(9), rows(9), mask, np.zeros(4, "f4")]) == []


MIXED = """\
def f(A: float16[9, 24], B: float16[9, 24], C: out.float16[9, 24]):
    threads(32)
    a: shared.float16[24]
    b: shared.float16[22]

    for k in pipelined(9, stages=3):
        copy(A[k, :], a)
        copy(B[k, 0 : +22], b)
        for i in parallel(22):
            C[k, i] = a[i] + b[i]
"""


def test_producers_by_tma_and_cp_async_share_a_barrier() -> None:
    """Each thread arrives when its copies are over, and the bytes of TMA are expected before."""
    steps = split(MIXED)
    text = body_of(steps[-1])
    assert 'with issue("cp_async"):' in text
    assert 'arrive(full[k_1 % 3], count=128, after="cp_async")' in text
    assert steps[-1].program.buffers[-2].arrivals == (128, 128, 128)
    arrays = [np.arange(216, dtype=np.float16).reshape(9, 24)] * 2
    assert faults_of(steps, arrays) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("threads(32)", "threads(16, 2)", "its threads have several dimensions"),
        ("threads(32)", "threads(33)", "its 33 threads are no warps"),
        (
            "threads(32)",
            "threads(1024)",
            "128 threads more than its 1024 are too many for a block",
        ),
        (
            "    copy(c, C)",
            "    sync(threads=32, count=32)\n    copy(c, C)",
            "the kernel synchronizes its threads itself",
        ),
        (
            "    copy(c, C)",
            "    for t in threads(4):\n        c[t] = c[t] + 1.0\n    copy(c, C)",
            "the kernel has a loop over its threads",
        ),
        (
            "    fill(c, 0.0)",
            "    fill(a, 1.0)\n    copy(a, c)",
            "a is used in front of the loop that fills it",
        ),
        (
            "    fill(c, 0.0)",
            "    fill(c, 0.0)\n    copy(c, A[0, :])",
            "the kernel writes A before the loop is over",
        ),
        (
            "    fill(c, 0.0)\n    for k in pipelined(n,",
            "    fill(c, 0.0)\n    for k in pipelined(min(n, int32(c[0]) + n),",
            "a copy cannot be done by threads of its own: it depends on c, which the kernel writes",
        ),
        ("A[k, :], a", "A[k, 0 : +4], a", ""),
    ],
)
def test_a_loop_that_cannot_be_split_says_why(old: str, new: str, reason: str) -> None:
    """And is pipelined by cp.async in one role."""
    assert old in SUMS
    text = SUMS.replace("A: float32", "A: inout.float32").replace(old, new)
    steps = split(text)
    assert has_roles(steps) == (not reason)
    assert is_pipelined(steps[-1])
    assert reasons_of(steps) == ([f"not split into roles: {reason}"] if reason else [])
    for trips in (1, 2, 5):
        assert faults_of(steps, [rows(trips)]) == []


PERSISTENT = """\
def f(A: float32[24, 4], T: int32[8], C: out.float32[8, 4]):
    threads(32)
    a: shared.float32[4]
    c: fragment.float32[4]
    tile: local.int32[1]

    fill(c, 1.0)
    for j, i in parallel(8, 4):
        C[j, i] = c[i]
    tile[0] = 0
    while tile[0] < 6:
        if T[tile[0]] == 7:
            break
        fill(c, 0.0)
        for k in pipelined(T[tile[0]], stages=3):
            copy(A[tile[0] * 3 + k, :], a)
            for i2 in parallel(4):
                c[i2] = c[i2] * 2.0 + a[i2]
        copy(c, C[tile[0], :])
        tile[0] = tile[0] + 1
"""


@pytest.mark.parametrize("trips", [[1, 2, 0, 3, 1, 1], [1, 2, 7, 3, 1, 1], [7] * 6, [3] * 6])
def test_a_persistent_loop_is_done_by_both_roles(trips: list[int]) -> None:
    """Each with a register of its own for the tile, and leaves it at the same one."""
    steps = split(PERSISTENT)
    text = body_of(steps[-1])
    assert "tile_1[0] = tile_1[0] + 1" in text
    assert text.count("break") == 2
    arrays = [np.arange(96, dtype=np.float32).reshape(24, 4), np.array([*trips, 0, 0], np.int32)]
    assert faults_of(steps, arrays) == []


SETUP = """\
def f(A: float32[24, 4], T: int32[8], C: out.float32[1, 4]):
    threads(32)
    a: shared.float32[4]
    c: fragment.float32[4]
    x: local.int32[1]
    y: local.int32[1]

    fill(c, 0.5)
    y[0] = T[0]
    z = y[0] + 1
    x[0] = 5
    for i in parallel(4):
        c[i] = float32(x[0] + z)
    x[0] = 2
    for k in pipelined(4, stages=3):
        copy(A[z + k + x[0], :], a)
        for i2 in parallel(4):
            c[i2] = c[i2] * 2.0 + a[i2]
    copy(c, C[0, :])
"""


def test_what_both_roles_need_is_computed_in_front() -> None:
    """But not what changes in between, and is used before: that is computed twice."""
    steps = split(SETUP)
    front, roles = body_of(steps[-1]).split("    with roles:\n")
    assert "    y[0] = T[0]\n    z = y[0] + 1\n" in front
    assert "x[0]" not in front
    assert "x_1[0] = 2" in roles
    arrays = [np.arange(96, dtype=np.float32).reshape(24, 4), np.arange(3, 11, dtype=np.int32)]
    assert faults_of(steps, arrays) == []


def test_a_schedule_of_the_users_says_which_copies_are_the_producers() -> None:
    """And how many iterations they run ahead; other copies are the consumer's."""
    steps = split(LATE.replace("stages=3", "order=(0, 1, 4, 2, 3), stage=(3, 3, 0, 3, 3)"))
    producer, consumer = body_of(steps[-1]).split("with role(128", 1)
    assert "copy(B[k_1, :], b[k_1 % 4, :])" in producer
    assert "copy(A[row, :], a)" in consumer
    arrays = [rows(9), np.arange(9, dtype=np.int32)[::-1].copy(), rows(9), np.zeros((10, 4), "f4")]
    assert faults_of(steps, arrays) == []


def test_a_schedule_with_more_stages_is_not_split() -> None:
    """Its loop is pipelined by cp.async, as for sm_80, and the note says so."""
    steps = split(STAGED)
    assert reasons_of(steps) == [
        "not split into roles: its schedule has more than a stage of copies and one of all else"
    ]
    assert not has_roles(steps)
    assert body_of(steps[-1]).count("wait_group") == 3
    assert faults_of(steps, [rows(9), rows(9), rows(9)]) == []


def test_a_loop_without_tma_is_a_part_of_the_consumer() -> None:
    """Written out with cp.async, beside one that is split."""
    text = TWO_LOOPS.replace("copy(A[8 - j, :], a)", "copy(A[8 - j, 0 : +2], b)")
    text = text.replace("    c: frag", "    b: shared.float32[2]\n    c: frag").replace(
        "c[i2] * 2.0 + a[i2]", "c[i2] * 2.0 + b[i2 // 2]"
    )
    steps = split(text)
    assert reasons_of(steps) == ["not split into roles: none of its copies can go by TMA"]
    assert 'commit_group(unit="cp_async")' in body_of(steps[-1]).split("with role(128", 1)[1]
    assert has_roles(steps)
    assert faults_of(steps, [rows(9)]) == []
