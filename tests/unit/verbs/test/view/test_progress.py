"""What people see while a suite runs, from events made by hand and a clock that is set."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from tests.unit.show.run_events import begun, ended, planned, started

from tileyard.base.events import DeviceAwaited, DeviceLeased, Event, Note, TargetsBuilt
from tileyard.base.model import Outcome
from tileyard.show.progress import Progress
from tileyard.verbs.test.view.progress import SuiteLayout
from tileyard.verbs.test.view.words import rerun_command


class SetClock:
    """Shows what it was set to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        """The time that was set."""
        return self.now_s

    def wall_s(self) -> float:
        """The same."""
        return self.now_s


class Watched:
    """A view, what it has printed, and the clock that it reads."""

    def __init__(self, terminal: bool, tick_s: float, is_verbose: bool) -> None:
        self.file = io.StringIO()
        self.clock = SetClock()
        console = Console(
            file=self.file, width=100, height=24, force_terminal=terminal, color_system=None
        )
        layout = SuiteLayout(Path("/home/t"), rerun_command("ops.toml"), is_verbose=is_verbose)
        layout.tick_s = tick_s
        self.progress = Progress(console, layout, self.clock)

    def tell(self, *events: Event) -> None:
        """Tell events, all at the present time."""
        for event in events:
            self.progress(event)

    def said(self) -> str:
        """All that was printed since this was asked last."""
        text = self.file.getvalue()
        self.file.seek(0)
        self.file.truncate()
        return text


@contextmanager
def watch(
    terminal: bool = False, tick_s: float = 1.0, is_verbose: bool = False
) -> Iterator[Watched]:
    """A view that is open."""
    watched = Watched(terminal, tick_s, is_verbose)
    with watched.progress:
        yield watched


def test_a_failure_is_one_line_with_its_log_and_how_to_run_it_again() -> None:
    """Without a terminal a failure is a line at once, and a case that passed is none."""
    with watch() as watched:
        watched.tell(started(), planned("row/a"), ended("row/a"))
        watched.said()
        watched.tell(planned("row/b"), ended("row/b", Outcome.CRASHED))
    expected = (
        "crashed       row/b: it went \\x1b[31mwrong  log: /home/t/logs/r/row/b.log"
        "  rerun: tileyard test ops.toml --case row/b\n"
    )
    assert watched.said() == expected


def test_equal_failures_are_not_shown_again() -> None:
    """The third says so, and later ones are only counted; with -v each has its line."""
    names = [f"row/{i}" for i in range(80)]
    events = [event for name in names for event in (planned(name), ended(name, Outcome.CRASHED))]
    with watch() as watched:
        watched.tell(started(), *events)
        lines = watched.said().splitlines()
    third = (
        "crashed       row/2: the same message as 2 cases before; more of these are not "
        "shown until the end"
    )
    assert [line for line in lines if line.startswith("crashed")][2:] == [third]
    with watch(is_verbose=True) as watched:
        watched.tell(started(), *events)
        assert watched.said().count("rerun: ") == 80


def test_a_build_that_cases_share_fails_with_one_line() -> None:
    """The end of the run names all of them."""
    names = [f"row/{i}" for i in range(4)]
    with watch() as watched:
        watched.tell(started(), *map(planned, names))
        watched.tell(*(ended(name, Outcome.COMPILE_ERROR) for name in names))
        said = watched.said()
    assert said.count("compile_error ") == said.count("rerun: ") == 1


