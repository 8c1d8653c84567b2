"""``tileyard bisect``: finds the commit that changed a case's time or result, or made its binary worse."""

from typing import Annotated

import typer

from tileyard.show.kernel_options import (
    USUAL_EACH,
    USUAL_MARGIN,
    AnyTarget,
    BuildLimit,
    CompileWorkers,
    DeviceNames,
    FigureLimits,
    PythonLimit,
    QueueLimit,
    RunLimit,
    SmallestChange,
    TimeEach,
    read_python_limit,
)
from tileyard.show.typed import AsJson
from tileyard.show.values import parse_share, read_names, read_time_s, refuse_unused
from tileyard.targets.registry import DEFAULT_TARGET
from tileyard.verbs.regress.options.scripts import Higher, Printed, Scripts, read_measure
from tileyard.verbs.test.options.suites import Selected


def bisect(  # noqa: PLR0913 - options, by keyword only
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A git revision without the change.")],
    bad: Annotated[
        str, typer.Argument(metavar="BAD", help="A later one that has the change, such as HEAD.")
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE[::NAME[/SHAPE]]... | SUITE[::CASE] | SCRIPT...",
            help=(
                "Where the kernel is; or a suite of programs; or with --exec scripts. One case "
                "may have changed."
            ),
        ),
    ],
    *,
    fail_on: FigureLimits = "",
    select: Selected = None,
    scripts: Scripts = False,
    printed: Printed = "",
    higher: Higher = False,
    target: AnyTarget = "",
    devices: DeviceNames = None,
    margin: SmallestChange = None,
    each: TimeEach = None,
    queue_limit: QueueLimit = "30m",
    run_limit: RunLimit = "60s",
    build_limit: BuildLimit = "120s",
    python_limit: PythonLimit = None,
    compile_workers: CompileWorkers = None,
    json: AsJson = False,
) -> int:
    """Find the commit that made a case slower, faster, or wrong, or a figure of its binary worse.

    First BAD is compared with GOOD: a difference in time, a wrong result, a crash or a kernel that cannot be
    built is what is looked for. Then commits in between are compared with GOOD, until it is known which one
    changed it. Kernels are built for the target cpu unless --target names another one. Later measurements
    correct a wrong one; a commit that cannot be tested is skipped.

    Exit status: 0 the commit is found, 1 several are left, 2 bad usage, or nothing has changed, 3
    infrastructure only, 130 interrupted.
    """
    from tileyard.verbs.regress.command.bisect_session import run
    from tileyard.verbs.regress.command.comparing import Asked, read_gate
    from tileyard.verbs.regress.result.gate import Gate
    from tileyard.verbs.regress.result.limits import parse_limits

    if fail_on:
        refuse_unused("with --fail-on, which runs nothing", {"--devices": devices})
    for_kernels = {"--select": select, "--target": target, "--fail-on": fail_on}
    measure = read_measure(files, printed, for_kernels, scripts=scripts, higher=higher)
    gate = Gate(
        margin=parse_share(margin or USUAL_MARGIN, "--margin"), limits=parse_limits(fail_on)
    )
    asked = Asked(
        base=good,
        head=bad,
        files=tuple(files),
        select=read_names(select),
        scripts=scripts,
        measure=measure,
        target=target or DEFAULT_TARGET,
        devices=read_names(devices),
        gate=read_gate(None, gate),
        case_s=read_time_s("--each", each or USUAL_EACH),
        until="built" if fail_on else "confirmed",
        queue_limit_s=read_time_s("--queue-limit", queue_limit),
        run_s=read_time_s("--run-limit", run_limit),
        build_s=read_time_s("--build-limit", build_limit),
        python_limit_s=read_python_limit(python_limit),
        compile_workers=compile_workers,
    )
    return run(asked, as_json=json)
