"""Suites of programs over several hosts: their run steps at agents, in folders that are made there."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import CommandLine

from tileyard.artifacts.folders import read_listing
from tileyard.engine.borrowing import TURN_S

pytestmark = pytest.mark.slow

SUITE = """
name = "demo"
limits = { run_s = 20 }
env = { OF_SUITE = "{{x}}" }

[build]
argv = ["sh", "-c", '''
mkdir {out}/bin {out}/empty
printf '#!/bin/sh\\ncat "$@"\\n' > {out}/bin/show
chmod +x {out}/bin/show
ln -s show {out}/bin/alias
''']

[golden]
argv = ["sh", "-c", '''
for case in one two; do
    mkdir -p $case/in
    echo golden of $case > $case/in/text
    printf abcdefgh > $case/values
    touch $case/unused
done
''']
cwd = "{out}"
part = "*"
link = false

[run]
argv = ["sh", "-c", '''
test -d {build}/empty && test "$OF_SUITE" = "{{x}}" && test "$TILEYARD_CASE" = {testcase}/{case} || exit 3
{build}/bin/alias one/in/text {suite}/part.txt $(ls {suite}/more/*.txt) > shown
rm one/unused && rm -r two && echo ran {case}
''']
inputs = ["part.txt", "more/*.txt"]

[check]
argv = ["sh", "-c", "cat shown; grep -q part shown && grep -q more shown && test ! -e two || exit 2"]

[[testcase]]
name = "steps"
case = [{ name = "one" }, { name = "two" }]

[[testcase]]
name = "outputs"
run = ["sh", "-c", "case {case} in good) cp one/values values;; *) echo abcdefgX > values;; esac"]
check = ["true"]
output = [{ file = "values", golden = "one/values", dtype = "int8", shape = "8" }]
case = [{ name = "good" }, { name = "bad" }]

[[testcase]]
name = "hot"
check = ["sh", "-c", "test -e mark || exit 2"]
[testcase.run]
argv = ["false"]
[testcase.run.hot]
argv = ["{python}", "{suite}/hot.py", "{cases}", "{works}"]
began = '^begin (?P<case>\\S+)'
ended = '^end (?P<case>\\S+) (?P<verdict>\\w+)'
verdicts = { ok = "passed" }
[[testcase.case]]
name = "a"
[[testcase.case]]
name = "crashes"
[[testcase.case]]
name = "z"

[[testcase]]
name = "many"
run = ["{python}", "-c", '''
import os, pathlib
for n in range(300):
    path = pathlib.Path(f"d{{n % 7}}/e", f"ü {{n}}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(n % 5))
os.chmod(path, 0o700)
os.symlink("e", "d0/link")
os.mkdir("bare")
os.mkfifo("pipe")
''']
check = ["sh", "-c", 'test -x "d5/e/ü 299" && test -d bare && test "$(ls d0/link/ | wc -l)" -gt 9 || exit 2']

[[testcase]]
name = "fails"
run = ["sh", "-c", "{{ seq 9000; echo said why; }} >&2; exit 7"]

[[testcase]]
name = "hangs"
run = ["sleep", "600"]
limits = { run_s = 0.5 }

[[testcase]]
name = "inherits"
run = { argv = ["sh", "-c", "echo $MINE $OTHER > got"], env = ["MINE", "OTHER={work}"] }
check = ["sh", "-c", "grep -q ^mine. got || exit 2"]

[[testcase]]
name = "absent"
run = ["{build}/none"]

[[testcase]]
name = "tool"
run = ["sh", "-c", "tool > got; {toolchain}/bin/tool >> got; dirname $(command -v tool)"]
check = ["sh", "-c", "test $(grep -c packed got) = 2 || exit 2"]

[[testcase]]
name = "secret"
run = ["sh", "-c", "cat $(echo {suite}/s-ecret | sed 's,-ecret$,ecret,')"]
check = ["true"]
"""
HOT = """
import os, sys
half = len(sys.argv[1:]) // 2
for case, work in zip(sys.argv[1 : half + 1], sys.argv[half + 1 :]):
    print("begin", case, flush=True)
    if case == "crashes":
        os.abort()
    open(work + "/mark", "w").write(case)
    print("end", case, "ok", flush=True)
