"""A run over hosts whose CPUs differ: agents on this machine, one of which sees another CPU and compiler."""

import json

import pytest
from tests.conftest import CommandLine
from tests.e2e.test_hosts import KERNEL, ends_of

pytestmark = pytest.mark.slow

SUITE = """
name = "kinds"
run = ["true"]
[[testcase]]
name = "program"
"""
TESTCASE = """
[[testcase]]
name = "double{number}"
file = "double.py"
kernel = "double"
arguments = {{ N = {number} }}
"""
SIZES = (64, 128)
HOST = """
[[host]]
name = "{name}"
reach = ["sh", "reach", "{name}"]
[host.env]
TILEYARD_HOME = "{name}/home"
TILEYARD_LOCK_DIR = "{name}/locks"
"""
OTHER = """\
CC = "{folder}/cc"
PYTHONPATH = "{folder}/sees"
"""
REACH = """\
name=$1
shift
test -e $name.gone && exit 0
exec 3<&0
"$@" <&3 &
echo $! > $name.pid
wait
exit 0
"""
"""Runs an agent, whose host does not come back once it is gone."""
COMPILER = """\
#!/bin/sh
case "$*" in
*kernel.c*) if [ -e "{folder}/fatal" ]; then
        touch "{folder}/other.gone"
        kill -9 "$(cat "{folder}/other.pid")"
    fi ;;
esac
exec cc -DOF_ANOTHER_CPU "$@"
"""
"""A compiler of another CPU, by its macros. If it is fatal, its host is lost at the first kernel."""
SEES = """\
import pathlib

def read(path, *arguments, true=pathlib.Path.read_text, **options):
    text = true(path, *arguments, **options)
    is_cpu = str(path) == "/proc/cpuinfo"
    return text.replace("\\n\\n", "\\nmodel name: Another CPU\\n\\n", 1) if is_cpu else text

pathlib.Path.read_text = read
"""


@pytest.fixture
def place(cli: CommandLine) -> CommandLine:
    """A folder with a suite, and the file of two hosts."""
    folder = cli.cwd
    shapes = next(line for line in KERNEL.splitlines() if "shapes=" in line)
    (folder / "double.py").write_text(KERNEL.replace(shapes, ""))
    cases = "".join(TESTCASE.format(number=number) for number in SIZES)
    (folder / "suite.toml").write_text(SUITE + cases)
    hosts = HOST.format(name="like") + HOST.format(name="other") + OTHER.format(folder=folder)
    (folder / "hosts.toml").write_text(hosts)
    (folder / "reach").write_text(REACH)
    (folder / "cc").write_text(COMPILER.format(folder=folder))
    (folder / "cc").chmod(0o755)
    (folder / "sees").mkdir()
    (folder / "sees" / "sitecustomize.py").write_text(SEES)
    return cli


def test_cases_are_spread_over_kinds_of_cpu(place: CommandLine) -> None:
    """Each is built where it runs; if a kind is lost, its cases are built for the other one."""
    command = ("test", "suite.toml", "--hosts", "hosts.toml", "--json")
    doubles = {f"double{number}/default" for number in SIZES}
    done = place.run(*command)
    ends = ends_of(json.loads(done.stdout))
    assert ends.keys() == {"program/default", *doubles}, done.stderr
    assert {outcome for outcome, _ in ends.values()} == {"passed"}, done.stderr
    ran = {case: ends[case][1].partition("@")[2] for case in doubles}
    run = json.loads(done.stdout)["run"]
    events = map(json.loads, (place.home / f"runs/{run}.jsonl").read_text().splitlines())
    built = {one["case"]: one["host"] for one in events if one["type"] == "build_started"}
    assert {case: built[case] for case in doubles} == ran
    assert {*ran.values()} == {"like", "other"}

    kernel = place.cwd / "double.py"
    kernel.write_text(kernel.read_text().replace("* 2", "* 3"))
    (place.cwd / "fatal").touch()
    done = place.run(*command)
    ends = ends_of(json.loads(done.stdout))
    assert {outcome for outcome, _ in ends.values()} == {"passed"}, done.stderr
    assert {ends[case][1] for case in doubles} == {"cpu:0@like"}
    assert [*place.cwd.glob("*.gone")] == [place.cwd / "other.gone"]
