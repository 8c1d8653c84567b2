"""Runs over several hosts: real agents, each with a home of its own, on this machine and behind ssh."""

import getpass
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import DECIDED, KERNELS, CommandLine
from tests.e2e.ssh_server import serve_ssh
from tests.faults.killing import kill_host

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T
import tileyard


@tileyard.kernel(
    space={"block": [4, 8, 16, 32, 64, 128, 256, 512, 1024]},
    shapes={"small": {"N": 1024}, "large": {"N": 4096}},
    reference=lambda A: A * 2,
)
def double(N, block=32):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2

    return main
"""
MIXED = """
name = "mixed"
run = ["true"]
[[testcase]]
name = "double"
file = "double.py"
kernel = "double"
case = [{ name = "small", shape = "small" }, { name = "large", shape = "large" }]
[[testcase]]
name = "program"
[[testcase]]
name = "pair"
devices = 2
"""
MEETING = """
name = "meeting"
env = ["PLACE"]
limits = { run_s = 60 }
[[testcase]]
name = "all"
run = ["sh", "-c", '''
cd $PLACE; touch up {case}
if test {case} = first; then until test -e joined; do sleep 0.05; done; sleep 1
else until test -e a -a -e b; do sleep 0.05; done; fi
''']
case = [{ name = "first" }, { name = "a" }, { name = "b" }]
"""
HOSTS = """
[[host]]
name = "here"
reach = ["env"]
env = { TILEYARD_HOME = "here" }
[[host]]
name = "late"
reach = ["sh", "-c", 'test -e up && exec "$@"', "reach"]
env = { TILEYARD_HOME = "late" }
[[host]]
name = "never"
reach = ["false"]
"""
"""One that is down until a program of the run has begun, and one that stays down."""
COMMAND = ("tune", "double.py", "--shape", "small", "--trials", "9")


def sum_up(result: dict[str, Any]) -> tuple[object, ...]:
    """What a study found: outcomes by config, and the winner."""
    outcomes = {json.dumps(one["config"]): one["outcome"] for one in result["trials"]}
    return sorted(outcomes.items()), result["best"]["config"]


@pytest.fixture
def place(cli: CommandLine) -> CommandLine:
    """A folder with a kernel, where times are scripted."""
    (cli.cwd / "double.py").write_text(KERNEL, encoding="utf-8")
    (cli.cwd / "tmp").mkdir()
    cli.env.update(DECIDED, TMPDIR=str(cli.cwd / "tmp"))
    return cli


def agents_of(process: psutil.Process) -> list[psutil.Process]:
    """The agents of a run that is going on."""
    return [one for one in process.children(recursive=True) if "agent" in one.cmdline()]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("moment", range(20))
def test_a_host_that_is_lost_costs_only_what_ran_there(place: CommandLine, moment: int) -> None:
    """After an agent was killed with all that it ran, the same is found as on this host; nothing is left."""
    count = 3 if "TILEYARD_SWEEPS" in os.environ else 2
    expected = sum_up(place.run_json(*COMMAND))
    place.env["TILEYARD_HOME"] = str(place.cwd / "other")
    process = place.start(*COMMAND, "--hosts", f"local:{count}", "--json")
    command = psutil.Process(process.pid)
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("tune double"):
        assert line
    agents = agents_of(command)
    family = command.children(recursive=True)
    time.sleep(0.15 * moment)
    if moment:  # the first is a run in which none is lost
        kill_host(agents[1])
        family += command.children(recursive=True)
    output, complaint = process.communicate(timeout=240)
    result = json.loads(output)
    assert sum_up(result) == expected, complaint
    hosts = {one["device"] for one in result["trials"]}
    names = {f"local-{number}" for number in range(1, count + 1)}
    assert hosts <= {f"cpu:0@{name}" for name in names}
    lost = [line.partition(" at ")[0] for line in result["lost_hosts"]]
    assert lost in ([], ["host local-2 was lost"])
    events = place.home.joinpath(f"runs/{result['run']}.jsonl").read_text(encoding="utf-8")
    began = [json.loads(line) for line in events.splitlines() if '"build_started"' in line]
    assert began
    assert {one["host"] for one in began} <= names | {*([""] if moment else [])}
    said = {attempt["message"] for one in result["trials"] for attempt in one["attempts"]}
    assert said <= {"host local-2: its agent is gone"}
    assert lost or not said
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
    assert not [*(place.cwd / "tmp").glob("tileyard-host-*")]


def test_agents_end_with_their_run(place: CommandLine) -> None:
    """Also if the engine is killed: what they started is ended, and their folders are removed."""
    process = place.start(*COMMAND, "--hosts", "local:2")
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("passed"):
        assert line
    command = psutil.Process(process.pid)
    family = command.children(recursive=True)
    engine = next(one for one in family if "tileyard.service.process" in one.cmdline())
    engine.kill()
    process.communicate(timeout=60)
    assert process.returncode == 3
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert not [*(place.cwd / "tmp").glob("tileyard-host-*")]


def test_each_fault_is_blamed_on_its_case(cli: CommandLine) -> None:
    """Hangs, crashes, wrong results and memory, as on this host; a case that crashed can be shown."""
    command = ("tune", str(KERNELS / "faults.py"), "--config", "block=64", "--run-limit", "2s")
    found = []
    for hosts in ((), ("--hosts", "local:2")):
        cli.env["TILEYARD_HOME"] = str(cli.cwd / f"home{len(hosts)}")
        trials = cli.run_json(*command, *hosts)["trials"]
        found.append({one["config"]["fault"]: (one["outcome"], one["message"]) for one in trials})
        stray = next(one for one in trials if one["config"]["fault"] == "segmentation_fault")
        shown = cli.run_here("show", stray["id"])
        assert shown.returncode == 0, shown.stderr
    here, there = found
    assert here == there


def test_a_suite_of_kernels_ends_alike(place: CommandLine) -> None:
    """Kernels run on other hosts, also beside programs; devices of two hosts are not held at once."""
    (place.cwd / "suite.toml").write_text(MIXED, encoding="utf-8")
    here = ends_of(place.run_json("test", "double.py"))
    there = ("test", "suite.toml", "--hosts", "local:2", "--devices", "cpu:0")
    refused = place.run(*there)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    names = "there are cpu:0@local-1, cpu:0@local-2"
    assert f"pair/default needs 2 devices of one kind on one host, and {names}" in refused.stderr
    hosted = ends_of(place.run_json(*there, "--skip", "pair"))
    assert here == {"double/small": ("passed", "cpu:0"), "double/large": ("passed", "cpu:0")}
    assert hosted.keys() == {*here, "program/default"}
    assert {*hosted.values()} <= {("passed", "cpu:0@local-1"), ("passed", "cpu:0@local-2")}


def test_a_host_that_is_down_at_the_start_joins_once_it_is_up(cli: CommandLine) -> None:
    """Two programs that wait for each other need both hosts, although the run was planned for one; one that
    never comes holds nothing up.
    """
    cli.env["PLACE"] = str(cli.cwd)
    (cli.cwd / "suite.toml").write_text(MEETING, encoding="utf-8")
    (cli.cwd / "hosts.toml").write_text(HOSTS, encoding="utf-8")
    process = cli.start("test", "suite.toml", "--hosts", "hosts.toml", "--slots", "1", "--json")
    assert process.stderr is not None
    said: list[str] = []
    while not (said and said[-1].startswith("host late has joined, with 1 device")):
        said.append(process.stderr.readline())
        assert said[-1], said
    (cli.cwd / "joined").touch()
    output, complaint = process.communicate(timeout=120)
    result = json.loads(output)
    ends = ends_of(result)
    assert {outcome for outcome, _ in ends.values()} == {"passed"}, complaint
    assert {ends[f"all/{name}"][1] for name in "ab"} == {"slot:0@here", "slot:0@late"}
    assert [plan["slots"] for plan in result["plans"]] == [1]
    assert result["makespan"]["slots"] == 2
    for name in ("late", "never"):
        assert f"host {name}: no agent began there; the run begins without it" in "".join(said)


def ends_of(result: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The outcome and the device of each case of a suite."""
    return {
        one["case"]: (one["outcome"], one["attempts"][0]["device"]) for one in result["verdicts"]
    }


