"""Options that several verbs about suites share, and the requests that follow."""

from functools import partial
from typing import Annotated, Literal

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.show.kernel_options import BUDGET
from tileyard.show.options import FileOption, NamesOption, Option, Text, TimeOption
from tileyard.show.values import FilePath, Names, Pairs, Time, read_texts, read_time_s

EVERYTHING = "full"
"""The policy that selects all cases."""


class Wish(Record):
    """The requested selection. ``rerun`` are the ids of cases to run again, None if all may run.

    ``select`` and ``skip`` contain texts as ``choosing.find_meant`` reads them: a case must match one
    of ``select``, if there is any, and none of ``skip``.
    """

    policy: str = EVERYTHING
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    rerun: tuple[str, ...] | None = None


def read_some_s(given: Time | None, option: str) -> float:
    """A time, 0 if none is requested; a time of length 0 is refused."""
    seconds = read_time_s(given, option) or 0.0
    if given is not None and not seconds:
        raise UsageError(f"{option}: {given!r} holds no case")
    return seconds


def _read_split(given: Time, option: str) -> float | Literal["auto", "off"]:
    """Maximum length of pieces: a time, or one of these words."""
    match given:
        case "auto":
            return "auto"
        case "off":
            return "off"
        case _:
            return read_some_s(given, option)


PolicyName = Annotated[
    str, Option("full, smoke, or a policy of the suite's own.", default=EVERYTHING)
]
Selected = Annotated[
    Names,
    NamesOption(
        "Cases by id, glob or tag; also joined, as in 'rows and not f16'.",
        metavar="TEXT",
        flags=("--select", "--case", "-k"),
    ),
]
Skipped = Annotated[
    Names, NamesOption("Leave these cases out, named as for --select.", metavar="TEXT")
]
ONLY_CLASS = "Only what ran on devices of this class."
EXPECTED_TIMES = "Times of cases: CSV, .test_durations, JUnit, log, or a folder of JUnit files."
Durations = Annotated[
    FilePath,
    FileOption(
        EXPECTED_TIMES,
        metavar="FILE|DIR",
    ),
]
SuiteBudget = Annotated[
    Time | None,
    TimeOption(f"{BUDGET}; the most valuable cases that fit are chosen.", read=read_some_s),
]
ToolchainFile = Annotated[FilePath, FileOption("A toolchain bundle for the steps.")]
PartOf = Annotated[
    str,
    Text(
        "Run part I of N: parts have equal expected time with --durations, else equal numbers of cases.",
        metavar="I/N",
    ),
]
SlotsOption = partial(Option, metavar="N", least=1)
CaseSlots = Annotated[
    int | None, SlotsOption("Number of cases that run at once; by default one for each core.")
]
ParameterValues = Annotated[
    Pairs,
    Option(
        "A value of a parameter of the suite; by default its first.",
        metavar="NAME=VALUE",
        flags=("--set",),
        read=read_texts,
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
    Option(
        "Maximum length of a piece of a testcase.",
        metavar="auto|off|TIME",
        default="auto",
        read=_read_split,
    ),
]
