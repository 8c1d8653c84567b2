"""Runs over the nodes of a real cluster of Ray, on this machine: its agents, and their end."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from tests.conftest import CommandLine
from tests.doubling import write_doubling
from tests.faults.test_hosts_faults import DEADLINE_S, MOST_AHEAD, Ends, Suites, note

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'tileyard[ray]'"),
]
KILL_ACTOR = """
import pathlib, sys, time
import ray
from tileyard.workers.ray_agents import Holder

ray.init(log_to_driver=False)
actor = ray.remote(num_cpus=1)(Holder).remote()
actor.hold.remote('mkdir "$1" && cat; rmdir "$1"', sys.argv[1:], {}, 1)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
ray.kill(actor)
"""
"""Ends an actor that holds a script; this has made a folder, and removes it at the end of its input."""
NODES = ("one", "two", "three") if "TILEYARD_SWEEPS" in os.environ else ("one", "two")
CASES = 12
RUN = ("test", "double.py", "--verbose")
TOGETHER = len(NODES) + 2
MEETING = f"""
name = "meeting"
env = ["PLACE"]
limits = {{ run_s = 100 }}
run = ["sh", "-c", '''
echo {{testcase}} >> $PLACE/begun
until test $(wc -l < $PLACE/begun) -ge {TOGETHER}; do sleep 0.05; done
''']
{"".join(f"[[testcase]]{chr(10)}name = 't{number}'{chr(10)}" for number in range(TOGETHER))}
"""
"""Programs that wait until so many have begun."""


@dataclass
class Nodes:
    """A cluster that runs, at its ``address``; processes on its nodes have this ``temporary`` folder."""

    process: subprocess.Popen[str]
    address: str
    temporary: Path

    def order(self, line: str) -> None:
        """Have a node added or removed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{line}\n"

    @property
    def variables(self) -> dict[str, str]:
        """With which runs find the cluster."""
        return {
            "RAY_ADDRESS": self.address,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback interface is a node's address, too
        }

    def list_ours(self) -> list[psutil.Process]:
        """Processes that agents on its nodes are or started, however detached."""
        work = f"{self.temporary}/tileyard-host-"
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                is_ours = any(one.startswith("tileyard") or "/tileyard/" in one for one in words)
                is_ours = is_ours and process.environ().get("TMPDIR") == str(self.temporary)
                if is_ours or process.cwd().startswith(work):
                    found.append(process)
            except psutil.Error:  # it has ended, or is another user's
                continue
        return found

    def wait_for_none(self) -> list[psutil.Process]:
        """What is left of them after a while."""
        for _ in range(200):
            if not (left := self.list_ours()):
                return left
            time.sleep(0.1)
        return left


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster that ends with these tests."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "locks").mkdir()
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as short,
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("ray_cluster.py"), folder / "locks", *NODES],
            # Paths of its sockets end at 107 bytes.
            env={**os.environ, "TMPDIR": short, "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (folder / "log").read_text()
        yield Nodes(process, address, Path(short))
        process.communicate()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, nodes: Nodes) -> CommandLine:
    """A folder with a suite of kernels, whose runs find the cluster, and what earlier ones have built."""
    place = CommandLine(tmp_path_factory.mktemp("suite"))
    write_doubling(place.cwd, {f"n{n}": 512 * n for n in range(1, CASES + 1)})
    place.env.update(nodes.variables)
    return place


def read_verdicts(output: str) -> list[str]:
    """The lines of a run's cases, without times; the summary follows them."""
    lines = (line.split() for line in output.partition("\nsuite double")[0].splitlines())
    return sorted(f"{words[1]} {words[0]}" for words in lines if words[1:2] and "/" in words[1])


