"""How values are written on the command line."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import typer

from tileyard.cli.durations import parse_duration_s as parse_duration_s
from tileyard.errors import UsageError

if TYPE_CHECKING:
    from tileyard.model import Value


def parse_value(text: str) -> "Value":
    """An int, a float, ``true`` or ``false``; anything else is text."""
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def refuse_unused(why: str, given: Mapping[str, object]) -> None:
    """Raise UsageError for the first option that is given and has no effect; empty values are not given."""
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} has no effect {why}")


def parse_pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """``KEY=TEXT`` items; a key that is given twice is an error."""
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not (key and equals and text):
            raise typer.BadParameter(f"{option} {item!r} is not of the form KEY=VALUE")
        if key in pairs:
            raise typer.BadParameter(f"{option} {key} is given twice")
        pairs[key] = text
    return pairs


def parse_share(text: str) -> float:
    """``2%`` or ``0.02``: a share of more than 0 and less than 1."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise typer.BadParameter(f"{text!r} is not a share such as 2% or 0.02")
    return share


def parse_bytes(text: str) -> int:
    """``512MiB``, ``8GiB``, ``10G`` (likewise a power of 1024) or a plain number of bytes."""
    match = re.fullmatch(r"(\d+)\s*(?:([KMGT])(?:iB)?)?", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 512MiB or 8GiB")
    size = int(match[1][:40]) << 10 * (" KMGT".index(match[2]) if match[2] else 0)
    if size >> 60:
        raise typer.BadParameter(f"{text[:40]!r} is more than there can be")
    return size


def parse_count(text: str, option: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{option} {text!r} is neither auto nor a number from 1")
    return int(text)
