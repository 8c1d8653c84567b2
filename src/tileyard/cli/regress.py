"""``tileyard regress``: what got slower from one version to another, and how sure that is; ``static`` is its part without a device."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from tileyard.cli.kernel_options import (
    SIDES,
    USUAL_EACH,
    USUAL_MARGIN,
    AllConfigs,
    BuildLimit,
    CompileWorkers,
    DeviceNames,
    QueueLimit,
    RunLimit,
    SmallestChange,
    TimeEach,
)
from tileyard.cli.script_options import Higher, Printed, Scripts, read_measure
from tileyard.cli.suite_options import Selected
from tileyard.cli.values import parse_duration_s, parse_share, refuse_unused
from tileyard.errors import UsageError
from tileyard.targets.registry import DEFAULT_TARGET


def regress(  # noqa: PLR0913 - options, by keyword only
    context: typer.Context,
    base: Annotated[
        str | None,
        typer.Argument(
            metavar="BASE",
            help=f"What to compare with: {SIDES}. Or what is built already: a bundle FILE.tyb, or run:ID; or a toolchain FILE.tyb for a suite's steps. "
            "Or, without FILEs, numbers of others: pytest-benchmark's JSON, or what TileLang's benchmarks print.",
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Argument(metavar="HEAD", help="What is compared, likewise.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE[::NAME]... | SUITE[::CASE] | SCRIPT...",
            help="Where the kernels are; or a suite of programs: its suite.toml, or its folder; or with --exec scripts.",
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
            help="Fail also where a figure of the binary gets worse: registers:+5%,spills:+0,occupancy:-10%. "
            "With --static nothing else fails, but for kernels that head lost, which missing alone asks for.",
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
    noise_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Earlier numbers of others, of the same form, which say how large the noise is; repeatable.",
        ),
    ] = None,
    select: Selected = None,
    scripts: Scripts = False,
    printed: Printed = "",
    higher: Higher = False,
    static: Annotated[
        bool,
        typer.Option(
            "--static",
            help="Compare what compilers made of the kernels: registers, spills, code, instructions, ... Nothing is run.",
        ),
    ] = False,
    repeat: Annotated[
        int,
        typer.Option(
            min=0,
            help="With --static: build so many times more, in turn, to tell build times apart.",
        ),
    ] = 0,
    target: Annotated[
        str,
        typer.Option(
            help="What to compile for; by default what a side was built for already, or cpu, with --static cuda:sm_90a."
        ),
    ] = "",
    devices: DeviceNames = None,
    margin: SmallestChange = "",
    each: TimeEach = "",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time nothing more after 60s, 5m, ...")
    ] = "",
    all_configs: AllConfigs = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Refuse a working tree with changes.")
    ] = False,
    queue_limit: QueueLimit = "30m",
    run_limit: RunLimit = "60s",
    build_limit: BuildLimit = "120s",
    compile_workers: CompileWorkers = None,
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
    the margin, and so is base against itself. A kernel that a side lacks or cannot build is a row, too. With --static no device
    is needed, pass options take the place of a kernel's own of the same names, and what is built is thrown away.

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
    from tileyard.cli.sides import is_stored, refuse_toolchains
    from tileyard.regression.gate import Gate
    from tileyard.regression.limits import parse_limits
    from tileyard.report.console import Console

    is_static = static or context.info_name == "static"
    unused: dict[str, object] = {"--repeat": repeat}
    if is_static:
        unused = {
            "--reports": reports,
            "--fail-over": fail_over,
            "--devices": devices,
            "--margin": margin,
            "--each": each,
            "--budget": budget,
            "--png": png,
            "--exec": scripts,
        }
    refuse_unused("with --static" if is_static else "without --static", unused)
    for_kernels = {
        "--select": select,
        "--reports": reports,
        "--target": target,
        "--all-configs": all_configs,
        "--fail-on": fail_on,
    }
    measure = read_measure(files or (), printed, for_kernels, scripts=scripts, higher=higher)
    shown = Shown(summary=summary, png=png, as_json=json)
    today = datetime.datetime.now(tz=datetime.UTC).astimezone().date()
    limit = parse_share(fail_over) if fail_over else 0.0
    gate = read_gate(
        allow,
        Gate(
            margin=parse_share(margin or USUAL_MARGIN),
            fail_over=limit,
            limits=parse_limits(fail_on),
            today=today,
            faults="all" if not is_static else "lost" if fail_on else "none",
        ),
        timed_builds=repeat,
    )
    if reports:
        refuse_unused("with --reports", {"BASE": base, "--fail-on": fail_on})
        return shown.show(judge_reports(reports, gate, noise_from or ()))
    if base is None or head is None:
        raise UsageError(
            "two sides are compared: BASE HEAD FILE...", "or reports of others: --reports FILE"
        )
    if not files:
        refuse_toolchains((base, head))
    stored = [side for side in (base, head) if is_stored(side)]
    if is_static and (stored or not files):
        raise UsageError("--static builds two sides of kernels: BASE HEAD FILE...")
    if stored:
        refuse_unused(
            "where a side is built already", {"--all-configs": all_configs, "--exec": scripts}
        )
        if len(stored) == 1 and not files:
            raise UsageError(
                f"{stored[0]} is built: name the FILEs or the suite of the other side, too"
            )
        if len(stored) == 2:
            refuse_unused("where both sides are built already", {"FILE": files})
    elif not files:
        refuse_unused("on numbers of others", {"--fail-on": fail_on, "--exec": scripts})
        return shown.show(judge_sides(base, head, gate, noise_from or ()))
    refuse_unused("but on numbers of others", {"--noise-from": noise_from})
    asked = Asked(
        base=base,
        head=head,
        files=tuple(files or ()),
        select=tuple(select or ()),
        scripts=scripts,
        measure=measure,
        rounds=repeat + 1 if is_static else 0,
        target=target or ("cuda:sm_90a" if is_static else "" if stored else DEFAULT_TARGET),
        devices=tuple(devices or ()),
        gate=gate,
        case_s=parse_duration_s(each or USUAL_EACH),
        budget_s=parse_duration_s(budget) if budget else None,
        all_configs=all_configs,
        clean=clean,
        queue_limit_s=parse_duration_s(queue_limit),
        run_s=parse_duration_s(run_limit),
        build_s=parse_duration_s(build_limit),
        compile_workers=compile_workers,
    )
    return shown.show(run(asked, Console(stderr=json)))
