"""Options that several verbs about a kernel share, and the requests that follow."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from tileyard.base.errors import UsageError
from tileyard.base.model import QUEUE_LIMIT_S, Limits, Value
from tileyard.base.settings import GOLDEN_THREADS
from tileyard.show.options import (
    HOSTS,
    FileOption,
    NamesOption,
    Option,
    SizeOption,
    Switch,
    Text,
    TimeOption,
    usually,
)
from tileyard.show.values import (
    Choices,
    FilePath,
    Names,
    Pairs,
    Share,
    Size,
    Time,
    parse_count,
    parse_pairs,
    parse_share,
    parse_value,
    read_choices,
    read_lists,
    read_text,
    read_time_s,
    read_values,
    refuse_unused,
    spell_bytes,
    spell_duration,
)
from tileyard.targets.registry import DEFAULT_TARGET, find_needs, list_texts, spell_target

if TYPE_CHECKING:
    EmittedText: TypeAlias = str
else:
    EmittedText = Literal[tuple(list_texts())]
"""The words of ``--emit``, from all targets."""


def _read_python_limit(given: Time | None, option: str) -> float:
    """Seconds, 0 for the usual limits. Raises UsageError, also for a time of length 0."""
    seconds = read_time_s(given, option) or 0.0
    if given is not None and not seconds:
        raise UsageError(f"{option} is 0, which is enough for no kernel file")
    return seconds


def read_arguments(given: Pairs, option: str) -> dict[str, Value]:
    """The values of a kernel's arguments. Raises UsageError, also for a list of numbers."""
    values = read_values(given, option)
    if isinstance(given, Mapping):
        return values
    for key, text in values.items():
        parts = text.split(",") if isinstance(text, str) else []
        if len(parts) > 1 and not any(isinstance(parse_value(part), str) for part in parts):
            raise UsageError(
                f"{option} {key} has {len(parts)} values, and a kernel takes one",
                f"--config {key}={text} tries each",
            )
    return values


def read_sizes(given: Choices, option: str) -> dict[str, tuple[Value, ...]]:
    """The same, if several values mean several shapes: a list, or numbers in a text. Raises UsageError."""
    if isinstance(given, Mapping):
        return read_lists(given, option)
    sizes = {}
    for key, text in parse_pairs(given or (), option).items():
        parts = [parse_value(part) for part in text.split(",")]
        is_list = not any(isinstance(part, str) for part in parts)
        sizes[key] = tuple(parts) if is_list else (parse_value(text),)
    return sizes


TARGET = (
    "Target of kernels, such as cpu, cpu:units=0 or cuda:sm_90a "
    "(options of cpu: docs/reference/cpu-coverage.md)."
)
MEMORY = "Maximum address space of a running config, such as 8GiB."
DEVICES = "Run on cpu:cores=0-3, cuda:1, queue:NAME, ...; again for more of them."
SIDES = (
    "a git revision of the project, . for its working tree, a Python or virtual environment with another "
    "TileLang, packages for one that is made (pip:tilelang==0.1.14), or pass options KEY=VALUE,KEY=VALUE"
)
"""The values that a side of a comparison may have."""

