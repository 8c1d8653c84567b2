"""Draws the times of two versions for a pull request: intervals against the margin, the worst first.

Rows that need a look have a name; the others are thin lines, one strip per verdict.
"""

from collections.abc import Iterator, Sequence
from typing import Final, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tileyard.base.model import Record
from tileyard.show.figure import DOTS_PER_IN, FONT, WIDTH_IN, encode_png
from tileyard.show.words import clean_line
from tileyard.verbs.regress.result import Ratio, Regression, TimedRow, Verdict, format_change
from tileyard.verbs.regress.view.regress import QUIET, find_headline

NAMED: Final = 30
"""Maximum number of rows with a name."""
NAME_LENGTH: Final = 24
TITLE_LENGTH: Final = 48
ROW_IN: Final = 0.17
STRIP_IN: Final = 0.8
"""Maximum height of a strip, in which each row takes THIN_IN if there is room."""
THIN_IN: Final = 0.02
FRAME_IN: Final = 1.35
"""Height of title, axis and legend."""
LINE: Final = 1.6
THIN: Final = 0.4
MARK: Final = 3.5
REACH: Final = 6
"""Margins on either side of 0. For values beyond it, the figure is written beside the row."""
COLOURS: Final[dict[Verdict, str]] = {
    "failed": "#000000",
    "missing": "#000000",
    "regressed": "#D55E00",
    "not_run": "#CC79A7",
    "inconclusive": "#E69F00",
    "new": "#000000",
    "improved": "#0072B2",
    "equivalent": "#009E73",
    "unchanged": "#009E73",
}
"""Okabe and Ito's colours, distinguishable for colour-blind readers; shapes differ as well."""
SHAPES: Final[dict[Verdict, str]] = {
    "regressed": ">",
    "inconclusive": "o",
    "improved": "<",
    "equivalent": "s",
}
BAND: Final = "#E4E4E4"


class _Line(Record):
    """The drawing at one height: a row with its name, or all further rows of a verdict."""

    label: str
    rows: tuple[TimedRow, ...]
    height_in: float
    is_named: bool


def render_png(result: Regression) -> bytes:
    """The picture as PNG."""
    lines = tuple(_arrange(result.rows))
    height_in = max(sum(line.height_in for line in lines), ROW_IN)
    figure = Figure((WIDTH_IN, height_in + FRAME_IN), DOTS_PER_IN, layout="constrained")
    axes = figure.add_subplot()
    reach = max(REACH * 100 * result.margin, 150 * result.fail_over)
    _draw_limits(axes, result)
    plot = _Plot(axes, reach)
    for line in lines:
        plot.draw(line)
    axes.set_xlim(-reach, reach)
    axes.set_ylim(height_in, 0)
    axes.set_yticks(plot.middles, [line.label for line in lines], parse_math=False)
    axes.set_xlabel("change of head's time against base, in %", fontsize=FONT)
    axes.tick_params(labelsize=FONT, length=2)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(_title(result), fontsize=FONT, parse_math=False)
    figure.legend(
        handles=list(_legend(result, reach)),
        loc="outside lower center",
        ncols=2,
        fontsize=FONT,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.5,
    )
    return encode_png(figure)


def _arrange(rows: Sequence[TimedRow]) -> Iterator[_Line]:
    """Rows with names, the worst first and those that gate before all others; further rows by verdict."""
    named = [row for row in rows if row.verdict != "unchanged"]
    if len(named) > NAMED:
        loud = [row for row in named if row.verdict not in QUIET or row.gates]
        named = sorted(loud, key=lambda row: not row.gates)[:NAMED]
    names = {row.case for row in named}
    for row in named:
        label = _shorten(row.case, NAME_LENGTH)
        yield _Line(label=label, rows=(row,), height_in=ROW_IN, is_named=True)
    for verdict in get_args(Verdict):
        own = sorted(
            (row for row in rows if row.verdict == verdict and row.case not in names),
            key=lambda row: row.ratio.ratio if row.ratio else 0.0,
            reverse=True,
        )
        if own:
            more = "more " if any(row.verdict == verdict for row in named) else ""
            height_in = min(max(len(own) * THIN_IN, ROW_IN), STRIP_IN)
            yield _Line(
                label=f"{len(own)} {more}{verdict}",
                rows=tuple(own),
                height_in=height_in if any(row.ratio for row in own) else ROW_IN,
                is_named=False,
            )


def _shorten(name: str, length: int) -> str:
    """A name without its middle: kernels differ at both ends."""
    name = clean_line(name)
    half = (length - 1) // 2
    return name if len(name) <= length else f"{name[: length - 1 - half]}…{name[-half:]}"


