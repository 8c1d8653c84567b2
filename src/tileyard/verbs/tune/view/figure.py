"""Draws studies and replays with matplotlib, as panels: the best time so far, the finals, the effect of each
parameter, and a map of the two parameters that matter most.
"""

import math
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal, assert_never, cast, get_args

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tileyard.artifacts.manifest import Build
from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome, Trial
from tileyard.base.wording import count_of, say_end
from tileyard.pages.charts import LOG_FROM
from tileyard.show.figure import CHANGE, DOTS_PER_IN, FONT, TIME, WIDTH_IN, encode_png
from tileyard.show.words import clean_line, find_unit, format_config, format_seconds
from tileyard.verbs.tune.plan.recorded.space import Recorded, RecordedSpace
from tileyard.verbs.tune.result import Replay, StudyResult
from tileyard.verbs.tune.view.compiled import group_failures
from tileyard.verbs.tune.view.picture import (
    Cell,
    Picture,
    Tried,
    find_shared,
    judge_row,
    list_tried,
    map_parameters,
)

Panel = Literal["progress", "finals", "effects", "map"]
PANELS: Final[tuple[Panel, ...]] = get_args(Panel)
NEEDS: Final[dict[Panel, str]] = {
    "finals": "no config has a time",
    "effects": "no parameter has several values",
    "map": "fewer than two parameters have several values",
}
MOST_CONFIGS, MOST_PARAMETERS = 12, 6
"""Maximum number of configs in the finals, and of parameters whose effect is drawn."""
ROW_IN, LEVEL_IN, CELL_IN, PLOT_IN, FRAME_IN = 0.27, 0.135, 0.2, 1.5, 0.75
"""Heights of a config's row, a level of a parameter, a cell, a plot, and a panel's title and axis."""
TITLE, LINE = 56, 72
"""Characters of a line of the title, and of the caption."""
REASONS: Final = 4
REST, FAINT = "#555555", "#BBBBBB"
FINALIST_COLOURS = {"best": CHANGE, "tied": TIME, "": TIME}
COLOURS = (TIME, CHANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours for strategies; further ones have another line."""
STYLES = ("-", "--", ":", "-.")


class StudyFigure(Figure):
    """A figure that notebooks display, also without pyplot."""

    def _repr_png_(self) -> bytes:
        return encode_png(self)


def draw_study(result: StudyResult, panels: Sequence[str] = (), axes: Axes | None = None) -> Figure:
    """Draw a study, or only these panels; on the caller's axes or a new figure, which is returned.

    Raises UsageError for an unknown panel, one without anything to show, and for axes without exactly one.
    """
    shown = _show_study(result)
    asked = [one for one in PANELS if one in panels]
    for name in panels:
        if name not in PANELS:
            raise UsageError(f"there is no panel {name!r}", f"there are: {', '.join(PANELS)}")
    for one in asked:
        if not _measure(one, shown):
            raise UsageError(f"{one} has nothing to draw", NEEDS[one])
    if axes is None:
        return _draw([shown], asked or PANELS)
    if len(asked) != 1:
        raise UsageError("axes have room for one panel", f"name one of {', '.join(PANELS)}")
    _DRAW[asked[0]](axes, shown)
    return cast(Figure, axes.get_figure(root=True))


def render_study(result: StudyResult) -> bytes:
    """A PNG of a study; of one on several kinds of silicon with a column for each."""
    return encode_png(_draw([_show_study(one) for one in (result, *result.others)], PANELS))


def render_replay(replay: Replay, space: RecordedSpace) -> bytes:
    """A PNG of a strategy's progress on a recorded space, and of the configs of the space."""
    return encode_png(_draw([_show_space(replay, space)], ("progress", "effects", "map")))


def render_replays(replays: Sequence[Replay]) -> bytes:
    """A PNG of the progress of strategies, with a plot for each space."""
    files = list(dict.fromkeys(one.file for one in replays))
    height_in = (PLOT_IN + FRAME_IN) * len(files)
    figure = StudyFigure((WIDTH_IN, height_in), DOTS_PER_IN, layout="constrained")
    for axes, file in zip(figure.subplots(len(files), squeeze=False)[:, 0], files, strict=True):
        own = [one for one in replays if one.file == file]
        _draw_curves(axes, own)
        axes.set_title(clean_line(own[0].space, LINE), fontsize=FONT, loc="left", parse_math=False)
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize=FONT, frameon=False)
    return encode_png(figure)


