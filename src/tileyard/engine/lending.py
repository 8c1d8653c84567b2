"""Records which devices a run holds, asks for, or has given up. Decides nothing; refuses impossible moves.

Devices are listed by what they do, so that a step costs as much as the devices to which something happened.
"""

import enum
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tileyard.base.events import PauseReason
from tileyard.base.model import Device, Record

MAX_STRIKES = 3
"""Failures in a row to give a runner after which a run gives a device up, until quarantine ends."""


class DeviceSite(Record):
    """A device, or ``count`` held at once, with the cores owned while timing and the ``parts``
    shared with others. ``appetite``: cases taken in one run if as many are ready, 0 for any;
    ``room_bytes``: outputs that may wait for the judge, 0 for none.
    """

    cores: frozenset[int] = frozenset()
    appetite: int = 0
    room_bytes: int = 0
    count: int = 1
    parts: frozenset[str] = frozenset()


def find_parts(device: Device) -> frozenset[str]:
    """The ``parts`` of a device: its locks; the names of devices of another host, whose locks are there."""
    names = [one.name for one in device.members] or [device.name.partition("*")[0]]
    return frozenset(device.locks or names)


class Lease(enum.Enum):
    """The state of a device in this run."""

    FREE = "free"
    ASKED = "asked"
    HELD = "held"
    RELEASING = "releasing"
    UNUSABLE = "unusable"


LEASE_MOVES: dict[Lease, frozenset[Lease]] = {
    Lease.FREE: frozenset({Lease.ASKED}),
    Lease.ASKED: frozenset({Lease.HELD, Lease.RELEASING, Lease.FREE, Lease.UNUSABLE}),
    Lease.HELD: frozenset({Lease.RELEASING, Lease.FREE, Lease.UNUSABLE}),
    Lease.RELEASING: frozenset({Lease.FREE}),
    Lease.UNUSABLE: frozenset({Lease.FREE}),
}

Kind = Literal[
    "held",
    "idle",
    "unsettled",
    "free",
    "asked",
    "unusable",
    "coming",
    "occupied",
    "pausing",
    "alone",
    "holding",
    "holding all",
    "holding cores",
    "kept",
    "kept all",
    "kept cores",
]
"""What a device is. Idle: held, and runs nothing; unsettled: idle and, unless it shares its cores, not
lingering; coming: idle, or will be as soon as its runner has started; occupied: runs cases, or somebody else
has it; alone: runs what nothing may run beside. Nothing may start on the cores of one that is holding, the
judge not on those of one that is kept from it: on all cores, or on its own.
"""