"""


@pytest.fixture
def suite(cli: CommandLine) -> CommandLine:
    """A folder with a suite, and with files that its steps declare and one that none does."""
    (cli.cwd / "suite.toml").write_text(SUITE)
    (cli.cwd / "hot.py").write_text(HOT)
    (cli.cwd / "more").mkdir()
    for name in ("part.txt", "more/a.txt", "more/b.txt", "secret"):
        (cli.cwd / name).write_text(name)
    (cli.cwd / "tmp").mkdir()
    cli.env.update(TMPDIR=str(cli.cwd / "tmp"), MINE="mine")
    return cli


def verdicts_of(done: str) -> dict[str, dict[str, Any]]:
    """The verdicts that a run printed, by case."""
    return {one["case"]: one for one in json.loads(done)["verdicts"]}


def test_a_suite_ends_there_as_here(suite: CommandLine) -> None:
    """Outcomes, messages, logs and what programs left; what no step declares is not there."""
    tool = suite.cwd / "inst" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho packed\n")
    tool.chmod(0o755)
    packed = suite.run("bundle", "--tree", "inst", "--commit", "c0ffee", "-o", "t.tyb")
    assert packed.returncode == 0, packed.stderr
    command = ("test", "suite.toml", "--keep-work", "--retries", "1", "--toolchain", "t.tyb")
    found, works = [], []
    for hosts in ((), ("--hosts", "local:2")):
        suite.env["TILEYARD_HOME"] = str(suite.cwd / f"home{len(hosts)}")
        done = suite.run(*command, *hosts, "--json")
        assert done.returncode == 1, done.stderr
        verdicts = verdicts_of(done.stdout)
        found.append(verdicts)
        (work,) = (suite.home / "work").glob("*[!.]?")
        works.append(work)
    here, there = found
    secret = here.pop("secret/default"), there.pop("secret/default")
    assert [one["outcome"] for one in secret] == ["passed", "runtime_error"]
    assert re.search(
        r"No such file .*\(secret of the suite is not on that host: .* `inputs`\)",
        secret[1]["message"],
    )
    for case, verdict in here.items():
        assert (case, there[case]["outcome"]) == (case, verdict["outcome"])
        said = [re.sub(r"/\S+/objects/", "", one["message"]) for one in (verdict, there[case])]
        assert said[0] == said[1]
        outcomes = [[one["outcome"] for one in each["attempts"]] for each in (verdict, there[case])]
        assert outcomes[0] == outcomes[1]
        folder = Path(case, "data")
        (works[0] / folder / "pipe").unlink(missing_ok=True)
        if case != "inherits/default":  # it has written where it was
            assert read_listing(works[1] / folder) == read_listing(works[0] / folder)
    hosts = {each["device"].partition("@")[2] for one in there.values() for each in one["attempts"]}
    assert hosts == {"local-1", "local-2"}
    log = (suite.home / there["steps/one"]["attempts"][0]["log"]).read_text()
    assert log.index("run: ") < log.index("\nran one\n") < log.index("check: ")
    log = (suite.home / there["tool/default"]["attempts"][0]["log"]).read_text()
    assert re.search(r"\n/\S+/tileyard-host-\w+/objects/trees/\S+/bin\n", log)
    log = (suite.home / there["fails/default"]["attempts"][0]["log"]).read_text()
    assert "\n1\n2\n" in log  # all of 40 kB
    log = (suite.home / there["many/default"]["attempts"][0]["log"]).read_text()
    assert "==== not sent back: 'pipe' is neither a file, a directory nor a link\n" in log
    assert not [*(suite.cwd / "tmp").iterdir()]


WAITING = """
name = "demo"
env = ["PLACE"]
golden = ["sh", "-c", "echo data > {out}/in"]
run = ["sh", "-c", "cp in out"]
check = ["cmp", "in", "out"]
[[testcase]]
name = "before"
[[testcase]]
name = "waits"
run = ["sh", "-c", "if mkdir $PLACE/once; then echo $PWD > $PLACE/began; exec sleep 600; fi; cp in out"]
[[testcase]]
name = "after"
"""


def command_of(process: psutil.Process) -> list[str]:
    """The command of a process, empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def test_an_agent_that_is_lost_costs_what_ran_there(suite: CommandLine) -> None:
    """On leased devices: the case that ran is run again, elsewhere, and nothing is left there."""
    (suite.cwd / "suite.toml").write_text(WAITING)
    suite.env["PLACE"] = str(suite.cwd)
    began = suite.cwd / "began"
    os.mkfifo(began)
    command = ("test", "suite.toml", "--hosts", "local:2", "--devices", "cpu:0", "--keep-work")
    process = suite.start(*command, "--json")
    work = began.read_text().strip()
    family = psutil.Process(process.pid).children(recursive=True)
    commands = {one: command_of(one) for one in family}
    (agent,) = (
        one for one, line in commands.items() if "agent" in line and work.startswith(line[-1])
    )
    agent.kill()
    output, complaint = process.communicate(timeout=120)
    verdicts = verdicts_of(output)
    assert {case: one["outcome"] for case, one in verdicts.items()} == dict.fromkeys(
        ("before/default", "waits/default", "after/default"), "passed"
    ), complaint
    (events,) = (suite.home / "runs").glob("*.jsonl")
    lines = [one for one in events.read_text().splitlines() if "its agent is gone" in one]
    lost = [one for one in lines if '"case"' in one]
    assert lost
    assert all("waits/default" in one for one in lost)
    assert len([*(suite.home / "work").glob("*/*/default/data/out")]) == 3
    assert not psutil.wait_procs(family, timeout=20)[1]
    assert not [*(suite.cwd / "tmp").iterdir()]


