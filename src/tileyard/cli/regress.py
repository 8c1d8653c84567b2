"""``tileyard regress``: what got slower from one version to another, and how sure that is."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from tileyard.cli.kernel_options import SIDES, BuildLimit, DeviceNames, QueueLimit, RunLimit
from tileyard.cli.suite_options import Selected
from tileyard.cli.values import parse_duration_s, parse_share, refuse_unused
from tileyard.errors import UsageError
from tileyard.targets.registry import DEFAULT_TARGET


def regress(  # noqa: PLR0913 - options, by keyword only
    base: Annotated[
        str | None,
        typer.Argument(
            metavar="BASE",
            help=f"What to compare with: {SIDES}. Or what is built already: a bundle FILE.tyb, or run:ID. "
            "Or, without FILEs, numbers of others: pytest-benchmark's JSON, or what TileLang's benchmarks print.",
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Argument(metavar="HEAD", help="What is compared, likewise.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE[::NAME]... | SUITE",
            help="Where the kernels are; or a suite of programs: its suite.toml, or its folder.",
        ),
    ] = None,
    *,
    fail_over: Annotated[
        str,
        typer.Option(
            metavar="PERCENT",
            help="Fail only where a kernel is known to be slower by more than this; by default by more than the margin.",
        ),
    ] = "",
    fail_on: Annotated[
        str,
        typer.Option(
            metavar="LIMITS",
            help="Fail also where a figure of the binary gets worse: registers:+5%,spills:+0,occupancy:-10%.",
        ),
    ] = "",
    allow: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML: what else fails nothing, with owner, reason and last day; margins of single cases.",
        ),
    ] = None,
    reports: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="In place of all that: reports of others with a number for each side, in Markdown or JSON; repeatable.",
        ),
    ] = None,
    select: Selected = None,
    target: Annotated[
        str, typer.Option(help="What to compile for: cpu, or what a side was built for already.")
    ] = "",
    devices: DeviceNames = None,
    margin: Annotated[
        str, typer.Option(metavar="PERCENT", help="The smallest change that matters.")
    ] = "2%",
    each: Annotated[
        str, typer.Option(metavar="TIME", help="Time no kernel for longer than this.")
    ] = "30s",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time nothing more after 60s, 5m, ...")
    ] = "",
    all_configs: Annotated[
        bool,
        typer.Option("--all-configs", help="All configs of each space, not the first one only."),
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Refuse a working tree with changes.")
    ] = False,
    queue_limit: QueueLimit = "30m",
    run_limit: RunLimit = "60s",
    build_limit: BuildLimit = "120s",
    compile_workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that build; by default one for each core.")
    ] = None,
    summary: Annotated[
        str, typer.Option(metavar="FILE", help="Also write a comment for a pull request: Markdown.")
    ] = "",
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the intervals: a PNG. Takes matplotlib."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Time the same kernels or programs of two versions against each other. Where both give the same binary nothing is run.

    Base and head are timed in turn, in one process after the other, until the interval of their ratio lies on one side of
    the margin, and so is base against itself. A kernel that a side lacks or cannot build is a row, too.

    Exit status: 0 nothing is worse, 1 a kernel is slower by more than the margin or --fail-over, wrong, missing, new or
    beyond a limit of --fail-on, and not allowed, 2 bad usage, 3 infrastructure only, 130 interrupted.
    """
    from tileyard.cli.regress_session import (
        Asked,
        Shown,
        judge_reports,
        judge_sides,
        read_gate,
        run,
    )
    from tileyard.cli.regress_suite import find_suite, run_suite
    from tileyard.cli.sides import is_stored
    from tileyard.regress.gate import Gate
    from tileyard.regress.limits import parse_limits
    from tileyard.report.console import Console

    shown = Shown(summary=summary, png=png, as_json=json)
    today = datetime.datetime.now(tz=datetime.UTC).astimezone().date()
    limit = parse_share(fail_over) if fail_over else 0.0
    gate = read_gate(
        allow,
        Gate(
            margin=parse_share(margin), fail_over=limit, limits=parse_limits(fail_on), today=today
        ),
    )
    if reports:
        refuse_unused("with --reports", {"BASE": base, "--fail-on": fail_on})
        return shown.show(judge_reports(reports, gate))
    if base is None or head is None:
        raise UsageError(
            "two sides are compared: BASE HEAD FILE...", "or reports of others: --reports FILE"
        )
    stored = [side for side in (base, head) if is_stored(side)]
    if stored:
        refuse_unused("where a side is built already", {"--all-configs": all_configs})
        if len(stored) == 1 and not files:
            raise UsageError(
                f"{stored[0]} is built: name the FILEs or the suite of the other side, too"
            )
        if len(stored) == 2:
            refuse_unused("where both sides are built already", {"FILE": files})
    elif not files:
        refuse_unused("on numbers of others", {"--fail-on": fail_on})
        return shown.show(judge_sides(base, head, gate))
    asked = Asked(
        base=base,
        head=head,
        files=tuple(files or ()),
        select=tuple(select or ()),
        target=target or ("" if stored else DEFAULT_TARGET),
        devices=tuple(devices or ()),
        gate=gate,
        case_s=parse_duration_s(each),
        budget_s=parse_duration_s(budget) if budget else None,
        all_configs=all_configs,
        clean=clean,
        queue_limit_s=parse_duration_s(queue_limit),
        run_s=parse_duration_s(run_limit),
        build_s=parse_duration_s(build_limit),
        compile_workers=compile_workers,
    )
    if suite := find_suite(asked.files):
        return shown.show(run_suite(asked, suite, Console(stderr=json)))
    if not stored:
        refuse_unused("without a suite or a side that is built", {"--select": select})
    return shown.show(run(asked, Console(stderr=json)))
