"""``tileyard run``: builds, runs, compares and times one config of a kernel."""

from typing import Annotated

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    ArgumentValues,
    BuildLimit,
    Checked,
    CheckSync,
    ConfigValues,
    CpuLevel,
    DeviceNames,
    Emit,
    MemoryLimit,
    PythonLimit,
    QueueLimit,
    Reference,
    RequireCheck,
    RunLimit,
    Sanitize,
    ShapeName,
    TargetName,
    check_reference,
    parse_kernel,
    read_arguments,
    read_limits,
    read_python_limit,
    target_at,
)
from tileyard.show.typed import AsJson, KernelName
from tileyard.show.values import read_choices, read_names, read_time_s


def run_config(  # noqa: PLR0913 - options, by keyword only
    kernel: KernelName,
    *,
    arg: ArgumentValues = None,
    shape: ShapeName = "",
    config: ConfigValues = None,
    reference: Reference = "",
    check: Checked = True,
    require_check: RequireCheck = False,
    check_sync: CheckSync = None,
    target: TargetName = "cpu",
    cpu_arch: CpuLevel = "",
    devices: DeviceNames = None,
    emit: Emit = None,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Build for gdb, and print how to step through the kernel."),
    ] = False,
    queue_limit: QueueLimit = "30m",
    run_limit: RunLimit = "60s",
    sanitize: Sanitize = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Compute the reference again, even if its result is stored."),
    ] = False,
    build_limit: BuildLimit = "120s",
    python_limit: PythonLimit = None,
    memory_limit: MemoryLimit = "8GiB",
    json: AsJson = False,
) -> int:
    """Build one config of a kernel, run it, compare every output, and time it.

    For a correct output, the element closest to its tolerance is printed; for a wrong one, the worst
    element. Parameters without --config are as in the first config. Earlier builds and results of the
    reference are reused; the config always runs. With --debug the last line is the command that runs it
    again in gdb, up to the kernel's first statement.

    Exit status: 0 it passed, or there is no reference, 1 it failed, 2 bad usage, 3
    infrastructure only, 130 interrupted.
    """
    from tileyard.base.model import CheckPolicy
    from tileyard.verbs.tune.command import kernel_session
    from tileyard.verbs.tune.options.start import StartTune
    from tileyard.verbs.tune.result.records import TuneRequest

    file, name = parse_kernel(kernel)
    check_reference(reference, check=check, require_check=require_check)
    values = read_choices(config)
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
        arguments=read_arguments(arg),
        shape=shape,
        overrides=values,
        reference=str(reference),
        trials=1,
        check=CheckPolicy(enabled=check, closest=True),
        require_check=require_check,
        check_sync=check_sync,
        sanitized=target_at(target, cpu_arch, debug=debug, sanitize=True) if sanitize else "",
        limits=read_limits(run_limit, build_limit, memory_limit),
    )
    start = StartTune(
        request=request,
        target=target_at(target, cpu_arch, debug=debug),
        devices=read_names(devices),
        file=str(file),
        reuse=False,
        fresh=fresh,
        title="run",
        queue_limit_s=read_time_s("--queue-limit", queue_limit),
        python_limit_s=read_python_limit(python_limit),
    )
    return kernel_session.run_config(start, emit=emit, as_json=json, for_debugger=debug)
