"""``tileyard reduce``: cuts a failing kernel down to a small one that still fails."""

from typing import Annotated

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValues,
    PipelineName,
    PythonLimit,
    ShapeName,
    TargetName,
    TimeLimit,
    parse_kernel,
    read_arguments,
    read_config,
    read_python_limit,
)
from tileyard.show.typed import KernelName
from tileyard.show.values import read_time_s
from tileyard.verbs.check.options import DEFAULT_ARCHITECTURE


def reduce(  # noqa: PLR0913 - options, by keyword only
    kernel: KernelName,
    *,
    failure: Annotated[
        str,
        typer.Option(
            "--while",
            metavar="check|mismatch|compile_error|COMMAND",
            help=(
                "The failure to keep. A command receives the file of a kernel in place of {}, or "
                "at its end, and ends with 0 where it fails."
            ),
        ),
    ],
    pipeline: PipelineName = "",
    target: TargetName = "cpu",
    arg: ArgumentValues = None,
    shape: ShapeName = "",
    config: ConfigValues = None,
    limit: TimeLimit = "5m",
    python_limit: PythonLimit = None,
) -> int:
    """Cut a failing kernel down to a small one that fails in the same way, and print it.

    Statements, branches, loops, roles, buffers and parameters are dropped, sizes and expressions made
    smaller, as long as the failure stays the same: with check, the same kind of mistake in the same buffer;
    with mismatch, outputs that are not what the kernel means; with compile_error, the same message up to
    names and numbers; with a command, the exit status 0. With check and mismatch, --pipeline names passes
    that break the kernel: ours, or tilelang[:ARCH]. Mismatches and compile errors are those of --target.
    Ctrl-C prints the smallest kernel so far.

    Exit status: 0 printed; 2 bad usage, or a kernel that has no Program or does not fail; 130 interrupted,
    and printed.
    """
    from tileyard.passes.pipeline import TILELANG
    from tileyard.verbs.reduce.command.session import Wanted, reduce_kernel
    from tileyard.verbs.tune.result.records import TuneRequest

    file, name = parse_kernel(kernel)
    chosen = read_config(config, "reduce")
    if pipeline and failure not in ("check", "mismatch"):
        raise UsageError("--pipeline is for --while check and --while mismatch")
    if pipeline == TILELANG:
        pipeline = f"{TILELANG}:{DEFAULT_ARCHITECTURE}"
    if not failure.strip():
        raise UsageError("--while is empty: it is check, mismatch, compile_error or a command")
    request = TuneRequest(
        kernel=name, arguments=read_arguments(arg), shape=shape, overrides=chosen, trials=1
    )
    wanted = Wanted(
        failure=failure,
        pipeline=pipeline,
        target=target,
        limit_s=read_time_s("--limit", limit),
        python_limit_s=read_python_limit(python_limit),
    )
    return reduce_kernel(file, request, wanted)
