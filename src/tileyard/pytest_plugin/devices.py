"""The devices of a test: ``tile_device``."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import ParamSpec, TypeVar, overload

from tileyard.base.errors import NestedLeaseError, UsageError
from tileyard.base.model import Device, Record
from tileyard.devices.classes import find_class
from tileyard.devices.holding import HeldLease
from tileyard.pytest_plugin.far_records import (
    DeviceRefused,
    DevicesNeeded,
    DeviceWanted,
    HoldBegan,
    HoldEnded,
)
from tileyard.pytest_plugin.forked import Teller
from tileyard.pytest_plugin.lanes import SPARED

P = ParamSpec("P")
R = TypeVar("R")


class LeasedDevice(Record):
    """The device that a test holds; ``lease`` only grows per device. ``env`` has the variables,
    also set in this process, by which programs find it; with several devices one lists all.
    """

    name: str
    kind: str
    lease: int
    env: dict[str, str]


class Holdings:
    """The devices of a test's process: at most one lease at a time. If it ``may_ask`` for more than
    there are, it reports that, ends, and is run again with them.
    """

    def __init__(
        self,
        choices: tuple[Device, ...],
        queue_limit_s: float,
        teller: Teller,
        *,
        may_ask: bool = False,
    ) -> None:
        self._choices = self._all = choices
        self._queue_limit_s = queue_limit_s
        self._teller = teller
        self._may_ask = may_ask
        self._loaders: list[Callable[[Device], None]] = []
        self._held: HeldLease | None = None
        self._is_dynamic = False
        self._is_settled = False
        self._lock = Lock()

    @property
    def device(self) -> Device | None:
        """The device that is held now, the first of several."""
        return None if self._held is None else self._held.devices[0]

    @property
    def is_whole(self) -> bool:
        """Whether this process can still hold each of its devices."""
        return len(self._choices) == len(self._all)

    def load_ahead(self, loader: Callable[[Device], None]) -> None:
        """Call ``loader`` before a device is requested, if it is known and not needed for loading."""
        self._loaders.append(loader)

    @contextmanager
    def hold(self, count: int = 1) -> Iterator[tuple[LeasedDevice, ...]]:
        """Hold devices for the block, all at once. Raises NestedLeaseError within another one."""
        __tracebackhide__ = True
        if self._held is not None and self._is_dynamic and count == 1:
            yield _describe(self._held)
            return
        if self._held is not None:
            names = ", ".join(device.name for device in self._held.devices)
            raise NestedLeaseError(f"this test holds {names} already", "leave its block first")
        held = self._take(count, dynamic=False)
        try:
            yield _describe(held)
        finally:
            self.close()

    def use(self) -> None:
        """A device is used now: if none is held, hold one from here on, until ``end_use``."""
        __tracebackhide__ = True
        with self._lock:
            if self._held is None:
                self._take(1, dynamic=True)

    def end_use(self) -> None:
        """Return the device that was taken by ``use``."""
        if self._is_dynamic:
            self.close()

    def close(self) -> None:
        """Return what is held."""
        if self._held is not None:
            held, self._held = self._held, None
            self._teller.tell(HoldEnded(at=held.release()))

    def _take(self, count: int, *, dynamic: bool) -> HeldLease:
        self._refuse_too_many(count)
        if len(self._choices) == 1 and find_class(self._choices[0].kind).is_cores:
            while self._loaders:
                self._loaders.pop()(self._choices[0])
        self._teller.tell(DeviceWanted())
        try:
            held = HeldLease(self._choices, self._queue_limit_s, count, {SPARED: "1"})
        except BaseException:
            self._teller.tell(DeviceRefused())
            raise
        self._held, self._is_dynamic = held, dynamic
        for device, number in zip(held.devices, held.numbers, strict=True):
            self._teller.tell(
                HoldBegan(
                    device=device.name,
                    lease=number,
                    at=held.at,
                    waited_s=held.waited_s,
                    dynamic=dynamic,
                )
            )
        if any(device.env for device in held.devices) and not self._is_settled:
            # The runtime of an accelerator stays with the device that this process used first.
            self._choices, self._is_settled = held.devices, True
        return held

    def _refuse_too_many(self, count: int) -> None:
        refuse_count(count)
        if count <= len(self._choices):
            return
        if self._may_ask and count > len(self._all):
            self._teller.tell(DevicesNeeded(count=count))
            os._exit(0)
        names = ", ".join(device.name for device in self._choices) or "no device of this host"
        raise UsageError(
            f"tile_device(count={count}): this test can lease {names}",
            "name more of them with --tileyard-device; a process stays with those that it has used",
        )


class TileDevice:
    """The fixture: ``with tile_device() as device:``, ``with tile_device(count=2) as (one,
    other):``, or ``tile_device.run(function, ...)``.
    """

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings

    @overload
    def __call__(self) -> AbstractContextManager[LeasedDevice]: ...

    @overload
    def __call__(self, *, count: int) -> AbstractContextManager[tuple[LeasedDevice, ...]]: ...

    def __call__(
        self, *, count: int | None = None
    ) -> AbstractContextManager[LeasedDevice | tuple[LeasedDevice, ...]]:
        """Hold a device for the block, or a tuple of ``count`` once all are there; the test's limit
        excludes the wait. Raises QueueTimeoutError, NestedLeaseError if one is held, UsageError for
        more than there are.
        """
        return self._hold_one() if count is None else self._holdings.hold(count)

    @contextmanager
    def _hold_one(self) -> Iterator[LeasedDevice]:
        __tracebackhide__ = True
        with self._holdings.hold() as (device,):
            yield device

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function while holding a device, and return its result."""
        with self._holdings.hold():
            return function(*args, **kwargs)


def refuse_count(count: object) -> None:
    """Raise UsageError if this is not a number of devices; None is one device, not a tuple."""
    __tracebackhide__ = True
    if count is not None and not (isinstance(count, int) and count > 0):
        raise UsageError(f"tile_device(count={count!r}): it takes a number of devices, 1 or more")


def _describe(held: HeldLease) -> tuple[LeasedDevice, ...]:
    return tuple(
        LeasedDevice(name=device.name, kind=device.kind, lease=number, env=device.env)
        for device, number in zip(held.devices, held.numbers, strict=True)
    )