def test_without_a_terminal_there_is_a_line_in_half_a_minute() -> None:
    """A heartbeat comes after thirty seconds, with or without events, and has counts and the time left."""
    with watch() as watched:
        watched.tell(started(), planned("row/a"), planned("row/b", 30.0))
        watched.tell(TargetsBuilt(built=3, total=20))
        watched.tell(begun("row/a", "slot:0"))
        watched.tell(begun("row/b", "slot:1"))
        watched.clock.now_s += 10.0
        watched.tell(ended("row/a"))
        watched.said()
        watched.clock.now_s += 10.0
        watched.progress.tick()
        early = watched.said()
        watched.clock.now_s += 10.0
        watched.progress.tick()
        watched.progress.tick()
    expected = (
        "30 s: 1/10 cases; 1 passed; 1/2 slots in use; 3/20 targets built; about 30 s left; "
        "longest: row/b, about 0.0 s left\n"
    )
    assert not early
    assert watched.said() == expected
    with watch() as watched:
        watched.tell(started(), planned("row/a"))
        watched.said()
        for _ in range(3600):
            watched.clock.now_s += 1.0
            watched.progress.tick()
    assert len(watched.said().splitlines()) == 19


def test_a_failure_that_will_be_tried_again_is_none_yet() -> None:
    """It is announced as such, counted as neither, and the case that passes then is flaky."""
    with watch() as watched:
        watched.tell(started(retries=1), planned("row/a"), ended("row/a", Outcome.CRASHED))
        first = watched.said()
        watched.clock.now_s += 30.0
        watched.tell(planned("row/a", attempt=2))
        between = watched.said()
        watched.clock.now_s += 30.0
        watched.tell(ended("row/a", attempt=2))
    flaky, after = watched.said().splitlines()
    expected = ("flaky         row/a: passed at attempt 2", "60 s: 1/10 cases; 1 passed; 1 flaky")
    assert first.endswith("(failed, will be tried again)  log: /home/t/logs/r/row/a.log\n")
    assert "0/10 cases; 1 to be tried again;" in between
    assert flaky == expected[0]
    assert after.startswith(expected[1])


def test_the_last_attempt_fails_for_good() -> None:
    """With its retries used up a case is a failure, and is named with its attempt."""
    with watch() as watched:
        watched.tell(started(retries=1), ended("row/a", Outcome.CRASHED))
        watched.said()
        watched.tell(ended("row/a", Outcome.TIMEOUT, attempt=2))
    line = watched.said()
    expected = (
        "timeout       row/a, attempt 2: it went \\x1b[31mwrong  log: /home/t/logs/r/row/a.log"
    )
    assert line.startswith(expected)
    assert "again" not in line
    assert "--case row/a\n" in line


def test_a_retry_that_nobody_announced_takes_its_failure_back() -> None:
    """A case that is planned again has no outcome, whatever was counted before."""
    with watch() as watched:
        watched.tell(started(), planned("row/a"), ended("row/a", Outcome.CRASHED))
        watched.clock.now_s += 30.0
        watched.tell(planned("row/a", attempt=2))
    last = watched.said().splitlines()[-1]
    expected = "30 s: 0/10 cases; 1 to be tried again"
    assert last.startswith(expected)


def test_faults_of_devices_are_final_and_cases_that_never_ran_are_counted_alone() -> None:
    """Infrastructure is not tried again, and an interrupted run prints no line for each open case."""
    with watch() as watched:
        watched.tell(started(retries=3), ended("row/a", Outcome.INFRA_ERROR))
        fault = watched.said()
        watched.tell(ended("row/b", Outcome.NOT_RUN), ended("row/c", Outcome.CRASHED))
        rest = watched.said()
        watched.clock.now_s += 30.0
        watched.progress.tick()
    expected = "30 s: 3/10 cases; 1 crashed; 1 infra_error; 1 not_run;"
    assert "again" not in fault
    assert rest.count("\n") == 1  # and what failed is not tried again once the run is stopped
    assert "again" not in rest
    assert watched.said().startswith(expected)


def test_a_verbose_view_has_a_line_for_each_case() -> None:
    """As it ends, with its time, or why it did not run; not for those that are never reached."""
    with watch(is_verbose=True) as watched:
        watched.tell(started())
        watched.said()
        watched.tell(ended("row/a"), ended("row/b", Outcome.SKIPPED), ended("row/c"))
        watched.tell(ended("row/d", Outcome.NOT_RUN))
    lines = watched.said().splitlines()
    expected = ["passed        row/a", "skipped       row/b", "passed        row/c"]
    assert [line[: len("passed        row/a")] for line in lines] == expected


