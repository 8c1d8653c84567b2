"""The options of ``compile``."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    MEMORY,
    AllConfigs,
    ArgumentValues,
    BuildLimit,
    CommitName,
    CompileWorkers,
    ConfigValues,
    CpuLevel,
    GroupSize,
    OutputFile,
    PipelineName,
    PythonLimit,
    Reference,
    Resume,
    ShapeName,
    TargetName,
    read_arguments,
    read_python_limit,
    target_at,
)
from tileyard.show.options import Home, Option, ShowProgress, complete
from tileyard.show.values import (
    Pairs,
    Size,
    parse_bytes,
    parse_count,
    read_choices,
    read_path,
    read_time_s,
    read_values,
    refuse_unused,
)

if TYPE_CHECKING:
    from tileyard.verbs.compile.options.start import StartCompile


class CompileOptions(TypedDict, total=False):
    """The options of ``compile``."""

    target: TargetName
    cpu_arch: CpuLevel
    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValues
    all_configs: AllConfigs
    pass_: Annotated[
        Pairs, Option("An option of TileLang's passes, for GPU targets.", metavar="KEY=VALUE")
    ]
    pipeline: PipelineName
    output: OutputFile
    commit: CommitName
    reference: Reference
    build_limit: BuildLimit
    python_limit: PythonLimit
    memory_limit: Annotated[
        Size | None,
        Option(MEMORY, metavar="SIZE"),
    ]
    group_size: GroupSize
    compile_workers: CompileWorkers
    resume: Resume
    out_idx: Annotated[
        Sequence[int] | None,
        Option(
            "Of a PrimFunc: positions of the parameters that are outputs; by default those that "
            "are only written.",
            for_python=True,
        ),
    ]
    device: Annotated[
        str,
        Option(
            "Of a PrimFunc: what to run on; by default the CPU, or the first GPU where the target is cuda.",
            default="",
            for_python=True,
        ),
    ]
    home: Home
    progress: ShowProgress


def start_compile(file: str, kernel: str, given: CompileOptions) -> "StartCompile":
    """The verb for the kernel of a file; an empty file is the caller's own process. Raises UsageError."""
    from tileyard.base.model import Limits
    from tileyard.verbs.compile.options.start import StartCompile
    from tileyard.verbs.tune.result.records import ALL_CONFIGS, TuneRequest

    options = complete(CompileOptions, given)
    reference, output = options["reference"], read_path(options["output"])
    refuse_unused(
        "on kernels with configs: tileyard.compile gives a PrimFunc as a function",
        {"out_idx": options["out_idx"], "device": options["device"]},
    )
    if output:
        _check_output(Path(options["output"] or ""))
    else:
        for_bundle = {
            "--commit": options["commit"],
            "--reference": reference,
            "--memory-limit": options["memory_limit"],
        }
        refuse_unused("without a bundle: name its file with -o", for_bundle)
    request = TuneRequest(
        kernel=kernel,
        arguments=read_arguments(options["arg"]),
        shape=options["shape"],
        overrides=read_choices(options["config"]),
        reference=reference if isinstance(reference, str) else "",
        trials=ALL_CONFIGS,
        limits=Limits(
            build_s=read_time_s("--build-limit", options["build_limit"]),
            memory_bytes=parse_bytes(options["memory_limit"] or "8GiB", "--memory-limit"),
        ),
    )
    return StartCompile(
        request=request,
        target=target_at(options["target"], options["cpu_arch"]),
        file=file,
        all_configs=options["all_configs"] or bool(options["config"]),
        pass_options=read_values(options["pass_"], "--pass"),
        pipeline=options["pipeline"],
        pack_to=output,
        commit=options["commit"],
        reuse=options["resume"],
        python_limit_s=read_python_limit(options["python_limit"]),
        compile_workers=options["compile_workers"],
        group_size=parse_count(options["group_size"], "--group-size"),
    )


def _check_output(output: Path) -> None:
    """Raise UsageError for a file that could not be written after the builds."""
    if output.is_dir():
        raise UsageError(f"cannot write {output}: it is a folder")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no folder {output.parent}")
    if not os.access(output.absolute().parent, os.W_OK):
        raise UsageError(f"cannot write {output}: its folder may not be written to")
