"""The pipeline for cp.async on small Programs: text in, text out, one result whatever the trip count."""

import re
from itertools import product

import numpy as np
import pytest
from tests.passes.cases import (
    body_of,
    faults_of,
    is_pipelined,
    make_array,
    reasons_of,
    run_text,
    step_of,
)
from tests.samples import sampled

from tileyard.base.errors import UsageError
from tileyard.ir.nodes import Const, Tensor
from tileyard.ir.printer import print_program
from tileyard.ir.syntax import ONE
from tileyard.passes.pipeline import Step

SUMS = """\
def f(A: float32[n, 4], C: out.float32[4]):
    n: dim
    threads(32)
    a: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.0)
    for k in pipelined(n, stages=3):
        copy(A[k, :], a)
        for i in parallel(4):
            c[i] = c[i] * 2.0 + a[i]
    copy(c, C)
"""

PIPELINED = """\
    fill(c, 0.0)
    for k_first in unroll(2):
        if k_first < n:
            with issue("cp_async"):
                copy(A[k_first, :], a[k_first % 3, :])
        commit_group(unit="cp_async")
    for k in serial(max(n - 2, 0)):
        wait_group(1, unit="cp_async")
        with issue("cp_async"):
            copy(A[k + 2, :], a[(k + 2) % 3, :])
        commit_group(unit="cp_async")
        for i in parallel(4):
            c[i] = c[i] * 2.0 + a[k % 3, i]
    for k_last in unroll(2):
        if k_last < n:
            wait_group(1 - k_last, unit="cp_async")
            for i_1 in parallel(4):
                c[i_1] = c[i_1] * 2.0 + a[(max(n - 2, 0) + k_last) % 3, i_1]
    copy(c, C)
"""


def rows(count: int) -> np.ndarray:
    """So many rows of different numbers."""
    return np.arange(count * 4, dtype=np.float32).reshape(count, 4) + 1


def test_a_loop_becomes_prologue_steady_loop_and_epilogue() -> None:
    """Each wait leaves exactly the groups of later iterations."""
    assert body_of(run_text(SUMS)[-1]) == PIPELINED


def test_a_plan_still_does_one_iteration_after_the_other() -> None:
    """Issues come first; stage and order say what runs ahead later."""
    planned = step_of(run_text(SUMS), "plan-pipeline")
    assert (
        body_of(planned)
        == """\
    fill(c, 0.0)
    for k in pipelined(n, stages=3, order=(1, 2, 0, 3), stage=(0, 0, 2, 2)):
        with issue("cp_async"):
            copy(A[k, :], a)
        commit_group(unit="cp_async")
        wait_group(0, unit="cp_async")
        for i in parallel(4):
            c[i] = c[i] * 2.0 + a[i]
    copy(c, C)
"""
    )


EXTENTS = ("n", "{trips}", "n * 2 / / 2")


@pytest.mark.parametrize(
    ("extent", "trips", "stages"),
    sampled(product(EXTENTS, range(8), range(1, 6)), product(EXTENTS, (0, 1, 2, 7), (1, 3))),
)
def test_every_trip_count_gives_the_same(stages: int, trips: int, extent: str) -> None:
    """Also none, and fewer than the stages; where the count is known, and where it is not."""
    wanted = extent.format(trips=trips).replace("/ /", "//")
    text = SUMS.replace("pipelined(n, stages=3)", f"pipelined({wanted}, stages={stages})")
    steps = run_text(text)
    assert is_pipelined(steps[-1]) or (trips == 0 and extent == "{trips}")
    assert faults_of(steps, [rows(trips)]) == []


@pytest.mark.parametrize("start", ["5", "n", "n - 7"])
def test_a_loop_may_begin_anywhere(start: str) -> None:
    """Versions follow the variable of the loop, conditions the number of the iteration."""
    text = SUMS.replace("(n, stages", f"(n, start={start}, stages")
    text = text.replace("A[k,", f"A[k - ({start}),")
    for trips in range(6):
        assert faults_of(run_text(text), [rows(trips)]) == []


def test_a_loop_of_no_stages_stays_as_it_is() -> None:
    """And says why."""
    steps = run_text(SUMS.replace(", stages=3", ""))
    assert reasons_of(steps) == ["not pipelined: it has no stages"]
    assert {body_of(step) for step in steps} == {body_of(steps[0])}


