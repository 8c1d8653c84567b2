"""Options that several verbs about suites share, and the requests that follow."""

from typing import Annotated, Literal

from tileyard.base.errors import UsageError
from tileyard.show.options import Option, Text
from tileyard.show.values import FilePath, Names, Pairs, Time, read_time_s

PolicyName = Annotated[str, Option("full, smoke, or a policy of the suite's own.", default="full")]
Selected = Annotated[
    Names,
    Option(
        "Cases by id, glob or tag; also joined, as in 'rows and not f16'.",
        metavar="TEXT",
        flags=("--select", "--case", "-k"),
    ),
]
Skipped = Annotated[Names, Option("Leave these cases out, named as for --select.", metavar="TEXT")]
ONLY_CLASS = "Only what ran on devices of this class."
EXPECTED_TIMES = "Times of cases: CSV, .test_durations, JUnit, log, or a folder of JUnit files."
Durations = Annotated[
    FilePath,
    Option(
        EXPECTED_TIMES,
        metavar="FILE|DIR",
    ),
]
PartOf = Annotated[
    str,
    Text(
        "Run part I of N: parts have equal expected time with --durations, else equal numbers of cases.",
        metavar="I/N",
    ),
]
CaseSlots = Annotated[
    int | None,
    Option(
        "Number of cases that run at once; by default one for each core, in ci matrix 1.",
        metavar="N",
        least=1,
    ),
]
ParameterValues = Annotated[
    Pairs,
    Option(
        "A value of a parameter of the suite; by default its first.",
        metavar="NAME=VALUE",
        flags=("--set",),
    ),
]
DurationsPattern = Annotated[
    str,
    Text(
        "Expression for the lines of --durations that have a time: with (?P<case>...) and (?P<seconds>...).",
        metavar="REGEX",
    ),
]
PieceLength = Annotated[
    Time,
    Option("Maximum length of a piece of a testcase.", metavar="auto|off|TIME", default="auto"),
]


def read_some_s(option: str, given: Time | None) -> float:
    """A time, 0 if none is requested; a time of length 0 is refused."""
    seconds = 0.0 if given is None else read_time_s(option, given)
    if given is not None and not seconds:
        raise UsageError(f"{option}: {given!r} holds no case")
    return seconds


def read_split(given: Time) -> float | Literal["auto", "off"]:
    """Maximum length of pieces: a time, or one of these words."""
    match given:
        case "auto":
            return "auto"
        case "off":
            return "off"
        case _:
            return read_some_s("--split", given)
