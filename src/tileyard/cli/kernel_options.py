"""Options that several commands about a kernel have, worded once, and what they come to."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from tileyard.cli.values import parse_pairs, parse_value
from tileyard.errors import UsageError
from tileyard.targets.registry import find_needs, list_texts

if TYPE_CHECKING:
    from tileyard.model import Value

    EmittedText: TypeAlias = str
else:
    EmittedText = Literal[tuple(list_texts())]
"""The words of ``--emit``: those of all targets."""

SIDES = (
    "a git revision of the project, . for its working tree, a Python or virtual environment with another TileLang, "
    "packages for one that is made (pip:tilelang==0.1.14), or pass options KEY=VALUE,KEY=VALUE"
)
"""What a comparison takes as a side."""

KernelName = Annotated[str, typer.Argument(metavar="FILE[::NAME]", help="Where the kernel is.")]
ArgumentValues = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="An argument of the kernel.")
]
ShapeName = Annotated[str, typer.Option(help="A named set of arguments of the kernel.")]
DeviceNames = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID", help="cpu:cores=0-3, cuda:1, queue:NAME, ...; again for more of them."
    ),
]
RequireCheck = Annotated[
    bool,
    typer.Option("--require-check", help="Fail where nothing says what is right (exit status 1)."),
]
CheckSync = Annotated[
    bool | None,
    typer.Option(
        "--check-sync/--no-check-sync",
        help="Fail configs with mistakes in their synchronization; by default where finding them takes under a second.",
    ),
]
RunLimit = Annotated[str, typer.Option(metavar="TIME", help="End a config that runs longer.")]
BuildLimit = Annotated[str, typer.Option(metavar="TIME", help="End a build that takes longer.")]
MemoryLimit = Annotated[
    str, typer.Option(metavar="SIZE", help="Address space of a running config.")
]
QueueLimit = Annotated[
    str, typer.Option(metavar="TIME", help="Wait no longer than this for a device.")
]
CpuLevel = Annotated[
    str,
    typer.Option(
        "--cpu-arch",
        metavar="LEVEL",
        help="For the target cpu: build for CPUs such as x86-64-v3, not for this one alone.",
    ),
]
CompileWorkers = Annotated[
    int | None, typer.Option(min=1, help="Processes that build; by default one for each core.")
]
GoldenThreads = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Reference results, and golden and check steps, at a time; by default one for each core.",
    ),
]
AllConfigs = Annotated[
    bool, typer.Option("--all-configs", help="All configs of each space, not the first one only.")
]
USUAL_MARGIN = "2%"
USUAL_EACH = "30s"
SmallestChange = Annotated[
    str,
    typer.Option(
        metavar="PERCENT", help=f"The smallest change that matters; by default {USUAL_MARGIN}."
    ),
]
TimeEach = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help=f"Time a kernel or program of two versions no longer than this; by default {USUAL_EACH}.",
    ),
]
Emit = Annotated[
    EmittedText | None,
    typer.Option(help="Print what was generated, on standard output; all else goes to the other."),
]


def target_at(target: str, level: str, *, debug: bool = False) -> str:
    """A target for a CPU level, and for a debugger, where it takes them; any where neither is asked for.

    Raises UsageError.
    """
    needs = find_needs(target)
    if level and not (needs.takes_level and ":" not in target):
        raise UsageError(f"--cpu-arch is for the target cpu, and not for {target}")
    if debug and not needs.takes_debug:
        raise UsageError(f"--debug is for the target cpu, and not for {target}")
    named = f"{target}:{level}" if level else target
    return f"{named if ':' in named else f'{named}:native'},debug=1" if debug else named


def parse_kernel(named: str) -> tuple[Path, str]:
    """The file and the kernel's name, empty where none is given. Raises UsageError."""
    file, _, name = named.partition("::")
    if not Path(file).is_file():
        raise UsageError(f"there is no file {file}")
    return Path(file).absolute(), name


def parse_arguments(given: Sequence[str] | None) -> "dict[str, Value]":
    """The values of ``--arg``. Raises UsageError, also for a list of numbers."""
    pairs = parse_pairs(given or (), "--arg")
    for key, text in pairs.items():
        numbers = [part for part in text.split(",") if not isinstance(parse_value(part), str)]
        if len(numbers) > 1 and len(numbers) == 1 + text.count(","):
            raise UsageError(
                f"--arg {key} has {len(numbers)} values, and a kernel takes one",
                f"--config {key}={text} tries each",
            )
    return {key: parse_value(text) for key, text in pairs.items()}


def parse_config(given: Sequence[str] | None) -> "dict[str, tuple[Value, ...]]":
    """The values of ``--config``, one or several for each parameter. Raises UsageError."""
    pairs = parse_pairs(given or (), "--config")
    for key, text in pairs.items():
        if not all(text.split(",")):
            raise UsageError(f"--config {key}={text} has an empty value")
    return {key: tuple(map(parse_value, text.split(","))) for key, text in pairs.items()}


def check_reference(reference: str, *, check: bool, require_check: bool) -> None:
    """Raise UsageError for a reference that nothing is compared with, and where nothing can be checked."""
    if require_check and not check:
        raise UsageError("--require-check and --no-check contradict each other: choose one")
    if reference and not check:
        raise UsageError("--reference has no effect with --no-check")