def test_no_pipeline_changes_nothing() -> None:
    """The Program as it is written is the only step."""
    (step,) = run_text(SUMS, "none")
    assert step.name == "written"


def test_an_unknown_pipeline_is_refused() -> None:
    """With the names that there are."""
    with pytest.raises(UsageError, match="there is no pipeline 'sm_1'") as caught:
        run_text(SUMS, "sm_1")
    assert caught.value.hint == "pipelines: none, sm_80, sm_90a"


GUARDED = """\
def f(A: float32[8, 4], M: int32[8], C: out.float32[4]):
    threads(32)
    a: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.0)
    for k in pipelined(8, stages=3):
        m = M[k]
        if m > 0:
            row = m - 1
            copy(A[row, :], a)
            for i in parallel(4):
                c[i] = c[i] * 2.0 + a[i] + float32(row)
    copy(c, C)
"""


def test_a_guard_around_all_statements_stays_with_both_parts() -> None:
    """Groups are committed outside of it, so that counts stay exact; Lets are made for each part."""
    steps = run_text(GUARDED)
    text = body_of(steps[-1])
    assert is_pipelined(steps[-1])
    assert re.search(r"m_\d = M\[k \+ 2\]\n +if m_\d > 0:\n +row_\d = m_\d - 1\n +with issue", text)
    assert re.search(r"^        commit_group", text, re.MULTILINE)
    mask = np.array([1, 0, 3, 0, 0, 6, 7, 2], np.int32)
    assert faults_of(steps, [rows(8), mask]) == []


NESTED = """\
def f(A: float32[24, 4], C: out.float32[4]):
    threads(32)
    a: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.0)
    for t in pipelined(4, stages=2):
        for k in pipelined(t * 2, stages=3):
            copy(A[t * 6 + k, :], a)
            for i in parallel(4):
                c[i] = c[i] * 2.0 + a[i]
    copy(c, C)
"""


def test_the_inner_one_of_two_loops_is_pipelined() -> None:
    """Each of its runs has a prologue and an epilogue, also where it has no iteration."""
    steps = run_text(NESTED)
    assert reasons_of(steps) == ["not pipelined: a loop in it is"]
    assert body_of(steps[-1]).count("issue") == 2
    assert faults_of(steps, [rows(24)]) == []


TWO_LOOPS = """\
def f(A: float32[9, 4], C: out.float32[4]):
    threads(32)
    a: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.0)
    for k in pipelined(9, stages=2):
        copy(A[k, :], a)
        for i in parallel(4):
            c[i] = c[i] * 2.0 + a[i]
    for j in pipelined(9, stages=4):
        copy(A[8 - j, :], a)
        for i2 in parallel(4):
            c[i2] = c[i2] * 2.0 + a[i2]
    copy(c, C)
"""


def test_two_loops_share_the_versions_of_a_tile() -> None:
    """As many as the deeper one needs."""
    steps = run_text(TWO_LOOPS)
    assert [buffer.shape[0].value for buffer in steps[-1].program.buffers] == [4, 4]
    assert body_of(steps[-1]).count("% 4") == 12 - 4
    assert faults_of(steps, [rows(9)]) == []


LAYOUT = """\
def f(A: float32[5, 4, 4], C: out.float32[4]):
    threads(32)
    a: shared.float32[4, 4] = layout(i0, i1 ^ i0)
    c: fragment.float32[4]

    fill(c, 0.0)
    for k in pipelined(5, stages=2):
        copy(A[k, :, :], a)
        reduce(a, c, kind="sum", axis=0, clear=False)
    copy(c, C)
"""


def test_layouts_and_axes_grow_with_the_tile() -> None:
    """A layout keeps its place within each version, a reduction its axis."""
    steps = run_text(LAYOUT)
    assert [str(one) for one in re.findall("layout.*", _text(steps))] == ["layout(i0, i1, i2 ^ i1)"]
    assert 'reduce(a[k % 2, :, :], c, kind="sum", axis=1, clear=False)' in body_of(
        step_of(steps, "version-buffers")
    )
    assert faults_of(steps, [np.arange(80, dtype=np.float32).reshape(5, 4, 4)]) == []


