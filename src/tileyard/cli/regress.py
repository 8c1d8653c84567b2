"""``tileyard regress``: what got slower from one version to another, and how sure that is."""

from typing import Annotated

import typer

from tileyard.cli.kernel_options import BuildLimit, DeviceNames, QueueLimit, RunLimit
from tileyard.cli.suite_options import Selected
from tileyard.cli.values import parse_duration_s, parse_share, refuse_unused
from tileyard.errors import UsageError


def regress(  # noqa: PLR0913 - options, by keyword only
    base: Annotated[
        str | None,
        typer.Argument(
            metavar="BASE",
            help="What to compare with: a git revision of the project, . for its working tree, a Python or "
            "virtual environment with another TileLang, packages for one that is made (pip:tilelang==0.1.14), or "
            "pass options KEY=VALUE,KEY=VALUE. Or, without FILEs, numbers of others: "
            "pytest-benchmark's JSON, or what TileLang's benchmarks print.",
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
    reports: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="In place of all that: reports of others with a number for each side, in Markdown or JSON; repeatable.",
        ),
    ] = None,
    select: Selected = None,
    target: Annotated[str, typer.Option(help="What to compile for.")] = "cpu",
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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Time the same kernels or programs of two versions against each other. Where both give the same binary nothing is run.

    Base and head are timed in turn, in one process after the other, until the interval of their ratio lies on one side of
    the margin, and so is base against itself. A kernel that head lacks or cannot build is a row, too.

    Exit status: 0 nothing is worse, 1 a kernel is slower by more than the margin, wrong, or missing, 2 bad usage,
    3 infrastructure only, 130 interrupted.
    """
    from tileyard.cli.regress_session import Asked, judge_reports, judge_sides, run, show
    from tileyard.cli.regress_suite import find_suite, run_suite
    from tileyard.report.console import Console

    share = parse_share(margin)
    if reports:
        refuse_unused("with --reports", {"BASE": base})
        return show(judge_reports(reports, share), summary, as_json=json)
    if base is None or head is None:
        raise UsageError(
            "two sides are compared: BASE HEAD FILE...", "or reports of others: --reports FILE"
        )
    if not files:
        return show(judge_sides(base, head, share), summary, as_json=json)
    asked = Asked(
        base=base,
        head=head,
        files=tuple(files),
        select=tuple(select or ()),
        target=target,
        devices=tuple(devices or ()),
        margin=share,
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
        return show(run_suite(asked, suite, Console(stderr=json)), summary, as_json=json)
    refuse_unused("without a suite", {"--select": select})
    return show(run(asked, Console(stderr=json)), summary, as_json=json)