PairOption = partial(Option, metavar="KEY=VALUE")
ArgumentValues = Annotated[Pairs, PairOption("An argument of the kernel.", read=read_arguments)]
ArgumentChoices = Annotated[
    Choices,
    PairOption(
        "An argument of the kernel; with several values, as in KEY=A,B,C, there are several shapes.",
        read=read_sizes,
    ),
]
ShapeName = Annotated[str, Text("A named set of arguments of the kernel.", metavar="NAME")]
ShapeNames = Annotated[
    Names,
    NamesOption("A named set of arguments of the kernel; again for more of them.", metavar="NAME"),
]
ConfigValue = Annotated[
    Choices,
    PairOption("A value of a parameter, or of the pipeline of passes.", read=read_choices),
]
ConfigValues = Annotated[
    Choices,
    PairOption(
        "Values of a parameter, or of the pipeline of passes: KEY=A,B,C, KEY=16..256:16 (every 16th), "
        "or KEY=pow2:16..256.",
        read=read_choices,
    ),
]
TargetName = Annotated[str, Option(TARGET, default=DEFAULT_TARGET, metavar="TARGET")]
AnyTarget = Annotated[str, Text(TARGET, metavar="TARGET")]
BUDGET = "Begin nothing more after this time, such as 60s or 5m"
Budget = Annotated[Time | None, TimeOption(f"{BUDGET}.")]
BundleFile = Annotated[
    FilePath, FileOption("Run a bundle that was built elsewhere, in place of sources.")
]
OutputOption = partial(FileOption, flags=("--output", "-o"))
PrintedOption = partial(Option, metavar="FILE|-", flags=("--output", "-o"))
"""A file to write, or ``-`` to print it."""
PipelineName = Annotated[
    str,
    Text("Pipeline of passes by its name; tilelang is TileLang's own.", metavar="PIPELINE"),
]
CommitName = Annotated[
    str,
    Text(
        "The commit of a bundle or toolchain: recorded when it is made, required when it is used.",
        metavar="SHA",
    ),
]
TimeLimitOption = partial(TimeOption, "Stop after this time.", default="10m")
TimeLimit = Annotated[Time, TimeLimitOption()]
FigureLimits = Annotated[
    str,
    Text(
        "Limits for figures of the binary: registers:+5%,spills:+0,occupancy:-10%. regress fails where one "
        "is exceeded, with --static only then and for lost kernels ('missing' alone: only for these). bisect "
        "finds the commit that exceeded one, and runs nothing.",
        metavar="LIMITS",
    ),
]
Picture = Annotated[FilePath, FileOption("Also draw a PNG; needs matplotlib.")]
Report = Annotated[FilePath, FileOption("Also write a report: one HTML file with charts.")]
Reference = Annotated[
    str | Callable[..., object],
    Text("A function of the file to check results against.", read=read_text),
]
Checked = Annotated[bool, Option("Compare results with the reference.", default=True)]
DeviceNames = Annotated[
    Names,
    NamesOption(DEVICES, metavar="ID"),
]
RequireCheck = Annotated[
    bool, Switch("Fail where there is no reference to compare with (exit status 1).")
]
CheckSync = Annotated[
    bool | None,
    Option(
        "Fail configs with races, undefined accesses or wrong synchronization; by default the first config "
        "and the finalists, where the check takes about a second."
    ),
]
RunLimit = Annotated[
    Time,
    TimeOption(
        "End a config that runs longer.",
        default=spell_duration(Limits().run_s),
        flags=("--run-limit", "--timeout"),
    ),
]
BuildLimit = Annotated[
    Time,
    TimeOption("End a build that takes longer.", default=spell_duration(Limits().build_s)),
]
PythonLimit = Annotated[
    Time | None,
    TimeOption(
        "End the file's own Python if its import, a kernel's elaboration, space, inputs or reference takes "
        "longer; "
        "by default after 2m, 60s, 60s, and 5m for the last two.",
        read=_read_python_limit,
    ),
]
MemoryLimit = Annotated[Size, SizeOption(MEMORY, default=spell_bytes(Limits().memory_bytes))]
HostNames = Annotated[
    str,
    Text(
        f"Use other hosts: {HOSTS}",
        metavar="HOSTS",
    ),
]
QueueLimit = Annotated[
    Time,
    TimeOption("Wait no longer than this for a device.", default=spell_duration(QUEUE_LIMIT_S)),
]
CpuLevel = Annotated[
    str,
    Text(
        "CPU level to build for, or that a toolchain requires, such as x86-64-v3; by default the one of this "
        "CPU.",
        metavar="LEVEL",
    ),
]
CompileWorkers = Annotated[
    int | None, Option("Number of processes that build; by default one per core.", least=1)
]
GoldenThreads = Annotated[
    int | None,
    Option(
        "Number of reference results, golden steps and check steps at a time; by default one per core.",
        least=1,
        variable=GOLDEN_THREADS,
    ),
]
GroupSize = Annotated[
    int | str,
    Option(
        "Maximum number of configs in one compilation.",
        metavar="N|auto",
        default="auto",
        read=parse_count,
        flags=("--group-size", "--group-compile-size"),
    ),
]
Resume = Annotated[
    bool,
    Option(
        "Reuse earlier results, or measure everything again.",
        flags=("--resume/--fresh",),
        default=True,
    ),
]
Sanitize = Annotated[
    bool,
    Switch(
        "Check kernels in sanitized builds, too: tiles begin poisoned, and a read of what nothing has "
        "written fails."
    ),
]
AllConfigs = Annotated[bool, Switch("All configs of each space, not only the first.")]
USUAL_MARGIN = "2%"
USUAL_EACH = "30s"
SmallestChange = Annotated[
    Share | None,
    Option(
        f"The smallest change that matters; by default {USUAL_MARGIN}.",
        metavar="PERCENT",
        read=usually(USUAL_MARGIN, parse_share),
    ),
]
TimeEach = Annotated[
    Time | None,
    TimeOption(
        f"Maximum time for a kernel or program of both versions; by default {USUAL_EACH}.",
        read=usually(USUAL_EACH, read_time_s),
    ),
]
Emit = Annotated[
    EmittedText | None,
    Option("Print the generated code on standard output; everything else goes to standard error."),
]


