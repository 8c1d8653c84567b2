"""``tileyard run``: one config of a kernel, built, run, compared and timed."""

from typing import Annotated

import typer

from tileyard.cli.kernel_options import (
    ArgumentValues,
    BuildLimit,
    CpuLevel,
    DeviceNames,
    Emit,
    KernelName,
    MemoryLimit,
    QueueLimit,
    RequireCheck,
    RunLimit,
    ShapeName,
    check_reference,
    parse_arguments,
    parse_config,
    parse_kernel,
    target_at,
)
from tileyard.cli.values import parse_bytes, parse_duration_s
from tileyard.errors import UsageError


def run_config(  # noqa: PLR0913 - options, by keyword only
    kernel: KernelName,
    *,
    arg: ArgumentValues = None,
    shape: ShapeName = "",
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A parameter; the others are as in the first config."
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="A function of the file to check results against.")
    ] = "",
    check: Annotated[bool, typer.Option(help="Compare results with the reference.")] = True,
    require_check: RequireCheck = False,
    target: Annotated[str, typer.Option(help="What to compile for.")] = "cpu",
    cpu_arch: CpuLevel = "",
    devices: DeviceNames = None,
    emit: Emit = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Build it for gdb, and say how to step through it.")
    ] = False,
    queue_limit: QueueLimit = "30m",
    run_limit: RunLimit = "60s",
    build_limit: BuildLimit = "120s",
    memory_limit: MemoryLimit = "8GiB",
    json: Annotated[bool, typer.Option("--json", help="Print the trial as JSON.")] = False,
) -> int:
    """Build one config of a kernel, run it, compare every output, and time it.

    Of an output that is right, the element is named that is closest to being wrong, with the share of its
    tolerance that it uses; of a wrong one, the worst. What was built before is not built again, and
    the config always runs. With --debug the last line is the command that runs it again in gdb, up to
    the kernel's first statement.

    Exit status: 0 it passed, or nothing says what is right, 1 it did not, 2 bad usage, 3
    infrastructure only, 130 interrupted.
    """
    from tileyard.cli import kernel_session
    from tileyard.model import CheckPolicy, Limits
    from tileyard.service.verbs import StartTune
    from tileyard.tuning.request import TuneRequest

    file, name = parse_kernel(kernel)
    check_reference(reference, check=check, require_check=require_check)
    values = parse_config(config)
    several = [key for key, given in values.items() if len(given) > 1]
    if several:
        raise UsageError(
            f"--config {several[0]} has {len(values[several[0]])} values, and one config is run",
            "tileyard tune tries several",
        )
    if emit is not None and json:
        raise UsageError("--emit and --json both print on standard output: choose one")
    if debug and json:
        raise UsageError("--debug prints a command, which --json would leave out: choose one")
    request = TuneRequest(
        kernel=name,
        arguments=parse_arguments(arg),
        shape=shape,
        overrides=values,
        reference=reference,
        trials=1,
        check=CheckPolicy(enabled=check, closest=True),
        require_check=require_check,
        limits=Limits(
            run_s=parse_duration_s(run_limit),
            build_s=parse_duration_s(build_limit),
            memory_bytes=parse_bytes(memory_limit),
        ),
    )
    start = StartTune(
        request=request,
        target=target_at(target, cpu_arch, debug=debug),
        devices=tuple(devices or ()),
        file=str(file),
        reuse=False,
        queue_limit_s=parse_duration_s(queue_limit),
    )
    return kernel_session.run_config(start, emit=emit, as_json=json, for_debugger=debug)
