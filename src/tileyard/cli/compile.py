"""``tileyard compile``: build the configs of a kernel for any target, and run none of them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tileyard.cli.kernel_options import (
    ArgumentValues,
    BuildLimit,
    CompileWorkers,
    CpuLevel,
    Emit,
    KernelName,
    ShapeName,
    parse_arguments,
    parse_config,
    parse_kernel,
    target_at,
)
from tileyard.cli.values import (
    parse_bytes,
    parse_count,
    parse_duration_s,
    parse_pairs,
    parse_value,
    refuse_unused,
)
from tileyard.errors import UsageError


def compile_configs(  # noqa: PLR0913 - options, by keyword only
    kernel: KernelName,
    *,
    target: Annotated[
        str, typer.Option(help="What to compile for, such as cpu or cuda:sm_90a.")
    ] = "cpu",
    cpu_arch: CpuLevel = "",
    arg: ArgumentValues = None,
    shape: ShapeName = "",
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,C",
            help="Values to build for one parameter, or for the pipeline of passes.",
        ),
    ] = None,
    all_configs: Annotated[
        bool,
        typer.Option("--all-configs", help="All configs of its space, not the first one only."),
    ] = False,
    pass_options: Annotated[
        list[str] | None,
        typer.Option(
            "--pass", metavar="KEY=VALUE", help="An option of TileLang's passes, for GPU targets."
        ),
    ] = None,
    pipeline: Annotated[
        str,
        typer.Option(
            metavar="PIPELINE",
            help="Who pipelines loops for a GPU: tilelang, or tileyard, or one of 'tileyard passes'.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a bundle that runs on another machine."
        ),
    ] = None,
    commit: Annotated[
        str, typer.Option(metavar="SHA", help="The commit that the kernel is of, for the bundle.")
    ] = "",
    reference: Annotated[
        str, typer.Option(help="A function of the file that says what is right, for the bundle.")
    ] = "",
    report: Annotated[
        bool, typer.Option("--report", help="Show what each config takes of a device.")
    ] = False,
    emit: Emit = None,
    build_limit: BuildLimit = "120s",
    memory_limit: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Address space of a running config, for the bundle; else 8GiB."
        ),
    ] = "",
    group_size: Annotated[
        str, typer.Option(metavar="N|auto", help="How many configs share one compilation at most.")
    ] = "auto",
    compile_workers: CompileWorkers = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Use what earlier runs found out, or not.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Build configs of a kernel for a target, on this machine's CPUs alone: no device is needed.

    What is built is kept, and is not built again; tileyard inspect shows it, and --emit prints what was
    generated for the first config that was built. With -o it is packed with
    inputs and reference results: tileyard test --from FILE checks it where the device is, with no
    source and no compiler.

    Exit status: 0 all were built, 1 some were not, 2 bad usage, 130 interrupted.
    """
    from tileyard.cli import kernel_session
    from tileyard.model import Limits
    from tileyard.service.verbs import StartCompile
    from tileyard.tuning.request import ALL_CONFIGS, TuneRequest

    file, name = parse_kernel(kernel)
    if emit is not None and json:
        raise UsageError("--emit and --json both print on standard output: choose one")
    if output is None:
        for_bundle = {"--commit": commit, "--reference": reference, "--memory-limit": memory_limit}
        refuse_unused("without a bundle: say with -o where it is to be written", for_bundle)
    else:
        _check_output(output)
    request = TuneRequest(
        kernel=name,
        arguments=parse_arguments(arg),
        shape=shape,
        overrides=parse_config(config),
        reference=reference,
        trials=ALL_CONFIGS,
        limits=Limits(
            build_s=parse_duration_s(build_limit), memory_bytes=parse_bytes(memory_limit or "8GiB")
        ),
    )
    start = StartCompile(
        request=request,
        target=target_at(target, cpu_arch),
        file=str(file),
        all_configs=all_configs or bool(config),
        pass_options={
            key: parse_value(text)
            for key, text in parse_pairs(pass_options or (), "--pass").items()
        },
        pipeline=pipeline,
        pack_to="" if output is None else str(output.absolute()),
        commit=commit,
        reuse=resume,
        compile_workers=compile_workers,
        group_size=None if group_size == "auto" else parse_count(group_size, "--group-size"),
    )
    return kernel_session.compile_configs(start, emit=emit, with_report=report, as_json=json)


def _check_output(output: Path) -> None:
    """Raise UsageError for a file that could not be written once everything is built."""
    if output.is_dir():
        raise UsageError(f"cannot write {output}: it is a folder")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no folder {output.parent}")
    if not os.access(output.absolute().parent, os.W_OK):
        raise UsageError(f"cannot write {output}: its folder may not be written to")
