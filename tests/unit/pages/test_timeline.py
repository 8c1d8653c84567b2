"""Timelines as the numbers that a page draws."""

import itertools
import random

import msgspec
import pytest
from tests.unit.show.simulated_runs import simulate

from tileyard.base.events import DeviceAsked, DeviceAwaited, DeviceLeased, RunEnded, RunStarted
from tileyard.base.model import Device
from tileyard.pages.timeline import KINDS, Bounds, LaneData, pack_timeline, show_timeline
from tileyard.show.timeline import LaneSpan, PathStep, Timeline, fold_timeline


def fold(seed: int, cases: int) -> Timeline:
    """The timeline of a simulated run."""
    return fold_timeline(simulate(seed, cases).events)


def unpack(lane: LaneData) -> list[tuple[int, int, int, int]]:
    """Begin, end, kind and case of each span, as the page's script finds them."""
    found, at = [], 0
    for gap, took, kind, case in zip(*[iter(lane.spans)] * 4, strict=True):
        found.append((at + gap, at + gap + took, kind, case))
        at += gap + took
    return found


def why_of(span: LaneSpan) -> str:
    """Whom or what a span waits for."""
    return f"for {span.why}" if span.why and span.kind == "waiting" else span.why


@pytest.mark.parametrize("seed", range(5))
def test_every_span_is_where_it_was(seed: int) -> None:
    """In milliseconds, with its kind, and its first case or what it waited for."""
    timeline = fold(seed, 40)
    packed = pack_timeline(timeline)
    for lane, data in zip(timeline.lanes, packed.lanes, strict=True):
        shown = [
            (begin, end, packed.kinds[kind], packed.cases[case] if case >= 0 else None)
            for begin, end, kind, case in unpack(data)
        ]
        assert shown == [
            (
                round(1000 * one.begin),
                round(1000 * one.end),
                one.kind,
                one.cases[0] if one.cases else why_of(one) or None,
            )
            for one in lane.spans
        ]
    assert packed.path[0][0] == 0
    assert packed.path[-1][1] == packed.milliseconds
    assert packed.kinds == KINDS


def test_long_runs_have_fewer_spans() -> None:
    """Spans of one kind that nobody could tell apart are one; those that can be told apart stay."""
    timeline = fold(1, 60)
    whole = pack_timeline(timeline)
    packed = pack_timeline(timeline, Bounds(spans=10, gap=0.01))
    for before, after in zip(whole.lanes, packed.lanes, strict=True):
        old, new = unpack(before), unpack(after)
        assert len(new) <= len(old)
        for begin, end, kind, _ in new:
            within = [one for one in old if begin <= one[0] and one[1] <= end]
            assert {one[2] for one in within} == {kind}
            assert (within[0][0], within[-1][1]) == (begin, end)
    assert sum(len(one.spans) for one in packed.lanes) < sum(len(one.spans) for one in whole.lanes)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_critical_path_has_few_steps(seed: int) -> None:
    """As many as a screen shows: long ones are where they were, but for their ends, and the page says so."""
    chance, ends = random.Random(seed), [0.0]
    for number in range(500):
        ends.append(ends[-1] + (4.0 if number % 60 == 30 else chance.uniform(0.001, 0.05)))
    path = tuple(
        PathStep(begin=begin, end=end, lane=number % 3)
        for number, (begin, end) in enumerate(itertools.pairwise(ends))
    )
    timeline = msgspec.structs.replace(fold(seed, 60), path=path, seconds=ends[-1])
    bounds = Bounds(gap=1 / 50)
    whole, packed = pack_timeline(timeline).path, pack_timeline(timeline, bounds).path
    assert len(whole) == 500
    assert len(packed) <= 51
    assert (packed[0][0], packed[-1][1]) == (whole[0][0], whole[-1][1])
    assert all(one[1] == other[0] for one, other in itertools.pairwise(packed))
    gap_ms = 1000 * timeline.seconds / 50
    for begin, end, lane in whole:
        if end - begin > 2 * gap_ms:
            inner = (begin + gap_ms, end - gap_ms)
            assert {one[2] for one in packed if one[0] < inner[1] and one[1] > inner[0]} == {lane}
    assert "are drawn with their neighbours" in show_timeline(timeline, bounds).see
    assert "are drawn with their neighbours" not in show_timeline(timeline).see
    path = (path[0], msgspec.structs.replace(path[1], lane=0))
    of_one = pack_timeline(msgspec.structs.replace(timeline, path=path)).path
    assert of_one == ((0, round(1000 * path[1].end), 0),)


def test_of_many_lanes_the_first_are_drawn() -> None:
    """The sentence says of how many, and the path leaves out the others."""
    timeline, bounds = fold(1, 20), Bounds(lanes=2)
    assert len(timeline.lanes) > 2
    packed = pack_timeline(timeline, bounds)
    assert len(packed.lanes) == 2
    assert {lane for *_, lane in packed.path} <= {-1, 0, 1}
    assert f"These are 2 of {len(timeline.lanes)} lanes." in show_timeline(timeline, bounds).see


def test_the_sentence_says_what_to_see() -> None:
    """How long it took, how idle devices were, and the critical path; without lanes only the first."""
    see = show_timeline(fold(1, 20)).see
    assert see.startswith("The run took ")
    assert "Devices were idle " in see
    assert "The critical path, the line below the lanes, consists of " in see
    assert "Between steps, what comes next is chosen and passed on." in see
    assert "held devices" not in see
    empty = show_timeline(msgspec.structs.replace(fold(1, 1), lanes=(), path=()))
    assert "Devices" not in empty.see


def test_a_run_has_one_duration() -> None:
    """The whole run's; the part before the first event is not drawn."""
    timeline = msgspec.structs.replace(fold(1, 20), seconds=79.0)
    assert show_timeline(timeline, whole_s=85.0).see.startswith(
        "The run took 85 s. The last 79 s are drawn: what is to run was read before. Devices"
    )
    assert show_timeline(timeline, whole_s=79.2).see.startswith("The run took 79 s. Devices")


def test_those_who_held_a_device_are_named() -> None:
    """Each, with the time that the run waited for it: the sentence, the lane, and the span."""
    events = [
        RunStarted(
            title="tune", at=100.0, devices=(Device(name="npu:0", kind="npu", identity=""),)
        ),
        DeviceAsked(device="npu:0", at=101.0),
        DeviceAwaited(device="npu:0", at=101.0, holder="ann, pid 7"),
        DeviceAwaited(device="npu:0", at=101.5, holder="ann, pid 7", place=1),
        DeviceAwaited(device="npu:0", at=103.0, holder="bob, pid 8"),
        DeviceLeased(device="npu:0", at=104.0, lease=1),
        RunEnded(run="r", at=110.0, reason="done"),
    ]
    timeline = fold_timeline(events)
    shown = show_timeline(timeline)
    waits = "2.0 s for ann, pid 7; 1.0 s for bob, pid 8"
    assert f"Others held devices: npu:0 waited {waits}." in shown.see
    assert shown.lanes[0].shares == f"100 % idle (30 % waiting: {waits})"
    assert pack_timeline(timeline).cases == ("for ann, pid 7", "for bob, pid 8")
