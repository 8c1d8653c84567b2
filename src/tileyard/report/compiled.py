"""Describes builds: how the configs of a kernel ended, one artifact, and the device resources of each."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.artifacts.manifest import Build
from tileyard.model import Outcome
from tileyard.report.console import new_table, print_table
from tileyard.report.words import format_bytes, format_config, format_seconds, outcome_style
from tileyard.targets.reported import PADDING, Resources, read_reported
from tileyard.tuning.request import CompileResult
from tileyard.wording import count_of

if TYPE_CHECKING:
    from tileyard.artifacts.manifest import Artifact

COLUMNS = ("kernel", "registers", "spills", "shared", "threads", "occupancy", "code", "mix")
SHOWN_KEY = 10
"""Number of digits shown of a build key."""
ROOM = {"mix": 130, "code": 100, "threads": 100}
"""The narrowest screen on which a column is shown; tileyard inspect shows them all."""
SHOWN_KINDS = 3
"""Number of kinds of instructions shown per function."""


def print_compiled(
    console: Console, result: CompileResult, home: Path, *, with_report: bool
) -> None:
    """Print failures with their logs, the table of resources if requested, and one line."""
    if with_report:
        print_table(console, _table(result, console.width))
    for one in result.configs:
        if one.outcome not in (Outcome.PASSED, Outcome.NOT_RUN):
            line = Text(str(one.outcome), style=outcome_style(one.outcome))
            line.append(f"  {format_config(one.config)}: {one.message}")
            if one.log and (home / one.log).is_file():
                line.append(f"  log: {home / one.log}")
            console.print(line, soft_wrap=True, highlight=False)
    counts = Counter(str(one.outcome) for one in result.configs)
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    known = sum(one.reused for one in result.configs)
    again = f"; {known} known from earlier runs" if known else ""
    text = f"{count_of(len(result.configs), 'config')} for {result.target} in {format_seconds(result.seconds)}: {words}{again}"
    console.print(Text(text), soft_wrap=True, highlight=False)
    built = [one for one in result.configs if one.outcome is Outcome.PASSED]
    if built:
        hint = f"to see what was built: tileyard inspect {_name_artifact(built[0])}"
        console.print(Text(hint, style="dim"), soft_wrap=True, highlight=False)
    for note in dict.fromkeys(result.notes):
        console.print(Text(note, style="yellow"), soft_wrap=True, highlight=False)


def _table(result: CompileResult, width: int) -> Table:
    keys = list(dict.fromkeys(key for one in result.configs for key in one.config))
    work = f" {format_config(result.arguments)}" if result.arguments else ""
    taken = [_resources_of(one) for one in result.configs]
    shown = _choose_columns(taken, width)
    wrapped = (*keys, *shown, "build")
    table = new_table(
        (*wrapped, "outcome", "artifact"),
        left=("kernel", "mix", "outcome", "artifact"),
        wrapped=wrapped,
    )
    table.title, table.title_justify = f"{result.kernel}{work} for {result.target}", "left"
    for one, resources in zip(result.configs, taken, strict=True):
        config = [str(one.config.get(key, "")) for key in keys]
        outcome = Text(str(one.outcome), style=outcome_style(one.outcome))
        build = "known" if one.reused else format_seconds(one.build_s)
        if not resources:
            table.add_row(*config, *[""] * len(shown), build, outcome, "")
        for number, function in enumerate(resources):
            cells = describe_resources(function, SHOWN_KINDS)
            row = [cells[name] for name in shown]
            if number == 0:
                table.add_row(*config, *row, build, outcome, _name_artifact(one))
            else:
                table.add_row(*[""] * len(config), *row)
    return table


def _choose_columns(taken: Sequence[tuple[Resources, ...]], width: int) -> list[str]:
    """The columns to show, none if nothing is known; functions are named if a config has several."""
    if not any(taken):
        return []
    left_out = set() if any(len(functions) > 1 for functions in taken) else {"kernel"}
    left_out |= {name for name, least in ROOM.items() if width < least}
    return [name for name in COLUMNS if name not in left_out]


def _name_artifact(one: Build) -> str:
    """The part of a build key that identifies it among others; empty for what could not be built."""
    return one.build[:SHOWN_KEY] if one.outcome is Outcome.PASSED else ""


def is_too_large(one: Build) -> bool:
    """Whether a config was built and can never be launched: a block does not fit on a multiprocessor."""
    return any(taken.occupancy == 0 for taken in _resources_of(one))


def _resources_of(one: Build) -> tuple[Resources, ...]:
    """The resources of each device function of a config; empty for targets that do not report them."""
    return read_reported(one.details).resources


def describe_resources(taken: Resources, kinds: int | None = None) -> dict[str, str]:
    """The resources of one device function, by COLUMNS; with at most ``kinds`` kinds of instructions."""
    mix = [(kind, count) for kind, count in taken.mix.items() if kind != PADDING]
    shown = [f"{count} {name}" for name, count in mix[:kinds]]
    cells = (
        taken.symbol.rpartition("_")[0],
        str(taken.registers),
        f"{taken.spilled_bytes} B" if taken.spilled_bytes else "0",
        _format_shared(taken),
        "" if taken.threads is None else str(taken.threads),
        "" if taken.occupancy is None else f"{100 * taken.occupancy:.0f} %",
        f"{taken.code_bytes / 1024:.1f} KiB",
        ", ".join(shown) + (", ..." if len(shown) < len(mix) else ""),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def _format_shared(taken: Resources) -> str:
    known = taken.shared_bytes + (taken.dynamic_shared_bytes or 0)
    return f"{known / 1024:.1f} KiB" + ("" if taken.dynamic_shared_bytes is not None else " + ?")


# ---- one artifact ----------------------------------------------------------------------------------


def print_artifact(console: Console, artifact: "Artifact") -> None:
    """Print its keys, its origin, its files, and its resources if known."""
    told = artifact.manifest
    details = read_reported(told.details)
    rows = {
        "kernel": told.kernel,
        "target": told.target,
        "compiler": details.compiler,
        "flags": " ".join(details.flags),
        "build key": told.build,
        "binary key": told.binary,
        "target's print": told.fingerprint,
    }
    for name, value in rows.items():
        if value:
            console.print(Text(f"{name:>14}  {value}"), soft_wrap=True)
    for name in sorted(told.files):
        size = format_bytes(artifact.file(name).stat().st_size)
        console.print(Text(f"{'file':>14}  {name}, {size}"), soft_wrap=True)
    if details.resources:
        print_resources(console, details.resources)
        ways = "--source, --launch-record, --resources, --ptx, --sass, --log"
        console.print(Text(f"more of it: {ways}", style="dim"), soft_wrap=True)


def print_resources(console: Console, resources: Sequence[Resources]) -> None:
    """Print one row per device function."""
    table = new_table(COLUMNS, left=("kernel", "mix"), wrapped=COLUMNS)
    for taken in resources:
        table.add_row(*describe_resources(taken).values())
    print_table(console, table)