@pytest.mark.parametrize(
    ("before", "after", "is_fit"),
    [
        ("fill(a, 1.0)", "", True),
        ("copy(A[1, :], a)\n    copy(a, c)", "", True),
        ("", "fill(a, 1.0)\n    copy(a, c)", True),
        ("", "copy(c, a)\n    copy(a, C)", True),
        ("", "for j in serial(2):\n        fill(a, 1.0)\n        copy(a, c)", True),
        ("", "a[0] = 1.0", False),
        ("", "copy(a, c)", False),
        ("", "for j in serial(2):\n        copy(a, c)", False),
        ("", "x = a[1]\n    fill(c, x)", False),
        ("", "if n > 3:\n        copy(a, c)", False),
    ],
)
def test_a_tile_may_be_used_outside_where_nobody_reads_what_the_loop_leaves(
    before: str, after: str, is_fit: bool
) -> None:
    """Its first version is used there."""
    text = SUMS.replace("    fill(c, 0.0)\n", f"    fill(c, 0.0)\n    {before or 'fill(c, 0.5)'}\n")
    text = text.replace("    copy(c, C)\n", f"    {after or 'fill(c, 0.5)'}\n    copy(c, C)\n")
    steps = run_text(text)
    assert is_pipelined(steps[-1]) == is_fit
    for trips in range(2, 7):
        assert faults_of(steps, [rows(trips)]) == []


@pytest.mark.parametrize(("first", "is_fit"), [("fill(a, 1.0)", True), ("a[0] = 1.0", False)])
def test_the_next_run_of_a_loop_counts_as_what_is_behind_it(first: str, is_fit: bool) -> None:
    """What is in front of the loop comes behind it in a loop around both."""
    head, rest = SUMS.split("    for k")
    loop, tail = rest.split("    copy(c, C)")
    inner = f"    {first}\n    copy(a, c)\n    for k{loop}".replace("\n", "\n    ").rstrip(" ")
    text = f"{head}    fill(a, 2.0)\n    for t in serial(3):\n    {inner}    copy(c, C){tail}"
    steps = run_text(text)
    assert is_pipelined(steps[-1]) == is_fit
    for trips in range(1, 5):
        assert faults_of(steps, [rows(trips)]) == []


BRANCHES = """\
def f(A: float32[9, 4], B: float32[9, 4], M: int32[9], C: inout.float32[4]):
    threads(32)
    a: shared.float32[4]
    b: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.0)
    for k in pipelined(9, stages=3):
        if M[k] > 2:
            copy(A[k, :], a)
        copy(B[k, :], b)
        if M[k] > 2:
            for i in parallel(4):
                c[i] = c[i] * 2.0 + a[i]
        for j in parallel(4):
            c[j] = c[j] + b[j]
    copy(c, C)
"""


def test_a_copy_in_a_branch_runs_ahead_under_the_same_condition() -> None:
    """Where all uses of its tile are under this condition, too."""
    steps = run_text(BRANCHES)
    assert reasons_of(steps) == []
    text = body_of(steps[-1])
    assert re.search(r"if M\[k \+ 2\] > 2:\n +with issue\(\"cp_async\"\):\n +copy\(A", text)
    arrays = [rows(9), rows(9), np.arange(9, dtype=np.int32)[::-1].copy(), np.zeros(4, "f4")]
    assert faults_of(steps, arrays) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("c[j] + b[j]", "c[j] + a[j]", "a is used where its condition may not hold"),
        (
            "if M[k] > 2:\n            for",
            "if M[k] > 3:\n            for",
            "a is used where its condition may not hold",
        ),
        (
            "copy(A[k, :], a)\n",
            "copy(A[k, :], a)\n            C[0] = 1.0\n",
            "it is in a loop or branch with other statements",
        ),
        (
            "if M[k] > 2:\n            copy",
            "if c[0] < 2.0:\n            copy",
            "it depends on c, which the loop writes",
        ),
    ],
)
def test_a_copy_in_a_branch_that_has_to_wait_says_why(old: str, new: str, reason: str) -> None:
    """The other one still runs ahead."""
    assert old in BRANCHES
    steps = run_text(BRANCHES.replace(old, new))
    assert reasons_of(steps) == [f"not asynchronous: {reason}"]
    assert is_pipelined(steps[-1])
    arrays = [rows(9), rows(9), np.full(9, 4, np.int32), np.zeros(4, "f4")]
    assert faults_of(steps, arrays) == []