def _draw_limits(axes: Axes, result: Regression) -> None:
    margin = 100 * result.margin
    axes.axvspan(-margin, margin, color=BAND, zorder=0)
    axes.axvline(0, color="#555555", linewidth=0.6, zorder=1)
    if result.fail_over:
        axes.axvline(100 * result.fail_over, color="#000000", linewidth=0.8, linestyle="--")


class _Plot:
    """The lines of a picture, from the top down; ``reach`` is the percentage at the ends of its axis."""

    def __init__(self, axes: Axes, reach: float) -> None:
        self._axes = axes
        self._reach = reach
        self._top = 0.0
        self.middles: list[float] = []

    def draw(self, line: _Line) -> None:
        """Draw the next line."""
        middle = self._top + line.height_in / 2
        self.middles.append(middle)
        if line.is_named:
            (row,) = line.rows
            if row.ratio is not None:
                self._draw_interval(row, row.ratio, middle)
            value = f"{format_change(row.ratio.ratio)} %" if row.ratio else row.verdict
            at_edge = self._axes.get_yaxis_transform()
            self._axes.text(1.03, middle, value, fontsize=FONT, va="center", transform=at_edge)
        else:
            self._draw_strip(line)
        self._top += line.height_in

    def _draw_interval(self, row: TimedRow, ratio: Ratio, height: float) -> None:
        """Draw the interval, dotted if unknown, and its middle, hollow if it is beyond the axis."""
        colour = COLOURS[row.verdict]
        low, middle, high = self._place(ratio)
        style = ":" if ratio.low is None or ratio.high is None else "-"
        self._axes.plot([low, high], [height] * 2, color=colour, linewidth=LINE, linestyle=style)
        self._axes.plot(
            [middle],
            [height],
            color=colour,
            marker=SHAPES.get(row.verdict, "o"),
            markersize=MARK,
            markerfacecolor="#FFFFFF" if abs(middle) >= self._reach else colour,
            clip_on=False,
        )
        if row.margin is not None:
            own = 100 * row.margin
            self._axes.plot([-own, own], [height] * 2, "|", color="#555555", markersize=6)

    def _draw_strip(self, line: _Line) -> None:
        """Draw all intervals of a verdict as thin lines, with their middles as dots."""
        places = [self._place(row.ratio) for row in line.rows if row.ratio is not None]
        if places:
            lows, middles, highs = zip(*places, strict=True)
            step = line.height_in / len(places)
            heights = [self._top + step * (number + 0.5) for number in range(len(places))]
            colour = COLOURS[line.rows[0].verdict]
            self._axes.hlines(heights, lows, highs, color=colour, linewidth=THIN)
            self._axes.plot(middles, heights, color="#000000", marker=",", linestyle="")

    def _place(self, ratio: Ratio) -> tuple[float, float, float]:
        """The interval's ends and its middle in percent, limited to the axis."""
        low = -self._reach if ratio.low is None else self._bound(ratio.low)
        high = self._reach if ratio.high is None else self._bound(ratio.high)
        return low, self._bound(ratio.ratio), high

    def _bound(self, ratio: float) -> float:
        return min(max(100 * (ratio - 1), -self._reach), self._reach)


def _title(result: Regression) -> str:
    base, head = (_shorten(name, TITLE_LENGTH) for name in (result.base, result.head))
    return f"{find_headline(result)}\nbase: {base}\nhead: {head}"


def _legend(result: Regression, reach: float) -> Iterator[Line2D | Patch]:
    yield Patch(color=BAND, label=f"margin, {100 * result.margin:g} %")
    if result.fail_over:
        label = f"fails beyond {100 * result.fail_over:g} %"
        yield Line2D([], [], color="#000000", linewidth=0.8, linestyle="--", label=label)
    if any(row.margin is not None for row in result.rows):
        yield Line2D([], [], color="#555555", marker="|", linestyle="", label="margin of its own")
    ratios = [(row.verdict, row.ratio.ratio) for row in result.rows if row.ratio]
    for verdict in get_args(Verdict):
        if any(one == verdict for one, _ in ratios):
            yield _name_mark(verdict, COLOURS[verdict], SHAPES.get(verdict, "o"))
    if any(abs(ratio - 1) >= reach / 100 for _, ratio in ratios):
        beyond = _name_mark("beyond the axis", "#000000", ">")
        beyond.set_markerfacecolor("#FFFFFF")
        beyond.set_linestyle("")
        yield beyond


def _name_mark(label: str, colour: str, shape: str) -> Line2D:
    return Line2D([], [], color=colour, marker=shape, markersize=MARK, linewidth=LINE, label=label)
