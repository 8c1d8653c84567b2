"""``devices`` and ``doctor`` over several hosts: real agents behind a client in place of ssh."""

import json
import os
import sys
from pathlib import Path

import pytest
from tests.e2e.own_process import OwnProcess

from tileyard.engine.hosts.messages import Answered, Greeting
from tileyard.processes.wire import encode_frame

pytestmark = pytest.mark.slow

CLIENT = """#!/bin/sh
shift 3
case $1 in
twin) ;;
near) export TILEYARD_HOME={folder}/near TILEYARD_LOCK_DIR={folder}/other-locks CC={folder}/cc ;;
old) exec {python} -c "import sys; sys.stdout.buffer.write(bytes.fromhex('{greeting}'))" ;;
*) echo "ssh: Could not resolve hostname $1" >&2; exit 255 ;;
esac
exec sh -c "$2"
"""
COMPILER = """#!/bin/sh
cc "$@" | sed "s/__VERSION__ .*/__VERSION__ \\"an older one\\"/"
"""


@pytest.fixture
def host(tmp_path: Path) -> OwnProcess:
    """A host whose ``ssh`` reaches a twin that shares its folders, and a near one with others."""
    greeting = Greeting(version="9.9", protocol=1, boot="b")
    client = CLIENT.format(
        folder=tmp_path,
        python=sys.executable,
        greeting=encode_frame(Answered(number=0, answer=greeting)).hex(),
    )
    for name, text in (("bin/ssh", client), ("cc", COMPILER)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    return OwnProcess(tmp_path, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})


def test_devices_of_hosts_are_listed_by_host(host: OwnProcess) -> None:
    """One that cannot be reached is one line beside the others' tables, and decides the exit status."""
    shown = host.run("devices", "--hosts", "ssh:far,twin", "--window", "10ms")
    assert (shown.returncode, shown.stderr) == (1, "")
    far, blank, twin, _, device, *_ = shown.stdout.splitlines()
    assert far.startswith(
        "host far: no agent began there: ssh: Could not resolve hostname far (see "
    )
    assert (blank, twin, device.split()[0]) == ("", "host twin", "cpu:0")
    well = host.run("devices", "--hosts", "local:1", "--window", "10ms", "--json")
    (answer,) = json.loads(well.stdout)
    assert well.returncode == 0
    assert (answer["host"], answer["problem"]) == ("local-1", "")
    assert answer["answer"]["devices"][0]["name"] == "cpu:0"


def test_the_doctor_compares_hosts_with_this_one(host: OwnProcess) -> None:
    """Agents, versions, lines, clocks, folders, and what their own doctors find, by host."""
    done = host.run("doctor", "--hosts", "ssh:near,twin,old,far", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found: dict[str, list[tuple[str, str]]] = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["subject"], []).append((one["level"], one["message"]))
    (agent,) = found["twin agent"]
    assert agent[0] == "ok"
    assert agent[1].endswith("C compiler, CPU as here")
    assert found["near C compiler"][0][0] == "warn"
    assert "an older one" in found["near C compiler"][0][1]
    assert "it builds nothing for CPUs" in found["near C compiler"][0][1]
    assert found["near C compiler"][1][0] == "ok"  # for its own doctor
    assert [found[f"{name} same home"][0][1] for name in ("near", "twin")] == [
        f"{host.cwd}/near is its own",
        f"{host.home} is shared: no objects are sent",
    ]
    assert [found[f"{name} same locks"][0][0] for name in ("near", "twin")] == ["fail", "ok"]
    assert [found[f"{name} clock"][0][0] for name in ("near", "twin")] == ["ok", "ok"]
    assert "MB/s" in found["near line"][0][1]
    assert found["twin cpu:0"]
    assert "host old has Tileyard 9.9 (protocol 1)" in found["old agent"][0][1]
    assert "Could not resolve hostname far" in found["far agent"][0][1]
    assert [found[f"{name} agent"][0][0] for name in ("old", "far")] == ["fail", "fail"]
    assert not [*host.home.glob("objects/tokens/*")]
