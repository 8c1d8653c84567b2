"""``tileyard check``: mistakes in the synchronization of kernels, found without an accelerator."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Unpack

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import Report, parse_kernel
from tileyard.show.typed import AsJson, KernelName
from tileyard.verbs.check.options import CheckOptions


def check(
    kernel: KernelName,
    *,
    json: AsJson = False,
    sarif: Annotated[
        bool, typer.Option("--sarif", help="Print SARIF 2.1.0, which code scanning reads.")
    ] = False,
    report: Report,
    **options: Unpack[CheckOptions],
) -> int:
    """Check the synchronization of a kernel: asynchronous copies, barriers, and roles that wait for each
    other.

    Numerical results are compared by tileyard run, tune and test.

    Blocks run in an interpreter in which each operation takes effect as late as its waits allow. Sizes are
    chosen small, so that loops run from zero times to a few times more than their number of stages; --arg and
    --shape give the first sizes.

    With --pipeline tilelang[:ARCH] the kernel is checked as TileLang's passes plan it, by default for sm_90a,
    and not as written.

    Without ::NAME all kernels of the file are checked, each with those of the arguments that it has.

    A comment # tileyard: allow(KIND) REASON at one of the two lines, or alone above it, suppresses a finding.

    Exit status: 0 nothing was found, 1 mistakes, 2 bad usage, or a kernel that cannot be checked and no
    mistakes.
    """
    if json and sarif:
        raise UsageError("--json and --sarif are two documents: choose one")
    file, name = parse_kernel(kernel)
    from importlib.metadata import version

    from tileyard.pages.opening import open_report, tell_report
    from tileyard.show.console import outliving_readers
    from tileyard.show.opening import load_settings, print_json
    from tileyard.show.words import make_visible
    from tileyard.verbs.check.command import checking
    from tileyard.verbs.check.view.findings import describe_check, describe_sarif

    shows_first = not (json or sarif) and sys.stdout.isatty()
    timelines = sys.maxsize if options.get("timeline") else int(shows_first)
    options["timeline"] = timelines > 0 or bool(report)
    settings = load_settings()
    write = open_report(report, "tileyard.verbs.check.view.page:describe_checked")
    found = asyncio.run(checking.check_file(file, name, options, settings))
    if json:
        print_json(found)
    elif sarif:
        print_json(describe_sarif(found, Path.cwd(), version("tileyard")))
    else:
        with outliving_readers():
            for line in describe_check(found, timelines):
                print(make_visible(line))
    write(found, settings.home, "")
    tell_report(report, settings.home, "")
    return found.exit_status