LATE = """\
def f(A: float32[9, 4], T: int32[9], B: float32[9, 4], C: inout.float32[10, 4]):
    threads(32)
    a: shared.float32[4]
    b: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.0)
    for k in pipelined(9, stages=3):
        row = T[k]
        copy(A[row, :], a)
        for i in parallel(4):
            c[i] = c[i] + a[i]
        x = c[0]
        copy(B[k, :], b)
        for j in parallel(4):
            c[j] = c[j] * b[j] + x
        copy(c, C[k, :])
"""


def test_copies_in_the_middle_run_ahead_and_lets_stay_where_they_have_to() -> None:
    """What a Let reads of the loop's own results is read late, the row of a copy early."""
    steps = run_text(LATE)
    assert is_pipelined(steps[-1])
    assert reasons_of(steps) == []
    arrays = [rows(9), np.arange(9, dtype=np.int32)[::-1].copy(), rows(9), np.zeros((10, 4), "f4")]
    assert faults_of(steps, arrays) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("A: float32[n", "A: float16[n", "it converts float16 to float32"),
        ("copy(A[k, :], a)", "copy(A[k, 0 : +2], a[0 : +2])", "it fills only a part of a"),
        ("    copy(c, C)", "    copy(a, C)", "what the loop leaves in a may be read outside of it"),
        (
            "        copy(A[k, :], a)",
            "        a[0] = 1.0\n        copy(A[k, :], a)",
            "a is used before it in the same iteration",
        ),
        (
            "copy(A[k, :], a)",
            "copy(A[int32(c[0]), :], a)",
            "it depends on c, which the loop writes",
        ),
        (
            "copy(A[k, :], a)",
            "copy(A[k, :], a)\n        w = atomic_add(C[0], 1.0)",
            "",
        ),
        (
            "    c: fragment",
            "    v: shared.int32[4] = a\n    c: fragment",
            "a is seen as more than one buffer",
        ),
        ("copy(A[k, :], a)", "copy(C, a)\n        copy(a, C)", "the loop writes C"),
    ],
)
def test_a_copy_that_has_to_wait_says_why(old: str, new: str, reason: str) -> None:
    """And the loop stays as it is."""
    assert old in SUMS
    text = SUMS.replace(old, new).replace("C: out", "C: inout")
    steps = run_text(text)
    if not reason:
        assert is_pipelined(steps[-1])
        return
    assert reasons_of(steps) == [
        "not pipelined: none of its copies can be asynchronous",
        f"not asynchronous: {reason}",
    ]
    assert {body_of(step) for step in steps} == {body_of(steps[0])}


@pytest.mark.parametrize(
    ("dtype", "width", "start", "is_fit"),
    [
        ("float32", 3, "0", True),
        ("float16", 8, "0", True),
        ("float16", 8, "1", False),
        ("float16", 8, "k * 2", True),
        ("float16", 7, "0", False),
        ("int8", 8, "0", True),
        ("int8", 6, "0", False),
    ],
)
def test_rows_have_to_be_made_of_what_cp_async_moves(
    dtype: str, width: int, start: str, is_fit: bool
) -> None:
    """Where elements are narrow, 4 aligned bytes of them."""
    text = f"""\
def f(A: {dtype}[n, {width * 9}], C: out.{dtype}[n, {width}]):
    n: dim
    threads(32)
    a: shared.{dtype}[{width}]

    for k in pipelined(n, stages=2):
        copy(A[k, {start} : +{width}], a)
        copy(a, C[k, :])
"""
    steps = run_text(text)
    assert is_pipelined(steps[-1]) == is_fit
    if not is_fit:
        assert "cp.async moves 4, 8 or 16 aligned bytes" in reasons_of(steps)[1]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "stages=3",
            "order=(0, 1, 2), stage=(0, 1, 1)",
            "its schedule has not one place for each statement",
        ),
        ("stages=3", "order=(0, 1), stage=(2, 2)", "its schedule runs nothing ahead"),
        ("copy(A[k, :], a)", "copy(A[k, :], a)\n        break", "a break can end it"),
        (
            "copy(A[k, :], a)",
            'copy(A[k, :], a)\n        commit_group(unit="cp_async")',
            "it has asynchronous operations or synchronization of its own",
        ),
        (
            "    c: fragment",
            "    b: shared.float32[20000]\n    c: fragment.float32[4]\n    d: fragment",
            "",
        ),
        (
            "a: shared.float32[4]",
            "a: shared.float32[4]\n    b: shared.float32[41720]",
            "3 stages take 166928 bytes of shared memory, and a block has 166912",
        ),
    ],
)
def test_a_loop_that_cannot_be_pipelined_says_why(old: str, new: str, reason: str) -> None:
    """And still means the same."""
    assert old in SUMS
    steps = run_text(SUMS.replace(old, new))
    assert reasons_of(steps) == ([f"not pipelined: {reason}"] if reason else [])
    assert is_pipelined(steps[-1]) == (not reason)
    assert faults_of(steps, [rows(5)]) == []


