"""Where the time of a run went: the spans that a fold of its events finds, and the critical path."""

import itertools
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.show.run_events import planned
from tests.unit.show.simulated_runs import EPOCH, Happened, simulate

from tileyard.base.events import (
    BuildEnded,
    BuildStarted,
    CaseEnded,
    CaseLeft,
    CaseStarted,
    DeviceAsked,
    DeviceAwaited,
    DeviceLeased,
    DevicePaused,
    DeviceReleased,
    Event,
    HostJoined,
    JudgeAnswered,
    PreparationEnded,
    RunEnded,
    RunStarted,
    StepEnded,
)
from tileyard.base.model import Device, Outcome, Trial
from tileyard.show.timeline import WORK, Timeline, fold_timeline
from tileyard.store.events import EventLog, read_events


def check(timeline: Timeline) -> None:
    """What holds of every timeline, also of a cut or damaged stream."""
    seconds = timeline.seconds
    for lane in timeline.lanes:
        edges = [lane.begin, *(at for span in lane.spans for at in (span.begin, span.end)), seconds]
        assert edges == sorted(edges), lane
        assert 0.0 <= lane.idle <= 1.0
        assert sum(lane.shares.values()) <= 1.0 + 1e-9
        took = sum(span.seconds for span in lane.spans if span.kind in WORK)
        assert took == pytest.approx((1 - lane.idle) * (seconds - lane.begin), abs=1e-5)
    joints = [0.0, *(at for step in timeline.path for at in (step.begin, step.end)), seconds]
    assert joints == sorted(joints)
    assert joints[0::2] == joints[1::2]  # each step begins where the one before it ended
    for step in timeline.path:
        span = timeline.span_of(step)
        assert step.begin < step.end
        assert span is None or span.begin == step.begin <= step.end <= span.end
    for one, other in itertools.pairwise(timeline.counts):
        assert one.at < other.at
        assert (one.ready, one.building) != (other.ready, other.building)


def count_runs(events: list[Event]) -> Counter[tuple[str, str]]:
    """How often each case began on each device."""
    return Counter((one.case, one.device) for one in events if isinstance(one, CaseStarted))


