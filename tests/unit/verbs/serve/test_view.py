"""What pages of a server say, from states made by hand."""

import re
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from tests.unit.show.run_events import begun, ended, planned, started
from tests.unit.verbs.doctor.test_view import HOSTILE, state

from tileyard.base.events import HostLost, RunEnded, StudyAdvanced
from tileyard.base.model import Device, Outcome
from tileyard.devices.health import Health
from tileyard.devices.occupancy import Holder
from tileyard.devices.survey import Survey
from tileyard.engine.hosts.naming import HostAnswer
from tileyard.store.base import RunSpan
from tileyard.store.events import StreamState
from tileyard.testing.stores import make_trial
from tileyard.verbs.serve.plan.hosts import HostState, Seen
from tileyard.verbs.serve.plan.runs import RunFold, RunLine
from tileyard.verbs.serve.view import (
    LINKS,
    MOST_ROWS,
    Shown,
    encode_state,
    show_devices,
    show_ended,
    show_list,
    show_message,
    show_overview,
    show_page,
    show_run,
)

BAD = "<img src=x onerror=alert(1)>"
BEGUN = started()
DONE = RunEnded(run="r", at=65.0, reason="done")


@pytest.fixture
def fold() -> RunFold:
    """The fold of a run of ten cases on two slots, of which one has ended, one failed and one runs."""
    made = RunFold(Path("r"))
    cases = ("a", "b", "c")
    for event in (BEGUN, *map(planned, cases), begun("a"), ended("a"), begun("b")):
        made._take(event)
    made._take(ended("b", Outcome.CRASHED))
    made._take(begun("c", "slot:1"))
    return made


def line(run: str = "r", ended: RunEnded | None = DONE, *, is_open: bool = False) -> RunLine:
    """A run of two trials."""
    stream = StreamState(begun=BEGUN, ended=ended, is_open=is_open)
    return RunLine(
        run=run, stream=stream, span=RunSpan(run=run, trials=2, first_at=3.0, last_at=4.0)
    )


def text_of(state: Shown) -> str:
    """The text of a state's page."""
    html = show_page("title", state)
    html = html[html.index("<header>") : html.index("<script")]
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_a_run_under_way(fold: RunFold) -> None:
    """Its progress, what runs, what failed and why, and what ended last."""
    found = show_run(fold)
    assert found.answer.startswith("2 of 10 cases ended, 1 failed; about ")
    assert ("devices", "1 of 2 in use") in found.facts
    assert [row[:2] for row in found.running] == [("c", "slot:1")]
    assert found.losses == (("crashed", "1"),)
    assert found.messages == (("1", r"it went \x1b[31mwrong"),)
    assert [row[:2] for row in found.latest] == [("b", "crashed"), ("a", "passed")]
    assert not found.is_over
    text = text_of(found)
    for said in ("crashed 1", r"it went \x1b[31mwrong", "2 of 10"):
        assert said in text


def test_a_run_that_has_ended_says_so(fold: RunFold) -> None:
    """A page that follows it gets its last state, and then its report."""
    fold._take(DONE)
    found = show_run(fold)
    assert found.is_over
    assert found.answer == "2 of 10 cases ended, 1 failed; the run has ended"
    assert msgspec.json.decode(encode_state(found))["over"] is True


def test_a_run_that_announces_no_cases_counts_those_that_ended() -> None:
    """As one of pytest: there is no progress to show."""
    fold = RunFold(Path("r"))
    for event in (msgspec.structs.replace(BEGUN, cases=0, expected_s=0.0), ended("a"), ended("b")):
        fold._take(event)
    found = show_run(fold)
    assert found.answer == "2 cases ended"
    assert "<progress" not in show_page("title", found)


def test_long_lists_of_a_run_are_cut() -> None:
    """The rest is counted."""
    fold = RunFold(Path("r"))
    devices = tuple(
        Device(name=f"slot:{i}", kind="slot", identity="x") for i in range(2 * MOST_ROWS)
    )
    fold._take(msgspec.structs.replace(BEGUN, devices=devices))
    for i in range(2 * MOST_ROWS):
        fold._take(planned(f"c{i}"))
        fold._take(begun(f"c{i}", f"slot:{i}"))
    found = show_run(fold)
    assert (len(found.running), found.hidden) == (MOST_ROWS, MOST_ROWS)
    assert f"and {MOST_ROWS} more with less time left" in text_of(found)


def test_other_hosts_are_shown_with_their_runs(fold: RunFold) -> None:
    """Their use, or why nothing is heard of them, also on the first page."""
    device = Device(name="npu:0@b", kind="npu", identity="x")
    fold._take(msgspec.structs.replace(BEGUN, devices=(device,)))
    fold._take(HostLost(host="b", at=1.0, why="the line\nwas cut"))
    fold._take(StudyAdvanced(expected_gain=None, left_s=30.0, rejected={"too large": 2}))
    found = show_run(fold)
    (host,) = found.hosts
    assert (host.name, host.busy, host.lost) == ("b", "0 of 1", "the line was cut")
    overview = show_overview([found], [line()])
    assert overview.hosts == found.hosts
    assert overview.answer == "1 run under way, 1 with failures"
    assert "the line was cut" in text_of(overview)


