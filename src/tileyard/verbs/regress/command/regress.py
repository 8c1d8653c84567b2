"""``tileyard regress``: what got slower from one version to another; ``static`` needs no device. ``tileyard
bisect`` finds the commit that changed a case's time or result, or made its binary worse.
"""

from typing import Annotated, Unpack

import typer

from tileyard.show.kernel_options import SIDES
from tileyard.show.typed import AsJson
from tileyard.verbs.regress.options.regress import BisectOptions, RegressOptions


def regress(
    context: typer.Context,
    base: Annotated[
        str | None,
        typer.Argument(
            metavar="BASE",
            help=f"What to compare with: {SIDES}. Or what is built already: a bundle FILE.tyb, or "
            f"run:ID; or a toolchain FILE.tyb for a suite's steps. "
            "Or, without FILEs, numbers of others: pytest-benchmark's JSON, or what TileLang's "
            "benchmarks print.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Argument(metavar="HEAD", help="What to compare, in the same forms as BASE."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE[::NAME]... | SUITE[::CASE] | SCRIPT...",
            help=(
                "Where the kernels are; or a suite of programs: its suite.toml, or its folder; "
                "or with --exec scripts."
            ),
        ),
    ] = None,
    *,
    json: AsJson = False,
    **options: Unpack[RegressOptions],
) -> int:
    """Time the same kernels or programs of two versions against each other. Where both give the same binary
    nothing is run.

    Base and head are timed in turn, in one process after the other, until the interval of their ratio lies on
    one side of the margin, and so is base against itself. A kernel that a side lacks or cannot build is a
    row, too. With --static no device is needed, and the target is cuda:sm_90a in place of cpu unless --target
    names one or a side is built already; pass options take the place of a kernel's own of the same names, and
    what is built is thrown away.

    Exit status: 0 nothing is worse, 1 a kernel is slower by more than the margin or --fail-over, wrong,
    missing, new or beyond a limit of --fail-on, and not allowed, 2 bad usage, 3 infrastructure only, 130
    interrupted.
    """
    from tileyard.pages.opening import tell_report
    from tileyard.show.console import Console
    from tileyard.show.opening import load_settings, present
    from tileyard.show.session import carry_on
    from tileyard.verbs.regress.command.comparing import Reports, compare
    from tileyard.verbs.regress.view.regress import print_regression

    if context.info_name == "static":
        options["static"] = True
    reports = Reports(options)
    sides = [side for side in (base, head) if side is not None]
    settings = load_settings()
    result = compare(sides, files or (), options, settings, carry_on(Console(stderr=json)))
    present(result, json, print_regression)
    reports.write(result, settings.home)
    tell_report(options.get("report"), settings.home, result.run)
    return result.exit_status


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