def found_runs(timeline: Timeline) -> Counter[tuple[str, str]]:
    """Likewise by the spans."""
    return Counter(
        (case, lane.name)
        for lane in timeline.lanes
        for span in lane.spans
        if span.kind == "running"
        for case in span.cases
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_spans_are_those_that_happened(seed: int) -> None:
    """Of each lane: what it did, for which cases, when, to the millisecond; and how each case ended."""
    run = simulate(seed, cases=25, workers=1 + seed % 3)
    timeline = fold_timeline(run.events)
    check(timeline)
    found = sorted(
        Happened(lane.name, one.kind, one.cases, round(1000 * one.begin), round(1000 * one.end))
        for lane in timeline.lanes
        for one in lane.spans
    )
    assert found == sorted(run.happened)
    ended = {one.trial.case: one.trial.outcome for one in run.events if isinstance(one, CaseEnded)}
    judged = {
        span.cases[0]: span.outcome
        for lane in timeline.lanes
        for span in lane.spans
        if span.kind == "judging"
    }
    built = [case for case in ended if ended[case] is not Outcome.COMPILE_ERROR]
    assert judged == {case: ended[case] for case in built}
    assert timeline.seconds == pytest.approx(run.end / 1000 + 0.25)
    assert (timeline.reason, timeline.run, timeline.at) == ("done", "r", EPOCH)
    assert max(count.building for count in timeline.counts) > 0
    assert (timeline.counts[-1].ready, timeline.counts[-1].building) == (0, 0)


def at(seconds: float) -> float:
    """A time since the epoch."""
    return EPOCH + seconds


def ended(case: str, seconds: float, outcome: Outcome = Outcome.PASSED, **more: float) -> CaseEnded:
    """The end of a case."""
    trial = Trial(
        id=f"r.{case}", run="r", case=case, batch=case, target="cpu", outcome=outcome, **more
    )
    return CaseEnded(trial=trial, at=at(seconds) if seconds else 0.0)


def begun(case: str) -> CaseStarted:
    """A case on the one device."""
    return CaseStarted(case=case, device="cpu:0", at=at(2))


BEGUN = RunStarted(
    run="r", title="", at=EPOCH, devices=(Device(name="cpu:0", kind="cpu", identity="x"),)
)
TWO = [
    BEGUN,
    planned("a"),
    planned("b"),
    PreparationEnded(case="a", at=at(1), seconds=1),
    BuildStarted(case="a", at=at(1), worker=0),
    PreparationEnded(case="b", at=at(2), seconds=1),
    BuildStarted(case="b", at=at(2), worker=1),
    BuildEnded(case="b", at=at(3), ok=True, reused=False),
    DeviceAsked(device="cpu:0", at=at(3)),
    DeviceLeased(device="cpu:0", at=at(3.5), lease=1),
    CaseStarted(case="b", device="cpu:0", at=at(3.5)),
    BuildEnded(case="a", at=at(4), ok=True, reused=False),
    CaseLeft(case="b", device="cpu:0", at=at(6)),
    CaseStarted(case="a", device="cpu:0", at=at(6)),
    JudgeAnswered(cases=("b",), at=at(6.25), seconds=0.25),
    ended("b", 6.25),
    CaseLeft(case="a", device="cpu:0", at=at(7)),
    JudgeAnswered(cases=("a",), at=at(8), seconds=1),
    ended("a", 8, Outcome.MISMATCH),
    RunEnded(run="r", at=at(8.5), reason="done"),
]


def name_path(timeline: Timeline) -> list[tuple[str, float, float]]:
    """The steps of a critical path, each by kind and cases."""
    return [
        (
            "" if (span := timeline.span_of(step)) is None else " ".join((span.kind, *span.cases)),
            step.begin,
            step.end,
        )
        for step in timeline.path
    ]


def test_the_critical_path_is_what_had_to_end_first() -> None:
    """The case that was built last waited for the device, and that for the runner and the other's build."""
    timeline = fold_timeline(TWO)
    check(timeline)
    assert name_path(timeline) == [
        ("preparing a", 0, 1),
        ("preparing b", 1, 2),
        ("building b", 2, 3),
        ("starting", 3, 3.5),
        ("running b", 3.5, 6),
        ("running a", 6, 7),
        ("judging a", 7, 8),
        ("", 8, 8.5),
    ]
    (device,) = (lane for lane in timeline.lanes if lane.kind == "device")
    assert device.shares == {
        "starting": pytest.approx(0.5 / 8.5),
        "running": pytest.approx(3.5 / 8.5),
    }
    assert device.idle == pytest.approx(5 / 8.5)
    assert [span.outcome for span in device.spans] == [None, Outcome.PASSED, Outcome.MISMATCH]


def test_a_device_that_waits_for_quiet_waits_for_the_last_build() -> None:
    """The pause is a span that is not work, and the path goes on with what the device waited for."""
    timeline = fold_timeline(
        [
            *TWO[:5],
            PreparationEnded(case="b", at=at(1.5), seconds=0.5),
            BuildStarted(case="b", at=at(1.5), worker=1),
            BuildEnded(case="b", at=at(2), ok=True, reused=False),
            DeviceLeased(device="cpu:0", at=at(2), lease=1),
            DevicePaused(device="cpu:0", at=at(2), reason="quiet"),
            BuildEnded(case="a", at=at(4), ok=True, reused=False),
            CaseStarted(case="b", device="cpu:0", at=at(4)),
            CaseLeft(case="b", device="cpu:0", at=at(5)),
        ]
    )
    check(timeline)
    (device,) = (lane for lane in timeline.lanes if lane.kind == "device")
    assert [(one.kind, one.begin, one.end) for one in device.spans] == [
        ("paused", 2, 4),
        ("running", 4, 5),
    ]
    assert device.spans[0].why == "until nothing is built or prepared on its cores"
    assert name_path(timeline) == [("preparing a", 0, 1), ("building a", 1, 4), ("running b", 4, 5)]


def test_a_gap_on_the_path_goes_to_what_ended_last_in_it() -> None:
    """A build that waited until a device gave its core back; where nothing ended, nothing is named."""
    timeline = fold_timeline(
        [
            BEGUN,
            *map(planned, "ab"),
            PreparationEnded(case="a", at=at(1), seconds=1),
            PreparationEnded(case="b", at=at(2), seconds=1),
            CaseStarted(case="a", device="cpu:0", at=at(2)),
            CaseLeft(case="a", device="cpu:0", at=at(4)),
            BuildStarted(case="b", at=at(4.5), worker=0),
            BuildEnded(case="b", at=at(5), ok=True, reused=False),
            CaseStarted(case="b", device="cpu:0", at=at(5.004)),
            CaseLeft(case="b", device="cpu:0", at=at(6)),
        ]
    )
    check(timeline)
    assert name_path(timeline) == [
        ("preparing a", 0, 1),
        ("preparing b", 1, 2),
        ("running a", 2, 4),
        ("", 4, 4.5),
        ("building b", 4.5, 5),
        ("", 5, 5.004),
        ("running b", 5.004, 6),
    ]


def test_the_path_ends_where_spans_seem_to_wait_for_each_other() -> None:
    """A build so short that one of a case that came after it counts as of the same request."""
    timeline = fold_timeline(
        [
            BEGUN,
            *map(planned, "ax"),
            *(BuildStarted(case=case, at=at(1), worker=0) for case in "ax"),
            BuildEnded(case="a", at=at(2), ok=True, reused=False),
            CaseStarted(case="a", device="cpu:0", at=at(2)),
            CaseLeft(case="a", device="cpu:0", at=at(2.001)),
            ended("a", 2.001),
            planned("c"),
            PreparationEnded(case="c", at=at(2.002), seconds=0.001),
            BuildStarted(case="c", at=at(2.002), worker=0),
            BuildEnded(case="c", at=at(2.004), ok=True, reused=False),
        ]
    )
    check(timeline)
    assert name_path(timeline) == [("", 0, 1), ("building a c", 1, 2.004)]


def test_a_case_that_its_device_failed_has_a_span_for_each_try() -> None:
    """The first one ended through the host; a device that is lost takes its case along."""
    timeline = fold_timeline(
        [
            BEGUN,
            planned("a"),
            CaseStarted(case="a", device="cpu:0", at=at(1)),
            DeviceReleased(device="cpu:0", at=at(2)),
            HostJoined(
                host="far", at=at(3), devices=(Device(name="cpu:0@far", kind="cpu", identity="x"),)
            ),
            DeviceAsked(device="cpu:0@far", at=at(3)),
            DeviceAwaited(device="cpu:0@far", at=at(3), place=2, holder="ada, pid 7"),
            CaseStarted(case="a", device="cpu:0@far", at=at(4)),
            ended("a", 7),
        ]
    )
    check(timeline)
    own, far = timeline.lanes
    assert [(one.end, one.outcome) for one in own.spans] == [(2, Outcome.INFRA_ERROR)]
    assert (far.host, far.begin, far.idle) == ("far", 3, 0.25)
    assert [(one.kind, one.why, one.outcome) for one in far.spans] == [
        ("waiting", "ada, pid 7", None),
        ("running", "", Outcome.PASSED),
    ]


def test_cases_that_are_timed_in_turn_share_a_span() -> None:
    """From the first start until the last has left, but only if they are of one batch."""
    timeline = fold_timeline(
        [
            BEGUN,
            *(planned(case, batch="finals") for case in "abc"),
            planned("d"),
            PreparationEnded(case="a", at=at(0.5), seconds=0.5),
            *(
                CaseStarted(case=one, device="cpu:0", at=at(1 + n / 8))
                for n, one in enumerate("abc")
            ),
            CaseLeft(case="a", device="cpu:0", at=at(5)),
            CaseLeft(case="c", device="cpu:0", at=at(5.5)),
            ended("a", 5.5),
            ended("c", 5.5, Outcome.MISMATCH),
            CaseStarted(case="d", device="cpu:0", at=at(6)),
            ended("b", 6.5),
            CaseLeft(case="d", device="cpu:0", at=at(7)),
        ]
    )
    check(timeline)
    (device,) = (lane for lane in timeline.lanes if lane.kind == "device")
    assert [(one.cases, one.begin, one.end, one.outcome) for one in device.spans] == [
        (("a", "b", "c"), 1, 6, Outcome.MISMATCH),
        (("d",), 6, 7, None),
    ]
    timeline = fold_timeline(
        [BEGUN, CaseLeft(case="x", device="cpu:0", at=at(1)), begun("a"), begun("b")]
    )
    (device,) = timeline.lanes
    assert [one.cases for one in device.spans] == [("a",), ("b",)]  # of unknown batches


def test_builds_of_one_request_that_do_not_end_together_follow_each_other() -> None:
    """Of four kernels two end at once, one later; the worker dies with the last one, which says how."""
    starts = [BuildStarted(case=case, at=at(1), worker=0) for case in "abcd"]
    ends = [
        BuildEnded(case=case, at=at(seconds), ok=ok, reused=False)
        for case, seconds, ok in (("a", 3, True), ("b", 3.001, True), ("c", 4, False))
    ]
    timeline = fold_timeline(
        [
            BEGUN,
            *map(planned, "abcd"),
            *starts,
            *ends,
            ended("c", 4, Outcome.CRASHED),
            ended("d", 6, Outcome.NOT_RUN),
        ]
    )
    check(timeline)
    (worker,) = (lane for lane in timeline.lanes if lane.kind == "worker")
    assert [(one.cases, one.begin, one.end, one.outcome) for one in worker.spans] == [
        (("a", "b"), 1, 3.001, Outcome.PASSED),
        (("c",), 3.001, 4, Outcome.CRASHED),
        (("d",), 4, 6, Outcome.NOT_RUN),
    ]


def test_streams_of_older_versions_are_read() -> None:
    """Without workers, what left a device, and times of ends: builds find lanes, runs last as they say."""
    timeline = fold_timeline(
        [
            BEGUN,
            *(planned(case, batch="piece") for case in "ab"),
            BuildStarted(case="a", at=at(1)),
            BuildStarted(case="b", at=at(1)),
            BuildEnded(case="a", at=at(2), ok=True, reused=False),
            BuildEnded(case="b", at=at(3), ok=True, reused=False),
            CaseStarted(case="a", device="cpu:0", at=at(3)),
            CaseStarted(case="b", device="cpu:0", at=at(5)),
            ended("a", 0, run_s=1.5),
            StepEnded(case="a", step="check", at=at(6), seconds=1),
            ended("b", 0, run_s=1),
            RunEnded(run="r", at=at(7), reason="done"),
        ]
    )
    check(timeline)
    spans = {lane.name: [(one.begin, one.end) for one in lane.spans] for lane in timeline.lanes}
    assert spans == {
        "steps 0": [(5, 6)],
        "worker 0": [(1, 2)],
        "worker 1": [(1, 3)],
        "cpu:0": [(3, 4.5), (5, 6)],
    }


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_stream_that_is_cut_anywhere_has_a_timeline(cut: int, tmp_path: Path) -> None:
    """What was under way at its last whole line ends there, and half a line is counted."""
    with EventLog(tmp_path, "r") as log:
        for event in simulate(cut, cases=8).events:
            log.append(event)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[: len(whole) * cut // 100])
    events = list(read_events(log.path))
    timeline = fold_timeline(events)
    check(timeline)
    assert timeline.skipped == events.count(None) <= 1
    assert timeline.reason is None
    known = [event for event in events if event is not None]
    assert found_runs(timeline) == count_runs(known)
    begun = {one.case for one in known if isinstance(one, BuildStarted)}
    spans = [span for lane in timeline.lanes for span in lane.spans]
    assert begun == {case for one in spans if one.kind == "building" for case in one.cases}
    left = {one.case for one in known if isinstance(one, CaseLeft)}
    running = [one for one in spans if one.kind == "running" and not left.intersection(one.cases)]
    assert all(one.end == timeline.seconds for one in running)


CASES, DEVICES = st.sampled_from("abcd"), st.sampled_from(["cpu:0", "cpu:1", "board:0@far"])
TIMES = st.integers(0, 4000).map(lambda ms: at(ms / 1000))
SECONDS = st.integers(0, 3000).map(lambda ms: ms / 1000)
EVENTS = st.one_of(
    st.builds(planned, CASES),
    st.builds(PreparationEnded, case=CASES, at=TIMES, seconds=SECONDS),
    st.builds(
        BuildStarted,
        case=CASES,
        at=TIMES,
        host=st.sampled_from(["", "far"]),
        worker=st.none() | st.integers(0, 1),
    ),
    st.builds(BuildEnded, case=CASES, at=TIMES, ok=st.booleans(), reused=st.booleans()),
    st.builds(DeviceAsked, device=DEVICES, at=TIMES),
    st.builds(DeviceAwaited, device=DEVICES, at=TIMES, holder=st.sampled_from(["", "ada"])),
    st.builds(DeviceLeased, device=DEVICES, at=TIMES, lease=st.just(1)),
    st.builds(
        DevicePaused, device=DEVICES, at=TIMES, reason=st.sampled_from(["quiet", "judge", "burst"])
    ),
    st.builds(DeviceReleased, device=DEVICES, at=TIMES),
    st.builds(CaseStarted, case=CASES, device=DEVICES, at=TIMES),
    st.builds(CaseLeft, case=CASES, device=DEVICES, at=TIMES),
    st.builds(JudgeAnswered, cases=st.lists(CASES).map(tuple), at=TIMES, seconds=SECONDS),
    st.builds(
        StepEnded, case=CASES, step=st.sampled_from(["golden", "check"]), at=TIMES, seconds=SECONDS
    ),
    st.builds(ended, CASES, SECONDS, st.sampled_from(Outcome), run_s=SECONDS),
    st.builds(HostJoined, host=st.just("far"), at=TIMES),
    st.none(),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, max_size=40), st.booleans())
def test_no_stream_makes_an_impossible_timeline(events: list[Event | None], begins: bool) -> None:
    """Whatever is lost, repeated, out of order or set back: no lane does two things at once."""
    read = [BEGUN, *events] if begins else events
    timeline = fold_timeline(read)
    check(timeline)
    known = [event for event in events if event is not None]
    assert found_runs(timeline) == count_runs(known)
    assert msgspec.json.decode(msgspec.json.encode(timeline), type=Timeline) == timeline