# ---- what is shown -------------------------------------------------------------------------------------


def _show_study(result: StudyResult) -> Picture:
    groups = group_failures(result.trials)
    failures: Counter[str] = Counter()
    for own in groups:
        failures[_name_failure(own[0], own[0].message)] += len(own)
    failures["not run"] = result.count(Outcome.NOT_RUN)
    failures["rejected by `where`"] = result.rejected
    subject = " ".join(filter(None, (result.kernel, format_config(result.arguments))))
    return Picture(
        title=(subject, result.silicon or result.device),
        tried=list_tried(result.trials),
        failures=failures,
        study=result,
    )


def _name_failure(one: Build | Trial | Recorded, message: str) -> str:
    end = say_end(one.outcome, one.exceeds)
    return end if one.exceeds or not message else f"{end} ({clean_line(message, LINE // 2)})"


def _show_space(replay: Replay, space: RecordedSpace) -> Picture:
    failed = (one for one in space.configs if not one.is_timed)
    return Picture(
        title=(space.header.kernel, space.header.device),
        tried=tuple(
            Tried(config=one.config, time_ns=one.time_ns if one.is_timed else None)
            for one in space.configs
        ),
        failures=Counter(_name_failure(one, one.reason) for one in failed),
        replay=replay,
    )


def _caption(shown: Picture) -> str:
    """How many configs are drawn, and how many are not, by the reason."""
    timed = sum(one.time_ns is not None for one in shown.tried)
    failures = [(reason, count) for reason, count in shown.failures.most_common() if count]
    named = [f"{count} {reason}" for reason, count in failures[:REASONS]]
    if rest := failures[REASONS:]:
        named.append(f"{sum(count for _, count in rest)} for {count_of(len(rest), 'other reason')}")
    text = f"{count_of(timed, 'config')} with a time"
    text += f"; without: {', '.join(named)}" if named else ""
    return textwrap.fill(text, LINE)


# ---- the figure ----------------------------------------------------------------------------------------


def _draw(columns: Sequence[Picture], panels: Sequence[Panel]) -> Figure:
    """A column of panels for each; those that have nothing to show are left out."""
    shown = [[one for one in panels if _measure(one, column)] for column in columns]
    heights_in = [
        [_measure(one, column) + FRAME_IN for one in own]
        for column, own in zip(columns, shown, strict=True)
    ]
    height_in = max(map(sum, heights_in)) + FRAME_IN
    size_in = (WIDTH_IN * len(columns), height_in)
    figure = StudyFigure(size_in, DOTS_PER_IN, layout="constrained")
    parts = figure.subfigures(1, len(columns), squeeze=False)[0]
    for part, column, own, ratios in zip(parts, columns, shown, heights_in, strict=True):
        title = "\n".join(clean_line(line, TITLE) for line in column.title if line)
        part.suptitle(title, fontsize=FONT, fontweight="bold", parse_math=False)
        part.supxlabel(_caption(column), fontsize=FONT - 1, parse_math=False)
        places = part.subplots(len(own), squeeze=False, height_ratios=ratios)[:, 0]
        for axes, panel in zip(places, own, strict=True):
            _DRAW[panel](axes, column)
    return figure


def _say_screened(shown: Picture) -> str:
    """Which times are drawn of all configs, if the finals decided."""
    return " in the screening" if shown.study is not None and shown.study.finals else ""


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=FONT, loc="left", parse_math=False)
    axes.tick_params(labelsize=FONT - 1, length=2)
    axes.spines[["top", "right"]].set_visible(False)


def _write(
    axes: Axes, at: tuple[float, float], text: str, colour: str = "black", weight: str = "normal"
) -> None:
    """Text at a share of the width and at a row's height; from 1 on it is beside the plot."""
    axes.text(
        *at,
        text,
        color=colour,
        fontsize=FONT - 1,
        fontweight=weight,
        parse_math=False,
        transform=axes.get_yaxis_transform(),
        va="center",
    )


