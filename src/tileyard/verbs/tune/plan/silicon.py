"""Finds which devices of a study count together: of one kind, equally long for the same kernel."""

from collections.abc import Iterable, Sequence

from tileyard.base.model import WELL, Device, Measurement, Outcome, Record, Trial
from tileyard.devices.foreign import QUEUE_KIND
from tileyard.verbs.tune.result import KeptOut

MARGIN = 1.03
"""Devices are alike unless their ratio's interval exceeds this factor, well below the finals' margin."""
ROUNDS = 2
"""Number of timings per device if devices seem to differ, so that chance alone keeps none out."""


class Times(Record):
    """A device's times for the kernel that all devices run, over all rounds."""

    median_ns: float
    low_ns: float
    high_ns: float

    def is_alike(self, other: "Times") -> bool:
        """Whether the two may be equally fast, within the margin."""
        return self.low_ns <= MARGIN * other.high_ns and other.low_ns <= MARGIN * self.high_ns

    def compare(self, device: str, other: "Times", base: str) -> KeptOut:
        """The record that a device with these times does not count together with another one."""
        return KeptOut(
            device=device,
            base=base,
            ratio=self.median_ns / other.median_ns,
            low=self.low_ns / other.high_ns,
            high=self.high_ns / other.low_ns,
        )


def split_by_silicon(devices: Iterable[Device]) -> list[tuple[Device, ...]]:
    """Devices grouped by identity, in the order in which they are named."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(device.identity, []).append(device)
    return [tuple(each) for each in found.values()]


class Alike:
    """Devices of one kind. A *place* is a device, or all slots of queues, whose devices are unknown. Once a
    second place has run a config, every place in use times the first right one. If places differ, the largest
    group counts; of equal ones, that of the first named device.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.slots: dict[str, tuple[str, ...]] = {}
        self._used: set[str] = set()
        self._asked: dict[str, int] = {}
        self._told: dict[str, list[Trial]] = {}
        self._alike: frozenset[str] | None = None
        self.sentinel: Trial | None = None
        for device in devices:
            self.add(device)

    def add(self, device: Device) -> None:
        """Compare a further device with the others."""
        place = QUEUE_KIND if device.kind == QUEUE_KIND else device.name
        self.slots[place] = (*self.slots.get(place, ()), device.name)
        self._alike = None

    @property
    def is_compared(self) -> bool:
        """Whether several places have run configs, and there is a kernel to compare them by."""
        return self.sentinel is not None and len(self._used) > 1

    def use(self, trial: Trial) -> None:
        """Record the trial of a config that ran in this run."""
        if trial.reused or not trial.device:
            return
        self._used.add(self._place_of(trial))
        self._alike = None
        measured = trial.measurement
        if self.sentinel is None and measured and not measured.abandoned and trial.outcome in WELL:
            self.sentinel = trial

    def ask(self) -> list[tuple[str, int]]:
        """The places that must time the sentinel now, each with its round."""
        if not self.is_compared:
            return []
        is_told = all(len(self._told.get(place, ())) == n for place, n in self._asked.items())
        wanted = ROUNDS if is_told and self._asked and self.list_kept_out() else 1
        due = [p for p in self.slots if p in self._used and self._asked.get(p, 0) < wanted]
        for place in due:
            self._asked[place] = self._asked.get(place, 0) + 1
        return [(place, self._asked[place]) for place in due]

    def tell(self, place: str, trial: Trial) -> None:
        """Record the sentinel's trial on a place."""
        if trial.outcome is not Outcome.NOT_RUN:
            self._told.setdefault(place, []).append(trial)
            self._alike = None

    def counts(self, trial: Trial) -> bool:
        """Whether a trial is from a device whose times count, or from an earlier run."""
        is_earlier = trial.reused or not trial.device
        return is_earlier or not self.is_compared or self._place_of(trial) in self._find_alike()

    def list_slots(self, *, proven: bool = False) -> tuple[str, ...]:
        """The slots of the places that are not kept out; with ``proven``, only of those whose times count."""
        left = self._find_alike() if proven else self.slots.keys() - self._list_odd()
        return tuple(slot for place in self.slots if place in left for slot in self.slots[place])

    def list_kept_out(self) -> tuple[KeptOut, ...]:
        """The places that do not count, compared with the first one that does."""
        odd, alike = self._list_odd(), self._find_alike()
        times = self._find_times()
        base = next((place for place in times if place in alike), "")
        found = []
        for place in odd:
            failed = next((one for one in self._told[place] if one.outcome not in WELL), None)
            if failed is not None:
                said = f"{failed.outcome}: {failed.message}" if failed.message else failed.outcome
                found.append(KeptOut(device=place, base=base, message=said))
            else:
                found.append(times[place].compare(place, times[base], base))
        return tuple(found)

    def _list_odd(self) -> list[str]:
        return [place for place in self.slots if place in self._told.keys() - self._find_alike()]

    def _find_alike(self) -> frozenset[str]:
        """The places whose times count: all if nothing is compared, the sentinel's before there are times."""
        if self._alike is None:
            self._alike = self._choose_alike()
        return self._alike

    def _choose_alike(self) -> frozenset[str]:
        if self.sentinel is None or not self.is_compared:
            return frozenset(self.slots)
        times = self._find_times()
        groups = [
            frozenset(other for other in times if one.is_alike(times[other]))
            for one in times.values()
        ]
        return max(groups, key=len, default=frozenset([self._place_of(self.sentinel)]))

    def _find_times(self) -> dict[str, Times]:
        """The sentinel's times by place, in the order of the devices, where each of its runs passed."""
        found = {}
        for place in self.slots:
            trials = self._told.get(place, ())
            measured = [t.measurement for t in trials if t.outcome in WELL and t.measurement]
            if measured and len(measured) == len(trials):
                found[place] = _join(measured)
        return found

    def _place_of(self, trial: Trial) -> str:
        """The place of a trial. Unknown devices are those of queues, which may name them freely."""
        return trial.device if trial.device in self.slots else QUEUE_KIND


def _join(measured: Sequence[Measurement]) -> Times:
    return Times(
        median_ns=sum(one.median_ns for one in measured) / len(measured),
        low_ns=min(one.low_ns for one in measured),
        high_ns=max(one.high_ns for one in measured),
    )
