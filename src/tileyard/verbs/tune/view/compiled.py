"""Describes builds: how the configs of a kernel ended, one artifact, and the device resources of each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.artifacts.manifest import Build
from tileyard.base.model import WELL, Outcome, Trial
from tileyard.base.wording import TOO_LARGE, count_of, say_end
from tileyard.show.console import name_parameters, new_table, print_table
from tileyard.show.view import kind_of
from tileyard.show.words import (
    clean_line,
    format_bytes,
    format_config,
    format_seconds,
    join_numbers,
    leave_out_numbers,
    outcome_style,
)
from tileyard.targets.own_sources import PADDING, Resources, read_reported
from tileyard.verbs.test.view.words import group_by
from tileyard.verbs.tune.result import CompileResult

if TYPE_CHECKING:
    from tileyard.artifacts.manifest import Artifact

EndedT = TypeVar("EndedT", bound=Build | Trial)
COLUMNS = ("kernel", "regs", "spills", "shared", "threads", "occ.", "code", "mix")
SPARE = ("mix", "code", "threads")
"""Columns that a narrow screen does without; tileyard inspect shows them all."""
SHOWN_KEY = 10
"""Digits shown of a build key."""
SHOWN_KINDS = 3
"""Kinds of instructions shown of each function."""
NAME_WIDTH = len("target fingerprint")


def print_compiled(
    console: Console, result: CompileResult, home: Path, *, with_report: bool
) -> None:
    """Print the table of resources if it is asked for, failures with their logs, and one line."""
    failed = [
        one
        for one in result.configs
        if one.outcome not in WELL and one.outcome is not Outcome.NOT_RUN
    ]
    rest = [one for one in result.configs if one not in failed]
    if with_report and rest:
        table, folded = _table(result, rest)
        print_table(console, table, spare=(*SPARE, "build"), folded=folded, joins_equal=True)
    for line in describe_failed(failed, home):
        console.print(line, soft_wrap=True, highlight=False)
    known = sum(one.reused for one in result.configs)
    again = f"; {known} known from earlier runs" if known else ""
    text = (
        f"{count_of(len(result.configs), 'config')} for {result.target} in "
        f"{format_seconds(result.seconds)}: {count_ends(result.configs)}{again}"
    )
    console.print(Text(text), soft_wrap=True, highlight=False)
    built = [one for one in result.configs if one.outcome is Outcome.PASSED]
    if built:
        hint = f"inspect with: tileyard inspect {_name_artifact(built[0])}"
        console.print(Text(hint, style="dim"), soft_wrap=True, highlight=False)
    for note in dict.fromkeys(result.notes):
        console.print(Text(note, style="yellow"), soft_wrap=True, highlight=False)


def count_ends(ended: Iterable[Build | Trial]) -> str:
    """``20 passed, 15 too large (shared memory)``: how the configs ended, the most frequent first."""
    counts = Counter(say_end(one.outcome, one.exceeds) for one in ended)
    return ", ".join(f"{count} {end}" for end, count in counts.most_common())


def describe_failed(failed: Iterable[Build], home: Path | None = None) -> Iterator[Text]:
    """Each reason why configs could not be built, with number and names; a few have a line and a log each."""
    for group in group_by(failed, lambda one: (name_end(one), leave_out_numbers(one.message))):
        first = group[0]
        line = Text(name_end(first), style=outcome_style(first.outcome))
        names = [format_config(one.config) for one in group]
        if len(group) == 1:
            line.append(f"  {': '.join(filter(None, (names[0], first.message)))}")
        else:
            messages = [one.message for one in group]
            line.append(f"  {count_of(len(group), 'config')}: {clean_line(join_numbers(messages))}")
        if home is not None and first.log and (home / first.log).is_file():
            line.append(f"  log: {home / first.log}")
        yield line
        if len(group) > 1:
            yield Text(f"    {'; '.join(names)}", style="dim")


def group_failures(ended: Sequence[EndedT]) -> list[list[EndedT]]:
    """The configs that did not pass, by the reason; numbers in it may differ."""
    groups: dict[tuple[str, str], list[EndedT]] = {}
    for one in ended:
        if one.outcome not in WELL | {Outcome.NOT_RUN}:
            kind = kind_of(one) if isinstance(one, Trial) else leave_out_numbers(one.message)
            groups.setdefault((name_end(one), kind), []).append(one)
    return list(groups.values())


def describe_reasons(prefix: str, groups: Sequence[Sequence[Build | Trial]]) -> list[Text]:
    """Each reason for which configs did not pass, once, with the first of these configs."""
    lines = []
    for group in groups:
        first = group[0]
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        # Of mismatches the numbers belong together, so they are those of the first one.
        is_wrong = first.outcome is Outcome.MISMATCH
        message = first.message if is_wrong else join_numbers([one.message for one in group])
        line = Text(prefix).append(name_end(first), style=outcome_style(first.outcome))
        name = f"{format_config(first.config)}{more}"
        lines.append(line.append(f"  {': '.join(filter(None, (name, clean_line(message))))}"))
    return lines


def _table(result: CompileResult, shown: Sequence[Build]) -> tuple[Table, dict[str, str]]:
    keys = list(dict.fromkeys(key for one in shown for key in one.config))
    work = f" {format_config(result.arguments)}" if result.arguments else ""
    results = (*COLUMNS, "build", "outcome", "artifact")
    named = name_parameters(keys, results)
    columns = (*named, *results)
    table = new_table(columns, left=("kernel", "mix", "outcome", "artifact"))
    table.title = f"{result.kernel}{work} for {result.target}"
    taken = [_resources_of(one) for one in shown]
    has_several = any(len(functions) > 1 for functions in taken)
    for one, resources in zip(shown, taken, strict=True):
        config = [str(one.config.get(key, "")) for key in keys]
        outcome = Text(str(one.outcome), style=outcome_style(one.outcome))
        build = "known" if one.reused else format_seconds(one.build_s)
        last: tuple[str | Text, ...] = (build, outcome, _name_artifact(one))
        for function in resources or (None,):
            cells = dict.fromkeys(COLUMNS, "")
            if function is not None:
                cells |= describe_resources(function, SHOWN_KINDS)
            if not has_several:
                cells["kernel"] = ""
            table.add_row(*config, *cells.values(), *last)
            config, last = [""] * len(config), ("", "", "")
    return table, named


def _name_artifact(one: Build) -> str:
    """The part of a build key that identifies it among others; empty for what could not be built."""
    return one.build[:SHOWN_KEY] if one.outcome is Outcome.PASSED else ""


def name_end(one: Build | Trial) -> str:
    """How a config ended, in words for people."""
    return TOO_LARGE if one.exceeds else str(one.outcome)


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


def describe_shared(taken: Resources) -> str:
    """Its two parts: what the launch asks for, and what the function declares."""
    dynamic = taken.dynamic_shared_bytes
    return f"{'?' if dynamic is None else dynamic} B dynamic, {taken.shared_bytes} B static"


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
        "target fingerprint": told.fingerprint,
    }
    files = [
        f"{name}, {format_bytes(artifact.file(name).stat().st_size)}" for name in sorted(told.files)
    ]
    _print_rows(console, [*rows.items(), *(("file", file) for file in files)])
    if details.resources:
        print_resources(console, details.resources, SHOWN_KINDS)
        ways = "--source, --launch-record, --resources, --ptx, --sass, --log"
        console.print(Text(f"more options: {ways}", style="dim"), soft_wrap=True)


def print_resources(
    console: Console, resources: Sequence[Resources], kinds: int | None = None
) -> None:
    """A line per figure of each device function; ``kinds`` of instructions in one, or all in a line each."""
    for taken in resources:
        cells = describe_resources(taken, kinds)
        rows = {
            "function": taken.symbol,
            "registers": cells["regs"],
            "spills": cells["spills"],
            "stack": f"{taken.stack_bytes} B",
            "shared": f"{cells['shared']} ({describe_shared(taken)})",
            "parameters": f"{taken.parameter_bytes} B",
            "threads": cells["threads"],
            "occupancy": cells["occ."],
            "code": cells["code"],
            "mix": cells["mix"] if kinds else "",
        }
        mix = {} if kinds else {kind: count for kind, count in taken.mix.items() if kind != PADDING}
        counts = [("instructions", f"{count:>6} {kind}") for kind, count in mix.items()]
        _print_rows(console, [*rows.items(), *counts])


def _print_rows(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    for name, value in rows:
        if value:
            console.print(Text(f"{name:>{NAME_WIDTH}}  {value}"), soft_wrap=True, highlight=False)


def print_artifacts(console: Console, artifacts: Mapping[str, "Artifact"], bundle: str) -> None:
    """The cases of a bundle, by name, with what each takes where that is known, and how to inspect one."""
    figures = COLUMNS[1:-1]
    table = new_table(("case", *figures), left=("case",))
    for name, artifact in artifacts.items():
        found = read_reported(artifact.manifest.details).resources
        cells = describe_resources(found[0]) if found else dict.fromkeys(COLUMNS, "")
        table.add_row(name, *(cells[figure] for figure in figures))
    print_table(console, table, spare=SPARE, joins_equal=True)
    hint = f"inspect with: tileyard inspect {bundle}::{next(iter(artifacts))}"
    console.print(Text(hint, style="dim"), soft_wrap=True)
