"""Other hosts in the progress of a run: one line each, if there are several and there is room."""

import io
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from tests.unit.show.run_events import begun, ended, planned, started, take_all

from tileyard.base.events import BuildStarted, Event, HostJoined, HostLost, describe_lost
from tileyard.base.model import Device
from tileyard.show.progress import Progress, list_hosts
from tileyard.show.view import RunView
from tileyard.verbs.test.view.progress import SuiteLayout
from tileyard.verbs.tune.view.progress import StudyLayout

GONE = HostLost(host="b", at=0.0, why="its agent is gone")


def view_of(hosts: str, *events: Event) -> RunView:
    """A run on two devices of each host: one is busy on the first, which has ended a case and builds two."""
    names = [f"cpu:{number}@{host}" for host in hosts for number in (0, 1)]
    devices = tuple(Device(name=name, kind="cpu", identity="x") for name in names)
    cases = [planned(name) for name in ("t/a", "t/b", "t/c", "t/d")]
    builds = [BuildStarted(case=case, at=0.0, host=hosts[0]) for case in ("t/c", "t/d")]
    end = ended("t/a")
    over = replace(end, trial=replace(end.trial, device=names[0]))
    view = take_all(RunView(), [replace(started(), devices=devices), *cases, *builds])
    return take_all(view, [begun("t/a", names[0]), over, begun("t/b", names[0]), *events])


def lines_of(view: RunView, room: int = 9) -> list[str]:
    """The lines on hosts."""
    return [line.plain for line in list_hosts(view, room)]


def test_each_of_a_few_hosts_has_a_line() -> None:
    """What is busy, is built and ended there; a lost host says why, until it runs something again."""
    first = "  a  1/2 busy  2 building  1 ended"
    assert lines_of(view_of("ab")) == [first, "  b  0/2 busy  0 building  0 ended"]
    lost = view_of("ab", GONE)
    assert lines_of(lost) == [first, "  b  lost: its agent is gone"]
    take_all(lost, [planned("t/e"), begun("t/e", "cpu:1@b")])
    assert lines_of(lost) == [first, "  b  1/2 busy  0 building  0 ended"]
    assert lines_of(view_of("a")) == []


def test_a_host_that_joins_has_a_line_from_then_on() -> None:
    """With its devices; one that was lost before is not lost any more. Without a terminal it is said once."""
    device = Device(name="cpu:0@c", kind="cpu", identity="x")
    joined = HostJoined(host="c", at=0.0, devices=(device,))
    view = view_of("ab", replace(GONE, host="c"), joined)
    assert lines_of(view)[2] == "  c  0/1 busy  0 building  0 ended"
    file = io.StringIO()
    with Progress(Console(file=file, width=200), StudyLayout()) as progress:
        for event in (started(), joined, HostJoined(host="d", at=0.0), ended("t/a")):
            progress(event)
    said = [line for line in file.getvalue().splitlines() if "host" in line]
    assert said == ["host c has joined, with 1 device", "host d has joined, and builds"]


def test_many_hosts_share_a_line() -> None:
    """So do a few where a terminal is low; one without room for that shows none."""
    assert lines_of(view_of("abcdefg", GONE)) == ["7 hosts: 1/14 devices busy, 2 building, 1 lost"]
    assert lines_of(view_of("ab"), 1) == ["2 hosts: 1/4 devices busy, 2 building"]
    assert lines_of(view_of("ab"), 0) == []


def test_both_layouts_show_hosts_within_their_terminal() -> None:
    """Where there is room for them."""
    for layout in (SuiteLayout(Path("/home/t"), str), StudyLayout()):
        for height, count in ((24, 6), (9, 1), (6, 0)):
            file = io.StringIO()
            console = Console(file=file, width=200, height=height)
            console.print(layout.draw(view_of("abcdef"), 1.0, console.options))
            shown = file.getvalue().splitlines()
            assert sum(" busy" in line for line in shown) == count, (height, shown)
            assert len(shown) < height or not count


def test_without_a_terminal_a_lost_host_is_one_line() -> None:
    """At once, and nothing else is said of hosts."""
    file = io.StringIO()
    with Progress(Console(file=file, width=200), StudyLayout()) as progress:
        for event in (started(), GONE, ended("t/a")):
            progress(event)
    (line,) = [line for line in file.getvalue().splitlines() if "host" in line]
    assert line.startswith("host b was lost at ")
    assert line.endswith(": its agent is gone")


def test_a_host_that_is_lost_again_has_one_line() -> None:
    """With the number of times, and the last one."""
    other = HostLost(host="c", at=0.0, why="silent")
    again, once = describe_lost([GONE, other, GONE])
    assert again.startswith("host b was lost 2 times, at last at ")
    assert once.startswith("host c was lost at ")
