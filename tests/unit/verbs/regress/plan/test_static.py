"""Comparing two builds of the same kernels."""

from collections.abc import Sequence

import pytest
from tests.unit.verbs.regress.plan.sides import built, failed, function, side

from tileyard.artifacts.manifest import Build
from tileyard.base.model import Outcome
from tileyard.verbs.regress.plan.static import compare_sides
from tileyard.verbs.regress.result import BUILD, Change, Gate, Regression

GATE = Gate(margin=0.02)


def compare(base: Sequence[Build], head: Sequence[Build]) -> Regression:
    """One round of each."""
    return compare_sides("cuda:sm_80", ("a", "b"), [side(*base)], [side(*head)], GATE)


def compare_times(base_s: Sequence[float], head_s: Sequence[float]) -> Regression:
    """One kernel, built in several rounds that took so long."""
    return compare_sides(
        "cuda:sm_80",
        ("a", "b"),
        [side(built(build_s=seconds)) for seconds in base_s],
        [side(built(build_s=seconds)) for seconds in head_s],
        GATE,
    )


def test_equal_kernels_are_counted() -> None:
    """Kernels that are the same on both sides are unchanged."""
    compared = compare([built("a"), built("b")], [built("a"), built("b")])
    assert [(row.case, row.verdict) for row in compared.rows] == [
        ("a", "unchanged"),
        ("b", "unchanged"),
    ]
    assert not compared.notes


def test_a_binary_without_figures_is_not_called_equal_in_silence() -> None:
    """A note counts what the compiler says nothing of."""
    silent = Build(case="a", outcome=Outcome.PASSED)
    assert compare([silent, built("b")], [silent, built("b")]).notes == (
        "compilers report no figures of 2 builds",
    )


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"registers": 40}, Change(metric="registers", base=32, head=40)),
        ({"spilled_bytes": 8}, Change(metric="spills", base=0, head=8)),
        ({"stack_bytes": 8}, Change(metric="stack", base=0, head=8)),
        ({"dynamic_shared_bytes": 512}, Change(metric="shared", base=1024, head=1536)),
        ({"dynamic_shared_bytes": None}, Change(metric="shared", base=1024, head=None)),
        ({"threads": 256}, Change(metric="threads", base=128, head=256)),
        ({"occupancy": 0.25}, Change(metric="occupancy", base=50, head=25)),
        ({"code_bytes": 5000}, Change(metric="code", base=4096, head=5000)),
    ],
)
def test_each_figure_is_compared(figures: dict[str, object], expected: Change) -> None:
    """A figure that differs is a change, and no other is."""
    compared = compare([built()], [built("gemm/block=1", function(**figures))])
    (row,) = compared.rows
    assert (row.verdict, row.changes) == ("changed", (expected,))


def test_instructions_are_compared_by_kind() -> None:
    """Instructions of a kind that one side lacks are none there."""
    head = function(mix={"other": 200, "local": 4})
    (row,) = compare([built()], [built("gemm/block=1", head)]).rows
    expected = {
        ("instructions", 256, 204),
        ("mix.tensor", 56, 0),
        ("mix.local", 0, 4),
    }
    assert {(one.metric, one.base, one.head) for one in row.changes} == expected


def test_functions_are_told_apart_by_name() -> None:
    """If a kernel has several device functions, a change names its own; keys in names do not count."""
    base = built("a", function("first_0000"), function("second_1111"))
    head = built("a", function("first_2222"), function("second_3333", registers=33))
    (row,) = compare([base], [head]).rows
    expected = (Change(metric="registers", base=32, head=33, function="second"),)
    assert row.changes == expected


def test_a_function_that_is_new_has_figures_on_one_side() -> None:
    """A device function that only one side has is shown with what it takes there."""
    base = built("a", function("first_0000"))
    head = built("a", function("first_0000"), function("second_1111"))
    (row,) = compare([base], [head]).rows
    expected = Change(metric="registers", base=None, head=32, function="second")
    assert expected in row.changes
    assert {one.function for one in row.changes} == {"second"}


def test_no_kernel_is_dropped() -> None:
    """Kernels that a side does not have, or cannot build, have rows of their own."""
    base = [built("gone"), built("broken"), failed("mended"), failed("never"), failed("file.py")]
    head = [failed("broken"), built("mended"), failed("never"), built("new")]
    compared = compare(base, head)
    expected = {
        "gone": ("missing", "", ""),
        "broken": ("failed", "", "compile_error: no"),
        "mended": ("failed", "compile_error: no", ""),
        "never": ("failed", "compile_error: no", "compile_error: no"),
        "new": ("new", "", ""),
        "file.py": ("failed", "compile_error: no", ""),
    }
    found = {row.case: (row.verdict, row.base_message, row.head_message) for row in compared.rows}
    assert found == expected


def test_what_the_host_has_failed_is_no_fault_of_a_kernel() -> None:
    """It was not compared, and the exit status is that of infrastructure."""
    lost = Build(case="a", outcome=Outcome.INFRA_ERROR, message="the disk is full")
    compared = compare([built("a")], [lost])
    assert [row.verdict for row in compared.rows] == ["not_run"]
    assert compared.exit_status == 3


def test_the_first_round_is_not_timed_where_there_are_others() -> None:
    """Caches are made in the first round, which counts only where it is the only one."""
    once, more = compare_times([9], [5]), compare_times([9, 1, 1], [5, 1, 1])
    assert once.build is not None
    assert more.build is not None
    expected = ((9,), True, (1, 1), False)
    assert (
        once.build.base_s,
        once.build.is_first,
        more.build.base_s,
        more.build.is_first,
    ) == expected


def test_build_times_are_told_with_their_spread() -> None:
    """All rounds tell a ratio each; the middle one is given, with the extremes."""
    build = compare_times([9, 1, 2, 4], [9, 2, 2, 6]).build
    assert build is not None
    expected = (1.5, 1.0, 2.0)
    assert (build.ratio, build.low, build.high) == expected


@pytest.mark.parametrize(
    ("base_s", "head_s", "is_told"),
    [
        ([9, 1.0, 1.1, 1.2], [9, 2.0, 2.1, 1.9], True),
        ([9, 2.0, 2.1, 1.9], [9, 1.0, 1.1, 1.2], True),
        ([9, 1.0, 1.1, 2.0], [9, 2.0, 2.1, 1.9], False),  # one round contradicts
        ([9, 1.00, 1.01, 1.02], [9, 1.03, 1.04, 1.05], False),  # too little
        ([9, 1.0, 1.1], [9, 2.0, 2.1], False),  # too few
    ],
)
def test_a_kernels_build_time_changes_only_where_all_rounds_agree(
    base_s: list[float], head_s: list[float], is_told: bool
) -> None:
    """Rounds that overlap, few rounds and small differences are noise."""
    compared = compare_times(base_s, head_s)
    changed = {change.metric for row in compared.rows for change in row.changes}
    assert changed == ({BUILD} if is_told else set())


def test_times_of_what_one_side_lacks_do_not_count() -> None:
    """The sides' times are of the kernels that both have built."""
    build = compare([built("a"), built("gone", build_s=50)], [built("a"), failed("gone")]).build
    assert build is not None
    expected = ((1.0,), (1.0,))
    assert (build.base_s, build.head_s) == expected


def test_nothing_in_common_has_no_times() -> None:
    """Where no kernel was built on both sides there is no time to compare."""
    assert compare([failed("a")], [built("a")]).build is None
