"""``tileyard check``: mistakes in the synchronization of kernels, found without an accelerator."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tileyard.cli.kernel_options import (
    ArgumentValues,
    KernelName,
    ShapeName,
    parse_arguments,
    parse_config,
    parse_kernel,
)
from tileyard.cli.values import parse_duration_s
from tileyard.errors import UsageError

if TYPE_CHECKING:
    from tileyard.cli.check_session import Form

DEFAULT_ARCHITECTURE = "sm_90a"


def check(  # noqa: PLR0913 - options, by keyword only
    kernel: KernelName,
    *,
    arg: ArgumentValues = None,
    shape: ShapeName = "",
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A parameter's value; by default its first one."),
    ] = None,
    pipeline: Annotated[
        str,
        typer.Option(
            metavar="PIPELINE",
            help="'written', or 'tilelang[:ARCH]': what TileLang's passes make of it, for sm_90a by default.",
        ),
    ] = "written",
    limit: Annotated[str, typer.Option(metavar="TIME", help="Give up after this time.")] = "10m",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    timeline: Annotated[
        bool,
        typer.Option(
            "--timeline",
            help="Show what happened before each mistake; on a terminal it is shown for the first one.",
        ),
    ] = False,
    sarif: Annotated[
        bool, typer.Option("--sarif", help="Print SARIF 2.1.0, which code scanning reads.")
    ] = False,
) -> int:
    """Check the synchronization of a kernel: asynchronous copies, barriers, and roles that wait for each other.

    Blocks run in an interpreter in which each operation takes effect as late as its waits allow. Sizes are chosen
    small, so that loops run from no time to a few times more than they have stages; --arg and --shape say where to begin.

    Without ::NAME all kernels of the file are checked, each with those of the arguments that it has.

    A comment # tileyard: allow(KIND) REASON at one of the two lines, or alone above it, suppresses a finding.

    Exit status: 0 nothing was found, 1 mistakes, 2 bad usage, or a kernel that cannot be checked and no mistakes.
    """
    if json and sarif:
        raise UsageError("--json and --sarif are two documents: choose one")
    form: Form = "json" if json else "sarif" if sarif else "text"
    file, name = parse_kernel(kernel)
    chosen = parse_config(config)
    several = [key for key, values in chosen.items() if len(values) > 1]
    if several:
        raise UsageError(f"--config {several[0]} has several values: check takes one config")
    from tileyard.cli.check_session import Wanted, check_file
    from tileyard.tuning.request import TuneRequest

    request = TuneRequest(
        kernel=name, arguments=parse_arguments(arg), shape=shape, overrides=chosen, trials=1
    )
    timelines = sys.maxsize if timeline else int(form == "text" and sys.stdout.isatty())
    wanted = Wanted(architecture=parse_pipeline(pipeline), form=form, timelines=timelines)
    return check_file(file, request, parse_duration_s(limit), wanted)


def parse_pipeline(text: str) -> str:
    """The architecture that TileLang is to plan for; empty for the kernel as it is written."""
    name, colon, architecture = text.partition(":")
    if text == "written":
        return ""
    if name != "tilelang" or (colon and not architecture):
        raise UsageError(f"--pipeline {text}: either written or tilelang[:ARCH], as tilelang:sm_80")
    return architecture or DEFAULT_ARCHITECTURE
