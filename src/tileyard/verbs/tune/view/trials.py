"""Recorded trials: a table of many, and all details of one."""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from types import MappingProxyType

from rich.console import Console
from rich.text import Text

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.events import is_final
from tileyard.base.model import Measurement, SourceLine, Trial
from tileyard.base.wording import count_of
from tileyard.show.console import MARKED, PLAIN, name_parameters, new_table, print_table, render
from tileyard.show.words import (
    annotate,
    clean_line,
    format_case,
    format_config,
    format_measured,
    format_rate,
    format_seconds,
    format_share,
    format_time,
    make_visible,
    outcome_style,
)
from tileyard.targets.registry import PROGRAM_FILE
from tileyard.verbs.tune.result import StudyResult
from tileyard.workers.run_records import find_run

TIMES_NS = ("median_ns", "low_ns", "high_ns")
COLUMNS = frozenset({"outcome", *TIMES_NS, "gflops", "message", "trial"})
"""Columns with results of a config. A parameter with such a name is called ``config_NAME``."""
LISTED, TABLE_WIDTH = 20, 120
"""Maximum number of trials in the table as which ``Trials`` print, and its width in characters."""
NO_TIMES: Mapping[str, Measurement] = MappingProxyType({})
IN_FINALS = " (finals)"
SAID = 20
"""Lines of a case's output shown with its verdict."""


def print_trials(
    console: Console, found: Sequence[Trial], deciding: Mapping[str, Measurement] = NO_TIMES
) -> None:
    """Print a line per trial, with its time in the finals where it is among the ``deciding``, by id."""
    columns = ("trial", "case", "config", "target", "latency", "outcome", "message")
    table = new_table(columns, left=columns)
    has_suites = len({trial.suite for trial in found}) > 1
    for trial in found:
        measured = deciding.get(trial.id, trial.measurement)
        latency = format_measured(measured) if measured else ""
        latency += IN_FINALS if trial.id in deciding else ""
        if not trial.kernel and trial.run_s:  # a program
            latency = format_time(trial.run_s * 1e9)
        table.add_row(
            trial.id,
            _name_case(trial) + (f" ({trial.suite})" if has_suites and trial.suite else ""),
            format_config(trial.config) + _say_role(trial),
            trial.target,
            latency,
            Text(str(trial.outcome), style=outcome_style(trial.outcome)),
            clean_line(trial.message),
        )
    print_table(console, table, cut="message", joins_equal=True)


class Trials(tuple[Trial, ...]):
    """Trials that print as a table, in a notebook the first ones; ``deciding`` are times of finals by id."""

    deciding: Mapping[str, Measurement] = NO_TIMES

    def __repr__(self) -> str:
        return self._render()[PLAIN]

    def _repr_html_(self) -> str:
        return self._render()[MARKED]

    def _render(self) -> dict[str, str]:
        def show(console: Console) -> None:
            print_trials(console, self[:LISTED], self.deciding)
            if len(self) > LISTED:
                console.print(f"and {count_of(len(self) - LISTED, 'trial')} more", style="dim")

        return render(TABLE_WIDTH, show)


def list_trials(result: StudyResult) -> Trials:
    """The trials of a study, with the times that decided."""
    found = Trials(result.trials)
    timed = ((one, result.measurement_of(one)) for one in result.trials)
    found.deciding = {
        one.id: measured for one, measured in timed if measured is not one.measurement and measured
    }
    return found


def list_columns(result: StudyResult) -> dict[str, list[object]]:
    """The configs of a study by columns: parameters, then results; NaN if not measured. Times are in
    nanoseconds, of the finals if they took part.
    """
    trials = result.trials
    columns: dict[str, list[object]] = {}
    keys = dict.fromkeys(key for trial in trials for key in trial.config)
    for name, key in name_parameters(keys, COLUMNS).items():
        columns[name] = [trial.config.get(key) for trial in trials]
    measured = [result.measurement_of(trial) for trial in trials]
    columns["outcome"] = [str(trial.outcome) for trial in trials]
    for name in TIMES_NS:
        columns[name] = [nan if one is None else getattr(one, name) for one in measured]
    if result.flops:
        rates = [nan if one is None else result.flops / one.median_ns for one in measured]
        columns["gflops"] = [*rates]
    columns["message"] = [trial.message for trial in trials]
    columns["trial"] = [trial.id for trial in trials]
    return columns


def _say_role(trial: Trial) -> str:
    """The role of a trial that is not that of a config by itself."""
    if not trial.control:
        return " (in the finals)" if is_final(trial) else ""
    return " (A/A control)" if is_final(trial) else f" ({trial.batch})"


