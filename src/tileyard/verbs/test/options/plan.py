"""The options of ``plan``."""

from typing import Annotated, Literal, TypedDict

from tileyard.show.kernel_options import TargetName
from tileyard.show.options import Home, Option, Text, TimeOption
from tileyard.show.values import Time
from tileyard.verbs.test.options.suites import (
    ONLY_CLASS,
    CaseSlots,
    Durations,
    DurationsPattern,
    ParameterValues,
    PartOf,
    PieceLength,
    PolicyName,
    Selected,
    Skipped,
    SuiteBudget,
    read_some_s,
)


class PlanOptions(TypedDict, total=False):
    """The options of ``plan``."""

    durations: Durations
    durations_pattern: DurationsPattern
    slots: CaseSlots
    split: PieceLength
    case_time: Annotated[
        Time | None, TimeOption("Length of the cases of imported testcases.", read=read_some_s)
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
            "The part of --startup in which no other process can start; by default as in the "
            "suite's last run."
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
    class_: Annotated[str, Text(ONLY_CLASS, metavar="CLASS")]
    shard: PartOf
    budget: SuiteBudget
    home: Home
