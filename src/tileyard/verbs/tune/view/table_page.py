"""A study of many shapes as a page: the dispatch table, what fewer configs would do, and each shape."""

from tileyard.base.wording import count_of
from tileyard.pages.charts import Axis, Chart, Group, Line, draw_axis, draw_bar
from tileyard.pages.report import RunLog, Section, Subject, find_timeline
from tileyard.show.words import clean_line, format_config, format_seconds, format_share, format_time
from tileyard.verbs.tune.result import TableResult
from tileyard.verbs.tune.view.page import OWN_WORDS, describe_study
from tileyard.verbs.tune.view.study import say_none
from tileyard.verbs.tune.view.table import list_points, list_table_lines, say_worst


def describe_shapes(result: TableResult, log: RunLog) -> list[Subject]:
    """A study of many shapes: the dispatch table, and a part for each."""
    lines = [clean_line(line.plain) for line in list_table_lines(result, log.home)]
    charts = [_draw_dispatch(result), *([_draw_curve(result)] if len(result.curve) > 1 else [])]
    sections = [
        Section(name=f"table{number}", title=one.title, template="rows.html", shown=one)
        for number, one in enumerate(charts)
    ]
    sections += find_timeline(log, result.seconds)
    sections.append(Section(name="lines", title=OWN_WORDS, template="lines.html", shown=lines))
    table = Subject(
        title=f"{result.kernel}: a config for each shape",
        kind=f"Study of {count_of(len(result.rows), 'shape')}, run {result.run}",
        answer=f"{lines[-1]}.",
        facts=(
            *log.facts,
            ("target", result.target),
            ("time", format_seconds(result.seconds)),
        ),
        sections=tuple(sections),
    )
    return [table, *(describe_study(one, RunLog(home=log.home)) for one in result.studies)]


def _draw_dispatch(result: TableResult) -> Chart:
    """Each shape with its config; the bar is what that costs against the shape's own best."""
    rows = []
    most = max((row.slowdown for row in result.rows), default=1.0)
    axis = Axis(low=0.0, high=max(most - 1, result.within) * 100)
    for study, row in zip(result.studies, result.rows, strict=True):
        if row.trial is None or study.best is None:
            why_not = "disturbed" if study.disturbed else say_none(study)
            rows.append(
                Line(before=(clean_line(row.name), why_not), drawing=draw_bar(0), after=("", ""))
            )
            continue
        over = 100 * (row.slowdown - 1)
        drawing = draw_bar(
            over / axis.high, "best" if row.trial.config == study.best.config else "", axis
        )
        figures = (format_time(row.latency_ns), f"{row.slowdown:.3f} x")
        config = format_config(row.trial.config) or "the only config"
        rows.append(Line(before=(clean_line(row.name), config), drawing=drawing, after=figures))
    configs = len({str(row.trial.config) for row in result.rows if row.trial is not None})
    return Chart(
        title="The config of each shape",
        see=f"{count_of(configs, 'config')} for {count_of(len(result.rows), 'shape')}. The bar is how much "
        "slower a shape's config is than its own best one, at most; there is none where it is that.",
        label="slower than its own best, %",
        axis=draw_axis(axis),
        columns=("shape", "config"),
        after=("latency", "slowdown"),
        groups=(Group(rows=tuple(rows)),),
    )


def _draw_curve(result: TableResult) -> Chart:
    rows = [
        Line(
            before=(count_of(number, "config"),),
            drawing=draw_bar(point.share),
            after=(format_share(point.share, 1), say_worst(point)),
        )
        for number, point in list_points(result)
    ]
    return Chart(
        title="What fewer configs would do",
        see=f"The share of shapes, by weight, within {100 * result.within:.3g} % of their best time.",
        label="shapes",
        columns=("",),
        after=("shapes", "worst slowdown"),
        groups=(Group(rows=tuple(rows)),),
    )
