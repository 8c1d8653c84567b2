"""Runs over several hosts that are lost, or reached badly: the same verdicts, and nothing is left."""

import contextlib
import getpass
import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import DECIDED, CommandLine
from tests.e2e.ssh_server import serve_ssh
from tests.e2e.test_hosts import COMMAND, KERNEL, sum_up
from tests.faults.killing import kill_host
from tests.faults.test_full_disks import disk
from tests.faults.test_storm import leftovers

IS_WHOLE = "TILEYARD_SWEEPS" in os.environ
CASES = 300 if IS_WHOLE else 24
DEADLINE_S = 300.0
MOST_AHEAD = 12
"""Programs of a lost host that run again: those of one hand-over whose ends were not told yet."""
SUITE = """
name = "many"
env = ["PLACE"]
limits = { run_s = 60 }
check = ["sh", "-c", "grep -q {case} out || exit 2"]
[[testcase]]
name = "t"
run = ["sh", "-c", '''
echo began {case} $PWD >> $PLACE/journal
say() {{ echo $1 of {case}; echo $1 {case} > out; }}
case $(({case} % 6)) in
1) say failure; code=$((3 + {case} % 5)) ;;
3) setsid sleep 600 > strayed & say stray ;;
5) echo nothing > out ;;
*) say output ;;
esac
echo ended {case} $PWD >> $PLACE/journal
exit ${{code:-0}}
''']
case = [
CASES
]
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * DEADLINE_S)]


LEAVES = "*) say output ;;"
"""What most programs do."""


def write_suite(folder: Path, count: int) -> None:
    """A suite of as many programs: most pass, some fail, or leave a process in a session of its own."""
    lines = (f'{{ name = "{number}" }},' for number in range(count))
    (folder / "suite.toml").write_text(SUITE.replace("CASES", "\n".join(lines)))


@dataclass(frozen=True)
class Ends:
    """What a run said of a suite: by case, its outcome and message, and what its program wrote."""

    cases: Mapping[str, tuple[str, str, str]]

    @classmethod
    def read(cls, cli: CommandLine, printed: str) -> "Ends":
        """From what ``--json`` prints; the run keeps the folders of its cases."""
        result = json.loads(printed)
        (works,) = (cli.home / "work").glob("*[!.]?")
        cases = {}
        for verdict in result["verdicts"]:
            out = works / verdict["case"] / "data" / "out"
            text = out.read_text() if out.exists() else ""
            cases[verdict["case"]] = verdict["outcome"], verdict["message"], text
        return cls(cases)


class Suites:
    """A folder with the suite and a journal of its programs, and runs in a home of their own."""

    def __init__(self, folder: Path, count: int = CASES, **env: str) -> None:
        (folder / "tmp").mkdir(parents=True)
        self.folder = folder
        self.cli = CommandLine(folder, {"TMPDIR": str(folder / "tmp"), "PLACE": str(folder), **env})
        self.journal = folder / "journal"
        self.count = count
        self.journal.touch()
        write_suite(folder, count)

    def words(self, *more: str) -> tuple[str, ...]:
        """The command."""
        return ("test", "suite.toml", "--keep-work", "--json", *more)

    def run(self, *more: str) -> Ends:
        """Run the suite to its end."""
        done = self.cli.run(*self.words(*more))
        assert done.returncode == 1, done.stderr
        return Ends.read(self.cli, done.stdout)

    def count_began(self) -> int:
        """The programs that have begun, each as often as it has."""
        return self.journal.read_text().count("began ")

    def find_twice(self, lost: Path) -> set[str]:
        """The cases that ran twice, each first below the folder of a lost host; all others ran once."""
        begun: dict[str, list[str]] = {}
        for line in self.journal.read_text().splitlines():
            kind, case, folder = line.split(" ", 2)
            if kind == "began":
                begun.setdefault(case, []).append(folder)
        assert len(begun) == self.count
        twice = {case: folders for case, folders in begun.items() if len(folders) > 1}
        assert all(len(folders) == 2 for folders in twice.values()), twice
        assert all(folders[0].startswith(str(lost)) for folders in twice.values()), twice
        return {*twice}

    def list_left(self) -> list[str]:
        """Processes that still work here after a while, and folders of agents."""
        until_s = time.monotonic() + 20.0
        while (left := leftovers(self.folder)) and time.monotonic() < until_s:
            time.sleep(0.05)
        return [*map(str, left), *map(str, (self.folder / "tmp").glob("tileyard-host-*"))]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """What a run on this host says, in which every program runs once."""
    suites = Suites(tmp_path_factory.mktemp("alone") / "here")
    ends = suites.run()
    assert suites.count_began() == CASES
    outcomes = Counter(outcome for outcome, _, _ in ends.cases.values())
    assert {*outcomes} == {"passed", "runtime_error", "mismatch"}, outcomes
    assert len({text for _, _, text in ends.cases.values()}) > CASES // 2
    return ends


def note(figures: str) -> None:
    """Print a line of a sweep, which ``-rA`` shows."""
    sys.stdout.write(f"FIGURES {figures}\n")


def list_agents(process: psutil.Process) -> list[psutil.Process]:
    """The agents that a run has started, by their folders."""
    found = []
    for one in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "--scratch" in one.cmdline():
                found.append(one)
    return sorted(found, key=lambda one: one.pid)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("moment", range(20))
def test_a_host_that_dies_costs_only_what_ran_there(
    tmp_path: Path, expected: Ends, moment: int
) -> None:
    """Verdicts and files are the same; only what was handed over there runs twice; nothing is left."""
    generator = random.Random(moment)
    suites = Suites(tmp_path / "hosted")
    awaited = generator.randrange(1, CASES - 6)
    process = suites.cli.start(*suites.words("--hosts", "local:3" if IS_WHOLE else "local:2"))
    command = psutil.Process(process.pid)
    while suites.count_began() < awaited:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    time.sleep(generator.uniform(0.0, 0.1))
    agent = generator.choice(list_agents(command))
    place = agent.cmdline()[-1]
    kill_host(agent)
    printed, complaint = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, complaint
    ends = Ends.read(suites.cli, printed)
    assert ends.cases == expected.cases
    twice = suites.find_twice(Path(place))
    note(f"moment {moment} at {awaited}: twice {sorted(twice)}")
    assert len(twice) <= MOST_AHEAD
    assert not suites.list_left()


POOR_LINE = Path(__file__).with_name("poor_line.py")


def reach_badly(suites: Suites, **lines: Mapping[str, Any]) -> None:
    """Have ``ssh`` reach hosts over lines with these options (``poor_line.Line``)."""
    client = suites.folder / "bin" / "ssh"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\nexec {sys.executable} -I {POOR_LINE} "$@"\n')
    client.chmod(0o755)
    suites.cli.env |= {
        "PATH": f"{client.parent}:{os.environ['PATH']}",
        "POOR_LINES": json.dumps(lines),
        "POOR_HOSTS": str(suites.folder / "hosts"),
    }


def read_passed(suites: Suites, host: str) -> list[dict[str, dict[str, int]]]:
    """What passed over the lines to a host, one after another: frames, beats and bytes by direction."""
    lines = (suites.folder / "hosts" / host / "passed.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


FEW = 24
"""Programs of a run over a poor line."""


@pytest.fixture(scope="module")
def few_expected(tmp_path_factory: pytest.TempPathFactory, expected: Ends) -> Ends:
    """What a run of a few programs on this host says."""
    if CASES == FEW:
        return expected
    return Suites(tmp_path_factory.mktemp("alone") / "here", FEW).run()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("frames", range(1, 21))
@pytest.mark.parametrize("direction", ["orders", "answers"])
def test_a_line_that_is_cut_costs_only_what_ran_there(
    tmp_path: Path, few_expected: Ends, direction: str, frames: int
) -> None:
    """After any message, of either end, the verdicts are the same, and nothing is left."""
    suites = Suites(tmp_path / "hosted", FEW)
    text = (suites.folder / "suite.toml").read_text()  # larger files are fetched after the end
    text = text.replace(LEAVES, "*) say output; head -c 99999 /dev/zero > large ;;")
    (suites.folder / "suite.toml").write_text(text)
    reach_badly(suites, poor={direction: frames})
    began = time.monotonic()
    ends = suites.run("--hosts", "ssh:poor,good")
    took_s = time.monotonic() - began
    assert ends.cases == few_expected.cases
    twice = suites.find_twice(suites.folder / "hosts" / "poor")
    note(f"{direction} {frames}: {took_s:.1f} s, twice {sorted(twice)}")
    assert read_passed(suites, "poor")[0][direction]["frames"] == frames
    assert not suites.list_left()


LARGE = """
name = "large"
[[testcase]]
name = "t"
run = { argv = ["sh", "-c", "cat {suite}/large > out; echo {case} >> out"], inputs = ["large"] }
check = ["sh", "-c", "test $(wc -c < out) -gt $(wc -c < {suite}/large) && tail -n1 out | grep -q {case}"]
case = [{ name = "a" }, { name = "b" }]
"""


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kilobytes_per_s", [500, 100, 25] if IS_WHOLE else [1000])
def test_a_slow_line_only_takes_longer(tmp_path: Path, kilobytes_per_s: int) -> None:
    """Large objects go both ways, and signs of life meanwhile: neither end gives the other up."""
    suites = Suites(tmp_path / "hosted")
    (suites.folder / "suite.toml").write_text(LARGE)
    size = 600_000 if not IS_WHOLE else 3 << 20 if kilobytes_per_s > 50 else 1_300_000
    (suites.folder / "large").write_bytes(random.Random(0).randbytes(size - 1) + b"\n")
    reach_badly(suites, slow={"bytes_per_s": kilobytes_per_s * 1e3, "delay_s": 0.2})
    began = time.monotonic()
    done = suites.cli.run(*suites.words("--hosts", "ssh:slow"))
    took_s = time.monotonic() - began
    result = json.loads(done.stdout)
    assert [one["outcome"] for one in result["verdicts"]] == ["passed"] * 2, done.stderr
    assert [len(one["attempts"]) for one in result["verdicts"]] == [1, 1]
    assert "was lost" not in done.stderr
    (works,) = (suites.cli.home / "work").glob("*[!.]?")
    for case in "ab":
        out = (works / "t" / case / "data" / "out").read_bytes()
        assert out == (suites.folder / "large").read_bytes() + f"{case}\n".encode()
    (passed,) = read_passed(suites, "slow")
    note(f"{kilobytes_per_s} kB/s: {took_s:.1f} s, passed {passed}")
    for direction, times in (("orders", 1), ("answers", 2)):
        assert passed[direction]["bytes"] > times * size
        if IS_WHOLE:
            assert passed[direction]["beats"] >= times * size / 1e3 / kilobytes_per_s // 20
    assert not suites.list_left()


SHIFT = """
import time
for name, factor in (("time", 1), ("time_ns", 10**9)):
    def shifted(true=getattr(time, name), by={shift_s} * factor):
        return true() + by
    setattr(time, name, shifted)
