"""``tileyard test``: run a suite of cases."""

from pathlib import Path
from typing import Annotated

import typer

from tileyard.cli.kernel_options import CheckSync, GoldenThreads, RequireCheck
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


def run_suite(  # noqa: PLR0913 - options, by keyword only
    suite: Annotated[
        str, typer.Argument(help="suite.toml, a folder, or a Python file of kernels.")
    ] = "",
    *,
    from_bundle: Annotated[
        str, typer.Option("--from", metavar="FILE", help="Run a suite that was built elsewhere.")
    ] = "",
    policy: PolicyName = "full",
    select: Selected = None,
    skip: Skipped = None,
    parameters: ParameterValues = None,
    target: TargetName = "cpu",
    devices: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Run on these; again for more of them.")
    ] = None,
    slots: Annotated[
        int, typer.Option(min=0, help="How many cases run at once without devices; 0: one a core.")
    ] = 0,
    split: PieceLength = "auto",
    shard: Annotated[
        str,
        typer.Option(
            metavar="I/N",
            help="Run the I-th of N parts, alike in what --durations says or in number.",
        ),
    ] = "",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Run the most valuable cases that fit.")
    ] = "",
    changed: Annotated[
        str, typer.Option(metavar="RUN|any", help="Skip what passed there with the same content.")
    ] = "",
    why: Annotated[
        bool, typer.Option("--why", help="Say of each case what --changed decided by.")
    ] = False,
    durations: Annotated[
        Path | None, typer.Option(metavar="FILE", help="How long cases took elsewhere.")
    ] = None,
    durations_pattern: DurationsPattern = "",
    rerun_failed: Annotated[
        bool, typer.Option("--rerun-failed", help="Run what failed in the last run of the suite.")
    ] = False,
    retries: Annotated[
        int | None, typer.Option(min=0, help="Run a case that fails so often again.")
    ] = None,
    toolchain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A toolchain bundle for the steps.")
    ] = None,
    commit: Annotated[str, typer.Option(help="What toolchain and bundle must be of.")] = "",
    require_check: RequireCheck = False,
    check_sync: CheckSync = None,
    golden_threads: GoldenThreads = None,
    compile_workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that build.")
    ] = None,
    queue_limit: Annotated[
        str, typer.Option(metavar="TIME", help="Wait no longer than this for a device.")
    ] = "30m",
    keep_work: Annotated[
        bool, typer.Option("--keep-work", help="Keep the work folders of passed cases, too.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as JSON.")
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy what each case printed to CASE.log.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Run a suite: every selected case is built, run and checked, and ends with one verdict.

    Exit status: 0 all well, 1 a case failed, 2 bad usage or nothing selected, 3 infrastructure only,
    130 interrupted.
    """
    from tileyard.cli.suite_session import Files, run
    from tileyard.report.suite_words import rerun_command
    from tileyard.service.verbs import StartTest
    from tileyard.suite.records import Wish

    if bool(suite) == bool(from_bundle):
        raise UsageError("name a suite, or with --from the bundle of one")
    if devices:
        refuse_unused("with --devices: as many cases run at once", {"--slots": slots})
    if not (toolchain or from_bundle):
        refuse_unused("without --toolchain or --from", {"--commit": commit})
    if durations is None:
        refuse_unused("without --durations", {"--durations-pattern": durations_pattern})
    given = parse_pairs(parameters or (), "--set")
    named = suite or from_bundle
    if not Path(named).exists():
        raise UsageError(f"there is no suite {named}")
    start = StartTest(
        path=str(Path(named).absolute()),
        is_bundle=bool(from_bundle),
        wish=Wish(policy=policy, select=tuple(select or ()), skip=tuple(skip or ())),
        target=target,
        devices=tuple(devices or ()),
        slots=slots,
        split=parse_split(split),
        shard=shard,
        budget_s=parse_some_s("--budget", budget),
        changed=changed,
        is_explained=why,
        durations="" if durations is None else str(durations.absolute()),
        parameters=given,
        durations_pattern=durations_pattern,
        toolchain="" if toolchain is None else str(toolchain.absolute()),
        commit=commit,
        rerun_failed=rerun_failed,
        retries=retries,
        golden_threads=golden_threads or 0,
        require_check=require_check,
        keep_work=keep_work,
        check_sync=check_sync,
        compile_workers=compile_workers,
        queue_limit_s=parse_time_s("--queue-limit", queue_limit),
    )
    shown = [suite] if suite else ["--from", from_bundle]
    shown += [text for item in parameters or () for text in ("--set", item)]
    shown += [text for name in devices or () for text in ("--devices", name)]
    files = Files(junit=junit, summary=summary, logs=logs)
    return run(start, rerun_command(*shown), files, as_json=json)
