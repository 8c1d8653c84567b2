"""No fault spreads: cases that kill or stop their parent or leave daemons, and workers that somebody stops or kills.

What is tested here other systems promise, too, and are named where they are known for it.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil
import pytest
from tests.conftest import CommandLine
from tests.endings import has_ended

pytestmark = pytest.mark.slow

EVERY = "TILEYARD_SWEEPS" in os.environ
"""Whether each worker is stopped and killed, and not one of each kind."""
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
    assert status == 1
    assert fault["outcome"] == "timeout"
    assert str(fault["message"]).startswith("sh ran past its limit of 2 s")
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}


def test_a_stopped_parent_goes_on(cli: CommandLine) -> None:
    """So a case that somebody stopped once ends as it would have."""
    text = with_others("kill -STOP $PPID; sleep 1", 3, "limits = { run_s = 2 }")
    status, verdicts = run_suite(cli, text)
    assert status == 0
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}


@pytest.mark.parametrize(
    ("deed", "expected"), [("kill -STOP $PPID", "timeout"), ("kill -9 $PPID", "crashed")]
)
@pytest.mark.parametrize("step", ["golden", "build", "check"])
def test_a_step_that_hits_its_parent_is_alone_to_blame(
    step: str, deed: str, expected: str, cli: CommandLine
) -> None:
    """Who stops it ends at its limit, who kills it has crashed, whatever step it is."""
    text = f"""
        limits = {{ build_s = 2, golden_s = 2 }}
        [[testcase]]
        name = "t"
        run = ["true"]
        case = [{{ name = "a" }}]
        [[testcase]]
        name = "u"
        run = ["true"]
        {step} = {shell(deed + "; sleep 5")}
        case = [{{ name = "b" }}]
        """
    status, verdicts = run_suite(cli, text)
    assert status == 1
    assert {c: v["outcome"] for c, v in verdicts.items()} == {"t/a": "passed", "u/b": expected}


def test_a_case_that_kills_its_parent_is_alone_to_blame(cli: CommandLine) -> None:
    """One of 40; it is run three times, since it may have been somebody else once."""
    status, verdicts = run_suite(cli, with_others("kill -9 $PPID; sleep 5", 39))
    fault = verdicts.pop("fault/one")
    assert status == 1
    assert fault["outcome"] == "crashed"
    assert "died with the process that watches it" in str(fault["message"])
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}


@pytest.mark.parametrize("step", ["run", "run under a lease", "golden", "build", "check"])
def test_nothing_of_a_step_survives_it(step: str, cli: CommandLine) -> None:
    """Not even a daemon that has wiped its environment; the case after it sees none."""
    kind = step.partition(" ")[0]
    steps = {"run": '["true"]', kind: shell(DAEMON)}
    text = f"""
        {"".join(f"{name} = {argv}" + chr(10) for name, argv in steps.items() if name != "run")}
        [[testcase]]
        name = "a"
        run = {steps["run"]}
        case = [{{ name = "daemon" }}]
        [[testcase]]
        name = "b"
        run = {shell(LOOK)}
        case = [{{ name = "look" }}]
        """
    if kind == "run":
        status, _ = run_suite(cli, text, *place_of(step))
        assert status == 0
        return
    # Its own look comes in a run of its own: steps of several cases are side by side.
    run_suite(cli, text, "--case", "a/daemon")
    before = (cli.cwd / "FILE").stat().st_size
    time.sleep(0.4)
    assert before > 0
    assert (cli.cwd / "FILE").stat().st_size == before


def place_of(step: str) -> tuple[str, ...]:
    """Where the cases run: one after another."""
    return ("--devices", "cpu") if "lease" in step else ("--slots", "1")


# ---- workers that somebody stops or kills -----------------------------------------------------


WAITING = """
name = "waiting"
run = ["sh", "-c", "echo $$ > {suite}/begun; sleep 600"]
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


def wait_for_case(cli: CommandLine, client: "subprocess.Popen[str]") -> None:
    """Return once the case that says so runs."""
    until_s = time.monotonic() + HANG_S
    while not (cli.cwd / "begun").exists():
        assert time.monotonic() < until_s
        assert client.poll() is None, client.communicate()
        time.sleep(0.02)


@contextmanager
def running(cli: CommandLine) -> Iterator[tuple["subprocess.Popen[str]", list[psutil.Process]]]:
    """A suite whose only case runs, and all processes below its client."""
    (cli.cwd / "suite.toml").write_text(WAITING)
    client = cli.start("test", "suite.toml", "--slots", "1", "--junit", "junit.xml")
    try:
        wait_for_case(cli, client)
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
    "stopped", [*WORKERS, "all of them"] if EVERY else ["engine", "all of them"]
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
    "stopped", [("engine", "keeper of the host"), *([("engine",)] if EVERY else [])]
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
    wait_for_case(cli, client)
    tree = [psutil.Process(client.pid), *psutil.Process(client.pid).children(recursive=True)]
    for process in tree:
        process.suspend()
    time.sleep(4.5)
    for process in reversed(tree):
        process.resume()
    said, _ = client.communicate(timeout=HANG_S)
    assert client.returncode == 0, said


HITS = {
    ("step host", signal.SIGKILL): True,
    ("keeper of the host", signal.SIGSTOP): True,
    ("fork server", signal.SIGKILL): True,
    ("step host", signal.SIGSTOP): EVERY,
    ("keeper of the host", signal.SIGKILL): EVERY,
    ("fork server", signal.SIGSTOP): EVERY,
}
"""Who is hit and how, and whether it is looked at."""


@pytest.mark.parametrize(
    ("hit", "how"), [one for one, is_looked_at in HITS.items() if is_looked_at]
)
def test_a_lost_host_costs_no_verdict(hit: str, how: signal.Signals, cli: CommandLine) -> None:
    """What it was asked is asked again, in whatever state each case was."""
    script = "if ! test -e {suite}/hit; then echo $$ > {suite}/begun; sleep 5; fi"
    text = with_others(script, 6, 'name = "s"').replace("sleep 0.05", "sleep 0.4")
    (cli.cwd / "suite.toml").write_text(text)
    client = cli.start("test", "suite.toml", "--slots", "3", "--json")
    wait_for_case(cli, client)
    (cli.cwd / "hit").touch()
    find(client, *WORKERS[hit]).send_signal(how)
    told, said = client.communicate(timeout=HANG_S)
    assert "Traceback" not in said
    assert client.returncode == 0, told
    assert {v["outcome"] for v in json.loads(told)["verdicts"]} == {"passed"}


KILL_HOST = "kill -9 $(ps -o ppid= $(ps -o ppid= $(ps -o ppid= $$)))"
"""Whose child forks the keeper that is a step's parent."""


def test_lost_workers_are_counted_for_each_case(cli: CommandLine) -> None:
    """As HyperQueue's crash counter: who is there each time the host is lost is not tried for ever.

    Cases that were there, too, pass in the end.
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