"""


@pytest.mark.sweep(1)
@pytest.mark.parametrize("shift_s", [3600, -3600])
@pytest.mark.parametrize("is_for_python", [True, False])
def test_clocks_that_differ_decide_nothing(
    tmp_path: Path, few_expected: Ends, shift_s: int, is_for_python: bool
) -> None:
    """Of all programs of a host, or of its Pythons: verdicts are as with one clock, and the doctor warns."""
    suites = Suites(tmp_path / "hosted", FEW)
    (suites.folder / "shift").mkdir()
    (suites.folder / "shift" / "sitecustomize.py").write_text(SHIFT.format(shift_s=shift_s))
    env = {"PYTHONPATH": str(suites.folder / "shift")}
    if not is_for_python:
        libraries = [*Path("/usr/lib").glob("*/faketime/libfaketime.so.1")]
        if not libraries:
            pytest.skip("needs libfaketime")
        env = {"FAKETIME": f"{shift_s:+}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        env["LD_PRELOAD"] = str(libraries[0])
    reach_badly(suites, other={"env": env})
    doctor = json.loads(suites.cli.run("doctor", "--hosts", "ssh:other", "--json").stdout)
    (clock,) = (one for one in doctor["findings"] if one["subject"] == "other clock")
    assert clock["level"] == "warn", clock
    direction = "ahead of" if shift_s > 0 else "behind"
    assert f"s {direction} this host's" in clock["message"]
    assert abs(float(clock["message"].split()[0]) - 3600) < 60
    ends = suites.run("--hosts", "ssh:other,good")
    assert ends.cases == few_expected.cases
    assert not suites.find_twice(suites.folder / "none")
    if IS_WHOLE:
        (suites.folder / "double.py").write_text(KERNEL, encoding="utf-8")
        suites.cli.env |= DECIDED
        here = sum_up(suites.cli.run_json(*COMMAND))
        suites.cli.env["TILEYARD_HOME"] = str(suites.folder / "study")
        study = suites.cli.run_json(*COMMAND, "--hosts", "ssh:other,good")
        assert sum_up(study) == here
        note(f"{clock['message']}; study on {sorted({one['device'] for one in study['trials']})}")
    assert not suites.list_left()


PRINTING = """
name = "printing"
env = ["PLACE"]
run = ["sh", "-c", "echo output of {case}; exit $(({case} % 4 == 1))"]
[[testcase]]
name = "t"
case = [CASES]
"""
ROOMS = ("size=16k", "size=64k", "size=128k", "size=256k", "size=1m")
INODES = (30, 45, 60, 90)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("room", [*ROOMS, *(f"size=1m,nr_inodes={count}" for count in INODES)])
def test_a_full_disk_of_a_host_loses_nothing(tmp_path: Path, room: str) -> None:
    """What it has no room for runs elsewhere; alone, it blames no case for that."""
    suites = Suites(tmp_path / "hosted", FEW)
    cases = ", ".join(f'{{ name = "{number}" }}' for number in range(FEW))
    (suites.folder / "suite.toml").write_text(PRINTING.replace("CASES", cases))
    reach_badly(suites)
    with disk(suites.folder / "hosts" / "full" / "home", room):
        for hosts in ("full,good", "full") if IS_WHOLE else ("full,good",):
            suites.cli.env["TILEYARD_HOME"] = str(suites.folder / hosts)
            done = suites.cli.run(*suites.words("--hosts", f"ssh:{hosts}"))
            assert "Traceback" not in done.stderr
            if done.returncode == 2:
                note(f"{room}, {hosts}: refused: {done.stderr}")
                assert done.stderr.count("\n") == 1
                continue
            verdicts = json.loads(done.stdout)["verdicts"]
            outcomes = Counter(one["outcome"] for one in verdicts)
            attempts = Counter(one["device"][-4:] for v in verdicts for one in v["attempts"])
            note(f"{room}, {hosts}: {dict(outcomes)}, attempts {dict(attempts)}")
            right = {str(number): number % 4 == 1 for number in range(FEW)}
            for one in verdicts:
                fails = right[one["case"].partition("/")[2]]
                expected = "runtime_error" if fails else "passed"
                may_be = {expected} if "good" in hosts else {expected, "infra_error"}
                assert one["outcome"] in may_be, one
    assert not suites.list_left()


SHARED = """
name = "shared"
env = ["PLACE"]
run = ["sh", "-c", "echo began {testcase} x >> $PLACE/journal; exec sleep 0.2"]
"""
DEVICE = '[[device]]\nname = "board:0"\nid = "shared"\n'


def test_two_runs_share_a_device_of_one_host_in_turns(tmp_path: Path) -> None:
    """Neither waits for the other's end: by the time that the first ends, the other has had its share."""
    count = 60 if IS_WHOLE else 20
    (tmp_path / "devices.toml").write_text(DEVICE)
    env = {"TILEYARD_LOCK_DIR": str(tmp_path / "locks"), "TILEYARD_HOST_CONFIG": str(tmp_path)}
    runs = [Suites(tmp_path / name, count, **env) for name in ("first", "second")]
    for one in runs:  # a turn ends between testcases
        cases = "".join(f'[[testcase]]\nname = "t{number}"\n' for number in range(count))
        (one.folder / "suite.toml").write_text(SHARED + cases)
    words = runs[0].words("--hosts", "local:1", "--devices", "board:0")
    processes = [one.cli.start(*words) for one in runs]
    shares: list[tuple[int, int]] = []
    while all(process.poll() is None for process in processes):
        began = runs[0].count_began(), runs[1].count_began()
        shares.append(began)
        time.sleep(0.05)
    for one, process in zip(runs, processes, strict=True):
        printed, complaint = process.communicate(timeout=DEADLINE_S)
        verdicts = json.loads(printed)["verdicts"]
        assert [each["outcome"] for each in verdicts] == ["passed"] * count, complaint
        assert one.count_began() == count
        assert not one.list_left()
    together = [each for each in shares if min(each) and max(each) < count]
    turns = [now[0] > then[0] for then, now in itertools.pairwise(together) if now != then]
    switches = sum(one != other for one, other in itertools.pairwise(turns))
    note(f"when one began its last case: {together[-1]} of {count}; {switches} switches")
    assert min(together[-1]) >= count // 3
    assert switches


