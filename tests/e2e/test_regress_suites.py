"""``tileyard regress`` with a suite: programs of two revisions, compared by time or what they print."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.e2e.repositories import SUMS, git

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="its programs are compiled"),
]

PROGRAMS = (
    SUMS
    + """[run]
argv = ["{build}/{testcase}", "{case}"]
"""
)
SOURCE = """
#include <stdio.h>
int main(int count, char **words) {
  volatile double x = %s;
  for (int i = 0; i < %d; ++i) x = x * 0.999 + 1;
  fputc('%s', fopen("result", "wx"));  /* a folder in which it has run before is not a fresh one */
}
"""
LATE_GIT = """#!/bin/sh
for second in $(seq 60); do
  test -e imported && exec %s "$@"
  sleep 1
done
exit 1
"""
"""It answers once a file has been imported."""
WORK = 2_000_000
PRINTED = """
name = "simulated"
[run]
argv = ["sh", "{suite}/numbers.sh", "{testcase}"]
[measure]
pattern = '^cycles: (\\d+)'
unit = "cycles"
better = "lower"
[[testcase]]
name = "worse"
[[testcase]]
name = "better"
[[testcase]]
name = "even"
[[testcase]]
name = "silent"
[[testcase]]
name = "rate"
measure = { pattern = "(\\\\d+) GB/s", unit = "GB/s", better = "higher" }
[[testcase]]
name = "other"
measure = { pattern = "(.*)", unit = "%s", better = "lower" }
[[testcase]]
name = "same"
run = ["sh", "-c", "echo cycles: 1"]
"""


def commit(folder: Path, name: str, files: dict[str, str]) -> None:
    """A revision in which the suite has these files."""
    shutil.rmtree(folder / "suite", ignore_errors=True)
    (folder / "suite").mkdir()
    for file, text in files.items():
        (folder / "suite" / file).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", name)
    git(folder, "tag", name)


@pytest.fixture
def project(cli: CommandLine, tmp_path: Path) -> Path:
    """An empty repository in which commands are run."""
    cli.cwd = tmp_path / "project"
    cli.cwd.mkdir()
    cli.env |= {
        "TILEYARD_HOME": str(tmp_path / "home"),
        "TILEYARD_LOCK_DIR": str(tmp_path / "locks"),
    }
    git(cli.cwd, "init", "-q", "-b", "main")
    return cli.cwd


def programs(work: dict[str, int], start: str, wrong: str = "7") -> dict[str, str]:
    """A suite of these testcases, each with a program that does so much."""
    cases = "".join(f'[[testcase]]\nname = "{name}"\ncase = [{{ name = "a" }}]\n' for name in work)
    sources = {
        f"{name}.c": SOURCE
        % ("0" if name == "same" else start, times, wrong if name == "wrong" else "7")
        for name, times in work.items()
    }
    return {"suite.toml": PROGRAMS + cases, **sources}


def rows_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each testcase, by its name."""
    return {row["case"].partition("/")[0]: row for row in document["rows"]}


