"""The options of ``regress``."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from tileyard.base.errors import UsageError
from tileyard.base.model import Measure
from tileyard.show.kernel_options import (
    AllConfigs,
    AnyTarget,
    Budget,
    BuildLimit,
    CompileWorkers,
    DeviceNames,
    FigureLimits,
    HostNames,
    Picture,
    PythonLimit,
    QueueLimit,
    Report,
    RunLimit,
    SmallestChange,
    TimeEach,
)
from tileyard.show.options import FileOption, Home, NamesOption, Option, ShowProgress, Switch, Text
from tileyard.show.values import FilePath, Names, Share, parse_share, refuse_unused
from tileyard.verbs.test.options import Selected

Scripts = Annotated[
    bool,
    Option(
        "The files are scripts, each run as `tileyard exec` runs it.",
        flags=("--exec",),
        default=False,
    ),
]
Printed = Annotated[
    str,
    Text(
        "With --exec: compare the number that scripts print, such as 'latency: ([\\d.]+) ms', "
        "and not their CPU time.",
        metavar="REGEX",
    ),
]
Higher = Annotated[bool, Switch("With --printed: the higher number is the better one.")]


def read_measure(
    files: Sequence[str], values: Mapping[str, Any], for_kernels: Mapping[str, object]
) -> Measure | None:
    """The number that scripts print, None for their time; a word after its group is the unit.

    Raises UsageError, also for options without effect: those ``for_kernels`` have none on scripts.
    """
    printed, higher = values["printed"], values["higher"]
    if not values["exec"]:
        refuse_unused("without --exec", {"--printed": printed})
    else:
        refuse_unused("with --exec", for_kernels)
        names = [file for file in files if "::" in file]
        refuse_unused("with --exec: a script is compared as a whole", dict.fromkeys(names, True))
    if not printed:
        refuse_unused("without --printed", {"--higher": higher})
        return None
    try:
        groups = re.compile(printed).groups
    except re.error as error:
        raise UsageError(f"--printed {printed!r} is not a regular expression: {error}") from None
    if not groups:
        raise UsageError(f"--printed {printed!r} has no group (...) that is the number")
    unit = re.search(r"\)\s*([A-Za-z]\w*(?:/\w+)?)", printed)
    return Measure(
        of="printed",
        pattern=printed,
        unit=unit[1] if unit else "",
        better="higher" if higher else "lower",
    )


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
    hosts: HostNames
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
    report: Report
    home: Home
    progress: ShowProgress
