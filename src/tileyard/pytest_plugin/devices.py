"""What a test does with devices: ``tile_device``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ParamSpec, TypeVar

from tileyard.devices.classes import find_class
from tileyard.errors import NestedLeaseError
from tileyard.model import Device, Record
from tileyard.pytest_plugin.forked import Teller
from tileyard.pytest_plugin.holding import HeldLease
from tileyard.pytest_plugin.records import DeviceRefused, DeviceWanted, HoldBegan, HoldEnded

P = ParamSpec("P")
R = TypeVar("R")


class LeasedDevice(Record):
    """The device that a test holds. ``lease`` only grows per device.

    ``env`` is what its programs find it by, which is in this process's environment too.
    """

    name: str
    kind: str
    lease: int
    env: dict[str, str]


class Holdings:
    """The devices of one test's process: at most one lease at a time."""

    def __init__(self, choices: tuple[Device, ...], queue_limit_s: float, teller: Teller) -> None:
        self._choices = choices
        self._queue_limit_s = queue_limit_s
        self._teller = teller
        self._loaders: list[Callable[[Device], None]] = []
        self._held: HeldLease | None = None
        self._is_dynamic = False

    @property
    def device(self) -> Device | None:
        """The device that is held now."""
        return None if self._held is None else self._held.device

    def load_ahead(self, loader: Callable[[Device], None]) -> None:
        """Call ``loader`` before a device is asked for, where it is known and loading needs none of it."""
        self._loaders.append(loader)

    @contextmanager
    def hold(self) -> Iterator[LeasedDevice]:
        """Hold a device for the block. Raises NestedLeaseError within another one."""
        __tracebackhide__ = True
        if self._held is not None and self._is_dynamic:
            yield _describe(self._held)
            return
        if self._held is not None:
            raise NestedLeaseError(
                f"this test holds {self._held.device.name} already", "leave its block first"
            )
        held = self._take(dynamic=False)
        try:
            yield _describe(held)
        finally:
            self.close()

    def hold_to_the_end(self) -> None:
        """Hold a device from here on, unless one is held already; ``close`` gives it back."""
        if self._held is None:
            self._take(dynamic=True)

    def close(self) -> None:
        """Give back what is held."""
        if self._held is not None:
            held, self._held = self._held, None
            self._teller.tell(HoldEnded(at=held.release()))

    def _take(self, *, dynamic: bool) -> HeldLease:
        if len(self._choices) == 1 and find_class(self._choices[0].kind).is_cores:
            while self._loaders:
                self._loaders.pop()(self._choices[0])
        self._teller.tell(DeviceWanted())
        try:
            held = HeldLease(self._choices, self._queue_limit_s)
        except BaseException:
            self._teller.tell(DeviceRefused())
            raise
        self._held, self._is_dynamic = held, dynamic
        self._teller.tell(
            HoldBegan(
                device=held.device.name,
                lease=held.number,
                at=held.at,
                waited_s=held.waited_s,
                dynamic=dynamic,
            )
        )
        if held.device.env:
            # The runtime of an accelerator stays with the device that this process used first.
            self._choices = (held.device,)
        return held


class TileDevice:
    """The fixture: ``with tile_device() as device:``, or ``tile_device.run(function, ...)``."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings

    def __call__(self) -> AbstractContextManager[LeasedDevice]:
        """Hold a device for the block, waiting for it first.

        The wait does not count to the test's limit. Raises QueueTimeoutError after the queue limit,
        and NestedLeaseError where one is held already.
        """
        return self._holdings.hold()

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function while holding a device, and return what it returns."""
        with self._holdings.hold():
            return function(*args, **kwargs)


def _describe(held: HeldLease) -> LeasedDevice:
    device = held.device
    return LeasedDevice(name=device.name, kind=device.kind, lease=held.number, env=device.env)
