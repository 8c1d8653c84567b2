"""The state of a run as all its reports read it, from events made by hand."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.show.run_events import (
    WORK,
    begun,
    ended,
    fold,
    judged_of,
    planned,
    started,
    take_all,
)

from tileyard.base.events import (
    BuildEnded,
    BuildStarted,
    CaseLeft,
    DeviceAwaited,
    DeviceLeased,
    DeviceReleased,
    Event,
    Note,
    RepetitionStarted,
    RunEnded,
    RunStarted,
    StepEnded,
)
from tileyard.base.model import Measurement, Outcome, Trial
from tileyard.show.view import DOUBT, Judged, RunView
from tileyard.verbs.test.result.result import SuiteCase, judge_cases
from tileyard.verbs.test.view.progress import SuiteLayout


def a_run() -> list[Event]:
    """A case that passed, one that passed at its second attempt, one that failed, one that runs."""
    return [
        started(retries=1),
        *(planned(name, batch="piece") for name in ("a", "b", "c", "d")),
        BuildStarted(case="a", at=0.0),
        BuildEnded(case="a", at=0.0, ok=True, reused=False),
        begun("a"),
        ended("a"),
        begun("b"),
        ended("b", Outcome.CRASHED),
        planned("b", attempt=2),
        begun("b//2"),
        ended("b", attempt=2),
        ended("c", Outcome.COMPILE_ERROR),
        BuildEnded(case="d", at=0.0, ok=True, reused=True),
        DeviceAwaited(device="slot:1", at=0.0, holder="bob"),
        begun("d"),
    ]


def test_a_case_that_left_its_device_is_judged() -> None:
    """The device is free, whatever the judge takes; a case that another device has lost frees no other."""
    view = fold(started(), planned("a"), planned("b"), begun("a"))
    view.take(CaseLeft(case="b", device="slot:0", at=0.0), 1.0)
    assert view.on_device == {"slot:0": "a"}
    view.take(CaseLeft(case="a", device="slot:0", at=0.0), 1.0)
    assert (view.on_device, judged_of(view)) == ({}, ["a"])


def verdicts(*events: Event) -> list[str]:
    """The verdict on each attempt that ended."""
    view = RunView()
    found = []
    for event in events:
        view.take(event, 0.0)
        if isinstance(view.changed, Judged):
            found.append(view.changed.verdict)
    return found


def test_a_view_holds_what_is_under_way_and_how_the_rest_ended() -> None:
    """Counts are of final outcomes; a case that is under way is in one state."""
    view = fold(*a_run())
    assert view.counts == {Outcome.PASSED: 2, Outcome.COMPILE_ERROR: 1}
    assert (list(view.open), list(view.building), view.ready) == (["d"], [], {"d"})
    assert (view.planned, view.built, view.ended, view.reason) == (4, 4, 3, None)
    assert (view.flaky, view.again) == (["b"], {})
    assert view.failures == {"c": Outcome.COMPILE_ERROR}
    assert view.on_device == {"slot:0": "d"}
    assert list(view.awaited) == ["slot:1"]


def test_equal_streams_give_equal_views() -> None:
    """And a view that begins anew keeps nothing of the run before."""
    once = fold(*a_run())
    assert fold(*a_run()) == once
    assert take_all(once, a_run()) == fold(*a_run())


def test_a_recorded_run_gives_the_same_view() -> None:
    """The lines of ``runs/RUN.jsonl`` are enough for every report."""
    lines = [msgspec.json.encode(event) for event in a_run()]
    read = [msgspec.json.decode(line, type=Event) for line in lines]
    assert fold(*read) == fold(*a_run())


@given(st.lists(st.lists(st.sampled_from(Outcome), min_size=1, max_size=3), max_size=6))
def test_a_view_and_the_verdicts_agree(attempts: list[list[Outcome]]) -> None:
    """Whatever happened to the cases of a run, and wherever it ended, both count the same."""
    cases = [SuiteCase(testcase="t", name=str(i), work=WORK) for i in range(len(attempts))]
    trials: dict[str, list[Trial]] = {case.id: [] for case in cases}
    view = fold(started(retries=2))
    for case, outcomes in zip(cases, attempts, strict=True):
        for number, outcome in enumerate(outcomes, start=1):
            event = ended(case.id, outcome, attempt=number)
            trials[case.id].append(event.trial)
            take_all(view, (planned(case.id, attempt=number), event))
            if case.id not in view.again:
                break
    view.take(RunEnded(run="r", at=0.0, reason="interrupted"), 0.0)
    verdicts = judge_cases(cases, trials, {})
    failed = {one.case: one.outcome for one in verdicts if one.is_bad}
    assert view.counts == Counter(one.outcome for one in verdicts)
    assert view.flaky == [one.case for one in verdicts if one.is_flaky]
    assert view.failures == {
        case: outcome for case, outcome in failed.items() if outcome is not Outcome.NOT_RUN
    }


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([started(retries=1), ended("a"), ended("b", Outcome.UNCHECKED)], ["passed", "passed"]),
        (
            [
                started(retries=1),
                ended("a", Outcome.CRASHED),
                ended("a", Outcome.TIMEOUT, attempt=2),
            ],
            ["retried", "failed"],
        ),
        (
            [started(retries=1), ended("a", Outcome.CRASHED), ended("a", attempt=2)],
            ["retried", "flaky"],
        ),
        ([started(), ended("a", Outcome.CRASHED)], ["failed"]),
        ([started(retries=1), ended("a", Outcome.INFRA_ERROR)], ["failed"]),
        ([started(retries=1), ended("a", Outcome.COMPILE_ERROR)], ["failed"]),
        (
            [started(retries=1), ended("a", Outcome.NOT_RUN), ended("b", Outcome.CRASHED)],
            ["not_run", "failed"],
        ),
    ],
)
def test_an_outcome_is_final_or_its_case_is_tried_again(
    events: list[Event], expected: list[str]
) -> None:
    """As the suite's source has it; in a run that was stopped nothing is tried again."""
    assert verdicts(*events) == expected