CARDS = """
name = "{job}"
env = ["PLACE"]
build = ["sh", "-c", "echo 'echo {job} $TASK_DEVICE >> $PLACE/order' > {{out}}/program"]
[run]
argv = ["sh", "-c", "sh {{build}}/program; until test -e $PLACE/{gate}; do sleep 0.1; done"]
env = ["PLACE"]
"""
REACHED = """
[[host]]
name = "card{host}"
reach = ["env"]
devices = ["npu:0", "npu:5"]
[host.env]
TILEYARD_HOST_CONFIG = "far"
TILEYARD_HOME = "far/home{host}"
TILEYARD_LOCK_DIR = "far/locks{host}"
"""
DECLARED = """
[[device]]
name = "npu:{number}"
id = "card {number}"
identity = "card"
"""


@pytest.fixture
def borrower(cli: CommandLine) -> CommandLine:
    """A folder with the file of three hosts, and the declarations of eight cards that each of them has."""
    (cli.cwd / "far").mkdir()
    declared = "".join(DECLARED.format(number=number) for number in range(8))
    (cli.cwd / "far" / "devices.toml").write_text(declared)
    hosts = "".join(REACHED.format(host=host) for host in (1, 2, 3))
    (cli.cwd / "hosts.toml").write_text(hosts)
    cli.env["PLACE"] = str(cli.cwd)
    return cli


PAIRS = """
name = "pairs"
env = ["PLACE"]
[run]
argv = ["sh", "-c", '''
at=$PLACE/$(basename $TILEYARD_LOCK_DIR)
for card in $(echo {device_physical} | tr , " "); do mkdir -p $at && mkdir $at/$card || exit 3; done
echo {device} {device_physical} $TASK_DEVICE > seen
sleep 0.2
for card in $(echo {device_physical} | tr , " "); do rmdir $at/$card || exit 4; done
''']
env = ["PLACE"]
[[testcase]]
name = "pair"
devices = 2
case = [{ name = "a" }, { name = "b" }, { name = "c" }]
[[testcase]]
name = "single"
case = [{ name = "a" }, { name = "b" }, { name = "c" }, { name = "d" }]
"""


