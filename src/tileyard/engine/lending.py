"""Records which devices a run holds, asks for, or has given up. Decides nothing; refuses impossible moves."""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tileyard.base.model import Record

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


@dataclass
class Borrowing:
    """One device of the run.
    ``timed``: it owns its cores for the ``running`` cases; ``exclusive``: nothing may be built
    anywhere before they end; ``awaited``: somebody else has the device; ``lingering``: held and
    idle; ``pausing``: waits for the judge. ``memory_bytes`` is the limit of its runner.
    """

    name: str
    site: DeviceSite
    lease: Lease = Lease.FREE
    running: tuple[str, ...] = ()
    timed: bool = False
    exclusive: bool = False
    awaited: bool = False
    lingering: bool = False
    pausing: bool = False
    memory_bytes: int = 0
    strikes: int = 0
    unusable: set[str] = field(default_factory=set)
    """The names of all devices that the run has given up."""

    @property
    def is_busy(self) -> bool:
        """Whether it runs cases."""
        return bool(self.running)

    @property
    def is_coming(self) -> bool:
        """Whether it is held and idle, or will be as soon as its runner has started."""
        idle = self.lease is Lease.HELD and not self.running
        return idle or (self.lease is Lease.ASKED and not self.awaited)

    def move(self, lease: Lease) -> None:
        """Change its state."""
        if lease not in LEASE_MOVES[self.lease]:
            raise AssertionError(f"device {self.name} cannot go from {self.lease} to {lease}")
        self.lease = lease
        if lease is Lease.UNUSABLE:
            self.unusable.add(self.name)
        else:
            self.unusable.discard(self.name)
        self.awaited = self.lingering = self.pausing = False

    def take_back(self) -> None:
        """Make a device that was given up available again."""
        if self.lease is Lease.UNUSABLE:
            self.strikes = 0
            self.move(Lease.FREE)

    def strike(self) -> None:
        """Count a failure of the device; it is free for another try, or given up."""
        self.strikes += 1
        self.move(Lease.UNUSABLE if self.strikes >= MAX_STRIKES else Lease.FREE)


class Lending:
    """The devices of a run, by name, in the order in which they are asked for."""

    def __init__(self, sites: Mapping[str, DeviceSite]) -> None:
        self._unusable: set[str] = set()
        self._devices = {
            name: Borrowing(name, site, unusable=self._unusable) for name, site in sites.items()
        }
        self._names = frozenset(sites)
        self._several = [device for device in self if device.site.count > 1]
        self._rivals = {device.name: self._find_rivals(device) for device in self._several}
        for device in self._several:
            for other in self._rivals[device.name]:
                if other.site.count == 1:
                    self._rivals.setdefault(other.name, []).append(device)

    def __getitem__(self, name: str) -> Borrowing:
        return self._devices[name]

    def __iter__(self) -> Iterator[Borrowing]:
        return iter(self._devices.values())

    def add(self, sites: Mapping[str, DeviceSite]) -> None:
        """Lend further single devices, of which no part is shared."""
        for name, site in sites.items():
            self._devices[name] = Borrowing(name, site, unusable=self._unusable)
        self._names = self._names.union(sites)

    @property
    def usable(self) -> frozenset[str]:
        """The devices that this run has not given up."""
        return self._names - self._unusable if self._unusable else self._names

    @property
    def given_up(self) -> tuple[str, ...]:
        """The devices that this run has given up: they return only after a probe has found them well."""
        return tuple(name for name in self._devices if name in self._unusable)

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

    def _find_rivals(self, device: Borrowing) -> list[Borrowing]:
        parts = device.site.parts
        return [o for o in self if o is not device and not parts.isdisjoint(o.site.parts)]

    @property
    def is_any_held(self) -> bool:
        """Whether a device is held: something of ours runs, or can run at once."""
        return any(device.lease is Lease.HELD for device in self)
