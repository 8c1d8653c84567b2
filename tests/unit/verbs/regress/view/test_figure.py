"""Two versions in time as a picture."""

import io
import sys
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from tests.conftest import ROOT
from tests.unit.verbs.regress.plan.sides import timed

from tileyard.cli.main import main
from tileyard.verbs.regress.plan.pairs import sort_rows
from tileyard.verbs.regress.result import Gate, Regression, TimedRow
from tileyard.verbs.regress.view.figure import COLOURS, _arrange, render_png

REPORTS = str(ROOT / "examples" / "reports" / "perf_reports.json")


def make_rows(count: int) -> tuple[TimedRow, ...]:
    """Every tenth row is slower, the last one gone; names are what a font or a formula may stumble over."""
    rows = [
        timed(f"$k_{number}\u4e2d", "regressed", 1.03, 1.05, 1.07)
        if number % 10 == 0
        else timed(f"k{number}", "equivalent", 0.99, 1.0, 1.01)
        for number in range(count - 1)
    ]
    gone = TimedRow(case="gone", verdict="missing")
    return Gate(margin=0.02).judge(sort_rows([gone, *rows]))[0]


def find_colours(image: Image.Image) -> set[tuple[int, ...]]:
    """All colours of a picture."""
    found = image.convert("RGB").getcolors(1 << 24) or []
    return {colour for _, colour in found if isinstance(colour, tuple)}


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 500])
def test_a_picture_shows_what_is_slower(count: int) -> None:
    """At one width and within a page, however many rows there are."""
    result = Regression(
        run="r",
        target="cpu",
        device="",
        silicon="",
        base="main $x$",
        head="\x1b[31mtree",
        margin=0.02,
        fail_over=0.05,
        rows=make_rows(count),
    )
    image = Image.open(io.BytesIO(render_png(result)))
    assert image.width == 800
    assert image.height < 2000
    slower = tuple(round(255 * part) for part in to_rgb(COLOURS["regressed"]))
    assert slower in find_colours(image)


def test_no_row_is_left_out() -> None:
    """What has no name of its own is counted; what gates has one first."""
    rows = make_rows(500)
    lines = list(_arrange(rows))
    drawn = [row.case for line in lines for row in line.rows]
    assert sorted(drawn) == sorted(row.case for row in rows)
    assert lines[0].label == "gone"
    assert [line.label for line in lines if not line.is_named] == [
        "21 more regressed",
        "449 equivalent",
    ]
    assert [line.is_named for line in _arrange(make_rows(5))] == [True] * 5


@pytest.mark.slow
def test_the_command_writes_it(tmp_path: Path) -> None:
    """Beside what it prints; without matplotlib it says so in one line."""
    picture = tmp_path / "intervals.png"
    assert main(["regress", "--reports", REPORTS, "--png", str(picture)]) == 1
    with Image.open(picture) as image:
        assert image.format == "PNG"


def test_without_matplotlib_one_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is measured."""
    monkeypatch.delitem(sys.modules, "tileyard.verbs.regress.view.figure")
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    picture = tmp_path / "intervals.png"
    assert main(["regress", "--reports", "gone.json", "--png", str(picture)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--png takes matplotlib" in line
    assert "tileyard[png]" in line
    assert not picture.exists()
