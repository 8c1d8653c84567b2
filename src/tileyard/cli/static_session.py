"""One static comparison as the command line shows it: both sides in turn, table, exit status."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.pins import hold
from tileyard.cli.entry import INTERRUPTED
from tileyard.cli.opening import load_settings, present
from tileyard.cli.session import carry_out
from tileyard.cli.values import parse_pairs, parse_value
from tileyard.errors import TileyardError, UsageError
from tileyard.model import Side
from tileyard.modes import make_folder
from tileyard.regress.limits import Limit, find_regressions
from tileyard.regress.static import BUILD, TELLING_ROUNDS, compare_sides
from tileyard.report.console import Console
from tileyard.report.static import print_comparison
from tileyard.service.environments import PREFIX, find_environment
from tileyard.service.sides import find_side, probe_side, side_variables
from tileyard.service.verbs import StartStatic
from tileyard.settings import Settings
from tileyard.targets.registry import make_target


def run(start: StartStatic, limits: Sequence[Limit] | None, *, as_json: bool) -> int:
    """Build both sides, as ``parse_side`` returns them; show how they differ; return the exit status.

    ``limits`` are None where nothing fails.
    """
    timed = start.rounds - 1  # the first one makes caches
    if timed < TELLING_ROUNDS and any(limit.metric == BUILD for limit in limits or ()):
        raise UsageError(f"a limit of build times takes --repeat {TELLING_ROUNDS} or more")
    settings = load_settings()
    make_target(start.target, settings.plugins)  # refuses what there is not, at once
    work = settings.make_home() / "tmp"
    make_folder(work)
    with tempfile.TemporaryDirectory(prefix="static-", dir=work) as scratch:
        (base, base_label), (head, head_label) = _find_sides(start, Path(scratch), settings)
        # A data directory that has nothing yet but precompiled headers.
        own = msgspec.structs.replace(settings, home=Path(scratch))
        whole = msgspec.structs.replace(start, base=base, head=head)
        built = carry_out(whole, own, Console(stderr=as_json))
    if built.reason == "interrupted":
        return INTERRUPTED
    labels = (base_label, head_label)
    compared = compare_sides(start.target, labels, built.base, built.head)
    regressions = () if limits is None else tuple(find_regressions(compared, limits))
    compared = msgspec.structs.replace(compared, regressions=regressions)
    present(compared, as_json, print_comparison)
    return 1 if regressions else 0


# ---- sides --------------------------------------------------------------------------------------


def _find_sides(start: StartStatic, scratch: Path, settings: Settings) -> list[tuple[Side, str]]:
    """Both sides, each with its environment, and what it is called in what is shown."""
    sides = (start.base, start.head)
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


@contextlib.contextmanager
def keep_sides() -> Iterator[None]:
    """Keep the checkouts and environments that are used in the block from being collected."""
    with hold(load_settings().make_home() / "objects"):
        yield


def parse_side(named: str) -> Side:
    """A side as it is named on the command line; its environment is made if need be. Raises UsageError.

    Pass options where it is written like these and no file is called so.
    """
    if named.startswith(PREFIX):
        home = load_settings().make_home()
        python = find_environment(named.removeprefix(PREFIX).split(","), home)
        return Side(name=named, python=str(python))
    if "=" not in named or Path(named).exists():
        return find_side(named)
    options = parse_pairs(named.split(","), "pass option")
    values = {key: parse_value(text) for key, text in options.items()}
    return Side(name=named, pass_options=values)
