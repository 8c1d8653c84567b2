"""Static comparisons for people."""

import io
import statistics

import pytest
from rich.console import Console

from tileyard.regress.static import BuildTimes, Change, Comparison, Row
from tileyard.report.static import print_comparison


def show(compared: Comparison) -> str:
    """What is printed, on a wide screen."""
    console = Console(file=io.StringIO(), width=160)
    print_comparison(console, compared)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def make(
    *rows: Row, build: BuildTimes | None = None, regressions: tuple[str, ...] = ()
) -> Comparison:
    """A comparison in which seven kernels are the same."""
    return Comparison(
        target="cuda:sm_80",
        base="TileLang 0.1.15",
        head="TileLang 0.1.15, tl.x=1",
        base_compiler="NVRTC 13.0",
        head_compiler="NVRTC 13.0",
        rows=rows,
        unchanged=7,
        build=build,
        regressions=regressions,
    )


def cells(line: str) -> list[str]:
    """The cells of a row of the table."""
    return [cell.strip() for cell in line.strip("│\n").split("│")]


def test_changes_stand_below_the_name_of_their_kernel() -> None:
    """Each change has a line with both figures; the kernel is named once."""
    changes = (
        Change(metric="registers", base=32, head=40),
        Change(metric="spills", base=0, head=8),
        Change(metric="occupancy", base=50, head=None),
        Change(metric="mix.tensor", base=64, head=32, function="main_kernel"),
        Change(metric="build", base=1.5, head=3.0),
    )
    shown = show(make(Row(case="gemm/small", base="built", head="built", changes=changes)))
    expected = [
        ["gemm/small", "registers", "32", "40", "+25.0 %"],
        ["", "spills", "0 B", "8 B", ""],
        ["", "occupancy", "50 %", "depends", ""],
        ["", "tensor instructions of main_kernel", "64", "32", "-50.0 %"],
        ["", "build", "1.5 s", "3.0 s", "+100.0 %"],
    ]
    assert [cells(line) for line in shown.splitlines() if line.startswith("│")] == expected
    assert "8 kernels: 7 unchanged, 1 listed" in shown


def test_what_a_side_does_not_build_is_a_row_with_a_reason() -> None:
    """Kernels that are missing or fail have rows, and messages below the table."""
    shown = show(
        make(
            Row(case="gone", base="built", head="missing"),
            Row(case="new", base="missing", head="built"),
            Row(case="broken", base="built", head="fails", head_message="boom\nand more"),
        )
    )
    expected = [
        ["gone", "binary", "built", "missing", ""],
        ["new", "binary", "missing", "built", ""],
        ["broken", "binary", "built", "fails", ""],
    ]
    assert [cells(line) for line in shown.splitlines() if line.startswith("│")] == expected
    assert "broken: head: boom and more" in shown


def test_nothing_changed_needs_no_table() -> None:
    """Where all is the same, a line says of how many kernels."""
    shown = show(make())
    assert "│" not in shown
    assert "7 kernels: 7 unchanged, 0 listed" in shown


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        (
            (0.9, 1.0, 1.1),
            "1.00 x, in rounds 0.90 to 1.10; 3 rounds, no difference that can be told",
        ),
        ((1.1, 1.15, 1.2), "1.15 x, in rounds 1.10 to 1.20; 3 rounds, all of them agree"),
        ((0.8, 0.85, 0.9), "0.85 x, in rounds 0.80 to 0.90; 3 rounds, all of them agree"),
        ((1.1, 1.2), "2 rounds, too few to tell"),
    ],
)
def test_build_times_say_what_they_are_worth(ratios: tuple[float, ...], expected: str) -> None:
    """Rounds that are few, that disagree and that agree are told apart."""
    build = BuildTimes(
        base_s=tuple(2.0 for _ in ratios),
        head_s=tuple(2.0 * ratio for ratio in ratios),
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        is_first=False,
    )
    assert expected in show(make(build=build))


def test_one_round_says_nothing_about_times() -> None:
    """Of the first round, in which headers are read, both times are shown and no ratio."""
    build = BuildTimes(base_s=(2.0,), head_s=(3.0,), ratio=1.5, low=1.5, high=1.5, is_first=True)
    expected = "base 2.0 s, head 3.0 s, once and with headers to be read: --repeat 3 tells more"
    assert expected in show(make(build=build))


def test_regressions_come_last() -> None:
    """Each broken limit has a line of its own at the end."""
    shown = show(make(regressions=("gemm: registers 32 -> 40, allowed registers:+5%",)))
    expected = "regression  gemm: registers 32 -> 40, allowed registers:+5%"
    assert shown.splitlines()[-1] == expected
