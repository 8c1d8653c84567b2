"""Defines the interface of a store of trials and its queries; importing it loads no SQL."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from tileyard.base.errors import HomeError
from tileyard.base.model import BuildKey, MeasurementKey, Outcome, Record, RunKey, Trial, Value

REUSABLE = frozenset(
    {
        Outcome.PASSED,
        Outcome.UNCHECKED,
        Outcome.MISMATCH,
        Outcome.RUNTIME_ERROR,
        Outcome.CRASHED,
        Outcome.TIMEOUT,
        Outcome.OUT_OF_MEMORY,
    }
)
"""Outcomes of a run that depend on the kernel: the same keys would end the same way."""
BUILD_FAILURES = frozenset({Outcome.COMPILE_ERROR, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY})
"""Outcomes of a build that depend on the source."""
LATEST = 8
"""Number of runs per case that are read by default."""
MOUNTS = Path("/proc/self/mounts")
NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
    }
)
"""Types of ``/proc/mounts`` on which a WAL database would corrupt or fail."""


class RunTime(Record):
    """One attempt at a suite's case. ``run_s`` is 0 if it did not get to a device."""

    case: str
    testcase: str
    target: str
    device: str
    outcome: Outcome
    started_at: float
    run_s: float


class CaseTimes(Record):
    """Seconds that the attempts at a suite's case took: those before some date, and later ones."""

    suite: str
    case: str
    testcase: str
    before_s: Sequence[float]
    after_s: Sequence[float]


class RunSpan(Record):
    """A run that has trials: how many, and when the first and the last one started."""

    run: str
    trials: int
    first_at: float
    last_at: float


class TrialQuery(Record):
    """Selects trials to list; an empty field, or ``limit`` 0, selects all. ``kernel`` is a trial's,
    or its testcase; ``case`` an id, or leading parts up to a slash; ``batch`` the beginning of a batch's id
    after its last slash; ``run_keys`` match any. ``since``: only cases that began then or later, in seconds
    since the epoch; ``was_run``: only cases that ran.
    """

    kernel: str = ""
    case: str = ""
    suite: str = ""
    run: str = ""
    batch: str = ""
    target: str = ""
    run_keys: tuple[RunKey, ...] = ()
    since: float = 0.0
    outcome: Outcome | None = None
    was_run: bool = False
    limit: int = 50


class Store(Protocol):
    """The trials of one data directory; a context manager, usable from any thread. Methods raise
    HomeError if it cannot be used; unreadable rows are skipped and counted.
    """

    def close(self) -> None:
        """Close the store."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe_skipped(self) -> str:
        """One line about the rows that could not be read so far and were skipped; empty if there are none."""

    def record(self, trial: Trial) -> None:
        """Append a trial, which survives this process from then on. Raises ValueError if its id exists."""
        self.record_all([trial])

    def record_all(self, content: Sequence[Trial]) -> None:
        """Append trials, all of them or none; see ``record``."""

    def find_measured(
        self, key: MeasurementKey, config: Mapping[str, Value] | None = None
    ) -> Trial | None:
        """The latest REUSABLE trial of this measurement: of this config, else of one with the same binary."""

    def find_passed(self, key: RunKey, run: str = "") -> Trial | None:
        """The latest trial of a suite's case that passed with this run key, in this run if one is named."""

    def find_build_failure(self, build: BuildKey) -> Trial | None:
        """The latest trial that failed while this was built, before it had a run key."""

    def find_durations(self, kernel: str, target: str) -> dict[str, float]:
        """Seconds of a kernel's latest trials on any device, by ``canonical_json((arguments, config))``."""

    def list_run_times(self, target: str = "", latest: int = LATEST) -> list[RunTime]:
        """Durations of the ``latest`` attempts per suite case, oldest first; an empty target means all."""

    def list_case_times(
        self,
        outcomes: Iterable[Outcome],
        since: float = 0.0,
        target: str = "",
        device_class: str = "",
    ) -> list[CaseTimes]:
        """Durations of all runs with these outcomes, by suite and case; an empty name matches all."""

    def list_trials(self, query: TrialQuery) -> list[Trial]:
        """Trials that match ``query``, newest first."""

    def list_runs(self, limit: int = 0, before: str = "") -> list[RunSpan]:
        """The latest runs by name, which begins with the date, of those ``before`` one if it is named; all if
        the limit is 0.
        """

    def get_last_number(self) -> int:
        """The number of what was recorded last, which grows with each trial; 0 if there is none."""

    def count_outcomes(self, run: str) -> dict[Outcome, int]:
        """How many trials of a run ended in which way."""

    def get_trial(self, id_prefix: str) -> Trial:
        """The trial whose id begins with this prefix. Raises UsageError if there is none, or several."""

    def has_all(self, ids: Sequence[str]) -> bool:
        """Whether every one of these trials is recorded."""


def find_filesystem(path: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system of ``path``, which need not exist, by its last mount; empty if unknown."""
    try:
        table = mounts.read_text()
    except OSError:
        return ""
    resolved = path.resolve()
    best, found = -1, ""
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_unescape(fields[1]))
        depth = len(point.parts)
        if depth >= best and resolved.is_relative_to(point):
            best, found = depth, fields[2]
    return found


def require_local(home: Path, mounts: Path = MOUNTS) -> None:
    """Raise HomeError if ``home`` is on a network file system."""
    kind = find_filesystem(home, mounts)
    if kind in NETWORK:
        raise HomeError(
            f"{home} lies on a network file system ({kind}), where the store would corrupt",
            hint="set TILEYARD_HOME to a directory on a local disk",
        )


def _unescape(text: str) -> str:
    """Decode blanks and backslashes, which the kernel writes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
