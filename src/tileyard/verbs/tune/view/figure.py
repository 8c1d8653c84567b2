"""Draws the configs of a study with matplotlib: the time of each with its interval, the best one first."""

import io
from typing import Final, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tileyard.show.figure import CHANGE, DOTS_PER_IN, FONT, TIME, TITLE, WIDTH_IN, find_unit
from tileyard.show.words import clean_line, format_config
from tileyard.verbs.tune.result.records import StudyResult
from tileyard.verbs.tune.view.study import rank_trials

MOST: Final = 30
"""Maximum number of configs drawn."""
FRAME_IN, ROW_IN = 0.9, 0.2
LABEL: Final = 60
LOG_FROM: Final = 20
"""Factor between times from which on the axis is logarithmic."""


class StudyFigure(Figure):
    """A figure that notebooks display, also without pyplot."""

    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        self.savefig(drawn, format="png")
        return drawn.getvalue()


def draw_study(result: StudyResult, axes: Axes | None = None) -> Figure:
    """Draw the measured configs, on the caller's axes or a new figure, and return the figure."""
    timed = [
        (trial, measured)
        for trial in rank_trials(result)
        if (measured := result.measurement_of(trial)) is not None
    ]
    shown = timed[:MOST]
    if axes is None:
        height_in = FRAME_IN + ROW_IN * max(1, len(shown))
        axes = StudyFigure((WIDTH_IN, height_in), DOTS_PER_IN, layout="constrained").subplots()
    highest_ns = max((measured.high_ns for _, measured in shown), default=1.0)
    lowest_ns = min((measured.low_ns for _, measured in shown), default=1.0)
    unit, size = find_unit(highest_ns)
    for row, (trial, measured) in enumerate(shown):
        median, low, high = (
            time_ns / size for time_ns in (measured.median_ns, measured.low_ns, measured.high_ns)
        )
        axes.errorbar(
            median,
            row,
            xerr=[[median - low], [high - median]],
            fmt="o",
            color=CHANGE if result.best is not None and trial.id == result.best.id else TIME,
            markersize=4,
            elinewidth=1.2,
            capsize=2,
        )
    labels = [clean_line(format_config(trial.config), LABEL) for trial, _ in shown]
    axes.set_yticks(range(len(shown)), labels, parse_math=False)
    axes.set_ylim(max(1, len(shown)) - 0.5, -0.5)  # the best one is at the top
    if highest_ns > LOG_FROM * lowest_ns > 0:
        axes.set_xscale("log")
    axes.tick_params(labelsize=FONT - 1)
    axes.set_xlabel(f"time of a launch, {unit}", fontsize=FONT)
    about = " ".join(filter(None, (result.kernel, format_config(result.arguments))))
    count = f": the first {MOST} of {len(timed)} configs" if len(timed) > MOST else ""
    axes.set_title(clean_line(about + count, TITLE), fontsize=FONT, parse_math=False)
    axes.grid(visible=True, axis="x", linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return cast(Figure, axes.get_figure(root=True))