def test_the_testcase_that_got_slower_is_named(cli: CommandLine, project: Path) -> None:
    """And no other; what is the same is not run, what is wrong has failed, no history of it is kept."""
    alike = dict.fromkeys(("even", "slow", "wrong", "same"), WORK)
    commit(project, "one", programs({**alike, "gone": WORK}, "0"))
    commit(project, "two", programs({**alike, "slow": WORK * 3 // 2, "new": WORK}, "1", wrong="8"))
    done = cli.run("regress", "one", "two", "suite", "--margin", "15%", "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    rows = rows_of(document)
    assert rows.pop("even")["verdict"] in ("equivalent", "inconclusive")
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "wrong": "failed",
        "gone": "missing",
        "slow": "regressed",
        "new": "new",
        "same": "unchanged",
    }
    assert rows["wrong"]["head_message"].startswith("mismatch: check step")
    assert rows["wrong"]["base_message"] == ""
    assert rows["slow"]["unit"] == "CPU ns"
    assert document["compared"] == "case"
    trials = cli.run_json("trials", "--rows", "10000")
    timed = [trial for trial in trials if trial["measurement"]]
    assert {trial["case"].partition("/")[0] for trial in timed} == {"even", "slow", "wrong"}
    assert cli.run("history", "--tail").returncode == 2


def test_ctrl_c_leaves_nothing_half_done(cli: CommandLine, project: Path) -> None:
    """What runs is finished, and no folder of this run stays."""
    commit(project, "one", programs({"slow": WORK}, "0"))
    commit(project, "two", programs({"slow": WORK}, "1"))
    process = cli.start("regress", "one", "two", "suite", "--margin", "0.01%")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("regress one")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list((cli.home / "tmp").iterdir()) == []
    assert (cli.home / "sides").is_dir()
    assert not list((cli.home / "sides").glob("tmp-*"))


def numbers(worse: int, better: int, rate: int, silent: str) -> str:
    """A script that prints each testcase's number."""
    return (
        f"case $1 in worse) echo cycles: 7; echo cycles: {worse};; better) echo cycles: {better};; "
        f"rate) echo {rate} GB/s;; silent) echo {silent};; other) echo 5;; *) echo cycles: 10;; esac\n"
    )


def test_a_number_that_is_printed_is_compared_in_place_of_time(
    cli: CommandLine, project: Path
) -> None:
    """An exact one is decided by the first look; more may be better; different meanings are not compared."""
    base = {"suite.toml": PRINTED % "s", "numbers.sh": numbers(1000, 1000, 100, "cycles: 5")}
    commit(project, "one", base)
    head = {"suite.toml": PRINTED % "ms", "numbers.sh": numbers(1010, 900, 90, "nothing")}
    commit(project, "two", head)
    command = ("regress", "one", "two", "suite/suite.toml", "--margin", "0.5%")
    done = cli.run(*command, "--json")
    assert done.returncode == 1, done.stderr
    rows = rows_of(json.loads(done.stdout))
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "silent": "failed",
        "other": "failed",
        "worse": "regressed",
        "rate": "regressed",
        "better": "improved",
        "even": "equivalent",
        "same": "unchanged",
    }
    worse, rate = rows["worse"], rows["rate"]
    assert (worse["base"], worse["head"], worse["unit"], worse["better"]) == (
        1000,
        1010,
        "cycles",
        "lower",
    )
    assert worse["ratio"] == {
        "ratio": pytest.approx(1.01),
        "low": pytest.approx(1.01),
        "high": pytest.approx(1.01),
        "processes": 4,
    }
    assert (rate["unit"], rate["better"]) == ("GB/s", "higher")
    assert rate["ratio"]["ratio"] == pytest.approx(0.9)
    assert "head: runtime_error: printed no line like" in f"head: {rows['silent']['head_message']}"
    assert (
        "base in s (lower is better) and head in ms (lower is better)" in rows["other"]["message"]
    )
    shown = cli.run(*command, "--select", "rate").stdout
    assert "100 GB/s -> 90 GB/s" in shown
    assert "1 case: 1 regressed" in shown


def test_bad_input_is_one_line(cli: CommandLine, project: Path) -> None:
    """With exit status 2, whether the command's own process finds it or the engine, which reads suites."""
    git(project, "commit", "-q", "--allow-empty", "-m", "none")
    git(project, "tag", "none")
    kernels = '[[testcase]]\nname = "k"\nfile = "k.py"\ncase = [{ name = "a" }]\n'
    commit(project, "kernels", {"suite.toml": f'name = "k"\n{kernels}', "k.py": ""})
    commit(project, "two", programs({"b": 1}, "0"))
    commit(project, "one", programs({"a": 1}, "0"))
    early = {
        ("one", ".", "gone"): "neither side has a suite gone",
        ("none", ".", "suite"): ") has no suite suite",
        ("nowhere", ".", "suite"): "nowhere is not a git revision of",
        ("one", ".", "suite", "suite/suite.toml"): "suite is a suite, and one suite is compared",
        ("one", ".", "suite", "--all-configs"): "--all-configs has no effect with a suite",
        ("one", ".", "k.py", "--select", "a"): "--select has no effect without a suite",
        ("one", ".", "/"): "/ is in no git repository",
    }
    late = {
        ("one", "two", "suite"): "nothing can be compared: base has 1 case and head has 1 case",
        ("one", ".", "suite", "--select", "absent"): "suite.toml: --select absent matches none",
        ("one", "kernels", "suite"): "k/a of ",
    }
    for words, expected in (early | late).items():
        run = cli.run_here if words in early else cli.run
        done = run("regress", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), words
        assert expected in done.stderr


def test_steps_of_a_revision_find_its_modules(cli: CommandLine, project: Path) -> None:
    """Also the command that lists cases: the project's part of the module path is the checkout's."""
    suite = (
        'name = "s"\nlist = ["{python}", "-m", "lister"]\n'
        'run = ["{python}", "-c", "import lister; print(\'n:\', lister.NUMBER)"]\n'
        'measure = { pattern = "n: (.*)", unit = "n", better = "lower" }\n'
    )
    for name, number in (("one", 3), ("two", 4)):
        module = f'NUMBER = {number}\nif __name__ == "__main__": print(\'{{"name": "{name}"}}\')\n'
        both = module.replace(f'"{name}"', '"a"')
        commit(project, name, {"suite.toml": suite, "lister.py": both})
    cli.env["PYTHONPATH"] = str(project / "suite")
    (row,) = cli.run_json("regress", "one", "two", "suite")["rows"]
    assert (row["verdict"], row["base"], row["head"]) == ("regressed", 3, 4)


LOST = """
name = "lost"
run = ["sh", "{suite}/run.sh", "{python}"]
measure = { pattern = "n: (.*)", unit = "n", better = "lower" }
[[testcase]]
name = "a"
[[testcase]]
name = "b"
"""
RUN = """
echo run >> PLACE/runs
if [ $(wc -l < PLACE/runs) -eq 9 ]; then "$1" PLACE/lose.py; fi
echo n: NUMBER
"""
LOSE = """
import pathlib, psutil
pathlib.Path("PLACE/gone").touch()
for process in psutil.process_iter(["cmdline"]):
    if {"tileyard.workers.runner", "PLACE/home"} <= set(process.info["cmdline"] or ()):
        process.kill()
"""
DECLARED = """
[[device]]
name = "npu:0"
id = "0000:c1:00.0"
probe = ["sh", "-c", "[ ! -e PLACE/gone ]"]
"""


def test_a_device_that_disappears_is_no_regression(
    cli: CommandLine, project: Path, tmp_path: Path
) -> None:
    """In a program's ninth run, with all that uses it: no case is blamed, and nobody holds it afterwards."""

    def place(text: str, number: str = "") -> str:
        return text.replace("PLACE", str(tmp_path)).replace("NUMBER", number)

    for name, number in (("one", "3"), ("two", "4")):
        commit(project, name, {"suite.toml": LOST, "run.sh": place(RUN, number)})
    (tmp_path / "lose.py").write_text(place(LOSE))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "devices.toml").write_text(place(DECLARED))
    cli.env["TILEYARD_HOST_CONFIG"] = str(tmp_path / "etc")
    command = ("regress", "one", "two", "suite", "--devices", "npu:0", "--queue-limit", "1s")
    process = cli.start(*command, "--json")  # whose runner is a program with a command line
    said, complaint = process.communicate(timeout=240)
    assert (process.returncode, bool(said)) == (3, True), complaint
    assert {row["verdict"] for row in rows_of(json.loads(said)).values()} == {"not_run"}
    (device,) = (one for one in cli.run_json("devices")["devices"] if one["name"] == "npu:0")
    assert (device["holder"], device["queue"]) == (None, 0)
    assert list((cli.home / "tmp").iterdir()) == []


MEETING = """
name = "meeting"
run = ["sh", "{suite}/run.sh", "{testcase}"]
measure = { pattern = "n: (.*)", unit = "n", better = "lower" }
[[testcase]]
name = "left"
[[testcase]]
name = "right"
"""
MEET = """
touch PLACE/running.$1
trap 'rm -f PLACE/running.$1' EXIT
for i in $(seq 4); do
  [ -e PLACE/running.left ] && [ -e PLACE/running.right ] && touch PLACE/met
  [ -e PLACE/met ] && break
  sleep 0.1
done
echo n: NUMBER
"""
BOARDS = "".join(
    f"""
[[device]]
name = "npu:{number}"
id = "0000:c{number}:00.0"
identity = "{identity}"
probe = ["true"]
"""
    for number, identity in enumerate(("board v1", "board v1", "board v2"))
)


def test_pairs_are_timed_on_several_devices_at_the_same_time(
    cli: CommandLine, project: Path, tmp_path: Path
) -> None:
    """Programs of both cases run at one time. A device of another kind is refused, by name."""
    for name, number in (("one", "3"), ("two", "4")):
        script = MEET.replace("PLACE", str(tmp_path)).replace("NUMBER", number)
        commit(project, name, {"suite.toml": MEETING, "run.sh": script})
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "devices.toml").write_text(BOARDS)
    cli.env["TILEYARD_HOST_CONFIG"] = str(tmp_path / "etc")
    command = ("regress", "one", "two", "suite", "--json", "--devices", "npu:0", "--devices")
    done = cli.run(*command, "npu:1")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert [row["verdict"] for row in document["rows"]] == ["regressed", "regressed"]
    assert (tmp_path / "met").exists()
    assert document["device"] == "npu:0, npu:1"
    assert [(one["device"], one["is_alarm"]) for one in document["controls"]] == [
        ("npu:0", False),
        ("npu:1", False),
    ]
    refused = cli.run(*command, "npu:2")
    assert refused.returncode == 2
    assert "npu:0 is board v1, and npu:2 is board v2" in refused.stderr