def test_runs_of_a_list_say_how_they_ended() -> None:
    """Also those of which nothing is known but their trials."""
    lost = RunLine(run="old", stream=StreamState(begun=None, ended=None, is_open=False))
    found = show_list([line("d", None, is_open=True), line("c"), line("b", None), lost], 4)
    assert [row.end for row in found.rows] == ["under way", "done", "killed", ""]
    assert [row.trials for row in found.rows] == [2, 2, 2, 0]
    assert found.earlier == "old"
    assert 'href="/runs?before=old"' in show_page("Runs", found)
    assert show_list([line()], 4).earlier == ""
    assert "No run is under way" in text_of(show_overview((), ()))


def test_an_ended_run_by_its_trials() -> None:
    """Outcomes are counted, and the trials that are not shown."""
    trials = [make_trial("t1"), make_trial("t2", outcome=Outcome.CRASHED, message="a\nb")]
    found = show_ended(line(), {Outcome.PASSED: 7, Outcome.CRASHED: 1}, trials)
    assert found.answer == "8 trials: 7 passed, 1 crashed"
    assert (found.trials[0][0], found.trials[1][-1]) == ("block_M=32 fast=True", "a b")
    assert found.hidden == 6
    assert "took 65 s" in text_of(found)


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (None, "; the run was killed"),
        (RunEnded(run="r", at=65.0, reason="interrupted"), "; the run was interrupted"),
        (DONE, ""),
    ],
)
def test_a_run_that_was_cut_off_says_so_first(ended: RunEnded | None, words: str) -> None:
    """Whether it has trials or not: its counts are not all that was asked for."""
    stream = StreamState(begun=BEGUN, ended=ended, is_open=False)
    for counts, begins in (({}, "It has no trial"), ({Outcome.PASSED: 7}, "7 trials: 7 passed")):
        assert show_ended(RunLine(run="r", stream=stream), counts, ()).answer == begins + words


def test_devices_with_holders_and_queue() -> None:
    """As the command shows them; what others wrote is text."""
    holder = Holder(device="npu:0", user="ann", pid=7, command=HOSTILE, since=90.0, number=3)
    sick = Health(reason=HOSTILE, device="npu:1", user="bob", since=40.0)
    survey = Survey(
        at=100.0,
        lock_dir="/locks",
        window_s=0.5,
        devices=(state("npu:0", Health(), holder, 0.25), state("npu:1", sick, None, None)),
        notes=(HOSTILE,),
    )
    found = show_devices(survey)
    assert found.answer == "1 of 2 devices held, 2 requests waiting, 1 in quarantine"
    first, second = found.rows
    assert (first.busy, first.since, first.is_bad) == ("25 %", "10 s", False)
    assert (second.busy, second.since, second.is_bad) == ("?", "", True)
    assert r"ann 7: sleep [/red] \x1b[2J now" in text_of(found)


def test_other_hosts() -> None:
    """Each has a row with its versions or what is wrong, and its devices, whatever they are called."""
    there = Survey(
        at=1.0,
        lock_dir="/l",
        window_s=0.1,
        devices=(state(BAD, Health(), None, 0.25),),
        notes=(BAD,),
    )
    seen = Seen(survey=there, python=f"Python 3 {BAD}")
    hosts = (
        HostState(host="far", answer=HostAnswer(host="far", problem=f"no route\n{BAD}"), at=1.0),
        HostState(host="new"),
        HostState(host="twin", answer=HostAnswer(host="twin", answer=seen), at=1.0),
    )
    found = show_devices(Survey(at=1.0, lock_dir="/l", window_s=0.1, devices=()), hosts)
    assert found.answer.endswith("1 of 3 other hosts without an answer")
    assert [one.devices is None for one in found.hosts] == [True, True, False]
    html = show_page("Devices", found)
    assert html.count("&lt;img") == 4  # the reason, versions, device and note
    assert "<img" not in html
    text = text_of(found)
    assert "new being asked" in text
    assert f"Tileyard {version('tileyard')}, Python 3" in text


@pytest.mark.parametrize("name", ["<b>x</b>", '"><script>alert(1)</script>', "a&b"])
def test_names_lead_to_addresses_and_stay_texts(name: str) -> None:
    """Whatever a file in the folder of runs is called."""
    html = show_page("Runs", show_list([line(name)], 4))
    assert "<b>x" not in html
    assert "<script>alert" not in html
    assert f'href="/runs/{name}"' not in html


def test_only_pages_that_change_follow_anything() -> None:
    """Their addresses are those of their events; all lead to the others."""
    assert '{"events":"/events"}' in show_page("Now", show_overview((), ()), "/events")
    html = show_page("none", show_message("a < b"))
    assert '{"events":""}' in html
    assert "a &lt; b" in html
    for address, word in LINKS:
        assert f'<a href="{address}">{word}</a>' in html
