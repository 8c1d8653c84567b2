"""``tileyard compile``: builds the configs of a kernel for any target, and runs none of them."""

from typing import Annotated, Unpack

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import Emit, parse_kernel
from tileyard.show.typed import AsJson, KernelName
from tileyard.verbs.compile.options import CompileOptions, start_compile


def compile_configs(
    kernel: KernelName,
    *,
    resources: Annotated[
        bool,
        typer.Option("--resources", help="Registers, shared memory and occupancy."),
    ] = False,
    emit: Emit,
    json: AsJson = False,
    **options: Unpack[CompileOptions],
) -> int:
    """Build configs of a kernel for a target, on this machine's CPUs alone: no device is needed.

    What is built is kept, and is not built again; tileyard inspect shows it, and --emit prints the code
    generated for the first config. --pipeline is for GPU loops: tilelang, tileyard, or one that `tileyard
    passes` lists. With -o it is packed with inputs and reference results: tileyard test --from FILE checks it
    where the device is, with no source and no compiler.

    Exit status: 0 all that fit the device were built, 1 some were not or none fits, 2 bad usage, 130
    interrupted.
    """
    from tileyard.verbs.compile.command import session

    file, name = parse_kernel(kernel)
    if emit is not None and json:
        raise UsageError("--emit and --json both print on standard output: choose one")
    start = start_compile(str(file), name, options)
    return session.compile_configs(start, emit=emit, with_report=resources, as_json=json)
