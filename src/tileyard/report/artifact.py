"""An artifact for people: what it is, what lies in it, and what it takes of a device."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tileyard.artifacts.manifest import Artifact
from tileyard.report.compiled import COLUMNS, describe_resources
from tileyard.report.console import new_table
from tileyard.report.words import format_bytes
from tileyard.targets.reported import Resources, read_reported


def print_artifact(console: Console, artifact: Artifact) -> None:
    """Its keys, what made it, its files, and what it takes where that is known."""
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
        ways = "--source, --launch, --resources, --ptx, --sass, --log"
        console.print(Text(f"more of it: {ways}", style="dim"), soft_wrap=True)


def print_resources(console: Console, resources: Sequence[Resources]) -> None:
    """One row for each device function."""
    table = new_table(COLUMNS, left=("kernel", "mix"), wrapped=COLUMNS)
    for taken in resources:
        table.add_row(*describe_resources(taken).values())
    console.print(table)
