"""``tileyard static``: what two compilers, revisions or sets of pass options make of the same kernels."""

from typing import Annotated

import typer

from tileyard.cli.kernel_options import SIDES, AllConfigs, CompareTarget, CompileWorkers
from tileyard.cli.values import parse_duration_s


def static(  # noqa: PLR0913 - options, by keyword only
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help=f"What to compare with: {SIDES}.",
        ),
    ],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="What is compared, likewise.")],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE[::NAME]...", help="Where the kernels are.")
    ],
    *,
    target: CompareTarget = "cuda:sm_90a",
    all_configs: AllConfigs = False,
    repeat: Annotated[
        int,
        typer.Option(
            min=0,
            help="Build all of it so many times more on each side, in turn, to tell build times apart.",
        ),
    ] = 0,
    fail_on: Annotated[
        str,
        typer.Option(
            metavar="LIMITS",
            help="End with 1 where a figure gets worse: registers:+5%,spills:+0,occupancy:-10%; "
            "or for a kernel that only base builds, which missing alone asks for.",
        ),
    ] = "",
    build_limit: Annotated[
        str, typer.Option(metavar="TIME", help="End a build that takes longer.")
    ] = "120s",
    compile_workers: CompileWorkers = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Build the same kernels on two sides, and compare them. No device is needed.

    Registers, spills, shared memory, occupancy, code size, instructions and build time, kernel by kernel. Every kernel of the files is built for each of its shapes. Pass options take the place of a kernel's own
    of the same names. What is built is thrown away.

    Exit status: 0 compared, 1 a limit of --fail-on is broken, 2 bad usage, or a side cannot build at all,
    130 interrupted.
    """
    from tileyard.cli.static_session import Asked, run
    from tileyard.regress.limits import parse_limits

    asked = Asked(
        base=base,
        head=head,
        files=tuple(files),
        target=target,
        all_configs=all_configs,
        rounds=repeat + 1,
        limits=parse_limits(fail_on) if fail_on else None,
        build_s=parse_duration_s(build_limit),
        compile_workers=compile_workers,
    )
    return run(asked, as_json=json)
