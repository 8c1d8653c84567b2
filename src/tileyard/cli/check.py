"""``tileyard check``: mistakes in asynchronous copies, found without an accelerator."""

from typing import Annotated

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
) -> int:
    """Check the asynchronous copies of a kernel (cp.async) against the waits that it states.

    The first and the last blocks of the grid run in an interpreter in which a copy arrives as late as its
    waits allow. Choose small sizes: it is slow. What cannot be checked yet is named: TMA, wgmma, barriers.

    Exit status: 0 nothing was found, 1 mistakes, 2 bad usage.
    """
    file, name = parse_kernel(kernel)
    chosen = parse_config(config)
    several = [key for key, values in chosen.items() if len(values) > 1]
    if several:
        raise UsageError(f"--config {several[0]} has several values: check takes one config")
    from tileyard.cli.check_session import check_file
    from tileyard.tuning.request import TuneRequest

    request = TuneRequest(
        kernel=name, arguments=parse_arguments(arg), shape=shape, overrides=chosen, trials=1
    )
    architecture = _parse_pipeline(pipeline)
    return check_file(file, request, parse_duration_s(limit), architecture, as_json=json)


def _parse_pipeline(text: str) -> str:
    """The architecture that TileLang is to plan for; empty for the kernel as it is written."""
    name, colon, architecture = text.partition(":")
    if text == "written":
        return ""
    if name != "tilelang" or (colon and not architecture):
        raise UsageError(f"--pipeline {text}: either written or tilelang[:ARCH], as tilelang:sm_80")
    return architecture or DEFAULT_ARCHITECTURE