def test_a_build_that_failed_is_final() -> None:
    """As the run has it: the same build would fail the same way, so no attempt at it is announced."""
    with watch() as watched:
        watched.tell(started(retries=2), ended("row/a", Outcome.COMPILE_ERROR))
        said = watched.said()
    assert "compile_error" in said
    assert "again" not in said


def test_a_failure_in_quarantine_says_that_it_does_not_gate() -> None:
    """People see at once that it is known."""
    with watch() as watched:
        watched.tell(started(spared=("row/a",)), ended("row/a", Outcome.MISMATCH))
    expected = "(in quarantine, does not gate)"
    assert expected in watched.said()


def test_notes_and_waits_are_printed_once() -> None:
    """Who has a device is said when it begins to be waited for, not each time that is told."""
    with watch() as watched:
        waits = [DeviceAwaited(device="npu:0", at=0.0, holder="bob") for _ in range(3)]
        watched.tell(started(), *waits, DeviceLeased(device="npu:0", at=0.0, lease=1))
        watched.tell(Note(text="read\nthis"))
    expected = ["waiting for npu:0, held by bob", "read this"]
    assert watched.said().splitlines()[1:] == expected


def test_a_terminal_shows_counts_slots_and_the_tail() -> None:
    """The running case with most time left comes first; one beyond its time says when it is ended."""
    with watch(terminal=True) as watched:
        watched.tell(started(), planned("row/a"), planned("row/b", 30.0, attempt=2))
        watched.tell(begun("row/a", "slot:0"))
        watched.tell(begun("row/b//2", "slot:1"))
        watched.said()
        watched.clock.now_s += 12.0
        watched.progress.tick()
        frame = watched.said()
    lines = [" ".join(line.split()) for line in frame.splitlines()]
    expected = [
        "slot:1 row/b, attempt 2 12 s about 18 s left",
        "slot:0 row/a 12 s 2.0 s over, limit in 48 s",
    ]
    assert lines[-2:] == expected
    assert "2/2 slots in use" in lines
    assert any("0/10 12 s about" in line for line in lines)


def test_a_terminal_is_redrawn_no_more_than_twice_a_second() -> None:
    """A thousand events at one moment cost one frame."""
    with watch(terminal=True) as watched:
        watched.tell(started())
        watched.said()
        for number in range(500):
            watched.tell(planned(f"row/{number}"), ended(f"row/{number}"))
        crowd = watched.said()
        watched.clock.now_s += 1.0
        watched.progress.tick()
        one = watched.said()
    assert not crowd
    assert "500 passed" in one


def test_a_failure_on_a_terminal_stands_above_the_view() -> None:
    """Its log and the command have lines of their own, to be copied."""
    with watch(terminal=True) as watched:
        watched.tell(started())
        watched.said()
        watched.tell(ended("row/b", Outcome.CRASHED))
        said = watched.said()
    expected = [
        "              log: /home/t/logs/r/row/b.log",
        "              rerun: tileyard test ops.toml --case row/b",
    ]
    at = said.index("crashed       row/b: it went \\x1b[31mwrong")
    assert [line.rstrip() for line in said[at:].splitlines()[1:3]] == expected


def test_the_view_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread shows how far things are while no event comes, and ends with the view."""
    said = threading.Event()
    with watch(tick_s=0.001) as watched:
        watched.tell(started())
        watched.said()
        monkeypatch.setattr(watched.file, "flush", said.set, raising=False)
        watched.clock.now_s += 31.0
        thread = watched.progress._ticking
        assert said.wait(30.0)
    expected = "31 s: 0/10 cases;"
    assert thread is not None
    assert not thread.is_alive()
    assert watched.said().startswith(expected)
