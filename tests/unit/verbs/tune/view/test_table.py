"""What people see of a dispatch table."""

import io
from pathlib import Path

import msgspec
from rich.console import Console
from tests.unit.show.test_views import result, trial

from tileyard.base.model import Outcome
from tileyard.verbs.tune.result import Control, CurvePoint, TableResult, TableRow
from tileyard.verbs.tune.view.table import print_dispatch

STUDY = result()
FAILED = msgspec.structs.replace(
    STUDY,
    trials=(trial(1, Outcome.MISMATCH),),
    best=None,
    arguments={"M": 9},
    finals=(),
    control=None,
)
TABLE = TableResult(
    run="r",
    kernel="gemm",
    target="cpu",
    within=0.05,
    studies=(STUDY, FAILED),
    rows=(
        TableRow(
            name="decode: M=8",
            arguments={"M": 8},
            weight=3.0,
            trial=trial(2, Outcome.PASSED, 2.01e6),
            slowdown=1.01,
            latency_ns=2.01e6,
        ),
        TableRow(name="M=9", arguments={"M": 9}, weight=1.0),
    ),
    curve=(
        CurvePoint(configs=({"tile": 3},), share=0.25, worst=None),
        CurvePoint(configs=({"tile": 2}, {"tile": 3}), share=0.75, worst=1.01),
    ),
    seconds=3.0,
)


def shown(table: TableResult) -> list[str]:
    """The lines, without frames and repeated spaces."""
    file = io.StringIO()
    print_dispatch(Console(file=file, width=160), table, Path("/home/x"))
    return [" ".join(line.replace("│", " ").split()) for line in file.getvalue().splitlines()]


def test_rows_the_curve_and_what_has_no_config_are_shown() -> None:
    """Each shape with its config and its own best one, each number of configs with its share."""
    lines = shown(TABLE)
    assert "decode: M=8 3 2.01 ms 1.010 x tile=2 tile=1" in lines
    assert "M=9 1 no config passed" in lines
    assert "1 25.0 % unknown" in lines
    assert "2 75.0 % 1.010 x" in lines
    assert lines[-3:] == [
        "no config passed for M=9",
        "results: /home/x (tileyard export r, tileyard trials)",
        "2 configs for 1 shape, each within 5 % of its best (the worst: 1.010 x)",
    ]


def test_a_disturbed_shape_has_no_config() -> None:
    """And is not one for which none passed."""
    why = "the finals took at least 9 x as long as the screening of the same configs"
    disturbed = msgspec.structs.replace(FAILED, disturbed=True, disturbances=(why,))
    lines = shown(msgspec.structs.replace(TABLE, studies=(STUDY, disturbed)))
    assert "M=9 1 disturbed" in lines
    assert any(line.startswith(f"M=9: disturbed, no order is named: {why}. ") for line in lines)
    assert not any("no config passed" in line for line in lines)


def test_doubts_end_the_last_line() -> None:
    """A machine that was busy, and results that nothing was compared with."""
    wide = Control(ratio=1.0, low=0.8, high=1.2, false_alarm=False)
    trials = (trial(1, Outcome.UNCHECKED, 2e6),)
    busy = msgspec.structs.replace(STUDY, control=wide, trials=trials)
    last = shown(msgspec.structs.replace(TABLE, studies=(busy, FAILED)))[-1]
    doubts = "the machine was too busy to separate tied configs, unchecked: no reference"
    assert last.endswith(f"(the worst: 1.010 x), {doubts}")
