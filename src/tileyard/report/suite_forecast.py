"""How far a run of a suite is, and when it will end, from its events; draws nothing.

Of cases that have ended it keeps sums and counts alone, so that its size is that of what is under way.
Times are seconds of any clock that never goes back.
"""

from dataclasses import dataclass

from tileyard.events import CasePlanned
from tileyard.model import Outcome, Trial
from tileyard.suite.records import split_attempt

USUAL = frozenset({Outcome.PASSED, Outcome.UNCHECKED, Outcome.MISMATCH})
"""Cases that ran as long as they run. A crash or a hang says nothing of how long others take."""
DOUBT = 3
"""So many cases weigh as much as the expectation itself when the two are compared."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A case on a slot; ``id`` is the engine's. ``left_s`` is negative where it takes longer than expected, None if unknown.

    ``limit_s`` is when it will be ended, in seconds from now.
    """

    device: str
    id: str
    case: str
    attempt: int
    ran_s: float
    left_s: float | None
    limit_s: float

    @property
    def remaining_s(self) -> float:
        """A guess at how long it still takes: what is over its time by a minute takes a minute more."""
        left_s = self.left_s or 0.0
        return left_s if left_s >= 0 else min(-left_s, max(self.limit_s, 0.0))


@dataclass(kw_only=True)
class _Open:
    """A case that was planned and has not ended."""

    expected_s: float | None
    limit_s: float
    batch: str


@dataclass(kw_only=True)
class _Batch:
    """What of a batch has not ended; its cases run one after another."""

    cases: int = 0
    left_s: float = 0.0


class Forecast:
    """What is known of the work of a run."""

    def __init__(self) -> None:
        self.slots = 0
        self.total = 0
        self._expected_s = 0.0
        self._batches: dict[str, _Batch] = {}  # in the order of planning
        self._open: dict[str, _Open] = {}
        self._on: dict[str, str] = {}  # device to case
        self._since_s: dict[str, float] = {}  # device to when it turned to that case
        self._where: dict[str, str] = {}  # case to device
        self._lacking: set[str] = set()  # devices that somebody else has
        self._planned = 0  # cases that were planned once at least
        self._planned_s = 0.0
        self._open_s = 0.0
        self._measured = 0
        self._measured_s = 0.0
        self._foreseen_s = 0.0

    @property
    def busy(self) -> int:
        """On how many slots a case runs."""
        return len(self._on)

    def begin(self, slots: int, cases: int, expected_s: float) -> None:
        """So many slots there are, and so much is to be done; 0 seconds if nobody knows how much."""
        self.slots, self.total, self._expected_s = slots, cases, expected_s

    def add(self, planned: CasePlanned) -> None:
        """A case was planned: again, or for the first time."""
        case = planned.case
        expected_s = case.expected_s or 0.0
        if split_attempt(case.id)[1] == 1:
            self._planned += 1
            self._planned_s += expected_s
        self._open[case.id] = _Open(
            expected_s=case.expected_s, limit_s=case.limits.run_s, batch=planned.batch or case.id
        )
        self._open_s += expected_s
        batch = self._batches.setdefault(planned.batch or case.id, _Batch())
        batch.cases += 1
        batch.left_s += expected_s

    def start(self, case: str, device: str, now_s: float) -> None:
        """A device turned to a case, and is done with the one before."""
        self.leave(self._where.get(case, device))
        self.leave(device)
        self._on[device] = case
        self._since_s[device] = now_s
        self._where[case] = device

    def leave(self, device: str) -> None:
        """Nothing runs on a device any more."""
        case = self._on.pop(device, None)
        if case is not None:
            del self._where[case]
            del self._since_s[device]

    def lack(self, device: str) -> None:
        """Somebody else has a device."""
        self._lacking.add(device)

    def gain(self, device: str) -> None:
        """A device is held, or not wanted any more."""
        self._lacking.discard(device)

    def end(self, trial: Trial) -> None:
        """A case ended."""
        if trial.case in self._where:
            self.leave(self._where[trial.case])
        case = self._open.pop(trial.case, None)
        if case is None:
            return
        expected_s = case.expected_s or 0.0
        self._open_s -= expected_s
        batch = self._batches[case.batch]
        batch.cases -= 1
        batch.left_s -= expected_s
        if not batch.cases:
            del self._batches[case.batch]
        if expected_s and trial.run_s and not trial.reused and trial.outcome in USUAL:
            self._measured += 1
            self._measured_s += trial.run_s
            self._foreseen_s += expected_s

    @property
    def ratio(self) -> float:
        """How measured times compare with expected ones; 1 as long as little is measured."""
        if not self._measured:
            return 1.0
        doubt_s = DOUBT * self._foreseen_s / self._measured
        return (self._measured_s + doubt_s) / (self._foreseen_s + doubt_s)

    def running(self, now_s: float) -> list[Running]:
        """What runs, the one with most time left first."""
        ratio = self.ratio
        found = [self._look_at(device, case, ratio, now_s) for device, case in self._on.items()]
        return sorted(found, key=lambda one: (-one.remaining_s, -one.ran_s))

    def left_s(self, now_s: float) -> float | None:
        """How long it will take until the last case ends; None where nothing says how long cases take."""
        running = self.running(now_s)
        ratio = self.ratio
        work_s = ratio * (self._open_s + self._unplanned_s())
        if work_s <= 0:
            return None
        slots = max(self.slots - len(self._lacking), len(running), 1)
        ends_s = []  # when each of the slots in use is done with its batch
        for one in running:
            case = self._open.get(one.id)
            if case is None or case.expected_s is None:
                continue
            grown_s = one.remaining_s - ratio * case.expected_s
            work_s += grown_s
            ends_s.append(ratio * self._batches[case.batch].left_s + grown_s)
        next_s = min(ends_s) + ratio * self._next_batch_s() if len(ends_s) >= slots else 0.0
        return max(0.0, work_s / slots, max(ends_s, default=0.0), next_s)

    def _look_at(self, device: str, case_id: str, ratio: float, now_s: float) -> Running:
        name, attempt = split_attempt(case_id)
        case = self._open.get(case_id)
        ran_s = now_s - self._since_s[device]
        expected_s = case.expected_s if case is not None else None
        return Running(
            device=device,
            id=case_id,
            case=name,
            attempt=attempt,
            ran_s=ran_s,
            left_s=None if expected_s is None else ratio * expected_s - ran_s,
            limit_s=case.limit_s - ran_s if case is not None else 0.0,
        )

    def _unplanned_s(self) -> float:
        """What the cases come to that nobody has planned yet."""
        unplanned = max(0, self.total - self._planned)
        if not unplanned or not self._planned:
            return self._expected_s if unplanned else 0.0
        if self._expected_s:
            return max(0.0, self._expected_s - self._planned_s)
        return unplanned * self._planned_s / self._planned

    def _next_batch_s(self) -> float:
        """The first batch of which nothing runs: as batches come, the longest."""
        begun = {self._open[case].batch for case in self._where if case in self._open}
        return next((left.left_s for name, left in self._batches.items() if name not in begun), 0.0)
