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
            "What each process needs before its first case; else as the suite's last run says."
        ),
    ]
    launch: Annotated[
        Time | None,
        TimeOption(
            "For so much of that no other process can start; else as the suite's last run says."
        ),
    ]
    lead: Annotated[
        Time | None,
        TimeOption(
            "What passes before the first process can start; else as the suite's last run says."
        ),
    ]
    per: Annotated[
        Literal["piece", "case"], Option("What has a process of its own.", default="piece")
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
