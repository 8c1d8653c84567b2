"""A study as a page: the answer, how it was found, what each parameter does, and all configs."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from tileyard.base.model import WELL, Measurement, Outcome, Record, Trial
from tileyard.base.wording import count_of, say_end
from tileyard.pages.charts import (
    LOG_FROM,
    Axis,
    Chart,
    Group,
    Line,
    draw_axis,
    draw_bar,
    draw_interval,
    draw_range,
    make_axis,
)
from tileyard.pages.report import (
    Cell,
    Column,
    RunLog,
    Section,
    Subject,
    Table,
    Words,
    find_timeline,
    keep_first,
    make_table,
    round_figure,
)
from tileyard.show.console import name_parameters
from tileyard.show.words import (
    clean_line,
    find_unit,
    format_config,
    format_interval,
    format_rate,
    format_seconds,
    format_share,
    format_time,
    join_numbers,
    why,
)
from tileyard.verbs.tune.result import Final, Incumbent, StudyResult, name_binary, one_per_binary
from tileyard.verbs.tune.view.compiled import count_ends, group_failures
from tileyard.verbs.tune.view.picture import (
    Effect,
    Picture,
    Row,
    find_shared,
    judge_row,
    list_tried,
    map_parameters,
)
from tileyard.verbs.tune.view.study import (
    FEW_ROUNDS,
    find_open,
    format_least,
    lacks_rounds,
    list_doubts,
    list_lines,
    rank_trials,
    say_amount,
    say_bound,
    say_disturbed,
    say_met,
    say_none,
)

MOST_FINALISTS, MOST_PARAMETERS = 30, 12
"""Maximum number of configs among the finalists, and of parameters with their effect and maps."""
MESSAGE = 90
"""Characters of a message in the table of all configs; `tileyard show` has the rest."""
INCUMBENTS = {"default": "the default", "in use": "the config in use"}
LEAST_SHARE = 0.05
"""Smallest share of the variance that is stated."""
BUSY = "other work disturbed "
"""Beginning of what says that."""
NEAR = 1.02
"""Times within this factor of the best are as good."""


def describe_studies(result: StudyResult, log: RunLog) -> list[Subject]:
    """A study; one on several kinds of silicon has a part for each."""
    return [describe_study(one, log) for one in (result, *result.others)]


def describe_study(result: StudyResult, log: RunLog) -> Subject:
    """A study on one kind of silicon."""
    shown = Picture(title=(), tried=list_tried(result.trials), failures=Counter(), study=result)
    return Subject(
        title=" ".join(filter(None, (result.kernel, format_config(result.arguments)))),
        kind=f"Study on {result.silicon.partition(',')[0] or result.device}, run {result.run}",
        answer=sum_up(result),
        facts=tuple(_list_facts(result, log)),
        sections=tuple(_list_sections(result, shown, log)),
    )


# ---- the answer ------------------------------------------------------------------------------------------


def sum_up(result: StudyResult) -> str:
    """The result of a study in one sentence."""
    tried = count_of(len(result.trials), "config")
    if result.disturbed:
        return f"There is no winner among {tried}: {say_disturbed(result)}."
    stopped = "the run was interrupted" if result.reason == "interrupted" else ""
    if result.best is None:
        none = say_none(result)
        ends = "" if ":" in none else f": of {tried} {count_ends(result.trials)}"
        return f"{none[0].upper()}{none[1:]}{ends}{stopped and f'; {stopped}'}."
    measured = result.measurement_of(result.best)
    took = f", {format_time(measured.median_ns)} a launch" if measured is not None else ""
    config = format_config(result.best.config) or "the only config"
    tied = sum(one.tied for one in result.finals[1:])
    won = {one.id for one in result.same_binary(result.best)}
    stays = [
        INCUMBENTS.get(one.name, one.name)
        for one in result.incumbents
        if any(trial.id in won and trial.config == one.config for trial in result.trials)
    ]
    is_only = len(result.trials) == 1
    if is_only:
        text = f"{config} {'ran' if result.best.outcome is Outcome.UNCHECKED else 'passed'}{took}"
    elif len(won) == len(result.trials):
        is_only, text = True, f"{tried} have the same binary{took}"
    elif stays:
        text = f"{' and '.join(stays)}, {config}, stays the best of {tried}{took}: none is clearly faster"
    else:
        text = f"{config} is {'among ' * bool(tied)}the fastest of {tried}{took}"
    gains = () if stays or is_only else map(_say_gain, result.incumbents)
    ties = f"{_say_ties(tied)} with it" if tied else ""
    control = result.control
    is_alarm = control is not None and control.false_alarm and not control.is_wide
    alarm = "the finals found the best config different from itself (a false alarm)" * is_alarm
    if is_alarm and result.least:
        alarm += f", so differences of less than {format_least(result)} decide nothing"
    doubts = (say_unmet(result), *list_doubts(result), alarm, _say_busy(result))
    said = "; ".join(filter(None, (text, *gains, ties, *doubts, stopped)))
    return f"{said[0].upper() if said.startswith('the ') else said[0]}{said[1:]}."


def _say_untried(result: StudyResult, planned: int) -> str:
    """Why configs of the space were not tried, of which at most so many were ``planned``."""
    rest = result.space - len(result.trials) - result.rejected
    said = [f"{result.rejected} rejected by where"] if result.rejected else []
    if rest > 0 and result.stopped:
        said.append(f"{rest}: {result.stopped}")
    elif rest > 0 and result.reason == "interrupted":
        said.append(f"{rest}: the run was interrupted")
    elif rest > 0 and planned <= len(result.trials):
        said.append(f"{rest}: the run was limited to {count_of(len(result.trials), 'config')}")
    elif rest > 0:
        said.append(f"{rest}: the strategy did not choose them")
    return ", ".join(said)


def _say_ties(tied: int) -> str:
    """``2 configs tie``, or nothing."""
    return f"{count_of(tied, 'config')} {'ties' if tied == 1 else 'tie'}" if tied else ""


def _say_gain(one: Incumbent) -> str:
    """How much faster the winner is than the default or the config in use."""
    name = INCUMBENTS.get(one.name, one.name)
    if one.final is None:
        return f"{name}: {one.problem}" if one.problem else ""
    return f"{_say_ratio(one.final)} as fast as {name}"


def say_unmet(result: StudyResult) -> str:
    """How many configs may be as fast as the winner, and were not compared with it."""
    unmet = len(find_open(result))
    return f"{count_of(unmet, 'config')} may be as fast and did not meet it" if unmet else ""


def _say_busy(result: StudyResult) -> str:
    """What other work disturbed, as a part of the answer."""
    disturbed = [one.removeprefix(BUSY).partition(":")[0] for one in result.busy]
    return f"{BUSY}{' and '.join(disturbed)}" if disturbed else ""


def _say_ratio(final: Final) -> str:
    return f"{final.ratio:.3f} x [{final.low:.3f}, {final.high:.3f}]"


def _list_facts(result: StudyResult, log: RunLog) -> Iterator[tuple[str, str]]:
    measured = None if result.best is None else result.measurement_of(result.best)
    view = log.view
    yield from log.facts
    yield "target", result.target
    yield "machine", result.silicon
    yield "devices", ", ".join(one.name for one in view.about.devices) or result.device
    yield "configs", f"{len(result.trials)} of {result.space} tried: {count_ends(result.trials)}"
    yield "not tried", _say_untried(result, view.about.cases)
    yield "known from earlier runs", str(result.reused) if result.reused else ""
    yield "time", format_seconds(result.seconds)
    if measured is not None:
        yield (
            "best time of a launch",
            f"{format_time(measured.median_ns)} {_around(measured)}",
        )
        rate = format_rate(result.flops, measured.median_ns)
        yield "rate", f"{rate} GFLOP/s" if rate else ""
    if result.reference is not None and measured is not None:
        ratio = result.reference.median_ns / measured.median_ns
        took = format_time(result.reference.median_ns)
        yield "reference", f"{took}, {ratio:.3g} x the time of the best config"
    least = format_least(result)
    if (control := result.control) is not None and (control.false_alarm or control.is_wide):
        said = f"{control.ratio:.3f} x [{control.low:.3f}, {control.high:.3f}]"
        yield (
            "control of the finals",
            f"the best config took {said} its own time, measured as if it were two",
        )
    yield "differences that decide nothing", (f"less than {least}" if least else "")
    yield "other work", "; ".join(one.removeprefix("other work ") for one in result.busy)
    yield "stopped early", result.stopped if result.reason != "done" else ""


# ---- its parts -------------------------------------------------------------------------------------------


def _list_sections(result: StudyResult, shown: Picture, log: RunLog) -> Iterator[Section]:
    unit, size = find_unit(shown.best_ns)
    timed = [one.time_ns for one in shown.tried if one.time_ns]
    if timed:
        progress = _describe_progress(result, shown, Axis(low=0, high=1, unit=unit, size=size))
        yield Section(
            name="progress",
            title="Best time so far",
            template="progress.html",
            shown=progress,
            data=progress,
        )
    if shown.rows:
        chart = _draw_finals(result, shown)
        yield Section(name="finals", title=chart.title, template="rows.html", shown=chart)
    if result.pareto:
        chart = _draw_pareto(result)
        yield Section(name="pareto", title=chart.title, template="rows.html", shown=chart)
    if shown.effects and timed:
        chart = _draw_effects(shown, timed)
        yield Section(name="effects", title=chart.title, template="rows.html", shown=chart)
    if len(shown.effects) > 1 and timed:
        maps = _describe_maps(shown, unit, size)
        yield Section(name="map", title=MAP_TITLE, template="map.html", shown=maps, data=maps)
    if losses := _draw_losses(result):
        yield Section(name="losses", title=losses.title, template="rows.html", shown=losses)
    yield from find_timeline(log, result.seconds)
    table = list_configs(result)
    yield Section(
        name="configs",
        title="All configs",
        template="table.html",
        shown=_about_configs(result),
        data=table,
    )
    lines = [clean_line(line.plain) for line in list_lines(result, log.home)]
    yield Section(name="lines", title=OWN_WORDS, template="lines.html", shown=lines)


class Progress(Record, rename="camel"):
    """The best time so far over configs and seconds."""

    title: str
    see: str
    has_seconds: bool
    seconds: tuple[float, ...] | None
    times: tuple[float | None, ...]
    best: tuple[float | None, ...]
    unit: str
    size: float
    is_log: bool
    marks: tuple[tuple[str, int], ...]


def _say_screened(shown: Picture) -> str:
    """Which times a chart of all configs has, if the finals decided."""
    if shown.study is None or not shown.study.finals:
        return ""
    return "Times are of the screening; the finals, which decide, timed the best again. "


def _describe_progress(result: StudyResult, shown: Picture, axis: Axis) -> Progress:
    best = shown.best_so_far_ns
    near = next(number for number, one in enumerate(best, 1) if one <= NEAR * shown.best_ns)
    has_seconds = len(result.ended_s) == len(best)
    after = f" ({format_seconds(result.ended_s[near - 1])})" if has_seconds else ""
    times = [one.time_ns for one in shown.tried]
    known = [one for one in times if one]
    return Progress(
        title="Best time so far",
        see=f"{_say_screened(shown)}After {near} of {count_of(len(best), 'config')}{after} the best one was "
        "within 2 % of the lowest time. The line is the best time so far, each dot a config"
        + ("; rings: " if shown.marked else "")
        + " and ".join(INCUMBENTS.get(name, f"the {name}") for name in shown.marked)
        + ".",
        has_seconds=has_seconds,
        seconds=tuple(map(round_figure, result.ended_s)) if has_seconds else None,
        times=tuple(None if one is None else round_figure(one) for one in times),
        best=tuple(round_figure(one) if math.isfinite(one) else None for one in best),
        unit=axis.unit,
        size=axis.size,
        is_log=max(known) > LOG_FROM * min(known),
        marks=tuple(shown.marked.items()),
    )


def _draw_finals(result: StudyResult, shown: Picture) -> Chart:
    rows = shown.rows[:MOST_FINALISTS]
    unit, size = find_unit(rows[0].measured.median_ns)
    axis = make_axis(
        [end for one in rows for end in (one.measured.low_ns, one.measured.high_ns)], unit, size
    )
    shared = find_shared([one.trial.config for one in rows])
    lines = []
    for number, row in enumerate(rows, start=1):
        word = judge_row(row, result)
        own = row.measured
        differs = {key: one for key, one in row.trial.config.items() if key not in shared}
        names = [one.name for one in result.incumbents if one.config == row.trial.config]
        kind = {"best": "best", "tied": "tied", "": ""}.get(word, "worse")
        rank = "" if result.disturbed else str(number)
        lines.append(
            Line(
                before=(
                    rank,
                    ": ".join((*names[:1], format_config(differs or shared) or "the only config")),
                ),
                drawing=draw_interval(axis, (own.low_ns, own.high_ns), own.median_ns, kind),
                after=(format_time(own.median_ns), *(_judge(row, result) or (_around(own),))),
                kind=kind,
            )
        )
    same = f" All have {format_config(shared)}." if shared and len(rows) > 1 else ""
    more = (
        f" These are the first {len(rows)} of {len(shown.rows)}."
        if len(rows) < len(shown.rows)
        else ""
    )
    if result.finals:
        tied = sum(one.tied for one in result.finals[1:])
        slower = len(result.finals) - 1 - tied
        see = (
            f"The finals measured these configs in turn: {_say_ties(tied) or 'none ties'} with the best one, "
            f"{slower or 'none'} {'are' if slower > 1 else 'is'} slower."
            + (_explain_ties(result) if tied else "")
        )
    else:
        see = "There were no finals: these are the times of the screening."
    if unmet := say_unmet(result):
        see += f" {unmet[0].upper()}{unmet[1:]}: the table of all configs has the times of their screening."
    return Chart(
        title="Finalists" if result.finals else "The best of the screening",
        see=f"{see} Bars and brackets are intervals at 95 %.{same}{more}",
        label=f"time of a launch, {unit}",
        axis=draw_axis(axis),
        columns=("rank", "config"),
        after=("median", *(("time / best time", "verdict") if result.finals else ("95 %",))),
        groups=(Group(rows=tuple(lines)),),
    )


def _judge(row: Row, result: StudyResult) -> tuple[str, ...]:
    """The ratio of a finalist to the best, and what it means; nothing without finals."""
    if row.final is None:
        return ()
    if judge_row(row, result) == "best":
        return "", "best"
    few = f": {FEW_ROUNDS}" * lacks_rounds(row.final, result)
    return _say_ratio(row.final), f"{'tied' if row.final.tied else 'slower'}{few}"


def _explain_ties(result: StudyResult) -> str:
    """The rule by which configs are tied."""
    if not (least := format_least(result)):
        return ""
    return (
        f" Differences of less than {least} decide nothing, as noise may be as large: "
        f"{say_bound(result)}."
    )


def _draw_pareto(result: StudyResult) -> Chart:
    """The members of the Pareto set, the fastest first."""
    measured = [one.measurement for one in result.pareto]
    unit, size = find_unit(measured[0].median_ns)
    axis = make_axis([end for one in measured for end in (one.low_ns, one.high_ns)], unit, size)
    rows = tuple(
        Line(
            before=(format_config(one.config),),
            drawing=draw_interval(axis, (own.low_ns, own.high_ns), own.median_ns),
            after=(
                format_time(own.median_ns),
                f"± {format_interval(own)}",
                say_amount(result, one),
            ),
        )
        for one, own in zip(result.pareto, measured, strict=True)
    )
    return Chart(
        title=f"Pareto set of latency and {result.second}",
        see=f"No other config is clearly faster with at most the {result.second} of one of these.",
        label=f"time of a launch, {unit}",
        axis=draw_axis(axis),
        columns=("config",),
        after=("median", "95 %", result.second),
        groups=(Group(rows=rows),),
    )


def _draw_effects(shown: Picture, times: Sequence[float]) -> Chart:
    drawn = shown.effects[:MOST_PARAMETERS]
    unit, size = find_unit(shown.best_ns)
    axis = make_axis(times, unit, size)
    first = drawn[0]
    winner = shown.winner
    own = f"; orange: the values of the {winner}" if winner else ""
    most = (
        f"{clean_line(first.parameter)} matters most: its value alone explains "
        f"{format_share(first.share)} of how much times differ."
        if first.share >= LEAST_SHARE
        else "No parameter matters much by itself: see which pairs of values are fast in the map."
    )
    more = (
        f" {len(drawn)} of {len(shown.effects)} parameters."
        if len(drawn) < len(shown.effects)
        else ""
    )
    return Chart(
        title="Effect of each parameter",
        see=f"{_say_screened(shown)}{most} Dot: the best time with this value; ring: the median{own}.{more}",
        label=f"time of a launch, {unit}",
        axis=draw_axis(axis),
        columns=("value",),
        after=("best", "median", "right / tried"),
        groups=tuple(
            _draw_effect(one, axis, shown.find_level(winner, one.parameter) if winner else "")
            for one in drawn
        ),
    )


def _draw_effect(effect: Effect, axis: Axis, won: str) -> Group:
    rows = []
    for level in effect.levels:
        own = sorted(level.times_ns)
        count = f"{len(own)} / {level.tried}"
        if not own:
            rows.append(Line(before=(level.name,), drawing=draw_bar(0), after=("", "", count)))
            continue
        middle = median(own)
        kind = "best" if level.name == won else ""
        rows.append(
            Line(
                before=(level.name,),
                drawing=draw_range(axis, own[0], middle, kind),
                after=(format_time(own[0]), format_time(middle), count),
            )
        )
    share = f": explains {format_share(effect.share)}" if effect.share >= LEAST_SHARE else ""
    return Group(title=f"{effect.parameter}{share}", rows=tuple(rows))


OWN_WORDS = "In the run's own words"
MAP_TITLE = "Map of two parameters"


class Pair(Record):
    """The number of configs with each pair of levels of two parameters, and their best time. ``across`` and
    ``down`` are places in the list of parameters; ``marks`` are the names of configs with their cells.
    """

    across: int
    down: int
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[tuple[int, float | None], ...], ...]
    marks: tuple[tuple[str, int, int], ...]


class Maps(Record):
    """The maps of all pairs of these parameters."""

    see: str
    parameters: tuple[str, ...]
    maps: tuple[Pair, ...]
    unit: str
    size: float


def _describe_maps(shown: Picture, unit: str, size: float) -> Maps:
    names = [one.parameter for one in shown.effects[:MOST_PARAMETERS]]
    pairs = []
    for across, down in combinations(range(len(names)), 2):
        found = map_parameters(shown.tried, shown.values, names[across], names[down])
        cells = tuple(
            tuple(
                (cell.tried, None if cell.best_ns is None else round_figure(cell.best_ns))
                for cell in row
            )
            for row in found.cells
        )
        places = (
            (name, shown.find_cell(found, name, names[across], names[down]))
            for name in shown.marked
        )
        pairs.append(
            Pair(
                across=across,
                down=down,
                columns=found.columns,
                rows=found.rows,
                cells=cells,
                marks=tuple((name, *at) for name, at in places if at is not None),
            )
        )
    return Maps(
        see=f"{_say_screened(shown)}Each cell is the best time with these two values, whatever the others "
        "are: the darker, the faster; x is where no config was right.",
        parameters=tuple(names),
        maps=tuple(pairs),
        unit=unit,
        size=size,
    )


def _draw_losses(result: StudyResult) -> Chart | None:
    """Configs without a time, by the reason."""
    found = [
        (say_end(own[0].outcome, own[0].exceeds), join_numbers([why(one) for one in own]), len(own))
        for own in group_failures(result.trials)
    ]
    if result.rejected:
        found.append(("rejected untried", "where", result.rejected))
    if not found:
        return None
    found.sort(key=lambda one: -one[2])
    total = sum(count for *_, count in found)
    most = found[0][2]
    return Chart(
        title="Rejected or failed",
        see=f"Without a time: {total} of {count_of(len(result.trials) + result.rejected, 'config')}"
        + (f", {most} of them for the first reason." if len(found) > 1 else "."),
        label="configs",
        columns=("end", "reason"),
        after=("configs",),
        groups=(
            Group(
                rows=tuple(
                    Line(
                        before=(end, clean_line(reason, 2 * MESSAGE)),
                        drawing=draw_bar(count / most, "bad"),
                        after=(str(count),),
                    )
                    for end, reason, count in found
                )
            ),
        ),
    )


def _about_configs(result: StudyResult) -> Words:
    met = say_met(result, len(one_per_binary(result.trials)))
    others = "; the others: times of the screening" if met.startswith("the first") else ""
    return Words(
        see="Click a column's head to sort. The filter finds configs with all of its words, such as a value "
        "or a part of a message; configs with the same binary have the same rank."
        + (f" Latencies: {met}{others}." if met else ""),
        example="block_M=64 passed",
    )


def list_configs(result: StudyResult) -> Table:
    """All configs in the order in which they ended."""
    keys = list(dict.fromkeys(key for trial in result.trials for key in trial.config))
    own = (
        "rank",
        "ended",
        "latency",
        "± 95 %",
        *(["GFLOP/s"] if result.flops else []),
        "outcome",
        "why",
        "trial",
    )
    named = name_parameters(keys, own)
    has_reasons = any(one.message or one.outcome not in WELL for one in result.trials)
    columns = [
        Column(name="rank", kind="number"),
        Column(name="ended", kind="number"),
        *(Column(name=name, parameter=True) for name in named.values()),
        Column(name="latency", kind="time"),
        Column(name="± 95 %", kind="percent"),
        *([Column(name="GFLOP/s", kind="number")] if result.flops else []),
        Column(name="outcome", kind="shared"),
        *([Column(name="why", kind="shared", is_long=True)] if has_reasons else []),
        Column(name="trial"),
    ]
    alike: dict[str, list[Trial]] = {}  # configs by their binary
    for trial in result.trials:
        alike.setdefault(name_binary(trial), []).append(trial)
    ranks: dict[str, int] = {}
    measured = {trial.id: trial.measurement for trial in result.trials if trial.outcome in WELL}
    decided = {one.trial: one.measurement for one in result.finals if one.measurement is not None}
    for number, first in enumerate(rank_trials(result), start=1):
        same = alike[name_binary(first)]
        times = next((decided[one.id] for one in same if one.id in decided), None)
        for one in same:
            ranks[one.id] = number
            measured[one.id] = times or measured.get(one.id)
    rows = []
    for number, trial in enumerate(result.trials, start=1):
        figures = _list_figures(measured.get(trial.id), result.flops)
        values = (trial.config.get(key) for key in keys)
        reason = (
            clean_line(why(trial), MESSAGE) if trial.message or trial.outcome not in WELL else ""
        )
        end = say_end(trial.outcome, trial.exceeds)
        reasons = (reason,) if has_reasons else ()
        rows.append((ranks[trial.id], number, *values, *figures, end, *reasons, trial.id))
    kept = keep_first(rows, result.run, lambda row: ranks[str(row[-1])])
    return make_table(columns, kept, choice="outcome", by="rank")


def _list_figures(measured: Measurement | None, flops: float) -> tuple[Cell, ...]:
    """Time, half the width of its interval as a share, and the rate if the work is known."""
    took_ns = 0.0 if measured is None else measured.median_ns
    if measured is None or not took_ns:
        return (None,) * (3 if flops else 2)
    width = (measured.high_ns - measured.low_ns) / 2 / took_ns
    return (took_ns, width, flops / took_ns) if flops else (took_ns, width)


def _around(measured: Measurement) -> str:
    """The interval beside a time."""
    text = format_interval(measured)
    return text if text.startswith("-") else f"± {text}"
