"""One static comparison as the command line shows it: both sides in turn, table, exit status."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.cli.opening import print_json
from tileyard.cli.session import stop_on_interrupt
from tileyard.cli.values import parse_pairs, parse_value
from tileyard.errors import TileyardError, UsageError
from tileyard.model import Limits, Record, Side
from tileyard.modes import make_folder
from tileyard.regress.limits import Limit, find_regressions
from tileyard.regress.static import BUILD, TELLING_ROUNDS, compare_sides
from tileyard.report.console import Console
from tileyard.report.progress import Progress
from tileyard.report.static import print_comparison
from tileyard.service.client import RunClient
from tileyard.service.sides import HERE, find_side, probe_side, side_variables
from tileyard.service.verbs import StartStatic
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
        (base, base_label), (head, head_label) = _find_sides(wanted, Path(scratch), settings)
        start = StartStatic(
            files=tuple((str(file.absolute()), name) for file, name in files),
            target=wanted.target,
            base=base,
            head=head,
            all_configs=wanted.all_configs,
            rounds=wanted.rounds,
            limits=Limits(build_s=wanted.build_s),
            compile_workers=wanted.compile_workers,
        )
        # A data directory that has nothing yet but precompiled headers.
        own = msgspec.structs.replace(settings, home=Path(scratch))
        client = RunClient(start, own)
        with stop_on_interrupt(client), Progress(console) as progress:
            built = client.run(progress)
    if built.reason == "interrupted":
        return INTERRUPTED
    labels = (base_label, head_label)
    compared = compare_sides(wanted.target, labels, built.base, built.head)
    regressions = () if limits is None else tuple(find_regressions(compared, limits))
    compared = msgspec.structs.replace(compared, regressions=regressions)
    if as_json:
        print_json(compared)
    else:
        print_comparison(console, compared)
    return 1 if regressions else 0


# ---- sides --------------------------------------------------------------------------------------


def _find_sides(wanted: Wanted, scratch: Path, settings: Settings) -> list[tuple[Side, str]]:
    """Both sides, each with its environment, and what it is called in what is shown."""
    sides = [_parse_side(named) for named in (wanted.base, wanted.head)]
    is_plain = any(side.python for side in sides)
    if not is_plain:
        # Only sides that build as all other builds here do share caches with them: images of
        # compilers' memory fit only processes that have loaded the same libraries.
        caches = settings.home / "caches"
        make_folder(caches)
        (scratch / "caches").symlink_to(caches)
    found = []
    for name, side in zip(("base", "head"), sides, strict=True):
        variables = side_variables(side, scratch, is_plain=is_plain)
        try:
            installed = probe_side(side, variables)
        except TileyardError as error:
            error.message = f"{name}: {error.message}"
            raise
        options = " ".join(f"{key}={value}" for key, value in side.pass_options.items())
        where = f" of {side.name}" if side.python else ""
        label = f"TileLang {installed.tilelang}{where}" + (f", {options}" if options else "")
        found.append((msgspec.structs.replace(side, variables=variables), label))
    return found


def _parse_side(named: str) -> Side:
    """Pass options where it is written like these and no file is called so."""
    if "=" not in named or Path(named).exists():
        return find_side(named)
    options = parse_pairs(named.split(","), "pass option")
    here = find_side(HERE)
    values = {key: parse_value(text) for key, text in options.items()}
    return msgspec.structs.replace(here, name=named, pass_options=values)


# ---- building -----------------------------------------------------------------------------------


def _find_file(named: str) -> tuple[Path, str]:
    file, _, name = named.partition("::")
    if not Path(file).is_file():
        raise UsageError(f"there is no file {file}")
    return Path(file), name