def print_trial(
    console: Console,
    trial: Trial,
    home: Path,
    *,
    source: bool,
    deciding: Measurement | None = None,
) -> None:
    """Print one trial: its record, its log and, with ``source``, Program and generated code. ``deciding`` is
    its time in the finals, which counts.
    """
    _show_record(console, trial, deciding)
    _show_text(console, "log", _find_log(trial, home), {})
    if source:
        _show_sources(console, trial, home)


def print_verdict(console: Console, trial: Trial, result: StudyResult, home: Path) -> None:
    """Print how a case that ran by itself ended: the outcome, every output, the time, where the rest is."""
    title = Text.assemble(
        (str(trial.outcome), outcome_style(trial.outcome)),
        f"  {trial.kernel}",
        f" {format_config(trial.arguments)}" if trial.arguments else "",
        f"  {format_config(trial.config)}" if trial.config else "",
    )
    console.print(title, soft_wrap=True)
    for line in trial.message.splitlines():
        console.print(Text(f"  {clean_line(line)}"), soft_wrap=True)
    if trial.measurement is not None:
        rate = format_rate(result.flops, trial.measurement.median_ns)
        took = _say_latency(trial.measurement) + (f", {rate} GFLOP/s" if rate else "")
        console.print(Text(f"  {took} on {trial.device}"), soft_wrap=True)
    if log := _find_log(trial, home):
        _show_said(console, log)
    console.print(Text(f"  details: tileyard show {trial.id}", style="dim"), soft_wrap=True)
    if result.unchecked:
        required = ", and a check is required" if result.require_check else ""
        console.print(Text(f"{result.unchecked}{required}", style="yellow"), soft_wrap=True)


def _find_log(trial: Trial, home: Path) -> Path | None:
    """A trial's log; None if it has none, or if its recorded path leads out of the data directory."""
    path = home / trial.log
    if trial.log and path.is_file() and path.resolve().is_relative_to(home.resolve()):
        return path
    return None


def _show_said(console: Console, log: Path) -> None:
    """Print the first lines of a case's output, and where the rest is."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    console.print(Text(f"  log: {log}"), soft_wrap=True)
    for line in lines[:SAID]:
        console.print(Text(f"    {clean_line(line)}"), soft_wrap=True)
    if len(lines) > SAID:
        console.print(Text(f"    and {count_of(len(lines) - SAID, 'line')} more"))


def _say_latency(measured: Measurement) -> str:
    return (
        f"{format_time(measured.median_ns)}, {format_share(measured.confidence)} interval "
        f"[{format_time(measured.low_ns)}, {format_time(measured.high_ns)}], "
        f"{count_of(len(measured.samples_ns), 'sample')}"
    )


def _name_case(trial: Trial) -> str:
    """The name of what ran: a suite's case by its id, a config of a study by its kernel."""
    return format_case(trial.case, trial.attempt) if trial.testcase else trial.kernel


def _show_record(console: Console, trial: Trial, deciding: Measurement | None) -> None:
    rows = {
        "trial": trial.id,
        "case" if trial.testcase else "kernel": _name_case(trial),
        "suite": trial.suite,
        "arguments": format_config(trial.arguments),
        "config": format_config(trial.config),
        "target": trial.target,
        "device": trial.device,
        "message": trial.message,
        "build": format_seconds(trial.build_s) if trial.build_s else "",
        "build key": trial.keys.build,
        "run key": trial.keys.run,
        "measurement key": trial.keys.measurement,
    }
    console.print(Text(str(trial.outcome), style=outcome_style(trial.outcome)))
    if deciding is not None:
        rows["latency"] = _say_latency(deciding) + IN_FINALS
    if trial.measurement is not None:
        name = "in one meeting" if is_final(trial) else "latency"
        name = name if deciding is None else "in the screening"
        rows[name] = _say_latency(trial.measurement)
    for name, value in rows.items():
        if value:
            console.print(Text(f"{name:>16}  {value}"), soft_wrap=True)


def _show_sources(console: Console, trial: Trial, home: Path) -> None:
    build, objects = trial.keys.build, ObjectStore(home / "objects")
    artifact = find_artifact(build, objects) if build else None
    if artifact is None:
        return
    record = find_run(objects, trial.keys.run)
    lines = record.entry.lines if record is not None else {}
    for name in sorted(artifact.manifest.files, key=lambda name: (name != PROGRAM_FILE, name)):
        if name.endswith(".h"):
            console.print(Text(f"{name}: {artifact.file(name)}", style="bold"), soft_wrap=True)
        elif not name.endswith(".so"):
            _show_text(console, name, artifact.file(name), lines if name.endswith(".c") else {})


def _show_text(
    console: Console, title: str, path: Path | None, lines: Mapping[int, SourceLine]
) -> None:
    if path is None or not path.is_file() or not path.stat().st_size:
        return
    console.print(Text(f"{title}: {path}", style="bold"), soft_wrap=True)
    console.print(
        make_visible(annotate(path.read_text(encoding="utf-8", errors="replace"), lines)),
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