def test_a_schedule_of_the_users_is_followed() -> None:
    """The copies that it runs ahead do, by as many iterations; others wait."""
    steps = run_text(LATE.replace("stages=3", "order=(0, 1, 4, 2, 3), stage=(3, 3, 0, 3, 3)"))
    assert reasons_of(steps) == []
    assert body_of(steps[-1]).count("with issue") == 2
    assert "copy(B[k + 3, :], b[(k + 3) % 4, :])" in body_of(steps[-1])
    arrays = [rows(9), np.arange(9, dtype=np.int32)[::-1].copy(), rows(9), np.zeros((10, 4), "f4")]
    assert faults_of(steps, arrays) == []


@pytest.mark.parametrize(
    "schedule",
    [
        "order=(0, 1, 2, 3, 4), stage=(0, 0, 1, 1, 1)",  # c of one iteration is added to in the next
        "order=(0, 1, 2, 3, 4), stage=(0, 1, 0, 2, 2)",
        "order=(0, 2, 1, 4, 3), stage=(0, 1, 1, 1, 1)",  # c would be stored before it is multiplied
        "order=(0, 2, 1, 3, 4), stage=(0, 1, 0, 0, 1)",
        "order=(0, 1, 4, 2, 3), stage=(1, 1, 1, 0, 1)",
    ],
)
def test_a_schedule_that_cannot_be_followed_is_named(schedule: str) -> None:
    """With the statement that it would break; the loop runs as it is written."""
    steps = run_text(LATE.replace("stages=3", schedule))
    assert reasons_of(steps) == [
        "not pipelined: its schedule breaks a dependence",
        "cannot run ahead, and the schedule of the loop says that it does",
    ]
    arrays = [rows(9), np.arange(9, dtype=np.int32)[::-1].copy(), rows(9), np.zeros((10, 4), "f4")]
    assert faults_of(steps, arrays) == []


STAGED = """\
def f(A: float32[n, 4], B: float32[n, 4], C: inout.float32[n, 4]):
    n: dim
    threads(32)
    a: shared.float32[4]
    b: shared.float32[4]
    s: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.0)
    for k in pipelined(n, order=(0, 1, 2, 3), stage=(0, 0, 1, 2)):
        copy(A[k, :], a)
        copy(B[k, :], b)
        for i in parallel(4):
            s[i] = b[i] * 0.5
        for j in parallel(4):
            c[j] = c[j] * 2.0 + a[j] * s[j]
    copy(c, C[0, :])
"""


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("schedule", "versions"),
    [
        ("order=(0, 1, 2, 3), stage=(0, 0, 1, 2)", {"a": 3, "b": 2, "s": 2}),
        ("order=(0, 1, 3, 2), stage=(0, 0, 1, 2)", {"a": 3, "b": 2, "s": 1}),
        ("order=(0, 1, 2, 3), stage=(1, 0, 2, 4)", {"a": 4, "b": 3, "s": 3}),
        ("order=(3, 2, 0, 1), stage=(2, 0, 3, 3)", {"a": 2, "b": 4, "s": 1}),
        ("order=(0, 1, 2, 3), stage=(1, 1, 1, 2)", {"a": 2, "b": 1, "s": 2}),
        ("order=(0, 1, 2, 3), stage=(5, 5, 6, 7)", {"a": 3, "b": 2, "s": 2}),
    ],
)
def test_each_stage_runs_ahead_and_tiles_that_cross_stages_have_versions(
    schedule: str, versions: dict[str, int]
) -> None:
    """As many as there are iterations between what fills a tile and its last use, for every trip count."""
    steps = run_text(STAGED.replace("order=(0, 1, 2, 3), stage=(0, 0, 1, 2)", schedule))
    assert reasons_of(steps) == []
    shared = [one for one in steps[-1].program.buffers if one.scope == "shared"]
    found = {one.name: one.shape[0] if len(one.shape) > 1 else ONE for one in shared}
    assert found == {name: Const(count, "int32") for name, count in versions.items()}
    for trips in range(1, 10):
        assert faults_of(steps, [rows(trips), rows(trips), rows(trips)]) == []