ENDLESS = """
name = "endless"
env = ["PLACE"]
run = ["sh", "-c", "echo began {case} x >> $PLACE/journal; setsid sleep 600 & sleep $LASTS"]
[[testcase]]
name = "t"
env = ["LASTS"]
case = [CASES]
"""


@pytest.mark.sweep(1)
@pytest.mark.parametrize("moment", range(5))
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_run_leaves_nothing_on_its_hosts(
    tmp_path: Path, times: int, moment: int
) -> None:
    """Once: what runs ends, and the rest does not begin. Twice: all of it ends at once."""
    suites = Suites(tmp_path / "hosted", 12, LASTS="600" if times > 1 else "1")
    names = ", ".join(f'{{ name = "{number}" }}' for number in range(12))
    (suites.folder / "suite.toml").write_text(ENDLESS.replace("CASES", names))
    process = suites.cli.start(*suites.words("--hosts", "local:2"))
    while suites.count_began() < min(moment, 2 if times > 1 else 9):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    if not moment:
        while not list_agents(psutil.Process(process.pid)):
            time.sleep(0.005)
    time.sleep(0.1 * moment)
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    printed, complaint = process.communicate(timeout=60)
    note(f"{times} at {moment}: {time.monotonic() - began:.1f} s, {complaint}")
    assert process.returncode == 130
    assert "Traceback" not in complaint
    if printed and times == 1:
        outcomes = Counter(one["outcome"] for one in json.loads(printed)["verdicts"])
        assert {*outcomes} <= {"passed", "not_run"}
        assert outcomes["passed"] == suites.count_began() < 12
    assert not suites.list_left()