def test_results_name_the_commit_of_their_files(project: Path, cli: CommandLine) -> None:
    """Those of ``test`` and ``tune``, as those of a comparison, with the number of files that differ. A study
    imports its file beside git, and after another commit of the same files it reuses all.
    """
    suite = 'name = "one"\n[run]\nargv = ["true"]\n[[testcase]]\nname = "t"\n'
    kernel = (KERNELS / "faults.py").read_text() + "open('imported', 'w').close()\n"
    ignored = "__pycache__"  # which the import makes
    commit(project, "one", {"suite.toml": suite, "kernels.py": kernel, ".gitignore": ignored})
    sha = git(project, "rev-parse", "HEAD").strip()
    assert cli.run("test", "suite").returncode == 0
    late = project.parent / "bin" / "git"
    late.parent.mkdir()
    late.write_text(LATE_GIT % shutil.which("git"))
    late.chmod(0o755)
    cli.env["PATH"] = f"{late.parent}:{os.environ['PATH']}"
    healthy = ("tune", "suite/kernels.py", "--config", "fault=none", "--trials", "1")
    assert cli.run(*healthy).returncode == 0
    found = {one["target"]: one["revision"] for one in cli.run_json("trials")}
    assert found == {"command": sha, "cpu": f"{sha} with changes in 1 file"}
    git(project, "commit", "-q", "--allow-empty", "-m", "two")
    assert [one["reused"] for one in cli.run_json(*healthy)["trials"]] == [True]