@pytest.fixture
def behind_ssh(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables with which ``ssh`` reaches a server of this test's own."""
    with serve_ssh(tmp_path / "ssh") as variables:
        yield variables


def test_hosts_behind_ssh_find_the_same(place: CommandLine, behind_ssh: dict[str, str]) -> None:
    """Their agents have homes of their own, and end with the run; one that ssh does not reach is named."""
    expected = sum_up(place.run_json(*COMMAND))
    place.env.update(behind_ssh, TILEYARD_HOME=str(place.cwd / "other"))
    user = getpass.getuser()
    result = place.run_json(*COMMAND, "--hosts", f"ssh:{user}@127.0.0.1")
    assert sum_up(result) == expected
    assert {one["device"] for one in result["trials"]} == {f"cpu:0@{user}@127.0.0.1"}
    absent = place.run(*COMMAND, "--hosts", "ssh:nobody@127.0.0.1")
    assert absent.returncode == 2
    assert "host nobody@127.0.0.1: no agent began there: " in absent.stderr


def test_a_device_that_a_host_lacks_is_one_line(place: CommandLine) -> None:
    """With the host's name, before anything is built."""
    done = place.run(*COMMAND, "--hosts", "local:1", "--devices", "sim:9")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "host local-1: there is no device 'sim:9'" in done.stderr


def test_builds_and_comparisons_use_hosts(place: CommandLine) -> None:
    """``compile`` and ``bundle`` build there, and ``regress`` runs there what differs."""
    built = place.run_json("compile", "double.py", "--config", "block=8,64", "--hosts", "local:2")
    assert [one["outcome"] for one in built["configs"]] == ["passed"] * 2, built
    packed = place.run("bundle", "double.py", "-o", "double.tyb", "--hosts", "local:1")
    assert "double.tyb: 2 of 2 cases" in packed.stdout, packed.stderr
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "double.py"), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=place.cwd, check=True)
    wrong = KERNEL.replace("block + i] * 2", "block + i] + 1")
    (place.cwd / "double.py").write_text(wrong, encoding="utf-8")
    del place.env["TILEYARD_PLUGINS"]
    compared = place.run_json("regress", "HEAD", ".", "double.py", "--hosts", "local:2")
    assert compared["device"] == "cpu:0@local-1, cpu:0@local-2"
    assert [row["verdict"] for row in compared["rows"]] == ["failed", "failed"]
    assert all("mismatch: B[" in str(row) for row in compared["rows"])
