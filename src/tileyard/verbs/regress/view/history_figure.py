"""Draws the history of a case: launch times over runs, with intervals, and where they changed."""

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tileyard.base.errors import UsageError
from tileyard.show.figure import CHANGE, TIME, encode_png
from tileyard.show.words import clean_line, find_unit
from tileyard.verbs.regress.plan.history import CaseHistory, Series
from tileyard.verbs.regress.result import format_change
from tileyard.verbs.regress.view.case_history import describe_series, format_day, format_revision

DOTS_PER_IN: Final = 150
FONT: Final = 8
WIDTH_IN, HEIGHT_IN = 8.0, 3.4
"""The size of the plot of a series, in inches: there may be many runs."""
TITLE: Final = 120
"""Characters of a title."""
MARKED: Final = 24
"""Maximum number of runs with a name on the axis."""
PLOTS: Final = 40


def render_history(found: CaseHistory) -> bytes:
    """The picture as PNG: one plot per series. Raises UsageError if there are more than PLOTS."""
    count = len(found.series)
    if count > PLOTS:
        raise UsageError(f"--png: {count} series are more than {PLOTS}", "name one case")
    figure = Figure((WIDTH_IN, HEIGHT_IN * count), DOTS_PER_IN, layout="constrained")
    all_axes = figure.subplots(count, squeeze=False)[:, 0]
    for axes, series in zip(all_axes, found.series, strict=True):
        title = clean_line(describe_series(series), TITLE)
        axes.set_title(title, fontsize=FONT, parse_math=False)
        _plot(axes, series)
    return encode_png(figure)


def _plot(axes: Axes, series: Series) -> None:
    """The points in the order of the series, and a line with its size for each change."""
    points = series.points
    times = [point.time_ns for point in points]
    unit, size = find_unit(max(times))
    # An interval of few processes may have any width: it is cut at the edge.
    edge = max(max(times) - min(times), 0.04 * max(times)) / 2
    axes.set_ylim((min(times) - edge) / size, (max(times) + edge) / size)
    axes.errorbar(
        range(len(points)),
        [point.time_ns / size for point in points],
        yerr=[
            [(point.time_ns - point.low_ns) / size for point in points],
            [(point.high_ns - point.time_ns) / size for point in points],
        ],
        fmt="o-",
        color=TIME,
        markersize=4,
        linewidth=0.6,
        elinewidth=1.2,
        capsize=2,
    )
    hollow = [(at, point.time_ns / size) for at, point in enumerate(points) if not point.processes]
    for at, time in hollow:
        axes.plot(at, time, "o", color=TIME, markerfacecolor="white", markersize=4, zorder=3)
    for shift in series.shifts:
        axes.axvline(shift.first - 0.5, color=CHANGE, linestyle="--", linewidth=1)
        axes.annotate(
            f"{format_change(shift.ratio)} %",
            (shift.first - 0.5, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            color=CHANGE,
            fontsize=FONT,
            rotation=90,
            va="top",
        )
    marked = range(0, len(points), -(-len(points) // MARKED))
    labels = [f"{format_day(points[at])}\n{format_revision(points[at])}" for at in marked]
    axes.set_xticks(list(marked), labels, rotation=90, parse_math=False)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=FONT - 1)
    order = "of commits" if series.is_by_commit else "of runs"
    note = "; hollow: not timed, the same binary as in another run" if hollow else ""
    axes.set_xlabel(f"in the order {order}: time of the run, revision{note}", fontsize=FONT)
    axes.set_ylabel(f"time of a launch, {unit}", fontsize=FONT)
    axes.grid(visible=True, axis="y", linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)