def _scale_times(axes: Axes, way: Literal["x", "y"], times: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers if the times differ much."""
    low, high = min(times, default=1.0), max(times, default=1.0)
    axis = axes.xaxis if way == "x" else axes.yaxis
    if high > LOG_FROM * low > 0:
        (axes.set_xscale if way == "x" else axes.set_yscale)("log")
        subs = (1.0, 2.0, 5.0) if high < 200 * low else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    else:
        axis.set_major_locator(MaxNLocator(5))
    axes.grid(visible=True, axis=way, linewidth=0.3)


# ---- progress ------------------------------------------------------------------------------------------


def _draw_progress(axes: Axes, shown: Picture) -> None:
    if shown.replay is not None:
        _draw_curves(axes, [shown.replay])
        name = f"{shown.replay.strategy}, {count_of(shown.replay.repetitions, 'repetition')}"
        what = "Trade-offs so far" if shown.replay.second else "Best config so far"
        _finish(axes, f"{what}: {name}, median and 95 %")
        curve = shown.replay.curve
        last_s = curve[-1].ended_s
        _add_seconds(
            axes, lambda number: next((p.ended_s for p in curve if p.trials >= number), last_s)
        )
        return
    times = [one.time_ns for one in shown.tried]
    unit, size = find_unit(shown.best_ns)
    best = [one / size for one in shown.best_so_far_ns]
    timed = [(number, one / size) for number, one in enumerate(times, start=1) if one]
    if timed:
        axes.plot(*zip(*timed, strict=True), ".", color=FAINT, markersize=3)
        axes.step(range(1, len(best) + 1), best, where="post", color=TIME, linewidth=1.2)
    _scale_times(axes, "y", [time for _, time in timed])
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlim(0.5, len(times) + 0.5)
    axes.set_xlabel("configs that have ended", fontsize=FONT)
    axes.set_ylabel(f"time of a launch, {unit}", fontsize=FONT)
    ended_s = () if shown.study is None else shown.study.ended_s
    if len(ended_s) == len(times):
        _add_seconds(axes, lambda number: ended_s[min(max(round(number), 1), len(times)) - 1])
    _finish(axes, f"Best time so far{_say_screened(shown)}; dots: each config")


def _add_seconds(axes: Axes, find_s: Callable[[float], float]) -> None:
    """A second axis at the top: the seconds after which so many configs had ended."""
    low, high = axes.get_xlim()
    ticks = [one for one in axes.get_xticks() if low <= one <= high]
    above = axes.secondary_xaxis("top")
    above.set_ticks(ticks, [_shorten_seconds(find_s(one)) for one in ticks])
    above.xaxis.set_minor_locator(NullLocator())
    above.tick_params(labelsize=FONT - 1, length=2)


def _shorten_seconds(seconds: float) -> str:
    if seconds < 100:
        return format_seconds(seconds)
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def _draw_curves(axes: Axes, replays: Sequence[Replay]) -> None:
    """The median regret of strategies on one space over the number of trials, with its interval."""
    for number, one in enumerate(replays):
        points = [point for point in one.curve if point.median is not None]
        trials = [point.trials for point in points]
        color, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
        medians = [100 * (point.median or 0.0) for point in points]
        axes.step(trials, medians, style, where="post", color=color, lw=1.2, label=one.strategy)
        lows = [100 * (point.low or 0.0) for point in points]
        highs = [100 * (math.inf if point.high is None else point.high) for point in points]
        most = max((one for one in highs if math.isfinite(one)), default=0.0)
        highs = [min(one, most) for one in highs]
        axes.fill_between(trials, lows, highs, step="post", color=color, alpha=0.18, linewidth=0)
    longest = max((one.curve[-1] for one in replays if one.curve), key=lambda one: one.trials)
    axes.set_xscale("log")
    axes.set_xlim(1, max(longest.trials, 2))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0)
    plain = FuncFormatter(lambda number, _: f"{number:g}")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(plain)
    axes.grid(visible=True, axis="y", linewidth=0.3)
    axes.set_xlabel("configs tried", fontsize=FONT)
    what = "hypervolume that is missing" if replays[0].second else "slower than the best"
    axes.set_ylabel(f"{what}, %", fontsize=FONT)
    _finish(axes, "")


# ---- finals --------------------------------------------------------------------------------------------


def _draw_finals(axes: Axes, shown: Picture) -> None:
    """The config of each row is written above its interval, without what all rows share."""
    result = cast(StudyResult, shown.study)
    rows = shown.rows
    held = "Finals" if result.finals else "The best of the screening"
    title = f"{held}: {count_of(len(rows), 'config')}"
    title += f", the first {MOST_CONFIGS}" if len(rows) > MOST_CONFIGS else ""
    rows = rows[:MOST_CONFIGS]
    unit, size = find_unit(max((row.measured.high_ns for row in rows), default=1.0))
    shared = find_shared([one.trial.config for one in rows])
    ends: list[float] = []
    for place, row in enumerate(rows):
        word = judge_row(row, result)
        colour = FINALIST_COLOURS.get(word, REST)
        own = row.measured
        median, low, high = (one / size for one in (own.median_ns, own.low_ns, own.high_ns))
        ends += (low, high)
        axes.errorbar(
            median,
            place + 0.22,
            xerr=[[median - low], [high - median]],
            fmt="o",
            color=colour,
            markersize=3.5,
            elinewidth=1.2,
            capsize=2,
        )
        differs = {key: one for key, one in row.trial.config.items() if key not in shared}
        names = [one.name for one in result.incumbents if one.config == row.trial.config]
        label = ": ".join((*names[:1], format_config(differs or shared)))
        _write(axes, (0.01, place - 0.22), clean_line(label, LINE))
        _write(axes, (1.01, place + 0.22), word, colour)
    axes.set_yticks([])
    axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)  # the best one is at the top
    _scale_times(axes, "x", ends)
    same = f"; all: {format_config(shared)}" if shared and len(rows) > 1 else ""
    label = f"time of a launch, {unit}{clean_line(same, LINE)}"
    axes.set_xlabel(label, fontsize=FONT, parse_math=False)
    _finish(axes, title)


# ---- effects -------------------------------------------------------------------------------------------


def _draw_effects(axes: Axes, shown: Picture) -> None:
    """A row for each level, below a line with the name of its parameter."""
    drawn = shown.effects[:MOST_PARAMETERS]
    unit, size = find_unit(shown.best_ns)
    labels: list[str] = []
    times: list[float] = []
    for effect in drawn:
        head = f"{clean_line(effect.parameter, LINE // 2)}: {100 * effect.share:.0f} %"
        _write(axes, (0.01, len(labels)), head, weight="bold")
        labels.append("")
        for level in effect.levels:
            if level.times_ns:
                own = sorted(one / size for one in level.times_ns)
                low, middle = own[0], statistics.median(own)
                is_best = own[0] * size <= shown.best_ns
                if shown.winner:
                    is_best = shown.find_level(shown.winner, effect.parameter) == level.name
                axes.plot([low, middle], [len(labels)] * 2, "-", color=FAINT, linewidth=1)
                colour = CHANGE if is_best else TIME
                axes.plot(low, len(labels), "o", color=colour, markersize=3.5)
                axes.plot(middle, len(labels), "o", color=TIME, mfc="white", markersize=3.5)
                times += (low, middle)
            timed = len(level.times_ns)
            count = f"{timed} of {level.tried}" if timed < level.tried else str(timed)
            _write(axes, (1.01, len(labels)), count, REST)
            labels.append(clean_line(level.name, 18))
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    _scale_times(axes, "x", times)
    orange = "; orange: winner" if shown.winner else ""
    axes.set_xlabel(f"time of a launch, {unit}: ● best, ○ median{orange}", fontsize=FONT)
    more = f", {len(drawn)} of {len(shown.effects)}" if len(drawn) < len(shown.effects) else ""
    axes.set_title("right", fontsize=FONT - 1, loc="right", color=REST)
    what = f"Effects{_say_screened(shown)}" if _say_screened(shown) else "Effect of each parameter"
    _finish(axes, f"{what} (share of variance{more})")
    axes.tick_params(axis="y", length=0)


# ---- map -----------------------------------------------------------------------------------------------


def _draw_map(axes: Axes, shown: Picture) -> None:
    """The best time in each cell, in numbers and as a colour: the darker, the faster."""
    across, up = shown.effects[:2]
    found = map_parameters(shown.tried, shown.values, across.parameter, up.parameter)
    best = [cell.best_ns for row in found.cells for cell in row if cell.best_ns is not None]
    unit, size = find_unit(min(best, default=1.0))
    low, high = math.log(min(best, default=1.0)), math.log(max(best, default=1.0))
    won = shown.winner and shown.find_cell(found, shown.winner, across.parameter, up.parameter)
    for y, row in enumerate(found.cells):
        for x, cell in enumerate(row):
            share = 0.0
            if cell.best_ns is not None and high > low:
                share = (math.log(cell.best_ns) - low) / (high - low)
            _draw_cell(axes, (x, y), cell, size, share)
            if (y, x) == won or (won == "" and cell.best_ns is not None and not share):
                _frame_cell(axes, (x, y))
    axes.set_xlim(-0.5, len(found.columns) - 0.5)
    axes.set_ylim(-0.5, len(found.rows) - 0.5)
    longest = max(map(len, found.columns))
    turn = 90 if longest * len(found.columns) > 48 else 0
    axes.set_xticks(range(len(found.columns)), found.columns, rotation=turn, parse_math=False)
    axes.set_yticks(range(len(found.rows)), found.rows, parse_math=False)
    axes.set_xlabel(clean_line(across.parameter, LINE), fontsize=FONT, parse_math=False)
    axes.set_ylabel(clean_line(up.parameter, LINE // 2), fontsize=FONT, parse_math=False)
    framed = "; framed: winner" if shown.winner else ""
    screened = "screened " if _say_screened(shown) else ""
    _finish(axes, f"Best {screened}time of both, {unit} (x: none right{framed})")


def _frame_cell(axes: Axes, place: tuple[int, int]) -> None:
    corner = (place[0] - 0.5, place[1] - 0.5)
    frame = Rectangle(corner, 1, 1, fill=False, edgecolor=CHANGE, linewidth=1.6, zorder=3)
    axes.add_patch(frame)


def _draw_cell(axes: Axes, place: tuple[int, int], cell: Cell, size: float, share: float) -> None:
    """``share`` is 0 for the best cell, 1 for the worst."""
    if cell.best_ns is None:
        axes.text(
            *place, "x" if cell.tried else "", color=REST, ha="center", va="center", fontsize=FONT
        )
        return
    corner = (place[0] - 0.5, place[1] - 0.5)
    # From a dark blue to a light yellow: ordered in grey, too, and for colour-blind readers.
    shade = matplotlib.colormaps["cividis"](share)
    axes.add_patch(Rectangle(corner, 1, 1, facecolor=shade, edgecolor="white"))
    number = cell.best_ns / size
    shown = f"{number:.0f}" if number >= 100 else f"{number:.3g}"
    colour = "black" if share > 0.55 else "white"
    axes.text(*place, shown, color=colour, ha="center", va="center", fontsize=FONT - 1.5)


_DRAW: Final[dict[Panel, Callable[[Axes, Picture], None]]] = {
    "progress": _draw_progress,
    "finals": _draw_finals,
    "effects": _draw_effects,
    "map": _draw_map,
}


def _measure(panel: Panel, shown: Picture) -> float:
    """The height of a panel in inches, without title and axis; 0 if it has nothing to show."""
    effects = shown.effects[:MOST_PARAMETERS]
    match panel:
        case "progress":
            return PLOT_IN
        case "finals":
            return ROW_IN * min(len(shown.rows), MOST_CONFIGS)
        case "effects":
            return LEVEL_IN * sum(1 + len(one.levels) for one in effects)
        case "map":
            return CELL_IN * max(5, len(effects[1].levels)) if len(effects) > 1 else 0.0
        case _:
            assert_never(panel)
