"""Describes a garbage collection: what was removed, what is left, and what could not be removed."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from tileyard.artifacts.collection import Collection
from tileyard.show.words import clean_line, format_bytes


def print_collection(console: Console, done: Collection, home: Path) -> None:
    """Print one line for each kind of removed thing, and one for the total."""
    for freed in done.freed:
        size = format_bytes(freed.size)
        console.print(Text(f"{size:>9}  {freed.count} {clean_line(freed.what)}"), soft_wrap=True)
    verb = "would free" if done.is_dry else "freed"
    line = (
        f"{verb} {format_bytes(done.freed_bytes)} in {home}, {format_bytes(done.kept_bytes)} stay"
    )
    console.print(Text(clean_line(line)), soft_wrap=True)
    if done.in_use_bytes:
        why = "a run that goes on may use it" if done.pinned_since else "it was used meanwhile"
        line = f"{format_bytes(done.in_use_bytes)} more should go and stay: {why}"
        console.print(Text(line, style="yellow"), soft_wrap=True)
