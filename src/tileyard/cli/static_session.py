"""One static comparison as the command line shows it: both sides in turn, table, exit status."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.cli.entry import INTERRUPTED
from tileyard.cli.opening import load_settings, present
from tileyard.cli.session import carry_out
from tileyard.cli.sides import find_sides
from tileyard.errors import TileyardError, UsageError
from tileyard.model import Limits, Side
from tileyard.modes import make_folder
from tileyard.regress.limits import Limit, find_regressions
from tileyard.regress.static import BUILD, TELLING_ROUNDS, compare_sides
from tileyard.report.console import Console
from tileyard.report.static import print_comparison
from tileyard.service.sides import probe_side, side_variables
from tileyard.service.verbs import StartStatic
from tileyard.settings import Settings
from tileyard.targets.registry import make_target


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks for: see ``StartStatic`` and the options' help. ``limits`` are None where nothing fails."""

    base: str
    head: str
    files: tuple[str, ...]
    target: str
    all_configs: bool
    rounds: int
    limits: Sequence[Limit] | None
    build_s: float
    compile_workers: int | None


def run(asked: Asked, *, as_json: bool) -> int:
    """Build both sides, show how they differ, and return the exit status."""
    timed = asked.rounds - 1  # the first one makes caches
    if timed < TELLING_ROUNDS and any(limit.metric == BUILD for limit in asked.limits or ()):
        raise UsageError(f"a limit of build times takes --repeat {TELLING_ROUNDS} or more")
    settings = load_settings()
    make_target(asked.target, settings.plugins)  # refuses what there is not, at once
    work = settings.make_home() / "tmp"
    make_folder(work)
    named = (asked.base, asked.head)
    with (
        find_sides(named, asked.files, settings.home) as found,
        tempfile.TemporaryDirectory(prefix="static-", dir=work) as scratch,
    ):
        sides = [one.side for one in found]
        (base, base_label), (head, head_label) = _settle(sides, Path(scratch), settings)
        # A data directory that has nothing yet but precompiled headers.
        own = msgspec.structs.replace(settings, home=Path(scratch))
        start = StartStatic(
            base=base,
            head=head,
            base_files=found[0].files,
            head_files=found[1].files,
            target=asked.target,
            all_configs=asked.all_configs,
            rounds=asked.rounds,
            limits=Limits(build_s=asked.build_s),
            compile_workers=asked.compile_workers,
        )
        built = carry_out(start, own, Console(stderr=as_json))
    if built.reason == "interrupted":
        return INTERRUPTED
    labels = (base_label, head_label)
    compared = compare_sides(asked.target, labels, built.base, built.head)
    broken = () if asked.limits is None else tuple(find_regressions(compared, asked.limits))
    present(msgspec.structs.replace(compared, regressions=broken), as_json, print_comparison)
    return 1 if broken else 0


def _settle(sides: Sequence[Side], scratch: Path, settings: Settings) -> list[tuple[Side, str]]:
    """The sides, each with its environment, and what it is called in what is shown."""
    is_plain = any(side.python for side in sides)
    if not is_plain:
        # Only sides that build as all other builds here do share caches with them: images of
        # compilers' memory fit only processes that have loaded the same libraries.
        caches = settings.home / "caches"
        make_folder(caches)
        (scratch / "caches").symlink_to(caches)
    settled = []
    for name, side in zip(("base", "head"), sides, strict=True):
        variables = side_variables(side, scratch, is_plain=is_plain) | side.variables
        try:
            installed = probe_side(side, variables)
        except TileyardError as error:
            error.message = f"{name}: {error.message}"
            raise
        label = f"TileLang {installed.tilelang}{' of ' if side.python else ', '}{side.name}"
        settled.append((msgspec.structs.replace(side, variables=variables), label))
    return settled