def test_waits_leave_the_groups_of_later_steps() -> None:
    """One wait in each step, for the copies that are used first; none where all are over."""
    text = body_of(run_text(STAGED.replace("stage=(0, 0, 1, 2)", "stage=(0, 0, 2, 3)"))[-1])
    waits = [line.strip() for line in text.splitlines() if "wait_group" in line]
    assert waits == [f'wait_group({count}, unit="cp_async")' for count in ("1", "1", "1 - k_last")]
    assert text.count("commit_group") == 3


def test_columns_of_narrow_elements_are_not_moved_at_once() -> None:
    """They are not one after the other in the array."""
    text = """\
def f(A: float16[16, 8], C: out.float16[4, 4]):
    threads(32)
    a: shared.float16[4]

    for k in pipelined(4, stages=2):
        copy(A[k * 4 : +4, 0], a)
        copy(a, C[k, :])
"""
    said = "cp.async moves 4, 8 or 16 aligned bytes, and A has 2 in a row here"
    assert reasons_of(run_text(text))[1] == f"not asynchronous: {said}"
    wide = run_text(text.replace("float16", "float32"))
    assert is_pipelined(wide[-1])
    assert faults_of(wide, [np.arange(128, dtype=np.float32).reshape(16, 8)]) == []


def test_an_extent_is_computed_once() -> None:
    """The loop may change what it is read from."""
    text = SUMS.replace("C: out", "T: inout.int32[1], C: out").replace(
        "(n, stages", "(T[0], stages"
    )
    text = text.replace(
        "        copy(A[k, :], a)\n", "        copy(A[k, :], a)\n        T[0] = 1\n"
    )
    steps = run_text(text)
    assert "    k_extent = T[0]\n" in body_of(steps[-1])
    for trips in range(6):
        assert faults_of(steps, [rows(6), np.array([trips], np.int32)]) == []


def test_a_loop_in_a_role_is_not_pipelined() -> None:
    """Another role may use its tiles."""
    text = SUMS.replace(
        "    for k", "    with roles:\n        with role:\n            pass\n    for k"
    )
    head, loop = SUMS.split("    for k")
    loop, tail = loop.split("    copy(c, C)")
    inner = f"    for k{loop}".replace("\n", "\n        ").rstrip()
    text = f"{head}    with roles:\n        with role(0, 32):\n        {inner}\n    copy(c, C)\n"
    assert tail == "\n"
    assert reasons_of(run_text(text)) == ["not pipelined: it is in one of several roles"]


def _text(steps: tuple[Step, ...]) -> str:
    return print_program(steps[-1].program)


@pytest.mark.parametrize(
    ("trips", "pipeline"),
    sampled(
        product((0, 1, 4, 9), ("sm_80", "sm_90a")), [(0, "sm_80"), (4, "sm_80"), (9, "sm_90a")]
    ),
)
def test_a_loop_has_versions_of_what_it_needs_them_of_alone(pipeline: str, trips: int) -> None:
    """A tile with several versions in one loop is one tile in a loop that reads what it left."""
    text = """\
def f(A: float32[12, 4], B: float32[12, 4], C: inout.float32[12, 4], n: int32):
    threads(32)
    a: shared.float32[4]
    b: shared.float32[4]
    c: fragment.float32[4]

    fill(c, 0.5)
    fill(a, 0.0)
    for k in pipelined(n, stages=2):
        copy(B[k, :], b)
        for i in parallel(4):
            c[i] = c[i] + a[i] * b[i]
        if n > 4:
            copy(A[k, :], a)
        else:
            copy(B[k, :], a)
    for m in pipelined(7, stages=3):
        copy(A[m, :], a)
        for j in parallel(4):
            c[j] = c[j] + a[j]
    copy(c, C[0, :])
"""
    steps = run_text(text, pipeline)
    assert is_pipelined(steps[-1])
    program = steps[0].program
    arrays = [
        make_array(one, number)
        for number, one in enumerate(program.params)
        if isinstance(one, Tensor)
    ]
    assert faults_of(steps, arrays, [trips]) == []
