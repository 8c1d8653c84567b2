"""``tileyard show``: one trial with its log, its Program and the code generated for it."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import UsageError
from tileyard.model import Trial
from tileyard.report.words import format_config, format_seconds, format_time, outcome_style
from tileyard.settings import read_settings


def show(
    trial: Annotated[str, typer.Argument(help="The trial's id, or the beginning of it.")],
    *,
    source: Annotated[bool, typer.Option(help="Print the Program and the generated code.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> int:
    """Show one trial: its record, its log, its Program and the generated code."""
    from tileyard.store.trials import TrialStore

    home = read_settings(os.environ, Path.cwd()).home
    if not (home / "store.db").is_file():
        raise UsageError(f"nothing is recorded in {home} yet")
    with TrialStore.open(home) as store:
        found = store.get_trial(trial)
    if json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return 0
    console = Console()
    _show_record(console, found)
    _show_text(console, "log", home / found.log if found.log else None)
    if source:
        _show_sources(console, found, home)
    return 0


def _show_record(console: Console, trial: Trial) -> None:
    rows = {
        "trial": trial.id,
        "kernel": trial.kernel,
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
    if trial.measurement is not None:
        measured = trial.measurement
        rows["latency"] = (
            f"{format_time(measured.median_ns)}, {measured.confidence:.0%} interval "
            f"[{format_time(measured.low_ns)}, {format_time(measured.high_ns)}], "
            f"{len(measured.samples_ns)} samples"
        )
    for name, value in rows.items():
        if value:
            console.print(Text(f"{name:>16}  {value}"), soft_wrap=True)


def _show_sources(console: Console, trial: Trial, home: Path) -> None:
    artifact = find_artifact(trial.keys.build, ObjectStore(home / "objects"))
    if artifact is None:
        return
    for name in artifact.manifest.files:
        if not name.endswith(".so"):
            _show_text(console, name, artifact.file(name))


def _show_text(console: Console, title: str, path: Path | None) -> None:
    if path is None or not path.is_file():
        return
    console.rule(f"{title}: {path}", align="left")
    console.print(
        path.read_text(encoding="utf-8", errors="replace"),
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
