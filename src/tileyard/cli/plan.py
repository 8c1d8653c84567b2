"""``tileyard plan``: what a suite's run would come to, without running anything."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tileyard.cli.suite_options import (
    DurationsPattern,
    ParameterValues,
    PieceLength,
    PolicyName,
    Selected,
    Skipped,
    TargetName,
    parse_some_s,
    parse_split,
    parse_time_s,
)
from tileyard.cli.values import parse_pairs, refuse_unused
from tileyard.errors import UsageError


def plan(  # noqa: PLR0913 - options, by keyword only
    suite: Annotated[
        Path | None, typer.Argument(help="suite.toml or a folder; none where times are imported.")
    ] = None,
    *,
    durations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How long cases took: CSV, .test_durations, JUnit, log."),
    ] = None,
    durations_pattern: DurationsPattern = "",
    slots: Annotated[
        int | None, typer.Option(metavar="N", help="How many cases run at once; else one a core.")
    ] = None,
    split: PieceLength = "auto",
    case_time: Annotated[
        str,
        typer.Option(metavar="TIME", help="Imported testcases consist of cases of this length."),
    ] = "",
    startup: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="What each process needs before its first case; else as the suite's last run says.",
        ),
    ] = "",
    launch: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="For so much of that no other process can start; else as the suite's last run says.",
        ),
    ] = "",
    lead: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="What passes before the first process can start; else as the suite's last run says.",
        ),
    ] = "",
    per: Annotated[
        Literal["piece", "case"], typer.Option(help="What has a process of its own.")
    ] = "piece",
    policy: PolicyName = "full",
    select: Selected = None,
    skip: Skipped = None,
    parameters: ParameterValues = None,
    target: TargetName = "cpu",
    device_class: Annotated[
        str,
        typer.Option("--class", metavar="CLASS", help="Only times of devices of this class."),
    ] = "",
    shard: Annotated[str, typer.Option(metavar="I/N", help="The I-th of N equal parts.")] = "",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="The most valuable cases that fit.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Predict how long a suite runs on some slots, what decides that, and what is usual instead.

    Times come from the store, or from a file of another tool with --durations; then no suite is needed.
    Nothing is built, and nothing is run but what lists a suite's cases.

    Exit status: 0, or 2 for bad usage and where no case is selected.
    """
    from tileyard.cli.plan_session import Times, run
    from tileyard.suite.records import Wish
    from tileyard.suite.shards import parse_shard

    if case_time and suite is not None:
        raise UsageError("--case-time is for imported times: a suite's cases are known")
    if suite is None and (policy != "full" or select or skip or device_class):
        raise UsageError(
            "--policy, --select, --skip and --class choose of a suite, and none is named"
        )
    if suite is None:
        refuse_unused("without a suite", {"--set": parameters})
    if durations is None:
        refuse_unused("without --durations", {"--durations-pattern": durations_pattern})
    costs = {"startup": startup, "launch": launch, "lead": lead}
    run(
        suite=suite,
        parameters=parse_pairs(parameters or (), "--set"),
        times=None if durations is None else Times(durations, durations_pattern),
        case_s=parse_some_s("--case-time", case_time),
        slots=slots,
        split=parse_split(split),
        costs_s={f"{name}_s": parse_time_s(f"--{name}", t) for name, t in costs.items() if t},
        per=per,
        wish=Wish(policy=policy, select=tuple(select or ()), skip=tuple(skip or ())),
        target=target,
        device_class=device_class,
        shard=parse_shard(shard) if shard else None,
        budget_s=parse_some_s("--budget", budget),
        as_json=json,
    )
    return 0