def test_an_attempt_that_no_event_announced_takes_the_failure_back() -> None:
    """Its case has no outcome until it ends."""
    view = fold(started(), planned("a"), ended("a", Outcome.CRASHED), planned("a", attempt=2))
    assert (view.ended, view.again, view.failures) == (0, {"a": Outcome.CRASHED}, {})


def test_a_device_runs_one_case() -> None:
    """A case whose device turned to another, or was given back, is judged; one that begins again runs."""
    view = fold(started(slots=3), *(planned(name) for name in ("a", "b", "c")))
    take_all(view, (begun("a", "npu:0"), begun("b", "npu:0")))
    assert (view.on_device, judged_of(view)) == ({"npu:0": "b"}, ["a"])
    take_all(view, (ended("a"), begun("c", "npu:1"), DeviceReleased(device="npu:1", at=0.0)))
    assert (view.on_device, judged_of(view)) == ({"npu:0": "b"}, ["c"])
    take_all(view, (begun("c", "npu:2"), begun("b", "npu:2"), ended("c")))
    expected = [("npu:2", "b")]
    assert [(one.device, one.case.id) for one in view.running(0.0)] == expected
    assert judged_of(view) == []


def test_each_change_is_shown_once() -> None:
    """The first wait for a device is a change, and the next once it was held; most events change nothing."""
    awaited = DeviceAwaited(device="npu:0", at=0.0, holder="bob")
    leased = DeviceLeased(device="npu:0", at=0.0, lease=1)
    over = RunEnded(run="r", at=0.0, reason="budget")
    note = Note(text="read this")
    view = RunView()
    changes = []
    for event in (started(), awaited, awaited, leased, awaited, planned("a"), note, over):
        view.take(event, 0.0)
        changes.append(view.changed)
    assert changes == [started(), awaited, None, None, awaited, None, note, over]
    assert view.reason == "budget"


