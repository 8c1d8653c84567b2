"""``tileyard bisect``: which commit made a kernel slower, faster or wrong."""

from typing import Annotated

import typer

from tileyard.cli.kernel_options import BuildLimit, DeviceNames, QueueLimit, RunLimit
from tileyard.cli.values import parse_duration_s, parse_share


def bisect(  # noqa: PLR0913 - options, by keyword only
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A git revision without the change.")],
    bad: Annotated[
        str, typer.Argument(metavar="BAD", help="A later one that has the change, such as HEAD.")
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE[::NAME[/SHAPE]]...",
            help="Where the kernel is. One case may have changed.",
        ),
    ],
    *,
    target: Annotated[str, typer.Option(help="What to compile for.")] = "cpu",
    devices: DeviceNames = None,
    margin: Annotated[
        str, typer.Option(metavar="PERCENT", help="The smallest change in time that matters.")
    ] = "2%",
    each: Annotated[
        str, typer.Option(metavar="TIME", help="Time no commit for longer than this.")
    ] = "30s",
    queue_limit: QueueLimit = "30m",
    run_limit: RunLimit = "60s",
    build_limit: BuildLimit = "120s",
    compile_workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that build; by default one for each core.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Find the commit that made a case slower, faster, or wrong.

    First BAD is compared with GOOD: a difference in time, a wrong result, a crash or a kernel that cannot be built is what is
    looked for. Then one commit after another is compared with GOOD, until it is known which one
    changed it. A wrong measurement is outvoted by later ones; a commit that cannot be tested is passed over.

    Exit status: 0 the commit is found, 1 several are left, 2 bad usage, or nothing has changed, 3 infrastructure only,
    130 interrupted.
    """
    from tileyard.cli.bisect_session import run
    from tileyard.cli.regress_session import Asked
    from tileyard.regress.gate import Gate

    asked = Asked(
        base=good,
        head=bad,
        files=tuple(files),
        target=target,
        devices=tuple(devices or ()),
        gate=Gate(margin=parse_share(margin)),
        case_s=parse_duration_s(each),
        budget_s=None,
        all_configs=False,
        clean=False,
        queue_limit_s=parse_duration_s(queue_limit),
        run_s=parse_duration_s(run_limit),
        build_s=parse_duration_s(build_limit),
        compile_workers=compile_workers,
    )
    return run(asked, as_json=json)
