"""Data that a data directory keeps of a suite between runs: failures, and the cost of starting a piece."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from tileyard.artifacts.keys import digest_parts
from tileyard.base.decoding import decode_json
from tileyard.base.drafts import draft_of
from tileyard.base.errors import HomeError
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, mode_in
from tileyard.verbs.test.plan.pieces import Costs
from tileyard.verbs.test.plan.step_times import KnownSteps
from tileyard.verbs.test.result.achieved import Startup
from tileyard.verbs.test.result.result import CaseVerdict

FOLDER = "suites"


class Memory(Record):
    """The ids of cases that ended badly in their last run, and the cost of starting, in seconds:
    ``startup_s`` of a piece, during whose part ``launch_s`` no other can start, and ``lead_s`` before the
    first case. ``steps`` is what is known of golden and check steps. ``knows_mask``: its owner knows that
    masks renumber devices.
    """

    failing: tuple[str, ...] = ()
    startup_s: float = 0.0
    launch_s: float = 0.0
    lead_s: float = 0.0
    steps: KnownSteps = KnownSteps()
    knows_mask: bool = False

    def costs(self, lanes: int, *, has_devices: bool) -> Costs:
        """The cost of starting by earlier runs of the suite, with so many lanes for steps; these share the
        cores with slots, and not with devices.
        """
        return Costs(
            startup_s=self.startup_s,
            launch_s=self.launch_s,
            lead_s=self.lead_s,
            lanes=lanes,
            shares_cores=not has_devices,
        )


def read_memory(home: Path, suite: str) -> Memory:
    """The memory of this suite; empty if it never ran or the file is damaged. Raises HomeError."""
    path = _path(home, suite)
    try:
        return decode_json(path.read_bytes(), Memory)
    except (FileNotFoundError, msgspec.DecodeError):
        return Memory()
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}") from error


def update_memory(
    home: Path,
    suite: str,
    verdicts: Iterable[CaseVerdict],
    started: Startup | None,
    learn: Callable[[Memory], Memory],
) -> None:
    """Add a run's results, leaving cases that did not run; ``learn`` adds the rest. Raises HomeError."""
    known = read_memory(home, suite)
    is_bad = {verdict.case: verdict.is_bad for verdict in verdicts}
    still = (case for case in known.failing if case not in is_bad)
    costs = {} if started is None else asdict(started)
    told = {name: seconds for name, seconds in costs.items() if seconds is not None}
    memory = replace(known, failing=(*still, *(case for case in is_bad if is_bad[case])), **told)
    memory = learn(memory)
    path = _path(home, suite)
    try:
        make_folder(path.parent)
        with draft_of(path) as file:
            file.write(msgspec.json.encode(memory))
            os.fchmod(file.fileno(), mode_in(path.parent, 0o666))
    except OSError as error:
        raise HomeError(f"cannot write to {path.parent}: {error.strerror}") from error


def _path(home: Path, suite: str) -> Path:
    return home / FOLDER / f"{digest_parts('suite', suite)[:20]}.json"