@pytest.mark.sweep(0)
@pytest.mark.parametrize("moment", range(20))
def test_a_host_behind_ssh_that_dies_costs_only_what_ran_there(
    tmp_path: Path, expected: Ends, moment: int
) -> None:
    """Three names of one sshd, with a home and locks each; ssh tells of a lost agent as of a lost line."""
    generator = random.Random(moment)
    awaited, lost = generator.randrange(1, CASES - 6), generator.choice("abc")
    suites = Suites(tmp_path / "hosted")
    with serve_ssh(suites.folder / "ssh") as variables:
        suites.cli.env |= variables
        homes = {name: suites.folder / "hosts" / name for name in "abc"}
        (suites.folder / "hosts.toml").write_text(
            "".join(
                f'[[host]]\nname = "{name}"\nssh = "{getpass.getuser()}@127.0.0.1"\n'
                f'env = {{ TILEYARD_HOME = "{home}", TILEYARD_LOCK_DIR = "{home}-locks" }}\n'
                for name, home in homes.items()
            )
        )
        process = suites.cli.start(*suites.words("--hosts", "hosts.toml"))
        while suites.count_began() < awaited:
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        kill_host(find_agent(homes[lost]))
        began = time.monotonic()
        printed, complaint = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1, complaint
        assert Ends.read(suites.cli, printed).cases == expected.cases
        twice = suites.find_twice(homes[lost])
        note(f"ssh at {awaited}: {time.monotonic() - began:.1f} s later, twice {sorted(twice)}")
        assert len(twice) <= MOST_AHEAD
        assert not [line for line in suites.list_left() if "sshd" not in line]


def find_agent(home: Path) -> psutil.Process:
    """The agent with this data directory."""
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_agent = one.cmdline()[-1:] == ["agent"] and "python" in one.name()
            if is_agent and one.environ().get("TILEYARD_HOME") == str(home):
                return one
    raise AssertionError(f"no agent has {home}")
