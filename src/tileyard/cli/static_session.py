"""One static comparison as the command line shows it: both sides in turn, table, exit status."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.cli.opening import print_json
from tileyard.cli.session import stop_on_interrupt
from tileyard.cli.values import parse_pairs, parse_value
from tileyard.errors import KernelFileError, TileyardError, UsageError
from tileyard.model import Limits, Outcome, Record
from tileyard.modes import make_folder
from tileyard.regress.limits import Limit, find_regressions
from tileyard.regress.static import BUILD, TELLING_ROUNDS, KernelBuild, SideBuild, compare_sides
from tileyard.report.console import Console
from tileyard.report.progress import Progress
from tileyard.report.static import print_comparison
from tileyard.service.client import StaticClient
from tileyard.service.messages import StartStatic
from tileyard.service.sides import HERE, Installed, Side, find_side, probe_side, side_variables
from tileyard.settings import Settings, read_settings
from tileyard.targets.registry import make_target

INTERRUPTED = 130


class Wanted(Record):
    """What is asked for. ``rounds`` is how often each side builds everything."""

    base: str
    head: str
    files: tuple[str, ...]
    target: str
    all_configs: bool
    rounds: int
    build_s: float
    compile_workers: int | None


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A side with what its Python has, its environment, and its own folder for what it builds."""

    name: str
    side: Side
    installed: Installed
    variables: Mapping[str, str]
    folder: Path
    settings: Settings

    @property
    def label(self) -> str:
        """What it is called in what is shown."""
        options = " ".join(f"{key}={value}" for key, value in self.side.pass_options.items())
        where = "" if self.side.is_here else f" of {self.side.named}"
        return f"TileLang {self.installed.tilelang}{where}" + (f", {options}" if options else "")


def run(wanted: Wanted, limits: Sequence[Limit] | None, *, as_json: bool) -> int:
    """Build both sides, show how they differ, and return the exit status.

    ``limits`` are None where nothing fails.
    """
    timed = wanted.rounds - 1  # the first one makes caches
    if timed < TELLING_ROUNDS and any(limit.metric == BUILD for limit in limits or ()):
        raise UsageError(f"a limit of build times takes --repeat {TELLING_ROUNDS} or more")
    files = [_find_file(named) for named in wanted.files]
    settings = read_settings(os.environ, Path.cwd())
    make_target(wanted.target, settings.plugins)  # refuses what there is not, at once
    console = Console(stderr=as_json)
    work = settings.make_home() / "tmp"
    make_folder(work)
    with tempfile.TemporaryDirectory(prefix="static-", dir=work) as scratch:
        base, head = _make_ready(wanted, Path(scratch), settings)
        built: tuple[list[SideBuild], list[SideBuild]] = ([], [])
        for number in range(wanted.rounds):
            order = ((base, built[0]), (head, built[1]))
            for ready, rounds in order if number % 2 == 0 else reversed(order):
                rounds.append(_build_round(wanted, files, ready, number, console))
                if rounds[-1].reason == "interrupted":
                    return INTERRUPTED
    compared = compare_sides(wanted.target, (base.label, head.label), *built)
    regressions = () if limits is None else tuple(find_regressions(compared, limits))
    compared = msgspec.structs.replace(compared, regressions=regressions)
    if as_json:
        print_json(compared)
    else:
        print_comparison(console, compared)
    return 1 if regressions else 0


# ---- sides --------------------------------------------------------------------------------------


def _make_ready(wanted: Wanted, scratch: Path, settings: Settings) -> tuple[_Ready, _Ready]:
    sides = [_parse_side(named) for named in (wanted.base, wanted.head)]
    is_plain = not all(side.is_here for side in sides)
    ready: list[_Ready] = []
    for name, side in zip(("base", "head"), sides, strict=True):
        folder = scratch / name
        make_folder(folder)
        variables = side_variables(side, scratch, is_plain=is_plain)
        installed = probe_side(side, variables)
        # Images of compilers' memory fit only processes that have loaded the same libraries: only sides
        # that build as all other builds here do share theirs with them, and nothing else.
        caches = folder / "caches" if is_plain else settings.home / "caches"
        make_folder(caches)
        ready.append(
            _Ready(
                name=name,
                side=side,
                installed=installed,
                variables=variables,
                folder=folder,
                settings=settings,
            )
        )
    return ready[0], ready[1]


def _parse_side(named: str) -> Side:
    """Pass options where it is written like these and no file is called so."""
    if "=" not in named or Path(named).exists():
        return find_side(named)
    options = parse_pairs(named.split(","), "pass option")
    here = find_side(HERE)
    values = {key: parse_value(text) for key, text in options.items()}
    return msgspec.structs.replace(here, named=named, pass_options=values)


# ---- building -----------------------------------------------------------------------------------


def _find_file(named: str) -> tuple[Path, str]:
    file, _, name = named.partition("::")
    if not Path(file).is_file():
        raise UsageError(f"there is no file {file}")
    return Path(file), name


def _build_round(
    wanted: Wanted, files: Sequence[tuple[Path, str]], ready: _Ready, number: int, console: Console
) -> SideBuild:
    """All files on one side, in a home that has nothing yet but precompiled headers."""
    home = ready.folder / str(number)
    make_folder(home)
    own = ready.folder / "caches"
    shared = own if own.is_dir() else ready.settings.home / "caches"
    (home / "caches").symlink_to(shared)
    kernels: list[KernelBuild] = []
    compiler = ""
    for file, name in files:
        prefix = f"{file.stem}/" if len(files) > 1 else ""
        start = StartStatic(
            file=str(file.absolute()),
            target=wanted.target,
            kernel=name,
            all_configs=wanted.all_configs,
            pass_options=ready.side.pass_options,
            title=f"static {ready.name}, round {number + 1}",
            limits=Limits(build_s=wanted.build_s),
            compile_workers=wanted.compile_workers,
        )
        built = _build_file(start, ready, home, console)
        kernels += [msgspec.structs.replace(one, case=prefix + one.case) for one in built.kernels]
        compiler = compiler or built.compiler
        if built.reason != "done":
            return built
    return SideBuild(kernels=tuple(kernels), compiler=compiler)


def _build_file(start: StartStatic, ready: _Ready, home: Path, console: Console) -> SideBuild:
    """One file on one side; a file that only this side cannot read is a kernel that failed."""
    settings = msgspec.structs.replace(ready.settings, home=home)
    client = StaticClient(start, settings, python=ready.side.python, variables=ready.variables)
    try:
        with stop_on_interrupt(client), Progress(console) as progress:
            return client.run(progress)
    except KernelFileError as error:
        failed = KernelBuild(
            case=Path(start.file).name, outcome=Outcome.COMPILE_ERROR, message=str(error)
        )
        return SideBuild(kernels=(failed,))
    except TileyardError as error:
        error.message = f"{ready.name}: {error.message}"
        raise
