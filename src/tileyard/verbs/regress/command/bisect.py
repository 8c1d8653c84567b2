"""``tileyard bisect``: finds the commit that changed a case's time or result, or made its binary worse."""

from typing import Annotated, Unpack

import typer

from tileyard.show.typed import AsJson
from tileyard.verbs.regress.options.regress import BisectOptions


def bisect(
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
    json: AsJson = False,
    **options: Unpack[BisectOptions],
) -> int:
    """Find the commit that made a case slower, faster, or wrong, or a figure of its binary worse.

    First BAD is compared with GOOD: a difference in time, a wrong result, a crash or a kernel that cannot be
    built is what is looked for. Then commits in between are compared with GOOD, until it is known which one
    changed it. Kernels are built for the target cpu unless --target names another one. Later measurements
    correct a wrong one; a commit that cannot be tested is skipped.

    Exit status: 0 the commit is found, 1 several are left, 2 bad usage, or nothing has changed, 3
    infrastructure only, 130 interrupted.
    """
    from tileyard.verbs.regress.command.bisect_session import make_request, run

    return run(make_request(good, bad, files, options), as_json=json)
