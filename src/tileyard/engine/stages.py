"""Defines the stages of a case, and the machine as the scheduler sees it."""

import enum

from tileyard.base.model import Case, Record
from tileyard.engine.lending import DeviceSite


class Stage(enum.Enum):
    """The stage of a case."""

    WAITING = "waiting"
    PREPARING = "preparing"
    PREPARED = "prepared"
    BUILDING = "building"
    BUILT = "built"
    RUNNING = "running"
    JUDGING = "judging"
    ENDED = "ended"

    __hash__ = object.__hash__  # that of Enum is written in Python, and called at every move


UNSTARTED = (Stage.WAITING, Stage.PREPARED, Stage.BUILT)
"""The stages of a case on which no process works."""

UNREADY = (Stage.WAITING, Stage.PREPARING, Stage.PREPARED, Stage.BUILDING)
"""The stages of a case before a device can run it."""

LEGAL_MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.WAITING: frozenset({Stage.PREPARING, Stage.ENDED}),
    Stage.PREPARING: frozenset({Stage.PREPARED, Stage.BUILT, Stage.ENDED}),
    Stage.PREPARED: frozenset({Stage.BUILDING, Stage.BUILT, Stage.ENDED}),
    Stage.BUILDING: frozenset({Stage.BUILT, Stage.ENDED}),
    Stage.BUILT: frozenset({Stage.RUNNING, Stage.ENDED}),
    Stage.RUNNING: frozenset({Stage.BUILT, Stage.JUDGING, Stage.ENDED}),
    Stage.JUDGING: frozenset({Stage.ENDED}),
    Stage.ENDED: frozenset(),
}


Ground = tuple[str, int]
"""A target, and the number of devices that a case holds at once."""


def ground_of(case: Case) -> Ground:
    """The target and number of devices, which decide on which devices a case runs."""
    return case.target, case.work.devices


class Site(Record):
    """The machine as the engine may use it: the cores of compile ``workers`` (one each), ``author`` and
    ``judge``. ``lanes`` is the initial number of questions at once; ``grounds`` the devices by target and
    number of devices held at once. ``window`` bounds the batches under way, and grows while cases are short;
    ``burst`` are ready before building pauses for a device that shares its cores.
    """

    workers: tuple[int, ...]
    devices: dict[str, DeviceSite]
    author: frozenset[int]
    judge: frozenset[int] = frozenset()
    grounds: dict[Ground, frozenset[str]] = {}
    lanes: int = 1
    window: int = 16
    burst: int = 8
    overlap: bool = True
