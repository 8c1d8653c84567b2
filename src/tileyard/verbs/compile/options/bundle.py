"""The options of ``bundle``."""

from typing import Annotated, TypedDict

from tileyard.show.kernel_options import CommitName, CpuLevel, GoldenThreads, OutputFile, TargetName
from tileyard.show.options import FileOption, NamesOption, Text
from tileyard.show.values import FilePath, Names
from tileyard.verbs.test.options.suites import (
    ParameterValues,
    PolicyName,
    Selected,
    Skipped,
    ToolchainFile,
)


class BundleOptions(TypedDict, total=False):
    """The options of ``bundle``."""

    tree: Annotated[FilePath, FileOption("Pack this folder as a toolchain.", metavar="DIR")]
    commit: CommitName
    output: OutputFile
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


OF_SUITES = ("policy", "select", "skip", "set", "target", "toolchain", "golden_threads")
OF_TREES = ("bin", "python", "prefix", "cpu_arch", "driver", "require")
