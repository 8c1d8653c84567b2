"""What ``plan`` is asked for."""

from typing import Annotated, Literal, TypedDict

from tileyard.requests.options import FileOption, Home, Option, Text, TimeOption
from tileyard.requests.suites import (
    DurationsPattern,
    ParameterValues,
    PieceLength,
    PolicyName,
    Selected,
    Skipped,
    TargetName,
)
from tileyard.requests.values import FilePath, Time


class PlanOptions(TypedDict, total=False):
    """The options of ``plan``."""

    durations: Annotated[
        FilePath, FileOption("How long cases took: CSV, .test_durations, JUnit, log.")
    ]
    durations_pattern: DurationsPattern
    slots: Annotated[
        int | None, Option("How many cases run at once; else one a core.", metavar="N")
    ]
    split: PieceLength
    case_time: Annotated[
        Time | None, TimeOption("Imported testcases consist of cases of this length.")
    ]
    startup: Annotated[
        Time | None,
        TimeOption(
            "Start-up time of a process, before its first case; by default as in the suite's last run."
        ),
    ]
    launch: Annotated[
        Time | None,
        TimeOption(
            "The part of it in which no other process can start; by default as in the suite's last run."
        ),
    ]
    lead: Annotated[
        Time | None,
        TimeOption(
            "Time before the first process can start; by default as in the suite's last run."
        ),
    ]
    per: Annotated[
        Literal["piece", "case"],
        Option("Run one process per piece, or one per case.", default="piece"),
    ]
    policy: PolicyName
    select: Selected
    skip: Skipped
    set: ParameterValues
    target: TargetName
    class_: Annotated[str, Text("Only times of devices of this class.", metavar="CLASS")]
    shard: Annotated[str, Text("The I-th of N equal parts.", metavar="I/N")]
    budget: Annotated[Time | None, TimeOption("The most valuable cases that fit.")]
    home: Home
