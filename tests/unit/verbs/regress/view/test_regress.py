"""Two versions in time, on a terminal and as a comment of a pull request."""

import io
import statistics

import msgspec
import pytest
from rich.console import Console
from tests.unit.verbs.regress.plan.sides import timed

from tileyard.verbs.regress.result import (
    BuildTimes,
    Change,
    Control,
    Gate,
    Mean,
    Ratio,
    Regression,
    TimedRow,
    parse_limits,
)
from tileyard.verbs.regress.view.regress import (
    describe_controls,
    draw_interval,
    print_regression,
    render_comment,
)

ROWS = (
    TimedRow(case="gone|`x`", verdict="missing"),
    TimedRow(case="wrong", verdict="failed", head_message="mismatch: B[0] is 1, expected <2>"),
    timed("slow", "regressed", 1.03, 1.04, 1.05),
    timed("even", "equivalent", 0.995, 1.0, 1.005),
    TimedRow(case="same", verdict="unchanged"),
)
RESULT = Regression(
    run="20261123-1200-abcd",
    target="cpu",
    device="cpu:0",
    silicon="a CPU",
    base="main (1a2b3c4d5e)",
    head="working tree",
    margin=0.02,
    rows=Gate(margin=0.02).judge(ROWS)[0],
    false_alarms=("slow",),
    seconds=12.0,
    timed_s=3.0,
)


def test_what_needs_a_look_has_a_line_of_its_own() -> None:
    """With its figures; the others are counted. No figure is cut off where the terminal is narrow."""
    console = Console(file=io.StringIO(), width=40)
    print_regression(console, RESULT)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "regressed      +4.00 %      +3.00 .. +5.00       1 us -> 1.04 us    slow" in lines
    assert "    head: mismatch: B[0] is 1, expected <2>" in lines
    assert any(line.startswith("missing ") and line.endswith("gone|`x`") for line in lines)
    assert not any("even" in line or "same" in line for line in lines)
    assert "5 kernels: 1 failed, 1 missing, 1 regressed, 1 equivalent, 1 unchanged" in lines
    assert "base against itself, as a control: 1 false alarm in 2 kernels: slow" in lines


def test_rows_of_which_only_messages_are_known_share_a_line() -> None:
    """Failures that differ in numbers at most, and pairs for which no time was left; each with its names."""
    wrong = [
        TimedRow(case=f"wrong/{n}", verdict="failed", head_message=f"mismatch: B[{n}] is -{n}.5")
        for n in range(25)
    ]
    late = [TimedRow(case=f"late/{n}", verdict="inconclusive") for n in range(3)]
    slow = [timed(f"slow/{n}", "regressed", 1.03, 1.04, 1.05) for n in range(3)]
    two = [TimedRow(case=f"gone/{n}", verdict="missing") for n in range(2)]
    console = Console(file=io.StringIO(), width=40)
    print_regression(console, msgspec.structs.replace(RESULT, rows=(*wrong, *late, *slow, *two)))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    names = [f"wrong/{n}," for n in range(20)]
    assert ["failed", "25", "kernels:", *names, "..."] in lines
    assert ["head:", "mismatch:", "B[0]", "is", "-0.5"] in lines
    assert [words[0] for words in lines].count("head:") == 2  # that of the commit, and this one
    assert ["inconclusive", "3", "kernels:", "late/0,", "late/1,", "late/2"] in lines
    assert [words[-1] for words in lines if words[0] == "regressed"] == [
        f"slow/{n}" for n in range(3)
    ]
    assert [words[-1] for words in lines if words[0] == "missing"] == ["gone/0", "gone/1"]


def test_base_against_itself_has_a_line_for_each_of_several_devices() -> None:
    """And for a single one where it raises an alarm, on a terminal and in a comment."""
    quiet, alarm = (
        Control(
            device=f"npu:{number}",
            ratio=Ratio(ratio=1 + share, low=0.99 + share, high=1.01 + share, processes=9),
            is_alarm=bool(share),
        )
        for number, share in enumerate((0.0, 0.05))
    )
    wanted = [
        "base against itself on npu:0: +0.00 % (-1.00 .. +1.00)",
        "base against itself on npu:1: +5.00 % (+4.00 .. +6.00), a false alarm",
    ]
    for controls, lines in (((quiet, alarm), wanted), ((alarm,), wanted[1:]), ((quiet,), [])):
        result = msgspec.structs.replace(RESULT, controls=controls)
        assert list(describe_controls(result)) == lines
        comment = render_comment(result)
        assert all(line.partition(":")[0] in comment for line in lines)


def test_what_the_compiler_made_of_a_kernel_is_below_its_time() -> None:
    """On a terminal and in a comment; a row whose figures gate has a line although its time is equal."""
    changes = (
        Change(metric="registers", base=32, head=40),
        Change(metric="spills", base=0, head=8),
    )
    even = msgspec.structs.replace(timed("even", "equivalent", 0.995, 1.0, 1.005), changes=changes)
    rows, notes = Gate(margin=0.02, limits=parse_limits("spills:+0")).judge((even,))
    mean = Mean(ratio=1.0, rows=1)
    result = msgspec.structs.replace(RESULT, rows=rows, notes=notes, mean=mean)
    console = Console(file=io.StringIO(), width=40)
    print_regression(console, result)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "    registers   32 -> 40     +25.0 %\n    spills     0 B -> 8 B\n" in printed
    assert "    beyond its limit: spills 0 -> 8, allowed spills:+0\n" in printed
    assert "fails the comparison: 1 over_limit\n" in printed
    assert "geometric mean" not in printed
    comment = render_comment(result)
    assert comment.startswith("## Failed: 1 over_limit\n")
    assert "<details>" not in comment
    assert "registers 32 -&#62; 40" in comment


