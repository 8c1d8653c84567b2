"""No fault spreads: cases that kill or stop their parent or leave daemons, and killed or stopped workers.

What is tested here other systems promise, too, and are named where they are known for it.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import psutil
import pytest
from tests.conftest import CommandLine
from tests.endings import has_ended
from tests.samples import IS_WHOLE

pytestmark = pytest.mark.slow

HANG_S = 60.0
"""No command of these tests takes that long unless it hangs."""
DAEMON = "env -i setsid sh -c 'while :; do echo x >> {suite}/FILE; sleep 0.05; done' & sleep 0.2"
"""Leaves the group, the session, the parent and the environment of its case."""
LOOK = "a=$(wc -c < {suite}/FILE); sleep 0.4; test $a = $(wc -c < {suite}/FILE)"
"""Whether the daemon has gone."""


def shell(script: str) -> str:
    """A shell script as a step, in TOML."""
    return json.dumps(["sh", "-c", script])


def run_suite(
    cli: CommandLine, text: str, *arguments: str
) -> tuple[int, dict[str, Mapping[str, object]]]:
    """Exit status, and verdicts by case."""
    (cli.cwd / "suite.toml").write_text('name = "s"\n' + text)
    done = cli.run("test", "suite.toml", "--json", *arguments)
    assert done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, {v["case"]: v for v in json.loads(done.stdout)["verdicts"]}


def with_others(fault: str, count: int, more: str = "") -> str:
    """A suite in which one case runs this script and so many do nothing; all with golden and check steps."""
    names = ", ".join(f'{{ name = "c{number}" }}' for number in range(count))
    return f"""
        golden = {shell("echo golden > {out}/golden")}
        check = {shell("grep -q golden golden")}
        {more}
        [[testcase]]
        name = "fault"
        run = {shell(fault)}
        case = [{{ name = "one" }}]
        [[testcase]]
        name = "t"
        run = {shell("sleep 0.05")}
        case = [{names}]
        """


def test_timeouts_are_kept_by_another_process_than_the_one_that_runs(cli: CommandLine) -> None:
    """As in LAVA: a case that goes on stopping its parent ends at its limit, and the others as ever."""
    script = "while :; do kill -STOP $PPID; sleep 0.01; done"
    text = with_others(script, 3, "limits = { run_s = 2 }")
    status, verdicts = run_suite(cli, text)
    fault = verdicts.pop("fault/one")
    assert status == 1, fault
    assert fault["outcome"] == "timeout"
    assert str(fault["message"]).startswith("sh ran past its limit of 2 s")
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}


DEEDS = {
    "stops_once": "kill -STOP $PPID; sleep 1",
    "stops": "kill -STOP $PPID; sleep 5",
    "kills": "kill -9 $PPID; sleep 5",
}
"""What a step does to the process above it."""
STEPS = ("golden", "build", "check")
ENDS = {
    "stops_once_run": "passed",
    "kills_run": "crashed",
    **{f"stops_{step}": "timeout" for step in STEPS},
    **{f"kills_{step}": "crashed" for step in STEPS},
}
"""How the only case of each testcase must end, which is named after the deed and the step that does it."""


def test_a_step_that_hits_its_parent_is_alone_to_blame(cli: CommandLine) -> None:
    """One that stops it goes on, and ends at its limit; one that kills it has crashed; other cases pass."""
    faults = []
    for name in ENDS:
        deed, _, step = name.rpartition("_")
        run = "" if step == "run" else 'run = ["true"]\n'
        limits = "limits = { build_s = 2, golden_s = 2 }\n" if deed == "stops" else ""
        lines = f"{limits}{run}{step} = {shell(DEEDS[deed])}"
        faults.append(f'[[testcase]]\nname = "{name}"\n{lines}\ncase = [{{ name = "c" }}]\n')
    status, verdicts = run_suite(cli, with_others("true", 12) + "".join(faults))
    assert status == 1
    ends = {case: verdicts.pop(f"{case}/c") for case in ENDS}
    assert {case: verdict["outcome"] for case, verdict in ends.items()} == ENDS, ends
    assert "died with the process that watches it" in str(ends["kills_run"]["message"])
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}


def leave(name: str) -> str:
    """The script of a step that leaves a daemon, which writes into a file of this name."""
    return shell(DAEMON.replace("FILE", name))


@pytest.mark.parametrize("place", [("--slots", "1"), ("--devices", "cpu")], ids=str)
def test_nothing_of_a_run_step_survives_it(place: tuple[str, ...], cli: CommandLine) -> None:
    """Not even a daemon that has wiped its environment; the case after it sees none."""
    text = f"""
        [[testcase]]
        name = "a"
        run = {leave("run")}
        case = [{{ name = "daemon" }}]
        [[testcase]]
        name = "b"
        run = {shell(LOOK.replace("FILE", "run"))}
        case = [{{ name = "look" }}]
        """
    status, _ = run_suite(cli, text, *place)
    assert status == 0


def test_nothing_of_another_step_survives_it(cli: CommandLine) -> None:
    """Once its run has ended, no daemon that a step has left writes any more."""
    text = "".join(
        f"""
        [[testcase]]
        name = "{step}"
        run = ["true"]
        {step} = {leave(step)}
        case = [{{ name = "daemon" }}]
        """
        for step in STEPS
    )
    run_suite(cli, text)
    before = [(cli.cwd / step).stat().st_size for step in STEPS]
    time.sleep(0.4)
    assert all(before)
    assert [(cli.cwd / step).stat().st_size for step in STEPS] == before


# ---- workers that somebody stops or kills -----------------------------------------------------


WAITING = """
name = "waiting"
run = ["sh", "-c", "echo > {suite}/begun-{case}; sleep 600"]
limits = { run_s = 500 }
[[testcase]]
name = "t"
case = [{ name = "a" }]
"""


def find(client: "subprocess.Popen[str]", *signs: str) -> psutil.Process:
    """The process below the client whose command line has all of these."""
    for process in psutil.Process(client.pid).children(recursive=True):
        line = " ".join(process.cmdline())
        if all(sign in line for sign in signs):
            return process
    raise AssertionError(f"nothing below the client is {signs}")


def wait_for_one_of(cli: CommandLine, client: "subprocess.Popen[str]", names: Iterable[str]) -> str:
    """The first of these cases that says that it runs."""
    until_s = time.monotonic() + HANG_S
    while not (begun := [name for name in names if (cli.cwd / f"begun-{name}").exists()]):
        assert time.monotonic() < until_s
        assert client.poll() is None, client.communicate()
        time.sleep(0.02)
    return begun[0]


@contextmanager
def running(cli: CommandLine) -> Iterator[tuple["subprocess.Popen[str]", list[psutil.Process]]]:
    """A suite whose only case runs, and all processes below its client."""
    (cli.cwd / "suite.toml").write_text(WAITING)
    client = cli.start("test", "suite.toml", "--slots", "1", "--junit", "junit.xml")
    try:
        wait_for_one_of(cli, client, "a")
        yield client, psutil.Process(client.pid).children(recursive=True)
    finally:
        client.kill()
        client.communicate()


WORKERS: dict[str, tuple[str, ...]] = {
    "engine": ("tileyard.service.process",),
    "keeper of the host": ("keeper/start.py", "tileyard.workers.step_host"),
    "step host": ("tileyard.workers.step_host", str(os.sep) + "home"),
    "fork server": ("keeper/start.py", "serve"),
    "program": ("sleep", "600"),
}


@pytest.mark.parametrize(
    "stopped", [*WORKERS, "all of them"] if IS_WHOLE else ["engine", "all of them"]
)
def test_ctrl_c_twice_ends_everything_whatever_is_stopped(stopped: str, cli: CommandLine) -> None:
    """And says what is known, by then."""
    with running(cli) as (client, below):
        one = () if stopped == "all of them" else (find(client, *WORKERS[stopped]),)
        for process in one or below:
            process.suspend()
        client.send_signal(signal.SIGINT)
        time.sleep(0.1)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=HANG_S)
        assert client.returncode == 130
        assert all(has_ended(process.pid, HANG_S) for process in below)
        assert "<testcase " in (cli.cwd / "junit.xml").read_text()


@pytest.mark.parametrize(
    "stopped", [("engine", "keeper of the host"), *([("engine",)] if IS_WHOLE else [])]
)
def test_a_client_that_goes_away_ends_a_stopped_engine(
    stopped: tuple[str, ...], cli: CommandLine
) -> None:
    """The kernel lets it go on, and it sees that its client is gone."""
    with running(cli) as (client, below):
        for name in stopped:
            find(client, *WORKERS[name]).suspend()
        client.kill()
        assert all(has_ended(process.pid, HANG_S) for process in below)


def test_a_stopped_keeper_sees_the_end_of_its_engine(cli: CommandLine) -> None:
    """It goes on, and ends its tree."""
    with running(cli) as (client, below):
        find(client, *WORKERS["keeper of the host"]).suspend()
        find(client, *WORKERS["engine"]).kill()
        assert all(has_ended(process.pid, HANG_S) for process in below)


def test_timers_stand_still_while_a_run_is_suspended(cli: CommandLine) -> None:
    """As in nextest: a pause of the whole tree is not a time-out."""
    text = WAITING.replace("sleep 600", "sleep 1").replace("run_s = 500", "run_s = 3")
    (cli.cwd / "suite.toml").write_text(text)
    client = cli.start("test", "suite.toml", "--slots", "1")
    wait_for_one_of(cli, client, "a")
    tree = [psutil.Process(client.pid), *psutil.Process(client.pid).children(recursive=True)]
    for process in tree:
        process.suspend()
    time.sleep(4.5)
    for process in reversed(tree):
        process.resume()
    said, _ = client.communicate(timeout=HANG_S)
    assert client.returncode == 0, said


HITS = (
    ("step host", signal.SIGKILL),
    ("fork server", signal.SIGKILL),
    ("keeper of the host", signal.SIGSTOP),
)
OTHERS = (
    ("keeper of the host", signal.SIGKILL),
    ("step host", signal.SIGSTOP),
    ("fork server", signal.SIGSTOP),
)
"""Who is hit and how, one after another in one run."""


@pytest.mark.parametrize("hits", [HITS, *([OTHERS] if IS_WHOLE else [])], ids=str)
def test_a_lost_host_costs_no_verdict(
    hits: tuple[tuple[str, signal.Signals], ...], cli: CommandLine
) -> None:
    """What it was asked is asked again, in whatever state each case was."""
    names = [f"c{number}" for number in range(len(hits))]
    script = "if ! test -e {suite}/hit-{case}; then echo > {suite}/begun-{case}; sleep 5; fi"
    text = with_others(script, 6, 'name = "s"').replace("sleep 0.05", "sleep 0.2")
    cases = ", ".join(f'{{ name = "{name}" }}' for name in names)
    (cli.cwd / "suite.toml").write_text(text.replace('{ name = "one" }', cases))
    client = cli.start("test", "suite.toml", "--slots", "3", "--json")
    left = set(names)
    for hit, how in hits:
        name = wait_for_one_of(cli, client, left)
        left.remove(name)
        (cli.cwd / f"hit-{name}").touch()
        find(client, *WORKERS[hit]).send_signal(how)
    told, said = client.communicate(timeout=HANG_S)
    assert "Traceback" not in said
    assert client.returncode == 0, told
    assert {v["outcome"] for v in json.loads(told)["verdicts"]} == {"passed"}


KILL_HOST = "kill -9 $(ps -o ppid= $(ps -o ppid= $(ps -o ppid= $$)))"
"""Whose child forks the keeper that is a step's parent."""


def test_lost_workers_are_counted_for_each_case(cli: CommandLine) -> None:
    """As HyperQueue's crash counter: who is there each time the host is lost is not tried for ever. Cases
    that were there, too, pass in the end.
    """
    text = with_others(f"{KILL_HOST}; sleep 5", 4)
    status, verdicts = run_suite(cli, text, "--slots", "2")
    fault = verdicts.pop("fault/one")
    assert status == 3
    assert fault["outcome"] == "infra_error"
    assert "step host died of SIGKILL" in str(fault["message"])
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}
    listed = json.loads(cli.run("trials", "--json").stdout)
    (trial,) = (one for one in listed if one["case"] == "fault/one")
    assert len(trial["attempts"]) == 2
