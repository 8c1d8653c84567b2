"""The records of a site: what it remembers of each case, and what it shows of all."""

from typing import Final, Literal

from tileyard.artifacts.objects import digest_parts
from tileyard.base.model import Outcome, Record
from tileyard.verbs.regress.plan.causes import Span
from tileyard.verbs.regress.plan.history import Point, Series, Shift
from tileyard.verbs.regress.plan.tuned import REFERENCE

NAME_LENGTH: Final = 20
"""Digits of a digest in the names of files: no name of a case is one."""
Kind = Literal["comparison", "study", "suite"]
"""What timed a case: ``regress``, the finals of ``tune``, or ``test``."""
KINDS: Final[dict[Kind, str]] = {"comparison": "regress", "study": "tune", "suite": "test"}


BASES: Final = frozenset({"base", REFERENCE})
"""The sides that others are compared with."""


class Subject(Record):
    """What a page is about. ``case`` is a case's id without its side, or a kernel with its arguments;
    ``suite`` has it, if any: another one may have a case of the same name.
    """

    kind: Kind
    case: str
    target: str
    suite: str = ""

    @property
    def file(self) -> str:
        """The name of its files, without their ends."""
        own = (self.suite,) if self.suite else ()
        return digest_parts("case", self.kind, self.case, self.target, *own)[:NAME_LENGTH]

    @property
    def title(self) -> str:
        """The case with its suite."""
        return f"{self.case} ({self.suite})" if self.suite else self.case


class Timing(Record, array_like=True):
    """A side's time in a run, in nanoseconds, with its interval; see ``Point``."""

    run: str
    at: float
    revision: str
    binary: str
    time_ns: float
    low_ns: float
    high_ns: float
    processes: int


class Place(Record):
    """The times of a side on a device, in no order."""

    side: str
    device: str
    silicon: str
    times: tuple[Timing, ...]


class Untimed(Record, array_like=True):
    """A side that a run built and did not time, because another one had the same binary."""

    side: str
    run: str
    at: float
    revision: str
    binary: str


class Failure(Record, array_like=True):
    """A run in which the case failed."""

    run: str
    at: float
    revision: str
    outcome: Outcome
    message: str


class Recorded(Record):
    """All that a site remembers of a case. ``name`` is its kernel or testcase, ``shape`` the rest of it. A
    launch does ``flops`` operations and moves at least ``moved_bytes``, its tensors; both are 0 if unknown.
    ``group`` is the suite in sites of older versions, which did not separate suites.
    """

    subject: Subject
    name: str
    shape: str = ""
    config: str = ""
    group: str = ""
    flops: float = 0.0
    moved_bytes: int = 0
    places: tuple[Place, ...] = ()
    untimed: tuple[Untimed, ...] = ()
    failures: tuple[Failure, ...] = ()


class Manifest(Record):
    """What a site was made from: runs with the number of their trials, and pages with the digest of all that
    was used for each. ``order`` has commits after their parents, ``subjects`` the first lines of messages.
    """

    tileyard: Literal["site 1"] = "site 1"
    runs: dict[str, int] = {}
    pages: dict[str, str] = {}
    order: tuple[str, ...] = ()
    subjects: dict[str, str] = {}
    spans: dict[str, Span] = {}


class Ratio(Record):
    """A time as a ratio to another one, with its interval. ``is_same``: of the same binary."""

    ratio: float
    low: float
    high: float
    is_same: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1 or self.high < 1


class Roof(Record):
    """What silicon can do whose identity, or device name, contains ``name``: operations and bytes per ns."""

    name: str
    flops: float
    moved_bytes: float


class Row(Record):
    """A line of the first page: a series, and how its last point compares with its ``base``, with the point
    ``before`` it, and with the last point at or before the release, ``since``; each None if unknown. A case
    that never passed has no points. ``failure`` is None if it has passed since. ``roofline`` is the share of
    the last point's time that the launch takes at least.
    """

    recorded: Recorded
    series: Series
    base: Ratio | None = None
    before: Ratio | None = None
    since: Ratio | None = None
    failure: Failure | None = None
    roofline: float | None = None

    @property
    def last(self) -> Point | None:
        """The point that counts as its present time: the last run of the newest commit; the last run if the
        series is not by commit.
        """
        return self.series.points[-1] if self.series.points else None

    @property
    def change(self) -> Shift | None:
        """The latest change of the series."""
        return self.series.shifts[-1] if self.series.shifts else None


class Change(Record):
    """A change of a row's series."""

    row: Row
    shift: Shift


class Cause(Record):
    """Commits, or the machine, and the changes that came with them, the worst first."""

    span: Span
    is_of_code: bool
    changes: tuple[Change, ...]

    @property
    def worst(self) -> float:
        """The largest ratio."""
        return self.changes[0].shift.ratio


class Overview(Record):
    """All that the first page shows: rows, those with changes first, the worst first, and causes likewise.
    ``release`` is the name of the release, if any.
    """

    rows: tuple[Row, ...]
    causes: tuple[Cause, ...]
    runs: int
    margin: float
    release: str = ""
