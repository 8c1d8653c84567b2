"""Runs over the nodes of a real Slurm, of this test's own: its agents, and what is given back."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from tests.conftest import CommandLine
from tests.doubling import write_doubling
from tests.ports import choose_ports

DAEMONS = ("munged", "slurmctld", "slurmd", "salloc")
PATH = f"{os.environ['PATH']}:/usr/sbin"
MISSING = [name for name in DAEMONS if shutil.which(name, path=PATH) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING), reason=f"needs {', '.join(MISSING)}, as of Debian's slurm-wlm and munge"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for Slurm's daemons"),
]
NODES = ("n1", "n2")
CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
MessageTimeout=60
TCPTimeout=30
SwitchType=switch/none
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=10
"""
RUN = ("test", "double.py", "--verbose", "--hosts", "slurm:-N 2")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which Slurm's programs find a cluster of two nodes on this host."""
    folder = tmp_path_factory.mktemp("slurm")
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    config = folder / "slurm.conf"
    ports = choose_ports(1 + len(NODES))
    config.write_text(CONFIG.format(host=host, folder=folder, ports=ports), encoding="utf-8")
    own = {"SLURM_CONF": str(config), "PATH": PATH, "TMPDIR": str(folder)}
    munge = [f"--{part}-file={folder}/munge.{part}" for part in ("pid", "log", "seed")]
    commands = [
        ["munged", "-F", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", *munge],
        ["slurmctld", "-D", "-c"],
        *(["slurmd", "-D", "-N", node] for node in NODES),
    ]
    for node in NODES:
        (folder / f"spool-{node}").mkdir()
    with ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((folder / "daemons.log").open("a"))
            daemon = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
            stack.callback(daemon.wait, 20)
            stack.callback(daemon.terminate)
            while command[0] == "munged" and not (folder / "munge.socket").exists():
                time.sleep(0.05)
        for _ in range(200):
            if ask(own, "sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split() == [*NODES]:
                break
            time.sleep(0.1)
        yield own


def ask(own: dict[str, str], *command: str) -> str:
    """What a program of Slurm prints."""
    environment = {**os.environ, **own}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    ).stdout


@pytest.fixture
def place(cli: CommandLine, slurm: dict[str, str]) -> CommandLine:
    """A folder with a suite of kernels, whose runs find Slurm."""
    write_doubling(cli.cwd, {f"n{n}": 32 * n for n in range(1, 5)})
    cli.env.update(slurm)
    return cli


def wait_for_no_job(slurm: dict[str, str]) -> str:
    """The jobs that are left after a while."""
    for _ in range(100):
        if not (jobs := ask(slurm, "squeue", "-h")):
            break
        time.sleep(0.1)
    return jobs


def require_no_scratch(place: CommandLine, slurm: dict[str, str]) -> None:
    """The agents have removed their files: now, or as soon as they have ended."""
    folder = Path(slurm["TMPDIR"])
    for _ in range(100):
        if not (left := [*folder.glob("tileyard-host-*")]):
            return
        time.sleep(0.1)
    logs = [*(place.home / "logs").glob("*.log"), folder / "daemons.log"]
    files = [str(path.relative_to(folder)) for one in left for path in one.rglob("*")]
    running = ask(slurm, "ps", "-eo", "pid,ppid,stat,etime,args")
    text = [f"{log.name}:\n{log.read_text()[-4000:]}" for log in logs]
    raise AssertionError("\n".join((*map(str, left), *files, *text, running)))


def test_kernels_run_on_the_nodes_of_an_allocation(
    place: CommandLine, slurm: dict[str, str]
) -> None:
    """Which is given back; what Slurm refuses, or has no room for in time, is one line."""
    done = place.run(*RUN)
    assert done.returncode == 0, done.stderr
    assert "4 cases  2 slots" in done.stdout
    assert "4  passed" in done.stdout
    assert not wait_for_no_job(slurm)
    require_no_scratch(place, slurm)
    refused = place.run(*RUN[:-1], "slurm:-p none")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert "Invalid partition name specified" in refused.stderr
    with subprocess.Popen(
        ["salloc", "-Q", "-N2", "--exclusive", "sh", "-c", "echo; cat"],
        env={**os.environ, **slurm},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        full = place.run(*RUN, "--queue-limit", "1s")
        assert (full.returncode, full.stderr.count("\n")) == (2, 1), full.stderr
        assert "no node was had within 1 s" in full.stderr
        other.communicate()
    assert not wait_for_no_job(slurm)


def test_an_allocation_ends_with_its_engine(place: CommandLine, slurm: dict[str, str]) -> None:
    """Also if that is killed: the keeper of what holds the nodes gives them back, and agents end."""
    process = place.start(*RUN)
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("passed"):
        assert line, process.communicate()
    command = psutil.Process(process.pid)
    family = command.children(recursive=True)
    for one in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is another user's
            if "agent" in one.cmdline() and one.environ().get("TMPDIR") == slurm["TMPDIR"]:
                family.append(one)
    next(one for one in family if "tileyard.service.process" in one.cmdline()).kill()
    process.communicate(timeout=60)
    assert process.returncode == 3
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert not wait_for_no_job(slurm)
    require_no_scratch(place, slurm)