@dataclass(eq=False)
class Borrowing:
    """One device of the run, changed only by its methods.
    ``timed``: it owns its cores for the ``running`` cases; ``exclusive``: nothing may be built
    anywhere before they end; ``awaited``: somebody else has the device; ``lingering``: held and
    idle; ``pausing``: waits for the judge; ``paused``: why it runs nothing of what is ready.
    ``memory_bytes`` is the limit of its runner. ``note`` is called after each change, ``kinds`` is what it
    noted last; ``number`` is the place in the order of devices.
    ``is_shared``: building, or the author, needs cores that it owns.
    """

    name: str
    number: int
    site: DeviceSite
    note: Callable[["Borrowing"], None]
    is_shared: bool = False
    kinds: frozenset[Kind] = frozenset()
    lease: Lease = Lease.FREE
    running: tuple[str, ...] = ()
    timed: bool = False
    exclusive: bool = False
    awaited: bool = False
    lingering: bool = False
    pausing: bool = False
    paused: PauseReason | None = None
    memory_bytes: int = 0
    strikes: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether it runs cases."""
        return bool(self.running)

    @property
    def is_idle(self) -> bool:
        """Whether it is held and runs nothing."""
        return self.lease is Lease.HELD and not self.running

    @property
    def is_coming(self) -> bool:
        """Whether it is held and idle, or will be as soon as its runner has started."""
        return self.is_idle or (self.lease is Lease.ASKED and not self.awaited)

    def move(self, lease: Lease) -> None:
        """Change its state."""
        if lease not in LEASE_MOVES[self.lease]:
            raise AssertionError(f"device {self.name} cannot go from {self.lease} to {lease}")
        self.lease, self.paused = lease, None
        self.awaited = self.lingering = self.pausing = False
        self.note(self)

    def ask(self, memory_bytes: int) -> None:
        """Note that it is asked for, with a runner of this limit."""
        self.memory_bytes = memory_bytes
        self.move(Lease.ASKED)

    def wait_for_others(self) -> None:
        """Note that somebody else has it."""
        self.awaited = True
        self.note(self)

    def wait(self, *, lingering: bool, pausing: bool, exclusive: bool) -> None:
        """Note why it waits, if it does, and whether its next cases are interleaved."""
        self.lingering, self.pausing, self.exclusive = lingering, pausing, exclusive
        self.note(self)

    def pause(self, reason: PauseReason) -> bool:
        """Note why it runs nothing of what is ready; whether that is new."""
        is_new, self.paused = reason != self.paused, reason
        return is_new

    def linger(self) -> None:
        """Note that it is held and idle."""
        self.lingering = True
        self.note(self)

    def begin(self, cases: tuple[str, ...], *, timed: bool) -> None:
        """Note the cases that it runs from now on."""
        self.running, self.timed, self.paused = cases, timed, None
        self.note(self)

    def end(self) -> tuple[str, ...]:
        """Note that it runs nothing any more; return the cases that it ran."""
        left, self.running = self.running, ()
        self.note(self)
        return left

    def take_back(self) -> None:
        """Make a device that was given up available again."""
        if self.lease is Lease.UNUSABLE:
            self.strikes = 0
            self.move(Lease.FREE)

    def clear_strikes(self) -> None:
        """Note that it ran a case: its failures were not in a row."""
        self.strikes = 0

    def strike(self) -> None:
        """Count a failure of the device; it is free for another try, or given up."""
        self.strikes += 1
        self.move(Lease.UNUSABLE if self.strikes >= MAX_STRIKES else Lease.FREE)


@cache
def _find_kinds(lease: Lease, *flags: bool) -> frozenset[Kind]:
    """What a device with this lease and these flags is."""
    is_busy, timed, exclusive, awaited, lingering, pausing, is_shared = flags
    is_held = lease is Lease.HELD
    is_idle = is_held and not is_busy
    is_holding = is_held and not lingering
    is_timing = timed or not is_busy
    is_kept = is_holding and is_timing and not pausing
    kinds: dict[Kind, bool] = {
        "held": is_held,
        "idle": is_idle,
        "unsettled": is_idle and (is_shared or not lingering),
        "free": lease is Lease.FREE,
        "asked": lease is Lease.ASKED,
        "unusable": lease is Lease.UNUSABLE,
        "coming": is_idle or (lease is Lease.ASKED and not awaited),
        "occupied": is_busy or awaited,
        "pausing": pausing,
        "alone": is_busy and exclusive,
        "holding": is_holding,
        "holding all": is_holding and exclusive,
        "holding cores": is_holding and is_timing,
        "kept": is_kept,
        "kept all": is_kept and exclusive,
        "kept cores": is_kept,
    }
    return frozenset(kind for kind, is_so in kinds.items() if is_so)


class Lending:
    """The devices of a run, by name, in the order in which they are asked for. ``is_shared``: whether
    building, or the author, needs cores that such a device owns. ``usable``: those not given up.
    """

    def __init__(
        self,
        sites: Mapping[str, DeviceSite],
        is_shared: Callable[[DeviceSite], bool] = lambda site: False,
    ) -> None:
        self.usable: frozenset[str] = frozenset(sites)
        self._is_shared = is_shared
        self._devices: dict[str, Borrowing] = {}
        self._ordered: list[Borrowing] = []
        self._listed: defaultdict[Kind, list[int]] = defaultdict(list)
        self._cores: dict[Kind, Counter[int]] = {
            "holding cores": Counter(),
            "kept cores": Counter(),
        }
        self._occupied: set[str] = set()
        self._several: list[Borrowing] = []
        self._rivals: defaultdict[str, list[Borrowing]] = defaultdict(list)
        for name, site in sites.items():
            self._add(name, site)

    def __getitem__(self, name: str) -> Borrowing:
        return self._devices[name]

    def __len__(self) -> int:
        return len(self._ordered)

    def add(self, sites: Mapping[str, DeviceSite]) -> None:
        """Lend further devices, the last in order; others may share their cores from now on."""
        for device in self._ordered:
            device.is_shared = self._is_shared(device.site)
            self._note(device)
        self.usable = self.usable.union(sites)
        for name, site in sites.items():
            self._add(name, site)

    def _add(self, name: str, site: DeviceSite) -> None:
        is_shared = self._is_shared(site)
        device = Borrowing(name, len(self._ordered), site, self._note, is_shared=is_shared)
        self._add_rivals(device)
        self._ordered.append(device)
        self._devices[name] = device
        self._note(device)

    def _add_rivals(self, device: Borrowing) -> None:
        is_several = device.site.count > 1
        for other in self._ordered if is_several else self._several:
            if not device.site.parts.isdisjoint(other.site.parts):
                self._rivals[other.name].append(device)
                self._rivals[device.name].append(other)
        if is_several:
            self._several.append(device)

    def _note(self, device: Borrowing) -> None:
        """List a device that has changed under what it is now."""
        before, kinds = (
            device.kinds,
            _find_kinds(
                device.lease,
                device.is_busy,
                device.timed,
                device.exclusive,
                device.awaited,
                device.lingering,
                device.pausing,
                device.is_shared,
            ),
        )
        if kinds is before:
            return
        device.kinds = kinds
        for kind in before - kinds:
            listed = self._listed[kind]
            del listed[bisect_left(listed, device.number)]
            self._follow(device, kind, -1)
        for kind in kinds - before:
            insort(self._listed[kind], device.number)
            self._follow(device, kind, 1)

    def _follow(self, device: Borrowing, kind: Kind, sign: int) -> None:
        """Keep what else depends on a kind that a device is now or, if ``sign`` is -1, is no more."""
        if kind in self._cores:
            cores = self._cores[kind]
            for core in device.site.cores:
                cores[core] += sign
        elif kind == "unusable":
            names = {device.name}
            self.usable = self.usable - names if sign > 0 else self.usable | names
        elif kind == "occupied":
            (self._occupied.add if sign > 0 else self._occupied.discard)(device.name)

    def list_of(self, kind: Kind, after: int = -1) -> list[Borrowing]:
        """The devices that are of a kind now, in order, behind the one of this number."""
        listed = self._listed[kind]
        if not listed or listed[-1] <= after:
            return []
        return [self._ordered[number] for number in listed[bisect_right(listed, after) :]]

    def count(self, kind: Kind, but: Borrowing | None = None) -> int:
        """The number of devices of a kind, without this one."""
        return len(self._listed[kind]) - (but is not None and kind in but.kinds)

    def count_unoccupied(self, names: frozenset[str]) -> int:
        """How many of these devices run nothing, and nobody else has them."""
        return len(names) - len(names & self._occupied)

    def has_held(
        self, cores: Collection[int], *, overlap: bool = True, for_judge: bool = False
    ) -> bool:
        """Whether nothing may start on one of these cores: a device is timing on it, or about to. The judge
        may use those of a device that waits for it. Without ``overlap`` a device has all cores.
        """
        every: Kind = "kept all" if for_judge else "holding all"
        if not overlap:
            every = "kept" if for_judge else "holding"
        if self._listed[every]:
            return bool(cores)
        held = self._cores["kept cores" if for_judge else "holding cores"]
        return any(held[core] for core in cores)

    @property
    def given_up(self) -> tuple[str, ...]:
        """The devices that this run has given up: they return only after a probe has found them well."""
        return tuple(device.name for device in self.list_of("unusable"))

    def rivals(self, device: Borrowing) -> list[Borrowing]:
        """The other devices that cannot be held at the same time: no two single ones share a part."""
        return self._rivals.get(device.name, [])

    def reserve(self, ready: Callable[[str], int]) -> frozenset[str]:
        """The parts of devices reserved for a case that waits for several: no other case begins
        there. ``ready`` returns the number of ready cases of a device. Devices for which the fewest
        others have to end come first.
        """
        several = [device for device in self._several if ready(device.name)]
        reserved: frozenset[str] = frozenset()
        left: dict[int, int] = {}
        for device in several:
            is_coming = device.is_coming and not device.lingering
            left[device.site.count] = left.get(device.site.count, ready(device.name)) - is_coming
        several.sort(key=lambda device: sum(rival.is_busy for rival in self.rivals(device)))
        for device in several:
            count, parts = device.site.count, device.site.parts
            is_free = device.lease is Lease.FREE and reserved.isdisjoint(parts)
            held = [o for o in self.rivals(device) if o.lease not in (Lease.FREE, Lease.UNUSABLE)]
            if left[count] > 0 and is_free and all(one.site.count < count for one in held):
                reserved |= parts
                left[count] -= 1
        return reserved