def test_a_suite_of_kernels_ends_as_on_this_host(place: CommandLine, nodes: Nodes) -> None:
    """On all nodes with such resources, of which nothing is left; where there are none, it is one line."""
    here = place.run(*RUN)
    there = place.run(*RUN, "--hosts", "ray:cpus=1")
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert read_verdicts(there.stdout) == read_verdicts(here.stdout)
    assert len(read_verdicts(here.stdout)) == CASES
    assert not nodes.wait_for_none()
    refused = place.run(*RUN, "--hosts", "ray:cpus=9")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert "no node of the cluster has such resources" in refused.stderr


def kill_actor(nodes: Nodes) -> None:
    """Kill the actor of an agent."""
    agent = next(one for one in nodes.list_ours() if "agent" in one.cmdline())
    next(one for one in agent.parents() if one.name().startswith("ray::")).kill()


def test_a_node_that_joins_is_used_and_so_is_one_whose_actor_has_died(
    place: CommandLine, nodes: Nodes
) -> None:
    """Programs wait for each other on all nodes, one that joins, and an agent that is started again."""
    begun = place.cwd / "begun"
    (place.cwd / "meeting.toml").write_text(MEETING, encoding="utf-8")
    begun.touch()
    place.env["PLACE"] = str(place.cwd)
    words = ("test", "meeting.toml", "--hosts", "ray:cpus=1", "--slots", "1", "--json")
    process = place.start(*words)

    def wait_for(count: int) -> None:
        while begun.read_text().count("\n") < count:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)

    wait_for(len(NODES))
    nodes.order("add late")
    wait_for(len(NODES) + 1)
    kill_actor(nodes)
    output, complaint = process.communicate(timeout=200)
    nodes.order("remove late")
    assert process.returncode == 0, complaint
    attempts = [one for verdict in json.loads(output)["verdicts"] for one in verdict["attempts"]]
    assert {one["device"] for one in attempts} == {f"slot:0@{name}" for name in (*NODES, "late")}
    assert "host late has joined, with 1 device" in complaint
    assert not nodes.wait_for_none()


def test_an_agent_s_files_are_removed_if_its_actor_is_killed(
    place: CommandLine, nodes: Nodes
) -> None:
    """Ray kills the children of an actor with it: the script that has to remove them is none."""
    folder = nodes.temporary / "made"
    words = [sys.executable, "-c", KILL_ACTOR, str(folder)]
    subprocess.run(words, env=place.environment(), check=True, stdout=subprocess.DEVNULL)
    until_s = time.monotonic() + 20.0
    while folder.exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not folder.exists()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """What a run of a suite of programs on this host says."""
    return Suites(tmp_path_factory.mktemp("alone") / "here").run()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("moment", range(5))
@pytest.mark.parametrize("lost", ["actor", "node", "engine"])
def test_what_is_lost_in_the_middle_leaves_nothing(
    tmp_path: Path, nodes: Nodes, expected: Ends, lost: str, moment: int
) -> None:
    """A node or an actor costs only what ran there: verdicts are the same; no agent outlives its engine."""
    suites = Suites(tmp_path / "hosted", **nodes.variables)
    process = suites.cli.start(*suites.words("--hosts", "ray:cpus=1"))
    awaited = suites.count * (moment + 1) // 8
    while suites.count_began() < awaited:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    match lost:
        case "node":
            nodes.order("remove two")
        case "actor":
            kill_actor(nodes)
        case _:
            family = psutil.Process(process.pid).children()
            next(one for one in family if "tileyard.service.process" in one.cmdline()).kill()
    try:
        printed, complaint = process.communicate(timeout=DEADLINE_S)
        if lost == "engine":
            assert process.returncode == 3
        else:
            assert process.returncode == 1, complaint
            assert Ends.read(suites.cli, printed).cases == expected.cases
            twice = suites.find_twice(nodes.temporary)
            note(f"{lost} at {awaited}: twice {sorted(twice)}")
            assert len(twice) <= MOST_AHEAD
        assert not nodes.wait_for_none()
        assert not [*nodes.temporary.glob("tileyard-host-*")]
    finally:
        if lost == "node":
            nodes.order("add two")