def target_at(target: str, level: str, *, debug: bool = False, sanitize: bool = False) -> str:
    """A target with a CPU level, for a debugger, or sanitized, as it supports. Raises UsageError."""
    needs = find_needs(target)
    if level and not (needs.takes_level and ":" not in target):
        raise UsageError(f"--cpu-arch is for the target cpu, and not for {target}")
    if debug and not needs.takes_debug:
        raise UsageError(f"--debug is for the target cpu, and not for {target}")
    if sanitize and not needs.sanitizes:
        raise UsageError(f"--sanitize is for the target cpu, and not for {target}")
    named = f"{target}:{level}" if level else target
    options = [*(["debug=1"] if debug else []), *([needs.sanitizes] if sanitize else [])]
    return spell_target(
        ",".join([named if ":" in named or not options else f"{named}:native", *options])
    )


def parse_kernel(named: str) -> tuple[Path, str]:
    """The file and the kernel's name, empty if not given. Raises UsageError."""
    file, _, name = named.partition("::")
    if not Path(file).is_file():
        if Path(file).is_symlink():
            raise UsageError(f"{file} is a link to {Path(file).readlink()}, which is no file")
        raise UsageError(f"there is no file {file}")
    return Path(file).absolute(), name


def require_one(config: Mapping[str, Sequence[Value]], verb: str) -> None:
    """Raise UsageError for several configs."""
    for key, values in config.items():
        if len(values) != 1:
            raise UsageError(f"--config {key} has several values: {verb} takes one config")


def read_limits(values: Mapping[str, Any]) -> Limits:
    """The limits of a config, from what is read of the options for them; the usual ones otherwise."""
    named = {"run_s": "run_limit", "build_s": "build_limit", "memory_bytes": "memory_limit"}
    given = {field: values.get(option) for field, option in named.items()}
    return Limits(**{field: value for field, value in given.items() if value is not None})


def check_reference(reference: object, *, check: bool, require_check: bool) -> None:
    """Raise UsageError for a reference that nothing is compared with, and if nothing can be checked."""
    if require_check and not check:
        raise UsageError("--require-check and --no-check contradict each other: choose one")
    if not check:
        refuse_unused("with --no-check", {"--reference": reference})
