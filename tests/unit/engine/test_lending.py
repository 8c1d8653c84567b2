"""The devices of a run, listed by what they are, and the cost of a step with many of them."""

import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from tileyard.base.model import Batch, BuildKey, Case, KernelWork
from tileyard.engine.cases import Site
from tileyard.engine.commands import (
    AuthorFreed,
    BatchesPlanned,
    CaseFinished,
    CasePrepared,
    RunOver,
)
from tileyard.engine.lending import LEASE_MOVES, Borrowing, DeviceSite, Kind, Lease, Lending
from tileyard.engine.state import EngineState

DEFINITIONS: dict[Kind, Callable[[Borrowing], bool]] = {
    "held": lambda d: d.lease is Lease.HELD,
    "idle": lambda d: d.is_idle,
    "unsettled": lambda d: d.is_idle and (d.is_shared or not d.lingering),
    "free": lambda d: d.lease is Lease.FREE,
    "asked": lambda d: d.lease is Lease.ASKED,
    "unusable": lambda d: d.lease is Lease.UNUSABLE,
    "coming": lambda d: d.is_coming,
    "pausing": lambda d: d.pausing,
    "alone": lambda d: d.is_busy and d.exclusive,
}


def has_held(devices: list[Borrowing], core: int, *, overlap: bool, for_judge: bool) -> bool:
    """Whether a core is held, looked up device by device."""
    for device in devices:
        if device.lease is not Lease.HELD or device.lingering:
            continue
        if for_judge and (device.pausing or (device.running and not device.timed)):
            continue
        if device.exclusive or not overlap:
            return True
        if (device.timed or not device.running) and core in device.site.cores:
            return True
    return False


def change(device: Borrowing, chance: random.Random) -> None:
    """Have something happen to a device."""
    match chance.randrange(6):
        case 0:
            device.move(chance.choice(sorted(LEASE_MOVES[device.lease], key=str)))
        case 1:
            device.begin(("case",), timed=chance.random() < 0.5)
        case 2:
            device.end()
        case 3:
            device.linger()
        case 4:
            device.wait_for_others()
        case _:
            flags = (chance.random() < 0.4 for _ in range(3))
            device.wait(lingering=next(flags), pausing=next(flags), exclusive=next(flags))


@pytest.mark.parametrize("seed", range(8))
def test_devices_are_listed_by_what_they_are(seed: int) -> None:
    """Whatever happens to devices, also to one that joins later, each is listed under what it is now."""
    chance = random.Random(seed)
    sites = {f"d{n}": DeviceSite(cores=frozenset({n % 3})) for n in range(6)}
    used = {0}
    lending = Lending(sites, lambda site: not used.isdisjoint(site.cores))
    for step in range(120):
        if step == 40:
            sites["late"] = DeviceSite(cores=frozenset({7}))
            used.add(1)  # by a compile worker that joins, too
            lending.add({"late": sites["late"]})
        devices = [lending[name] for name in sites]
        assert all(one.is_shared != used.isdisjoint(one.site.cores) for one in devices)
        change(chance.choice(devices), chance)
        for kind, is_so in DEFINITIONS.items():
            found = [device for device in devices if is_so(device)]
            assert lending.list_of(kind) == found
            assert lending.list_of(kind, after=2) == [one for one in found if one.number > 2]
            assert lending.count(kind, but=devices[0]) == len([*found]) - (devices[0] in found)
        given_up = {one.name for one in devices if one.lease is Lease.UNUSABLE}
        assert lending.usable == sites.keys() - given_up
        assert {*lending.given_up} == given_up
        names = frozenset({"d1", "d2", "late"})
        occupied = {d.name for d in devices if d.is_busy or d.awaited}
        assert lending.count_unoccupied(names) == len(names - occupied)
        for core in (0, 1, 7, 9):
            for overlap, for_judge in ((True, False), (True, True), (False, False), (False, True)):
                expected = has_held(devices, core, overlap=overlap, for_judge=for_judge)
                found_held = lending.has_held({core}, overlap=overlap, for_judge=for_judge)
                assert found_held == expected


def test_a_device_that_joins_has_rivals() -> None:
    """Two cards that are lent together and one of them cannot both be held, whichever came first."""
    both = DeviceSite(count=2, parts=frozenset({"a", "b"}))
    lending = Lending({"a": DeviceSite(parts=frozenset({"a"})), "a*b": both})
    lending.add({name: DeviceSite(parts=frozenset({name})) for name in "bc"})
    assert lending.rivals(lending["a*b"]) == [lending["a"], lending["b"]]
    assert lending.rivals(lending["b"]) == [lending["a*b"]]
    assert lending.rivals(lending["c"]) == []


def count_calls(devices: int) -> int:
    """Python calls in the steps of a run of 40 cases, one after another, beside idle devices."""
    names = [f"d{number}" for number in range(devices)]
    site = Site(
        workers=(0,),
        author=frozenset({0}),
        devices={name: DeviceSite(parts=frozenset({name})) for name in names},
        grounds={("cpu", 1): frozenset(names)},
        window=4,
    )
    state = EngineState(site)
    cases = [
        Case(id=f"c{number}", work=KernelWork(kernel="k"), target="cpu") for number in range(41)
    ]
    state.start()
    state.step(BatchesPlanned(batches=(Batch(id="c0", cases=tuple(cases[:1])),), exhausted=False))
    for name in names:  # all are held from now on, as after a burst
        lending = state._devices
        if lending[name].lease is Lease.FREE:
            lending[name].ask(cases[0].runner_bytes)
        lending[name].move(Lease.HELD)
        lending[name].linger()
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        # Not what a collection of other tests' garbage calls in between.
        calls += event == "call" and "/engine/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        for case in cases:
            batch = Batch(id=case.id, cases=(case,))
            if case is not cases[0]:
                state.step(BatchesPlanned(batches=(batch,), exhausted=False))
            prepared = CasePrepared(case=case.key, build=BuildKey("b"), built=True)
            state.step(prepared, AuthorFreed())
            state.step(CaseFinished(case=case.key, device="d0", seconds=1.0))
            state.step(RunOver(device="d0", held=True))
    finally:
        sys.setprofile(None)
    return calls


def test_a_step_costs_the_same_with_many_idle_devices() -> None:
    """Devices to which nothing happens are not looked at: a thousand of them cost no call more than ten."""
    count_calls(10)  # fills what is looked up once
    assert count_calls(1000) == count_calls(10)
