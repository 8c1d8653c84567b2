"""``tileyard reduce``: cuts a failing kernel down to a small one that still fails."""

from typing import Annotated, TypedDict, Unpack

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValue,
    PipelineName,
    PythonLimit,
    ShapeName,
    TargetName,
    TimeLimitOption,
    parse_kernel,
    require_one,
)
from tileyard.show.options import complete, fill, read_options
from tileyard.show.typed import KernelName
from tileyard.show.values import Time
from tileyard.verbs.check.options import DEFAULT_ARCHITECTURE


class ReduceOptions(TypedDict, total=False):
    """The options of ``reduce``."""

    pipeline: PipelineName
    target: TargetName
    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValue
    limit: Annotated[Time, TimeLimitOption(default="5m")]
    python_limit: PythonLimit


def reduce(
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
    **options: Unpack[ReduceOptions],
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
    from tileyard.verbs.tune.options import make_request

    file, name = parse_kernel(kernel)
    values = read_options(ReduceOptions, complete(ReduceOptions, options))
    require_one(values["config"], "reduce")
    pipeline = values["pipeline"]
    if pipeline and failure not in ("check", "mismatch"):
        raise UsageError("--pipeline is for --while check and --while mismatch")
    if not failure.strip():
        raise UsageError("--while is empty: it is check, mismatch, compile_error or a command")
    planned = f"{TILELANG}:{DEFAULT_ARCHITECTURE}" if pipeline == TILELANG else pipeline
    wanted = fill(Wanted, values, failure=failure, pipeline=planned)
    return reduce_kernel(file, make_request(name, values, trials=1), wanted)
