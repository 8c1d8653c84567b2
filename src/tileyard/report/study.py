"""What a tuning run came to, as a table and a few lines."""

import io
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.model import WELL, Trial
from tileyard.report.words import (
    format_config,
    format_rate,
    format_seconds,
    format_time,
    outcome_style,
)
from tileyard.tuning.request import StudyResult

ROWS = 10


def print_study(console: Console, result: StudyResult, home: Path) -> None:
    """Print the best configs, the verdict of the finals, and where things are."""
    console.print(_table(result))
    for line in _lines(result, home):
        console.print(line, soft_wrap=True, highlight=False)


def render_study(result: StudyResult, home: Path) -> str:
    """The same as HTML, for notebooks."""
    console = Console(record=True, file=io.StringIO(), width=140)
    print_study(console, result, home)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _table(result: StudyResult) -> Table:
    keys = list(dict.fromkeys(key for trial in result.trials for key in trial.config))
    work = f" {format_config(result.arguments)}" if result.arguments else ""
    table = Table(title=f"{result.kernel}{work}", title_justify="left", header_style="bold")
    table.add_column("", justify="right")
    for key in keys:
        table.add_column(key, justify="right")
    table.add_column("latency", justify="right")
    table.add_column("± 95 %", justify="right")
    if result.flops:
        table.add_column("GFLOP/s", justify="right")
    table.add_column("outcome")
    for rank, trial in enumerate(_ranked(result)[:ROWS], start=1):
        row = [str(rank), *(str(trial.config.get(key, "")) for key in keys)]
        median_ns = trial.measurement.median_ns if trial.measurement else 0.0
        mark = "*" if trial.measurement and trial.measurement.abandoned else ""
        row.append(format_time(median_ns) + mark if median_ns else "")
        row.append(_interval(trial))
        if result.flops:
            row.append(format_rate(result.flops, median_ns))
        outcome = Text(str(trial.outcome), style=outcome_style(trial.outcome))
        style = "bold" if result.best is not None and trial.id == result.best.id else ""
        table.add_row(*row, outcome, style=style)
    if any(trial.measurement and trial.measurement.abandoned for trial in result.trials):
        table.caption, table.caption_justify = "* clearly slower, abandoned early", "left"
    return table


def _interval(trial: Trial) -> str:
    if trial.measurement is None:
        return ""
    half = (trial.measurement.high_ns - trial.measurement.low_ns) / 2
    return f"{100 * half / trial.measurement.median_ns:.1f} %"


def _ranked(result: StudyResult) -> list[Trial]:
    """The winner, the other finalists in their order, the rest by latency, failures last."""
    order = {final.trial: number for number, final in enumerate(result.finals)}

    def place(trial: Trial) -> tuple[bool, float, float]:
        median_ns = trial.measurement.median_ns if trial.measurement else float("inf")
        return trial.outcome not in WELL, order.get(trial.id, len(order)), median_ns

    return sorted(result.trials, key=place)


def _lines(result: StudyResult, home: Path) -> list[Text]:
    counts = Counter(str(trial.outcome) for trial in result.trials)
    words = ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
    lines = [Text(f"{len(result.trials)} configs in {format_seconds(result.seconds)}: {words}")]
    if result.reused:
        lines[0].append(f"; {result.reused} known from earlier runs, not built or measured again")
    if result.reason != "done":
        lines.append(Text(f"stopped early: {result.reason}", style="yellow"))
    lines += _finals(result)
    if result.best is None:
        lines.append(Text("no config passed", style="red"))
        return lines
    lines.append(Text.assemble("best: ", (format_config(result.best.config), "bold")))
    lines.append(Text(f"results: {home}   (tileyard trials, tileyard show {result.best.id})"))
    lines.append(Text(f'load it: kernel = tileyard.load("{result.best.id}")'))
    return lines


def _finals(result: StudyResult) -> list[Text]:
    lines = []
    for number, final in enumerate(result.finals):
        verdict = "tied" if final.tied else "slower"
        if number == 0:
            verdict = "the best"
        lines.append(
            Text(
                f"finals: {format_config(final.config)} takes {final.ratio:.3f} x the fastest "
                f"[{final.low:.3f}, {final.high:.3f}]: {verdict}",
                style="dim",
            )
        )
    if result.control is not None:
        control = result.control
        alarm = (
            "FALSE ALARM, read the finals with care" if control.false_alarm else "no false alarm"
        )
        lines.append(
            Text(
                f"finals: A/A control {control.ratio:.3f} [{control.low:.3f}, {control.high:.3f}]: "
                f"{alarm}",
                style="dim",
            )
        )
    return lines
