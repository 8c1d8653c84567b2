"""The result of tuning for many shapes: the dispatch table, the curve of coverage, and a few lines."""

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.base.wording import count_of, describe_unrecorded
from tileyard.show.console import MARKED, new_table, print_table, render
from tileyard.show.words import (
    ask_about_reference,
    format_config,
    format_seconds,
    format_share,
    format_time,
)
from tileyard.verbs.tune.result import CurvePoint, TableResult
from tileyard.verbs.tune.view.study import (
    BUSY_TEXT,
    NOTEBOOK_WIDTH,
    say_disturbances,
    say_disturbed,
    say_none,
)

POINTS = 12
"""Maximum number of rows of the curve: the first ones and the last."""


def print_dispatch(console: Console, result: TableResult, home: Path) -> None:
    """Print each shape with its config, what fewer configs can do, and where things are."""
    print_table(console, _table(result), joins_equal=True)
    if len(result.curve) > 1:
        print_table(console, _curve(result))
    for line in list_table_lines(result, home):
        console.print(line, soft_wrap=True, highlight=False)


def render_dispatch(result: TableResult, home: Path) -> str:
    """The same as HTML, for notebooks."""
    show = partial(print_dispatch, result=result, home=home)
    return render(NOTEBOOK_WIDTH, show)[MARKED]


def _table(result: TableResult) -> Table:
    configs = ("config", "own best")
    columns = ("shape", "weight", "latency", "slowdown", *configs)
    table = new_table(columns, left=("shape", *configs), wrapped=configs)
    table.title = f"{result.kernel}: a config for each shape"
    for study, row in zip(result.studies, result.rows, strict=True):
        shape, weight = row.name, f"{row.weight:g}"
        if row.trial is None or study.best is None:
            text = "disturbed" if study.disturbed else say_none(study)
            table.add_row(shape, weight, "", "", Text(text, style="red"))
            continue
        own = study.best.config
        table.add_row(
            shape,
            weight,
            format_time(row.latency_ns),
            f"{row.slowdown:.3f} x",
            format_config(row.trial.config),
            "the same" if row.trial.config == own else format_config(own),
        )
    return table


def _curve(result: TableResult) -> Table:
    table = Table(title="coverage", header_style="bold")
    for name in ("configs", f"shapes within {100 * result.within:.3g} %", "worst slowdown"):
        table.add_column(name, justify="right")
    for number, point in list_points(result):
        table.add_row(str(number), format_share(point.share, 1), say_worst(point))
    return table


def list_points(result: TableResult) -> list[tuple[int, CurvePoint]]:
    """The first points of the curve and the last one, each with its number of configs."""
    points = list(enumerate(result.curve, start=1))
    return [*points[:-1][: POINTS - 1], *points[-1:]]


def say_worst(point: CurvePoint) -> str:
    """The largest slowdown of a shape."""
    return "unknown" if point.worst is None else f"{point.worst:.3f} x"


def list_table_lines(result: TableResult, home: Path) -> list[Text]:
    """The lines below a dispatch table, what it serves last."""
    trials = [trial for study in result.studies for trial in study.trials]
    known = sum(study.reused for study in result.studies)
    text = (
        f"{count_of(len(trials), 'config')} for {count_of(len(result.rows), 'shape')} in "
        f"{format_seconds(result.seconds)}"
    )
    text += f"; {known} known from earlier runs" if known else ""
    lines = [Text(text)]
    if result.reason != "done":
        why = next((one.stopped for one in result.studies if one.stopped), result.reason)
        lines.append(Text(f"stopped early: {why}", style="yellow"))
    lines += [
        Text(
            f"{row.name}: {count_of(len(study.lost), 'config')} lost to devices, queues or the host",
            style="red",
        )
        for study, row in zip(result.studies, result.rows, strict=True)
        if study.lost
    ]
    if result.unrecorded:
        lines.append(Text(describe_unrecorded(result.unrecorded), style="red"))
    for study, row in zip(result.studies, result.rows, strict=True):
        said = [*say_disturbances(study), *([say_disturbed(study)] if study.disturbed else [])]
        lines += [Text(f"{row.name}: {text}", style="yellow") for text in said]
    rows = zip(result.studies, result.rows, strict=True)
    failed: dict[str, list[str]] = {}
    for study, row in rows:
        if row.trial is None and not study.disturbed:
            failed.setdefault(say_none(study), []).append(row.name)
    lines += [Text(f"{why} for {'; '.join(names)}", style="red") for why, names in failed.items()]
    if question := ask_about_reference(trials, "configs"):
        lines.append(Text(question, style="yellow"))
    found = [row for row in result.rows if row.trial is not None]
    if found:
        lines.append(Text(f"results: {home}   (tileyard export {result.run}, tileyard trials)"))
        worst = max(row.slowdown for row in found)
        configs = count_of(len(result.curve[-1].configs), "config")
        is_all = len(found) == len(result.rows)
        served = f"all {len(found)} shapes" if is_all else count_of(len(found), "shape")
        doubts = {study.unchecked for study in result.studies if study.unchecked}
        doubts |= {BUSY_TEXT for study in result.studies if study.control and study.control.is_wide}
        lines.append(
            Text.assemble(
                (configs, "bold"),
                f" for {served}, each within {100 * result.within:.3g} % of its best (the worst: "
                f"{worst:.3f} x)",
                ("".join(f", {doubt}" for doubt in sorted(doubts)), "yellow"),
            )
        )
    return lines