def test_slower_kernels_that_are_allowed_are_called_so() -> None:
    """In the first line, before anybody looks for the reason."""
    slow = timed("slow", "regressed", 1.03, 1.04, 1.05)
    rows, notes = Gate(margin=0.02, fail_over=0.05).judge((slow,))
    comment = render_comment(msgspec.structs.replace(RESULT, rows=rows, notes=notes))
    assert comment.startswith("## 1 kernel slower by more than 2 %, allowed\n")
    assert "1 regressed, not known to be beyond 5 %&#58; does not gate" in comment


def test_a_comment_begins_with_what_is_worst() -> None:
    """Equal rows are folded away; text of others stays text."""
    comment = render_comment(RESULT)
    assert comment.startswith("## 1 kernel slower by more than 2 %\n")
    before, _, folded = comment.partition("<details>")
    assert "| regressed | <code>slow</code> | +4.00 % |" in before
    assert "gone&#124;&#96;x&#96;" in before
    assert "expected &#60;2&#62;" in before
    assert "even" not in before
    assert "<code>even</code>" in folded
    assert "working tree" in folded


@pytest.mark.parametrize(
    ("low", "ratio", "high", "expected"),
    [
        (0.96, 0.97, 0.98, "······─●─···¦········"),
        (None, 1.0, None, "──────────●──────────"),
        (1.0, 1.2, 1.4, "········¦·──────────●"),
    ],
)
def test_an_interval_is_drawn(
    low: float | None, ratio: float, high: float | None, expected: str
) -> None:
    """From one end of what is shown to the other, with the margin as bars."""
    drawn = draw_interval(
        TimedRow(
            case="k",
            verdict="inconclusive",
            ratio=Ratio(ratio=ratio, low=low, high=high, processes=8),
        ),
        margin=0.02,
        reach=0.1,
    )
    assert drawn == expected


def show_figures(*rows: TimedRow, build: BuildTimes | None = None, broken: str = "") -> str:
    """What is printed, and then the comment, of kernels that were built and not run."""
    result = Regression(
        run="",
        target="cuda:sm_80",
        device="",
        silicon="",
        base="TileLang 0.1.15 (NVRTC 13.0)",
        head="TileLang 0.1.15, tl.x=1 (NVRTC 13.0)",
        margin=0.02,
        rows=rows,
        of="figures",
        build=build,
        broken=(broken,) if broken else (),
    )
    console = Console(file=io.StringIO(), width=160)
    print_regression(console, result)
    assert isinstance(console.file, io.StringIO)
    return f"{console.file.getvalue()}{render_comment(result)}"


def test_figures_are_below_the_name_of_their_kernel() -> None:
    """A line each, with both sides; what is the same is counted."""
    changes = (
        Change(metric="registers", base=32, head=40),
        Change(metric="occupancy", base=50, head=None),
        Change(metric="mix.tensor", base=64, head=32, function="main_kernel"),
        Change(metric="build", base=1.5, head=3.0),
    )
    shown = show_figures(
        TimedRow(case="gemm/small", verdict="changed", changes=changes),
        TimedRow(case="gone", verdict="missing"),
        TimedRow(case="broken", verdict="failed", head_message="boom\nand more"),
        TimedRow(case="same", verdict="unchanged"),
    )
    expected = [
        "for cuda:sm_80",
        "changed        gemm/small",
        "    registers                              32 -> 40         +25.0 %",
        "    occupancy                            50 % -> depends",
        "    tensor instructions of main_kernel     64 -> 32         -50.0 %",
        "    build                               1.5 s -> 3.0 s     +100.0 %",
        "missing        gone",
        "failed         broken",
        "    head: boom and more",
        "4 kernels: 1 failed, 1 missing, 1 changed, 1 unchanged",
        "nothing fails the comparison",
    ]
    assert shown.splitlines()[2:13] == expected
    assert "## The figures of 1 kernel have changed\n" in shown
    assert "| changed | <code>gemm/small</code> |\n" in shown


def test_build_times_over_their_limit_are_what_gates() -> None:
    """On a terminal and in the first line of a comment."""
    shown = show_figures(broken="all kernels: build x 1.40")
    assert "fails the comparison: all kernels: build x 1.40\n" in shown
    assert "## Failed: build times over their limit\n" in shown


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
    """Few rounds, rounds that disagree and rounds that agree give different lines."""
    build = BuildTimes(
        base_s=tuple(2.0 for _ in ratios),
        head_s=tuple(2.0 * ratio for ratio in ratios),
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        is_first=False,
    )
    assert expected in show_figures(build=build)


def test_one_round_says_nothing_about_times() -> None:
    """Of the first round, in which headers are read, both times are shown and no ratio."""
    build = BuildTimes(base_s=(2.0,), head_s=(3.0,), ratio=1.5, low=1.5, high=1.5, is_first=True)
    expected = (
        "base 2.0 s, head 3.0 s; single builds, the first with a cold header cache: --rebuilds 3 "
        "tells more"
    )
    assert expected in show_figures(build=build)
