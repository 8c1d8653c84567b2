"""The series of a case as a picture: times of a launch over runs, with intervals, and where they changed."""

import io
import warnings
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tileyard.errors import UsageError
from tileyard.regress.history import CaseHistory, Point, Series
from tileyard.regress.timed import format_change
from tileyard.report.case_history import format_day, format_revision
from tileyard.report.words import clean_line

DOTS_PER_IN: Final = 150
WIDTH_IN, HEIGHT_IN, NAMES_IN = 8.0, 2.2, 1.2
"""Of the picture, of the plot of a case on a device, and of the names below it."""
FONT: Final = 8
MARKED: Final = 24
"""Most runs with a name on the axis."""
TITLE: Final = 110
PLOTS: Final = 40
NANOSECONDS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
SIDES: Final = {"head": ("#0072B2", "o"), "base": ("#E69F00", "s")}
"""Okabe and Ito's colours, which also people can tell apart who see fewer; shapes differ as well."""
OTHER: Final = ("#009E73", "^")
CHANGE: Final = "#D55E00"


def render_history(found: CaseHistory) -> bytes:
    """The picture as PNG: a plot for each case and device, with its sides. Raises UsageError where these are more than PLOTS."""
    plots: dict[tuple[str, str, str, str], list[Series]] = {}
    for series in found.series:
        key = (series.case, series.target, series.device, series.silicon)
        plots.setdefault(key, []).append(series)
    if len(plots) > PLOTS:
        raise UsageError(f"--png: {len(plots)} plots are more than {PLOTS}", "name one case")
    height_in = (HEIGHT_IN + NAMES_IN) * len(plots)
    figure = Figure((WIDTH_IN, height_in), DOTS_PER_IN, layout="constrained")
    all_axes = figure.subplots(len(plots), squeeze=False)[:, 0]
    for axes, ((case, target, device, silicon), own) in zip(all_axes, plots.items(), strict=True):
        where = f"{case}: {target} on {device}" + (f" ({silicon})" if silicon else "")
        axes.set_title(clean_line(where, TITLE), fontsize=FONT, parse_math=False)
        _plot(axes, own)
    drawn = io.BytesIO()
    with warnings.catch_warnings():  # a letter that no font has is drawn as a box
        warnings.simplefilter("ignore")
        figure.savefig(drawn, format="png")
    return drawn.getvalue()


def _plot(axes: Axes, all_series: Sequence[Series]) -> None:
    """The sides of a case over the runs that have one of them."""
    runs = sorted(
        {point.run: point.at for one in all_series for point in one.points}.items(), key=_by_time
    )
    places = {run: number for number, (run, _) in enumerate(runs)}
    times = [point.time_ns for one in all_series for point in one.points]
    unit = next((u for u, size in reversed(NANOSECONDS.items()) if max(times) >= size), "ns")
    size = NANOSECONDS[unit]
    # An interval of few processes may be as wide as it likes: it is cut at the edge.
    edge = max(max(times) - min(times), 0.04 * max(times)) / 2
    axes.set_ylim((min(times) - edge) / size, (max(times) + edge) / size)
    named: dict[str, Point] = {}
    for series in all_series:
        colour, shape = SIDES.get(series.side, OTHER)
        points = series.points
        axes.errorbar(
            [places[point.run] for point in points],
            [point.time_ns / size for point in points],
            yerr=[
                [(point.time_ns - point.low_ns) / size for point in points],
                [(point.high_ns - point.time_ns) / size for point in points],
            ],
            fmt=f"{shape}-",
            color=colour,
            markersize=4,
            linewidth=0.6,
            elinewidth=1.2,
            capsize=2,
            label=series.side,
        )
        borrowed = [point for point in points if not point.processes]
        axes.plot(
            [places[point.run] for point in borrowed],
            [point.time_ns / size for point in borrowed],
            shape,
            color=colour,
            markerfacecolor="white",
            markersize=4,
            zorder=3,
        )
        for shift in series.shifts:
            at = (places[points[shift.last].run] + places[points[shift.first].run]) / 2
            axes.axvline(at, color=CHANGE, linestyle="--", linewidth=1)
            is_left = series.side == "base"
            axes.annotate(
                f"{series.side} {format_change(shift.ratio)} %",
                (at, 1),
                xycoords=("data", "axes fraction"),
                xytext=(-3 if is_left else 3, -2),
                textcoords="offset points",
                color=CHANGE,
                fontsize=FONT,
                rotation=90,
                va="top",
                ha="right" if is_left else "left",
            )
        named |= {
            point.run: point for point in points if series.side == "head" or point.run not in named
        }
    step = -(-len(runs) // MARKED)
    marked = [run for run, _ in runs][::step]
    labels = [f"{format_day(named[run])}\n{format_revision(named[run])}" for run in marked]
    axes.set_xticks([places[run] for run in marked], labels, rotation=90, parse_math=False)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=FONT - 1)
    axes.set_xlabel(
        "runs by time, with the revision of head; hollow: not timed, the same binary as in another run",
        fontsize=FONT,
    )
    axes.set_ylabel(f"time of a launch, {unit}", fontsize=FONT)
    axes.grid(visible=True, axis="y", linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=FONT, frameon=False, loc="best")


def _by_time(run: tuple[str, float]) -> float:
    return run[1]
