"""The options of ``compile``, and its request to the engine. Light to import."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.base.model import Value
from tileyard.service.verbs import KernelVerb
from tileyard.show.kernel_options import (
    MEMORY,
    AllConfigs,
    ArgumentValues,
    BuildLimit,
    CommitName,
    CompileWorkers,
    ConfigValues,
    CpuLevel,
    GoldenThreads,
    GroupSize,
    HostNames,
    OutputOption,
    PipelineName,
    PythonLimit,
    Reference,
    Resume,
    ShapeName,
    TargetName,
    target_at,
)
from tileyard.show.options import (
    FileOption,
    Home,
    NamesOption,
    Option,
    ShowProgress,
    SizeOption,
    Text,
    complete,
    fill,
    read_options,
)
from tileyard.show.values import FilePath, Names, Pairs, Size, read_values, refuse_unused
from tileyard.verbs.test.options import (
    ParameterValues,
    PolicyName,
    Selected,
    Skipped,
    ToolchainFile,
)
from tileyard.verbs.tune.options import ALL_CONFIGS, TuneRequest, make_request

if TYPE_CHECKING:
    from tileyard.verbs.tune.result import CompileResult  # noqa: F401 - of the verb, in quotes

OF_SUITES = ("policy", "select", "skip", "set", "target", "toolchain", "golden_threads", "hosts")
OF_TREES = ("bin", "python", "prefix", "cpu_arch", "driver", "require")


class BundleOptions(TypedDict, total=False):
    """The options of ``bundle``."""

    tree: Annotated[FilePath, FileOption("Pack this folder as a toolchain.", metavar="DIR")]
    commit: CommitName
    output: Annotated[FilePath, OutputOption("The bundle to write.")]
    bin: Annotated[
        Names,
        NamesOption("A directory of the tree for PATH, in addition to bin.", metavar="FOLDER"),
    ]
    python: Annotated[
        Names, NamesOption("A directory of the tree for PYTHONPATH.", metavar="FOLDER")
    ]
    prefix: Annotated[
        Names,
        NamesOption("The installation prefix that the tree's files contain.", metavar="FOLDER"),
    ]
    cpu_arch: CpuLevel
    driver: Annotated[str, Text('Required driver, such as ">=535,<600".', metavar="RANGE")]
    require: Annotated[FilePath, FileOption("A TOML file of requirements on the host.")]
    inspect: Annotated[FilePath, FileOption("Describe a bundle, and whether it can be used here.")]
    policy: PolicyName
    select: Selected
    skip: Skipped
    set: ParameterValues
    target: TargetName
    toolchain: ToolchainFile
    golden_threads: GoldenThreads
    hosts: HostNames


class CompileOptions(TypedDict, total=False):
    """The options of ``compile``."""

    target: TargetName
    cpu_arch: CpuLevel
    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValues
    all_configs: AllConfigs
    pass_: Annotated[
        Pairs,
        Option(
            "An option of TileLang's passes, for GPU targets.",
            metavar="KEY=VALUE",
            read=read_values,
        ),
    ]
    pipeline: PipelineName
    output: Annotated[
        FilePath, OutputOption("Also pack what was built into this bundle, for other machines.")
    ]
    commit: CommitName
    reference: Reference
    build_limit: BuildLimit
    python_limit: PythonLimit
    memory_limit: Annotated[
        Size | None,
        SizeOption(MEMORY),
    ]
    group_size: GroupSize
    compile_workers: CompileWorkers
    hosts: HostNames
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


class StartCompile(KernelVerb["CompileResult"], kw_only=True):
    """Begin to build the configs of a kernel that a tuning run of ``request`` would try, and run none.

    Without ``all_configs`` that is the first one only. With ``pack_to`` they are written into a bundle
    there, with inputs and reference results, for ``commit`` if that is given. ``pass_options`` replace
    a kernel's own of the same names; ``pipeline`` is that of a Side.
    """

    opener = "tileyard.verbs.compile.plan.opening:open_compile"
    result = "tileyard.verbs.tune.result:CompileResult"
    kept = "what was built is kept; run the same command again to continue"

    request: TuneRequest
    all_configs: bool
    pass_options: dict[str, Value]
    pipeline: str
    pack_to: str
    commit: str


def start_compile(file: str, kernel: str, given: CompileOptions) -> StartCompile:
    """The verb for the kernel of a file; an empty file is the caller's own process. Raises UsageError."""
    options = complete(CompileOptions, given)
    values = read_options(CompileOptions, options)
    refuse_unused(
        "on kernels with configs: tileyard.compile gives a PrimFunc as a function",
        {"out_idx": options["out_idx"], "device": options["device"]},
    )
    if options["output"]:
        _check_output(Path(options["output"]))
    else:
        for_bundle = {
            "--commit": options["commit"],
            "--reference": options["reference"],
            "--memory-limit": options["memory_limit"],
        }
        refuse_unused("without a bundle: name its file with -o", for_bundle)
    return fill(
        StartCompile,
        values,
        request=make_request(kernel, values, trials=ALL_CONFIGS),
        target=target_at(options["target"], options["cpu_arch"]),
        file=file,
        all_configs=options["all_configs"] or bool(options["config"]),  # all that are named
        pass_options=values["pass_"],
        pack_to=values["output"],
        reuse=options["resume"],
    )


def _check_output(output: Path) -> None:
    """Raise UsageError for a file that could not be written after the builds."""
    if output.is_dir():
        raise UsageError(f"cannot write {output}: it is a folder")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no folder {output.parent}")
    if not os.access(output.absolute().parent, os.W_OK):
        raise UsageError(f"cannot write {output}: its folder may not be written to")
