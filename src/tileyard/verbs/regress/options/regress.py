"""The options of ``regress``."""

from typing import Annotated, TypedDict

from tileyard.show.kernel_options import (
    AllConfigs,
    AnyTarget,
    Budget,
    BuildLimit,
    CompileWorkers,
    DeviceNames,
    FigureLimits,
    Picture,
    PythonLimit,
    QueueLimit,
    RunLimit,
    SmallestChange,
    TimeEach,
)
from tileyard.show.options import (
    FileOption,
    Home,
    NamesOption,
    Option,
    ShowProgress,
    Switch,
)
from tileyard.show.values import FilePath, Names, Share, parse_share
from tileyard.verbs.regress.options.scripts import Higher, Printed, Scripts
from tileyard.verbs.test.options.suites import Selected


def _read_limit(given: Share | None, option: str) -> float:
    """A share of base's time, 0 for none."""
    return parse_share(given, option) if given else 0.0


class BisectOptions(TypedDict, total=False):
    """The options of ``bisect``, which ``regress`` has, too."""

    fail_on: FigureLimits
    select: Selected
    exec: Scripts
    printed: Printed
    higher: Higher
    target: AnyTarget
    devices: DeviceNames
    margin: SmallestChange
    each: TimeEach
    queue_limit: QueueLimit
    run_limit: RunLimit
    build_limit: BuildLimit
    python_limit: PythonLimit
    compile_workers: CompileWorkers


class RegressOptions(BisectOptions, total=False):
    """The options of ``regress``."""

    fail_over: Annotated[
        Share | None,
        Option(
            "Fail only where a kernel is known to be slower by more than this; by default by "
            "more than the margin.",
            metavar="PERCENT",
            read=_read_limit,
        ),
    ]
    allow: Annotated[
        FilePath,
        FileOption(
            "TOML file of exceptions: rows that may be worse, with owner, reason and last day; "
            "margins of single cases."
        ),
    ]
    reports: Annotated[
        Names,
        NamesOption(
            "Compare reports of other tools instead: a number per side, in Markdown or JSON; repeatable.",
            metavar="FILE",
        ),
    ]
    noise_from: Annotated[
        Names,
        NamesOption(
            "Earlier reports of the same form, from which the noise is estimated; repeatable.",
            metavar="FILE",
        ),
    ]
    static: Annotated[
        bool,
        Switch(
            "Compare what compilers made of the kernels: registers, spills, code, instructions, "
            "... Nothing is run."
        ),
    ]
    rebuilds: Annotated[
        int,
        Option(
            "With --static: number of further builds, in turn, to compare build times.",
            least=0,
            default=0,
        ),
    ]
    budget: Budget
    all_configs: AllConfigs
    clean: Annotated[bool, Switch("Refuse a working tree with changes.")]
    comment: Annotated[FilePath, FileOption("Also write a comment for a pull request: Markdown.")]
    png: Picture
    home: Home
    progress: ShowProgress
