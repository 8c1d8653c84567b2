"""Options that several commands about suites have, worded once."""

from typing import Annotated, Literal

import typer

from tileyard.cli.durations import parse_duration_s
from tileyard.errors import UsageError

PolicyName = Annotated[str, typer.Option(help="full, smoke, or a policy of the suite's own.")]
Selected = Annotated[
    list[str] | None,
    typer.Option("--select", "--case", metavar="TEXT", help="Cases by id, glob or tag."),
]
Skipped = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="TEXT", help="Leave these cases out, named as for --select."),
]
TargetName = Annotated[str, typer.Option(help="What kernels are compiled for.")]
ParameterValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A value of a parameter of the suite; else its first."
    ),
]
DurationsPattern = Annotated[
    str,
    typer.Option(
        metavar="REGEX",
        help="Which lines of --durations have a time: with (?P<case>...) and (?P<seconds>...).",
    ),
]
PieceLength = Annotated[
    str, typer.Option(metavar="auto|off|TIME", help="How long a piece of a testcase may be.")
]


def parse_time_s(option: str, text: str) -> float:
    """A time; the message of a bad one names the option."""
    try:
        return parse_duration_s(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}") from error


def parse_some_s(option: str, text: str) -> float:
    """0 where nothing is asked for; a time of no length is refused."""
    seconds = parse_time_s(option, text) if text else 0.0
    if text and not seconds:
        raise UsageError(f"{option}: {text!r} holds no case")
    return seconds


def parse_split(text: str) -> float | Literal["auto", "off"]:
    """How long pieces may be: a time, or one of these words."""
    match text:
        case "auto":
            return "auto"
        case "off":
            return "off"
        case _:
            return parse_some_s("--split", text)
