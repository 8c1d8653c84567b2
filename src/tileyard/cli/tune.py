"""``tileyard tune``: find the fastest config of a kernel."""

from typing import Annotated

import typer

from tileyard.cli.kernel_options import (
    ArgumentValues,
    BuildLimit,
    CheckSync,
    CompileWorkers,
    CpuLevel,
    DeviceNames,
    GoldenThreads,
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
from tileyard.cli.values import parse_bytes, parse_count, parse_duration_s
from tileyard.errors import UsageError
from tileyard.targets.registry import find_needs


def tune(  # noqa: PLR0913 - options, by keyword only
    kernel: KernelName,
    *,
    arg: ArgumentValues = None,
    shape: ShapeName = "",
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,C",
            help="Values to try for one parameter, or for the pipeline of passes.",
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="A function of the file to check results against.")
    ] = "",
    check: Annotated[bool, typer.Option(help="Compare results with the reference.")] = True,
    require_check: RequireCheck = False,
    check_sync: CheckSync = None,
    target: Annotated[str, typer.Option(help="What to compile for.")] = "cpu",
    cpu_arch: CpuLevel = "",
    devices: DeviceNames = None,
    also_build: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET",
            help="Also say which configs can be built for a target such as cuda:sm_90a; repeatable.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="How many configs to try at most; 200 by default.")
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Start no new config after 60s, 5m, ...")
    ] = "",
    queue_limit: QueueLimit = "30m",
    run_limit: RunLimit = "60s",
    build_limit: BuildLimit = "120s",
    memory_limit: MemoryLimit = "8GiB",
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Use what earlier runs found out, or not.")
    ] = True,
    overlap: Annotated[bool, typer.Option(help="Build while other configs run.")] = True,
    compile_workers: CompileWorkers = None,
    golden_threads: GoldenThreads = None,
    group_size: Annotated[
        str, typer.Option(metavar="N|auto", help="How many configs share one compilation at most.")
    ] = "auto",
    flush_l2: Annotated[
        bool,
        typer.Option(
            "--flush-l2", help="On GPUs: time each launch with an L2 cache of other data."
        ),
    ] = False,
    graph: Annotated[
        bool,
        typer.Option("--graph", help="On GPUs: time captured graphs, without what the host takes."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Find the fastest config of a kernel: every config is built, checked and timed.

    The kernel is a function decorated with @tileyard.kernel, @tilelang.jit or
    @tilelang.autotune. Its reference is a NumPy or torch function: it gets the kernel's inputs in
    parameter order and returns the outputs, or writes them in place.

    With --also-build the configs are then built for other targets, with no device. One that cannot be
    built there is marked, and can still be the best here: the exit status is that of tuning.

    Exit status: 0 a best config was found, 1 none passed, 2 bad usage, 3 infrastructure only,
    130 interrupted.
    """
    from tileyard.cli.session import run
    from tileyard.model import CheckPolicy, Limits, TimingPolicy
    from tileyard.service.verbs import StartTune
    from tileyard.tuning.request import DEFAULT_TRIALS, TuneRequest

    file, name = parse_kernel(kernel)
    check_reference(reference, check=check, require_check=require_check)
    if (flush_l2 or graph) and not find_needs(target).is_timed_by_policy:
        raise UsageError(
            f"--{'flush-l2' if flush_l2 else 'graph'} is for GPUs, and not for {target}"
        )
    request = TuneRequest(
        kernel=name,
        arguments=parse_arguments(arg),
        shape=shape,
        overrides=parse_config(config),
        reference=reference,
        trials=trials or DEFAULT_TRIALS,
        budget_s=parse_duration_s(budget) if budget else None,
        check=CheckPolicy(enabled=check),
        timing=TimingPolicy(flush_l2=flush_l2, graph=graph),
        require_check=require_check,
        limits=Limits(
            run_s=parse_duration_s(run_limit),
            build_s=parse_duration_s(build_limit),
            memory_bytes=parse_bytes(memory_limit),
        ),
    )
    start = StartTune(
        request=request,
        target=target_at(target, cpu_arch),
        devices=tuple(devices or ()),
        file=str(file),
        also_build=tuple(also_build or ()),
        reuse=resume,
        check_sync=check_sync,
        overlap=overlap,
        compile_workers=compile_workers,
        golden_threads=golden_threads or 0,
        group_size=None if group_size == "auto" else parse_count(group_size, "--group-size"),
        queue_limit_s=parse_duration_s(queue_limit),
    )
    return run(start, as_json=json)