def test_the_best_trial_is_the_fastest_that_is_right() -> None:
    """A wrong result wins nothing, times of finals count most, and a control has no place."""

    def timed(
        case: str, median_ns: float, outcome: Outcome = Outcome.PASSED, **fields: object
    ) -> Event:
        event = ended(case, outcome)
        times = {"low_ns": median_ns, "high_ns": median_ns, "samples_ns": (median_ns,)}
        measured = Measurement(median_ns=median_ns, confidence=0.95, **times)
        trial = msgspec.structs.replace(event.trial, measurement=measured, **fields)
        return msgspec.structs.replace(event, trial=trial)

    view = fold(started(), timed("a", 3.0), timed("b", 2.0), timed("c", 1.0, Outcome.MISMATCH))
    assert [trial.case for trial in view.best.values()] == ["b"]
    view.take(timed("f1", 2.5, batch="finals"), 0.0)
    view.take(timed("f2", 2.4, batch="finals"), 0.0)
    view.take(timed("f0", 2.3, batch="finals", control=True), 0.0)
    assert [trial.case for trial in view.best.values()] == ["f2"]


def test_cases_that_were_never_planned_do_no_harm() -> None:
    """The end of one counts, as that of a trial which was known before; all else is passed over."""
    strange = [
        begun("x"),
        BuildStarted(case="x", at=0.0),
        BuildEnded(case="x", at=0.0, ok=True, reused=False),
        DeviceReleased(device="slot:7", at=0.0),
    ]
    view = fold(*strange, started(), *strange)
    assert view == fold(started(), strange[-1])
    take_all(view, [ended("x"), *strange])
    assert (view.counts, view.built, view.open) == ({Outcome.PASSED: 1}, 1, {})
    assert view.on_device == {}


def test_the_time_left_counts_golden_and_check_steps() -> None:
    """At what they took so far, on the lanes that they share; with no case left there is nothing to come."""
    about = replace(started(cases=1, expected_s=2.0), steps=2, steps_s=20.0, lanes=2)
    view = fold(about, planned("t/a", 2.0))
    assert view.left_s(0.0) == 10.0
    take_all(view, [StepEnded(case="t/a", step="golden", at=6.0, seconds=6.0)])
    assert view.left_s(0.0) == (6.0 + DOUBT * 10.0) / (1 + DOUBT) / 2
    take_all(view, [ended("t/a")])
    assert view.left_s(0.0) is None


@pytest.mark.parametrize("is_guess", [False, True])
def test_the_time_left_is_a_guess_until_something_was_measured(is_guess: bool) -> None:
    """Where no earlier run says what cases take; then three that ran say it."""
    layout = SuiteLayout(Path("/home/x"), str)
    view = fold(replace(started(), is_guess=is_guess), *map(planned, "abcd"))
    said = "left, a guess"
    assert (said in layout.state(view, 0.0).plain) == is_guess
    take_all(view, map(ended, "abc"))
    assert said not in layout.state(view, 0.0).plain


def test_nothing_is_kept_of_cases_that_ended_well() -> None:
    """A hundred thousand cases need the room of those that are under way."""
    view = fold(started(slots=2, cases=1000, expected_s=1000.0))
    empty = sizes(view)
    for number in range(1000):
        key = f"c{number}"
        built = BuildEnded(case=key, at=0.0, ok=True, reused=False)
        one = (planned(key, batch=f"piece-{number // 10}"), BuildStarted(case=key, at=0.0), built)
        take_all(view, (*one, begun(key, f"slot:{number % 2}"), ended(key)))
    assert len(empty) >= 9
    assert sizes(view) == empty | {"counts": 1, "ended_on": 1, "further": 3}


def sizes(view: RunView) -> dict[str, int]:
    """The number of entries of everything that can grow."""
    return {name: len(held) for name, held in vars(view).items() if hasattr(held, "__len__")}


def test_repetitions_take_as_long_as_those_of_their_strategy() -> None:
    """And as the others before one of theirs has ended; what is under way is paid for."""
    view = RunView()
    view.take(RunStarted(title="replay", run="r", cases=6), 10.0)
    for strategy, at_s, left, before_s in (
        ("slow", 10.0, {"slow": 2, "fast": 2, "new": 2}, None),
        ("fast", 18.0, {"slow": 1, "fast": 2, "new": 2}, None),
        ("new", 20.0, {"slow": 1, "fast": 1, "new": 2}, 5 * 8 - 2),
    ):
        assert view.pace_left_s(at_s) == before_s
        view.take(RepetitionStarted(strategy=strategy, file="f", left=left), at_s)
    assert view.repeated == {"slow": 1, "fast": 1}
    assert view.pace_left_s(23.0) == 8 + 2 + 2 * 5 - 3
    assert view.pace_left_s(99.0) == 0.0