def test_cases_that_hold_two_cards_get_them_of_one_host(borrower: CommandLine) -> None:
    """Both or neither, beside cases that hold one of them, with the variables of a run on that host. A case
    that needs more cards than a host has is one line.
    """
    cli, folder = borrower, borrower.cwd
    (folder / "pairs.toml").write_text(PAIRS)
    hosts = "".join(REACHED.format(host=host) for host in (1, 2))
    (folder / "hosts.toml").write_text(hosts)
    command = ("test", "pairs.toml", "--split", "1ms", "--keep-work", "--json")
    here = ("--devices", "npu:0", "--devices", "npu:5")
    found = []
    for words, own in ((here, "far"), (("--hosts", "hosts.toml", "--devices", "npu"), "none")):
        home = folder / f"home-{own}"
        cli.env |= {"TILEYARD_HOST_CONFIG": str(folder / own), "TILEYARD_HOME": str(home)}
        done = cli.run(*command, *words)
        assert done.returncode == 0, done.stderr + done.stdout
        seen = {path.parts[-4:-2]: path.read_text() for path in home.glob("work/*/*/*/data/seen")}
        found.append((verdicts_of(done.stdout), seen))
    (_, seen_here), (there, seen_there) = found
    pairs = {case: one for case, one in there.items() if case.startswith("pair")}
    held = {one["attempts"][0]["device"] for one in pairs.values()}
    assert held <= {"npu:0,5@card1", "npu:0,5@card2"}
    assert len(seen_here) == 7
    assert {(case, seen_there[case]) for case in seen_there if case[0] == "pair"} == {
        (case, seen_here[case]) for case in seen_here if case[0] == "pair"
    }
    (folder / "pairs.toml").write_text(PAIRS.replace("devices = 2", "devices = 3"))
    refused = cli.run(*command, "--hosts", "hosts.toml", "--devices", "npu")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert "case pair/a needs 3 devices of one kind on one host, and there are" in refused.stderr
    assert "npu:0@card1, npu:5@card1, npu:0@card2, npu:5@card2 (" in refused.stderr


def test_two_jobs_take_turns_on_the_cards_of_three_hosts(borrower: CommandLine) -> None:
    """Of the cards that one job has, another that waits gets some before the first has run all its batches.
    No case is lost, and nothing is held in the end. Each host has eight cards, and lends two.
    """
    cli, folder = borrower, borrower.cwd
    counts = {"long": 18, "late": 3}
    jobs: dict[str, subprocess.Popen[str]] = {}

    def begin(job: str) -> None:
        cases = "".join(f'[[testcase]]\nname = "{number}"\n' for number in range(counts[job]))
        gate = "late.waits" if job == "long" else "order"
        (folder / f"{job}.toml").write_text(CARDS.format(job=job, gate=gate) + cases)
        cli.env.update(TILEYARD_HOME=str(folder / job), TILEYARD_JOB=job)
        suite = ("test", f"{job}.toml", "--split", "off", "--hosts", "hosts.toml")
        jobs[job] = cli.start(*suite, "--devices", "npu")

    def count_begun() -> int:
        return len(order.read_text().splitlines()) if order.exists() else 0

    order = folder / "order"
    begin("long")
    while count_begun() < 6:
        assert jobs["long"].poll() is None, jobs["long"].communicate()
        time.sleep(0.1)
    begin("late")
    stdout = jobs["late"].stdout
    assert stdout is not None
    while not (line := stdout.readline()).startswith("waiting for npu:"):
        assert line
    assert re.search(r"waiting for npu:[05]@card\d, held by .*tileyard, job long, on ", line)
    time.sleep(TURN_S)
    (folder / "late.waits").touch()
    for job, process in jobs.items():
        printed, complaint = process.communicate(timeout=240)
        assert process.returncode == 0, complaint + printed
        assert f"{counts[job]}  passed" in printed
    begun = [line.split()[0] for line in order.read_text().splitlines()]
    assert {job: begun.count(job) for job in counts} == counts
    assert begun.index("late") < len(begun) - 1 - begun[::-1].index("long")
    shown = json.loads(cli.run("devices", "--hosts", "hosts.toml", "--json").stdout)
    cards = [one for host in shown for one in host["answer"]["devices"] if one["class"] == "npu"]
    assert len(cards) == 24
    assert not [one for one in cards if one["holder"] or one["queue"]]
