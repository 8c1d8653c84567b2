"""``tileyard plan``: what a suite's run would come to, without running anything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tileyard.cli.durations import parse_duration_s
from tileyard.errors import UsageError

if TYPE_CHECKING:
    from tileyard.suite.plan import Split


def plan(  # noqa: PLR0913 - options, by keyword only
    suite: Annotated[
        Path | None, typer.Argument(help="suite.toml or a folder; none where times are imported.")
    ] = None,
    *,
    durations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How long cases took: CSV, .test_durations, JUnit, log."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(metavar="N", help="How many cases run at once; else one a core.")
    ] = None,
    split: Annotated[
        str, typer.Option(metavar="auto|off|TIME", help="How long a piece of a testcase may be.")
    ] = "auto",
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
        str, typer.Option(metavar="TIME", help="For so much of that no other process can start.")
    ] = "0s",
    lead: Annotated[
        str, typer.Option(metavar="TIME", help="What passes before the first process can start.")
    ] = "0s",
    per: Annotated[
        Literal["piece", "case"], typer.Option(help="What has a process of its own.")
    ] = "piece",
    policy: Annotated[
        str, typer.Option(help="full, smoke, or a policy of the suite's own.")
    ] = "full",
    select: Annotated[
        list[str] | None,
        typer.Option("--select", "--case", metavar="TEXT", help="Cases by id, glob or tag."),
    ] = None,
    target: Annotated[str, typer.Option(help="What kernels are compiled for.")] = "cpu",
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
    from tileyard.cli.plan_session import PlanRequest, run
    from tileyard.suite.records import Wish
    from tileyard.suite.shards import parse_shard

    if case_time and suite is not None:
        raise UsageError("--case-time is for imported times: a suite's cases are known")
    if suite is None and (policy != "full" or select or device_class):
        raise UsageError("--policy, --select and --class choose of a suite, and none is named")
    return run(
        PlanRequest(
            suite=suite,
            durations=durations,
            case_s=_parse_some("--case-time", case_time),
            slots=slots,
            split=_parse_split(split),
            startup_s=_parse("--startup", startup) if startup else None,
            launch_s=_parse("--launch", launch),
            lead_s=_parse("--lead", lead),
            per=per,
            wish=Wish(policy=policy, select=tuple(select or ())),
            target=target,
            device_class=device_class,
            shard=parse_shard(shard) if shard else None,
            budget_s=_parse_some("--budget", budget),
            as_json=json,
        )
    )


def _parse(option: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}") from error


def _parse_some(option: str, text: str) -> float:
    """0 where nothing is asked for; a time of no length is refused."""
    seconds = _parse(option, text) if text else 0.0
    if text and not seconds:
        raise UsageError(f"{option}: {text!r} holds no case")
    return seconds


def _parse_split(text: str) -> "Split":
    match text:
        case "auto":
            return "auto"
        case "off":
            return "off"
        case _:
            return _parse_some("--split", text)
