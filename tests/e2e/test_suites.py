"""Suites of programs and kernels, run as a user runs them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.own_process import refuse_run

from tileyard.base.settings import read_settings

pytestmark = pytest.mark.slow

SUITE = """
name = "demo"
limits = { run_s = 5 }

[build]
argv = ["sh", "-c", "echo $* > {out}/built; echo x >> {suite}/builds", "sh", "{targets}"]
target = "{testcase}"
inputs = ["source.txt"]

[golden]
argv = ["sh", "-c", "echo golden of {case} > {out}/golden.txt; echo x >> {suite}/goldens"]

[run]
argv = ["sh", "-c", "cat {build}/built golden.txt > output.txt; echo {device} >> {suite}/devices"]

[check]
argv = ["sh", "-c", "grep -q golden output.txt || exit 2"]

[[testcase]]
name = "rows"
[[testcase.case]]
name = "one"
[[testcase.case]]
name = "two"

[[testcase]]
name = "columns"
[[testcase.case]]
name = "one"
dtype = "float16"
"""

HANG = """
[[testcase]]
name = "hang"
run = { argv = ["sleep", "600"] }
limits = { run_s = 0.5 }
[[testcase.case]]
name = "one"
"""


@pytest.fixture
def suite(cli: CommandLine) -> Path:
    """A suite that passes, in the directory in which commands are run."""
    (cli.cwd / "source.txt").write_text("first")
    path = cli.cwd / "suite.toml"
    path.write_text(SUITE)
    return path


def outcomes(summary: Path) -> dict[str, str]:
    """How each case ended, by its id."""
    found = json.loads(summary.read_text())
    return {verdict["case"]: verdict["outcome"] for verdict in found["result"]["verdicts"]}


def green(cli: CommandLine, *options: str) -> list[dict[str, Any]]:
    """The verdicts of a run that has to end with exit status 0."""
    done = cli.run("test", "suite.toml", *options, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    verdicts: list[dict[str, Any]] = json.loads(done.stdout)["verdicts"]
    return verdicts


def count(path: Path) -> int:
    """How many lines a step has written there."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_suite_of_programs(cli: CommandLine, suite: Path) -> None:
    """Each case is built, given its golden result, run and checked; what was made is made once. Content
    decides: touching a file builds nothing, and an edit builds again, of a shared build only the targets that
    are needed.
    """
    first = cli.run("test", "suite.toml", "--summary", "first.json")
    os.utime(cli.cwd / "source.txt")
    second = cli.run("test", "suite.toml", "--summary", "second.json")
    expected = {"rows/one": "passed", "rows/two": "passed", "columns/one": "passed"}
    assert (first.returncode, second.returncode) == (0, 0), first.stdout + first.stderr
    assert outcomes(cli.cwd / "first.json") == outcomes(cli.cwd / "second.json") == expected
    assert count(cli.cwd / "builds") == 1
    assert count(cli.cwd / "goldens") == 2  # that of case one is the same in both testcases
    assert count(cli.cwd / "devices") == 6
    (cli.cwd / "source.txt").write_text("second")
    (verdict,) = green(cli, "--select", "rows/one", "--keep-work")
    (output,) = (cli.home / "work").glob("*/rows/one/data/output.txt")
    assert (verdict["case"], count(cli.cwd / "builds")) == ("rows/one", 2)
    assert output.read_text() == "rows\ngolden of one\n"


SHARED = """
name = "shared"

[golden]
argv = ["sh", "-c", "mkdir a b over; for d in a b over; do echo data of $d > $d/in; done; \
echo x >> {suite}/goldens"]
cwd  = "{out}"
part = "{case}"

[run]
argv = ["sh", "-c", "ls -F > {case}/out; [ {case} != over ] || echo spoilt > over/in"]

[check]
argv = ["sh", "-c", "[ -L {case}/in ] && [ $(cat {case}/out) = {case}/ ] && grep -q {case} {case}/in"]

[[testcase]]
name = "t"
case = [{ name = "a" }, { name = "b" }, { name = "over" }, { name = "without" }]
"""


def test_data_of_a_whole_testcase_are_made_once_and_linked(cli: CommandLine) -> None:
    """Each case has its own part of them; one without, or that spoils them, fails alone, also later."""
    (cli.cwd / "suite.toml").write_text(SHARED)
    sound = ("test", "suite.toml", "--select", "t/a", "--select", "t/b")
    assert cli.run(*sound).returncode == 0
    done = cli.run("test", "suite.toml", "--summary", "summary.json")
    assert outcomes(cli.cwd / "summary.json") == {
        "t/a": "passed",
        "t/b": "passed",
        "t/over": "runtime_error",
        "t/without": "runtime_error",
    }, done.stdout
    assert "there is no file in 'without', only in 'a', 'b', 'over'" in done.stdout
    assert count(cli.cwd / "goldens") == 1
    assert cli.run(*sound).returncode == 0


def test_logs_are_copied_where_they_are_asked_for(cli: CommandLine) -> None:
    """One file per case, with all attempts; an earlier run's are gone, and no folder is not a run.
    ``{python}`` stands for the interpreter that runs Tileyard.
    """
    text = 'name = "s"\nrun = ["sh", "-c", "echo {case} ran; [ {case} = a ]"]\n'
    text += '[[testcase]]\nname = "t"\ncase = [{ name = "a" }, { name = "b" }]\n'
    text += '[[testcase]]\nname = "python"\n'
    text += 'run = ["{python}", "-c", "import sys; print(sys.executable)"]\n'
    (cli.cwd / "suite.toml").write_text(text)
    (cli.cwd / "out/logs/t").mkdir(parents=True)
    (cli.cwd / "out/logs/t/b.log").write_text("b ran\n")
    assert cli.run("test", "suite.toml", "--retries", "1", "--logs", "out/logs").returncode == 1
    logs = {
        str(path.relative_to(cli.cwd)): path.read_text() for path in cli.cwd.glob("out/**/*.log")
    }
    assert sys.executable in logs.pop("out/logs/python/default.log").splitlines()
    assert {path: text.count(" ran\n") for path, text in logs.items()} == {
        "out/logs/t/a.log": 1,
        "out/logs/t/b.log": 2,
    }
    (cli.cwd / "file").write_text("")
    done = cli.run_here("test", "suite.toml", "--logs", "file/logs")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot write file/logs: Not a directory" in done.stderr


SOURCES = """
name = "sources"

[build]
argv = ["sh", "-c", "echo $* >> builds; for t; do cp $t.c $0; done", "{out}", "{targets}"]
runs = ["cp"]
target = "{testcase}"
target_inputs = ["{testcase}.c"]

[run]
runs = ["grep"]
argv = ["sh", "-c", "grep -q {testcase} {build}/{testcase}.c && echo {testcase} >> {suite}/runs"]

[[testcase]]
name = "a"
[[testcase]]
name = "b"
[[testcase]]
name = "c"
"""


def test_an_edited_source_is_built_and_run_alone(cli: CommandLine) -> None:
    """What has changed is built in one call; the rest is neither built nor run: an earlier run proved it."""
    (cli.cwd / "suite.toml").write_text(SOURCES)
    for name in "abc":
        (cli.cwd / f"{name}.c").write_text(name)
    steps = [("abc", "a b c", "abc"), ("ac", "a c", "ac")]
    for edited, built, ran in steps:
        for name in ("builds", "runs"):
            (cli.cwd / name).write_text("")
        for name in edited:
            with (cli.cwd / f"{name}.c").open("a") as file:
                file.write("\nedited")
        done = cli.run("test", "suite.toml", "--changed", "any")
        assert done.returncode == 0, done.stdout + done.stderr
        assert (cli.cwd / "builds").read_text().splitlines() == [built]
        assert sorted((cli.cwd / "runs").read_text().split()) == list(ran)


EARLY = """
name = "early"
limits = { build_s = 20 }

[build]
argv = ["ninja", "-C", "{cache}", "-f", "{suite}/build.ninja", "-k", "0", "-j", "3", "{targets}"]
target = "{testcase}"
products = ["bin/{testcase}", "{testcase}.txt"]
inputs = ["build.ninja"]
target_inputs = ["{testcase}.in"]

[run]
argv = ["sh", "-c", "cat {build}/bin/{testcase} {build}/{testcase}.txt >> {suite}/ran"]

[[testcase]]
name = "a"
[[testcase]]
name = "b"
[[testcase]]
name = "c"
"""
NINJA = """
rule copy
  command = cat $in > $out
rule wait
  command = for i in $$(seq 999); do test -s SUITE/ran && exec cp $in $out; sleep 0.01; done; exit 1
build bin/a: copy SUITE/a.in
build bin/b: wait SUITE/b.in
build bin/c: copy SUITE/c.in
build a.txt: copy SUITE/a.in
build b.txt: copy SUITE/b.in
build c.txt: copy SUITE/c.in
build a: phony bin/a a.txt
build b: phony bin/b b.txt
build c: phony bin/c c.txt
"""


def test_a_case_starts_when_its_own_target_is_built(cli: CommandLine) -> None:
    """A target is built once another ran; one that cannot be fails its case, later only it is built."""
    (cli.cwd / "suite.toml").write_text(EARLY)
    (cli.cwd / "build.ninja").write_text(NINJA.replace("SUITE", str(cli.cwd)))
    for name in "ab":
        (cli.cwd / f"{name}.in").write_text(f"{name}\n")
    (cli.cwd / "c.in").mkdir()  # cat cannot read it
    (cli.cwd / "c.in" / "file").write_text("")
    done = cli.run("test", "suite.toml", "--summary", "summary.json")
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = json.loads((cli.cwd / "summary.json").read_text())["result"]["verdicts"]
    outcomes = [(one["case"], one["outcome"]) for one in verdicts]
    assert outcomes == [
        ("a/default", "passed"),
        ("b/default", "passed"),
        ("c/default", "compile_error"),
    ]
    assert sorted((cli.cwd / "ran").read_text().split()) == ["a", "a", "b", "b"]
    (events,) = (cli.home / "runs").glob("*.jsonl")
    told = [json.loads(line) for line in events.read_text().splitlines()]
    counts = [(one["built"], one["total"]) for one in told if one["type"] == "targets_built"]
    assert list(dict.fromkeys(counts)) == [(0, 3), (1, 3), (2, 3)]

    shutil.rmtree(cli.cwd / "c.in")
    (cli.cwd / "c.in").write_text("c\n")
    (cli.cwd / "a.in").write_text("edited\n")
    assert cli.run("test", "suite.toml").returncode == 0
    assert (cli.cwd / "ran").read_text().split()[4:].count("edited") == 2


@pytest.mark.slow
def test_a_build_of_several_targets_may_take_the_limit_of_each(cli: CommandLine) -> None:
    """Two seconds for three targets that take one second each are enough: they are built in one call."""
    text = SOURCES.replace("for t; do", "for t; do sleep 1;").replace(
        "\n[build]", "\nlimits = { build_s = 2 }\n[build]"
    )
    (cli.cwd / "suite.toml").write_text(text)
    for name in "abc":
        (cli.cwd / f"{name}.c").write_text(name)
    done = cli.run("test", "suite.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (cli.cwd / "builds").read_text().splitlines() == ["a b c"]


FAILS = """
[[testcase]]
name = "bad"
check = ["sh", "-c", "exit 2"]
[[testcase.case]]
name = "one"
"""
HOT = r"""
name = "hot"

[[testcase]]
name = "hot"
check = ["sh", "-c", "test {case} = two || echo > {suite}/judged"]
[testcase.run.hot]
argv = ["sh", "{suite}/hot.sh", "{suite}/judged", "{cases}"]
began = 'begin (?P<case>\S+)'
ended = 'end (?P<case>\S+) (?P<verdict>\w+)'
verdicts = { ok = "passed" }
[testcase.run]
argv = ["true"]
[[testcase.case]]
name = "one"
[[testcase.case]]
name = "two"
"""
HOT_PROGRAM = """
echo begin one
echo end one ok
echo begin two
read judged < $1
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    test -d ../../one && sleep 0.01
done
test -d ../../one && echo end two ok
"""


def worked(cli: CommandLine) -> set[str]:
    """The cases whose work folders are left, of all runs; those of second attempts end in ``.2``."""
    root = cli.home / "work"
    found = (path.relative_to(root).parts for path in root.glob("*/*/*"))
    return {"/".join(case) + Path(run).suffix for run, *case in found}


def test_only_failed_cases_keep_their_folders(cli: CommandLine, suite: Path) -> None:
    """Of those that passed, or were proven before, nothing is left but what was asked for."""
    suite.write_text(SUITE + FAILS)
    for options in (("--retries", "1"), ("--changed", "any")):
        done = cli.run("test", "suite.toml", *options)
        assert done.returncode == 1, done.stderr
        assert worked(cli) == {"bad/one", "bad/one.2"}
    rerun = cli.run("test", "suite.toml", "--rerun-failed")
    assert "1  mismatch" in rerun.stdout, rerun.stdout + rerun.stderr
    green(cli, "--keep-work", "--select", "rows/*")
    assert worked(cli) == {"bad/one", "bad/one.2", "rows/one", "rows/two"}


def test_a_hot_process_keeps_the_folder_that_it_began_in(cli: CommandLine) -> None:
    """The first of its cases is judged while it runs the next; once all is over the folders go."""
    (cli.cwd / "suite.toml").write_text(HOT)
    (cli.cwd / "hot.sh").write_text(HOT_PROGRAM)
    os.mkfifo(cli.cwd / "judged")
    verdicts = green(cli, "--slots", "1")
    assert [verdict["outcome"] for verdict in verdicts] == ["passed", "passed"]
    assert list((cli.home / "work").iterdir()) == []


HOT_CHECKS = r"""
name = "hot"
run = ["sh", "-c", "echo {case} >> {suite}/ran; echo {case} > made"]
[check]
argv = ["false"]
[check.hot]
argv = ["sh", "{suite}/check.sh", "{suite}", "{cases}", "{works}"]
began = '^begin (?P<case>\S+)'
ended = '^end (?P<case>\S+) (?P<verdict>\w+)'
verdicts = { ok = "passed", bad = "mismatch" }
[[testcase]]
name = "t"
case = [
    { name = "a" }, { name = "b" }, { name = "c" }, { name = "crash" },
    { name = "d" }, { name = "e" }, { name = "f" }, { name = "wrong" },
]
"""
CHECKER = """
suite=$1; shift
echo checks >> $suite/checkers
while test $(wc -l < $suite/ran) -lt 8; do sleep 0.01; done
cases=$(($# / 2))
for number in $(seq $cases); do
    eval "case=\\${$number} work=\\${$((number + cases))}"
    echo begin $case
    test $case = crash && exit 7
    test $case = "$(cat $work/made)" && test $case != wrong && echo end $case ok || echo end $case bad
done
"""


def test_one_process_checks_all_cases_that_are_ready(cli: CommandLine) -> None:
    """It begins when the one before ends; each case has a verdict; after a crash another checks the rest."""
    (cli.cwd / "suite.toml").write_text(HOT_CHECKS)
    (cli.cwd / "check.sh").write_text(CHECKER)
    done = cli.run("test", "suite.toml", "--summary", "summary.json", "--logs", "logs")
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = json.loads((cli.cwd / "summary.json").read_text())["result"]["verdicts"]
    found = {one["case"].removeprefix("t/"): (one["outcome"], one["message"]) for one in verdicts}
    assert found == {
        **dict.fromkeys("abcdef", ("passed", "")),
        "crash": ("runtime_error", "check step: sh ended with exit code 7: begin crash"),
        "wrong": ("mismatch", "check step: its process said: end wrong bad"),
    }
    assert len((cli.cwd / "checkers").read_text().splitlines()) <= 5
    log = (cli.cwd / "logs/t/wrong.log").read_text()
    assert log.index("==== run: ") < log.index("==== check: ") < log.index("end wrong bad")


def test_git_leaves_results_out(cli: CommandLine, suite: Path) -> None:
    """Of a new home, and of one that an older version made; a file that is there already stays."""
    ignore = cli.home / ".gitignore"
    asked = ["git", "-C", str(cli.cwd), "status", "--porcelain", "--untracked-files=all", "home"]
    subprocess.run(["git", "init", "--quiet", str(cli.cwd)], check=True)
    green(cli, "--select", "rows/one")
    for before in (None, "old", "# mine\n"):
        if before is not None:
            ignore.unlink()
            if before != "old":
                ignore.write_text(before)
            read_settings(cli.environment(), cli.cwd).make_home()
        found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        assert bool(found) == (before == "# mine\n")


PROVABLE = """
name = "demo"
run = ["cat", "{suite}/source.txt"]
[build]
argv = ["cp", "source.txt", "{out}"]
[golden]
argv = ["cp", "source.txt", "{out}/{testcase}"]
[[testcase]]
name = "rows"
case = [{ name = "one" }, { name = "two" }]
[[testcase]]
name = "columns"
case = [{ name = "one" }]
"""


def test_what_is_proven_is_skipped_by_name(cli: CommandLine, suite: Path) -> None:
    """A case that passed with the same content says which run has proven it, whatever ran beside it."""
    suite.write_text(PROVABLE)
    cli.run("test", "suite.toml", "--select", "rows", "--summary", "first.json")
    run = json.loads((cli.cwd / "first.json").read_text())["result"]["run"]
    done = cli.run("test", "suite.toml", "--changed", "any", "--summary", "second.json")
    found = json.loads((cli.cwd / "second.json").read_text())["result"]["verdicts"]
    expected = {
        "rows/one": ("skipped", f"proven by run {run}"),
        "rows/two": ("skipped", f"proven by run {run}"),
        "columns/one": ("passed", ""),
    }
    assert done.returncode == 0
    assert {v["case"]: (v["outcome"], v.get("message", "")) for v in found} == expected
    (cli.cwd / "source.txt").write_text("second")
    refused = refuse_run(cli, "test", "suite.toml", "--changed", "first")
    assert (refused.returncode, "there is no run 'first' (" in refused.stderr) == (2, True)
    history = [line.split() for line in cli.run_here("history", "rows/one").stdout.splitlines()]
    (oldest,) = (words for words in history if words and words[0].startswith(run))
    assert oldest[-1] == "passed"
    cli.run("test", "suite.toml", "--changed", run, "--summary", "third.json")
    assert set(outcomes(cli.cwd / "third.json").values()) == {"passed"}


USING = """
name = "demo"
[run]
argv = ["cat", "{suite}/source.txt"]
[[testcase]]
name = "same"
[[testcase]]
name = "variable"
run = { argv = ["cat", "{suite}/source.txt"], env = ["MODE"] }
[[testcase]]
name = "program"
run = ["tool", "{suite}/source.txt"]
[[testcase]]
name = "all"
inherit = true
[[testcase]]
name = "levels"
env = { LEVEL = "1", ONLY = { value = "1", steps = ["run"] } }
golden = ["cp", "{suite}/source.txt", "{out}"]
check = ["cmp", "{suite}/source.txt", "source.txt"]
"""


def test_what_a_case_uses_outside_of_its_suite_decides_whether_it_is_proven(
    cli: CommandLine, suite: Path
) -> None:
    """Programs on PATH and declared variables; what cannot be known is not proven, and says why."""
    (cli.cwd / "bin").mkdir()
    shutil.copy("/usr/bin/cat", cli.cwd / "bin" / "tool")
    suite.write_text(USING)
    path = f"{cli.cwd / 'bin'}:{os.environ['PATH']}"

    def explain(**variables: str) -> dict[str, str]:
        asked = ("test", "suite.toml", "--changed", "any", "--why", "--json")
        done = cli.run(*asked, PATH=path, **variables)
        assert done.returncode in (0, 1), done.stderr
        return {v["case"]: v["proof"] for v in json.loads(done.stdout)["verdicts"]}

    first = explain(MODE="sim")
    shutil.copy("/usr/bin/head", cli.cwd / "bin" / "tool")
    suite.write_text(USING.replace('"1"', '"2"'))
    other = explain(MODE="npu")
    said = "cannot be proven: run step: with `inherit = true` it gets every variable"
    assert first.pop("all/default") == other["all/default"] == said
    assert set(first.values()) == {"not proven: no run is known in which it passed"}
    assert other["same/default"].startswith("proven by run ")
    assert other["variable/default"].endswith(": run step: variable MODE")
    assert other["program/default"].endswith(": run step: program tool")
    told = "variable LEVEL of the golden, run and check steps; variable ONLY of the run step"
    assert other["levels/default"].endswith(f": {told}")


def test_failures_decide_the_exit_status(cli: CommandLine, suite: Path) -> None:
    """Each kind of failure is its own outcome; what ran well is untouched, though all had one device. The
    case that hangs is ended with its lease, and the others go on; after it, and after the one that crashes,
    the device is probed.
    """
    probe = ["sh", "-c", f"echo >> '{cli.cwd}/probes'"]
    (cli.cwd / "tileyard.toml").write_text(
        f'[[device]]\nname = "npu:0"\nid = "card"\nprobe = {json.dumps(probe)}\n'
    )
    suite.write_text(
        SUITE
        + HANG
        + """
[[testcase]]
name = "faults"
check = { argv = ["sh", "-c", "exit 2"] }
[[testcase.case]]
name = "wrong"

[[testcase]]
name = "crash"
run = { argv = ["sh", "-c", "kill -SEGV $$"] }
[[testcase.case]]
name = "one"

[[testcase]]
name = "golden"
golden = { argv = ["sh", "-c", "echo no data >&2; exit 1"] }
[[testcase.case]]
name = "one"

[[testcase]]
name = "build"
build = { argv = ["sh", "-c", "echo no compiler >&2; exit 1"] }
[[testcase.case]]
name = "one"
"""
    )
    done = cli.run("test", "suite.toml", "--devices", "npu:0", "--summary", "summary.json")
    assert (cli.cwd / "probes").read_text() == "\n" * 2
    expected = {
        "rows/one": "passed",
        "rows/two": "passed",
        "columns/one": "passed",
        "faults/wrong": "mismatch",
        "crash/one": "crashed",
        "hang/one": "timeout",
        "golden/one": "runtime_error",
        "build/one": "compile_error",
    }
    assert done.returncode == 1
    assert outcomes(cli.cwd / "summary.json") == expected
    assert "golden step: sh ended with exit code 1: no data" in done.stdout
    assert "no compiler" in done.stdout


def test_a_case_that_passes_in_the_end_is_flaky(cli: CommandLine, suite: Path) -> None:
    """It counts as passed, is listed, and every attempt had a folder of its own."""
    suite.write_text(
        SUITE.replace("[check]", "[old]").split("[old]")[0]
        + """
[[testcase]]
name = "flaky"
run = { argv = ["sh", "-c", "[ ! -e mark ] && [ -e {suite}/seen ] || { touch {suite}/seen mark; exit 1; }"] }
[[testcase.case]]
name = "one"
""".replace("{ touch", "{{ touch").replace("exit 1; }", "exit 1; }}")
    )
    (verdict,) = green(cli, "--retries", "1")
    assert (verdict["outcome"], verdict["is_flaky"]) == ("passed", True)
    assert [attempt["outcome"] for attempt in verdict["attempts"]] == ["runtime_error", "passed"]


def test_what_failed_is_run_again_alone(cli: CommandLine, suite: Path) -> None:
    """Until nothing of it fails; then there is nothing to select, which is no success."""
    broken = SUITE.replace('"grep -q golden output.txt || exit 2"', '"[ {testcase} != rows ]"')
    suite.write_text(broken)
    first = cli.run("test", "suite.toml")
    suite.write_text(SUITE)
    second = cli.run("test", "suite.toml", "--rerun-failed", "--summary", "second.json")
    third = refuse_run(cli, "test", "suite.toml", "--rerun-failed")
    assert (first.returncode, second.returncode, third.returncode) == (1, 0, 2)
    assert outcomes(cli.cwd / "second.json") == {"rows/one": "passed", "rows/two": "passed"}
    assert "no case of it failed when it was last run" in third.stderr


def test_shards_share_a_suite(cli: CommandLine, suite: Path) -> None:
    """Every case is in one of them, whatever the first one taught the store of the second."""
    for shard in ("1/2", "2/2"):
        done = cli.run("test", "suite.toml", "--shard", shard, "--summary", f"{shard[0]}.json")
        assert done.returncode == 0, done.stderr
    found = [outcomes(cli.cwd / f"{number}.json") for number in (1, 2)]
    expected = {"rows/one", "rows/two", "columns/one"}
    assert set(found[0]) | set(found[1]) == expected
    assert not set(found[0]) & set(found[1])


NUMBERS = "{device} {device_physical} $ASCEND_RT_VISIBLE_DEVICES $TASK_DEVICE"
PAIR = """
[[testcase]]
name = "pair"
devices = 2
golden = ["sh", "-c", "echo > {out}/data"]
run = ["sh", "-c", "echo NUMBERS >> {suite}/pairs"]
check = ["true"]
case = [{ name = "one" }, { name = "two" }]
""".replace("NUMBERS", NUMBERS)


def test_programs_on_two_devices_at_once(cli: CommandLine, suite: Path) -> None:
    """Both are leased together and named to the program; other cases get one of them at a time. Programs
    number what the class's mask leaves from 0, and get the number on the host beside it; the first run says
    so. Without a mask there is one number.
    """
    cards = [f'[[device]]\nname = "npu:{n}"\nid = "card-{n}"\nidentity = "card"\n' for n in (3, 5)]
    (cli.cwd / "tileyard.toml").write_text("".join(cards))
    names = f"echo {NUMBERS} >>"
    suite.write_text(SUITE.replace("echo {device} >>", names) + PAIR)
    done = cli.run("test", "suite.toml", "--devices", "npu")
    assert done.returncode == 0, done.stderr
    warned = "{device} and TASK_DEVICE count from 0 what ASCEND_RT_VISIBLE_DEVICES leaves visible"
    assert warned in done.stdout
    told = set((cli.cwd / "devices").read_text().splitlines())
    assert told <= {"0 3 3 0", "0 5 5 0"}
    assert told
    assert (cli.cwd / "pairs").read_text() == "0,1 3,5 3,5 0,1\n" * 2
    (cli.cwd / "tileyard.toml").write_text("[classes.npu]\nmask = false\n" + "".join(cards))
    (cli.cwd / "pairs").unlink()
    again = cli.run("test", "suite.toml", "--devices", "npu", "--json")
    verdicts = json.loads(again.stdout)["verdicts"]
    assert warned not in again.stdout + again.stderr
    assert (cli.cwd / "pairs").read_text() == "3,5 3,5 3,5\n" * 2
    devices = {v["case"]: v["attempts"][0]["device"] for v in verdicts}
    assert {devices.pop("pair/one"), devices.pop("pair/two")} == {"npu:3,5"}
    assert set(devices.values()) <= {"npu:3", "npu:5"}
    assert cli.run("bundle", "suite.toml", "--select", "pair", "-o", "pair.tyb").returncode == 0
    packed = cli.run_json("test", "--from", "pair.tyb", "--devices", "npu")["verdicts"]
    assert [v["attempts"][0]["device"] for v in packed] == ["npu:3,5"] * 2
    refused = refuse_run(cli, "test", "suite.toml", "--devices", "npu:3")
    assert refused.returncode == 2
    assert "case pair/one needs 2 devices of one kind, and there are npu:3" in refused.stderr


def test_kernels_of_a_file(knowing: CommandLine) -> None:
    """A testcase may be a kernel with arguments; it is checked against its reference."""
    cli = knowing
    (cli.cwd / "suite.toml").write_text(
        f"""
name = "kernels"
[[testcase]]
name = "softmax"
file = "{ROOT / "examples" / "softmax.py"}"
[[testcase.case]]
name = "flat"
arguments = {{ M = 16, N = 64 }}
"""
    )
    found = {v["case"]: v["outcome"] for v in green(cli)}
    assert found == {"softmax/flat": "passed"}


def test_ctrl_c_finishes_what_runs(cli: CommandLine, suite: Path) -> None:
    """The rest was never run, and says so; the exit status is that of an interruption."""
    suite.write_text(
        SUITE.replace("[run]\nargv", "[run]\nlimit_s = 60\nargv").replace(
            '"cat {build}', '"touch {suite}/started; sleep 1; cat {build}'
        )
    )
    process = cli.start("test", "suite.toml", "--slots", "1", "--summary", "summary.json")
    while not (cli.cwd / "started").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate()
    found = sorted(outcomes(cli.cwd / "summary.json").values())
    assert process.returncode == 130
    assert found == ["not_run", "not_run", "passed"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("none.toml",), "there is no suite none.toml"),
        (("suite.toml", "--policy", "nightly"), "there is no policy 'nightly'"),
        (("suite.toml", "--select", "rowz"), "--select rowz matches none of its 3 cases"),
        (("suite.toml", "--shard", "3/2"), "there is no shard 3 of 2"),
        (("suite.toml", "--split", "soon"), "'soon' is not a duration"),
        (("suite.toml", "--devices", "npu:9"), "there is no device 'npu:9'"),
        (("suite.toml", "--budget", "1ms"), "no case fits into a budget"),
        (("suite.toml", "--durations", "none.csv"), "cannot read"),
        (("suite.toml", "--durations-pattern", "x"), "has no effect without --durations"),
        (
            ("suite.toml", "--durations", "source.txt", "--durations-pattern", "(?P<casse>x)"),
            "unknown group (?P<casse>...) (did you mean 'case'",
        ),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: tuple[str, ...], expected: str, cli: CommandLine, suite: Path
) -> None:
    """One line, exit status 2, and nothing was run."""
    done = refuse_run(cli, "test", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert expected in done.stderr
    assert not (cli.cwd / "devices").exists()


FIRST = """
name = "first"
[[testcase]]
name = "rows"
run = { argv = ["sh", "-c", "until [ -e {suite}/beside ]; do sleep 0.01; done; [ {case} != bad ] || exit 9; \
until [ -e {suite}/logs/rows/bad.log ]; do sleep 0.01; done"] }
case = [{ name = "bad" }, { name = "c" }, { name = "d" }, { name = "e" }, { name = "f" }, { name = "g" }, \
{ name = "h" }]
[[testcase]]
name = "beside"
run = { argv = ["sh", "-c", "echo > {suite}/beside; until [ -e {suite}/logs/rows/bad.log ]; do sleep 0.01; \
done; $END"] }
[[testcase]]
name = "known"
run = { argv = ["false"] }
case = [{ name = "a" }, { name = "b" }]
[[testcase]]
name = "fine"
run = { argv = ["true"] }
[[quarantine]]
cases = "known/*"
owner = "ana"
reason = "known"
until = 9999-12-31
"""


@pytest.mark.sweep(1)
@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$"])
def test_a_run_that_ends_at_its_first_failure_fails(cli: CommandLine, end: str) -> None:
    """With the same exit status whatever runs beside it, and what is not begun is skipped."""
    (cli.cwd / "suite.toml").write_text(FIRST.replace("$END", end))
    options = ("--slots", "2", "--split", "off", "--summary", "first.json", "--junit", "junit.xml")
    first = ("test", "suite.toml", "-x", "-k", "rows or beside", "--logs", "logs", *options)
    done = cli.run(*first)
    assert done.returncode == 1, done.stdout + done.stderr
    found = outcomes(cli.cwd / "first.json")
    assert found.pop("rows/bad") == "runtime_error"
    assert found.pop("beside/default") in ("passed", "runtime_error", "crashed")
    assert found["rows/h"] == "not_run"
    assert set(found.values()) <= {"passed", "not_run"}
    skipped = "skipped: rows/bad failed, and --fail-fast ends the run there"
    assert skipped in done.stdout
    assert skipped in (cli.cwd / "junit.xml").read_text()


def test_cases_in_quarantine_end_no_run(cli: CommandLine) -> None:
    """Their failures are none of the run's; each case has its line as it ends."""
    (cli.cwd / "suite.toml").write_text(FIRST)
    done = cli.run("test", "suite.toml", "-x", "-v", "--slots", "1", "-k", "known or fine")
    assert done.returncode == 0, done.stdout + done.stderr
    begun = ("passed        fine/default", "runtime_error known/a: ", "runtime_error known/b: ")
    assert all(f"\n{line}" in done.stdout for line in begun)


def test_cases_are_listed(cli: CommandLine, suite: Path) -> None:
    """Those that would run, one a line, in the order of the suite; nothing is built or kept."""
    listed = [
        cli.run_here("test", "suite.toml", "--list", *options).stdout.split()
        for options in ((), ("-k", "one and not columns"), ("--shard", "1/1", "--skip", "rows"))
    ]
    every = ["rows/one", "rows/two", "columns/one"]
    assert listed == [every, ["rows/one"], ["columns/one"]]
    assert not cli.home.exists()
    cli.run("test", "suite.toml", "-k", "rows/two")
    refused = cli.run_here("test", "suite.toml", "--list", "--rerun-failed")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_reports_are_written(cli: CommandLine, suite: Path) -> None:
    """JUnit XML, JSON, and GitHub's page and annotations if it asks; output and names are no commands."""
    text = SUITE.replace("|| exit 2", "&& echo '##[stop-commands]tok' && exit 2")
    suite.write_text(text.replace('name = "one"', 'name = "##[add-mask]one"'))
    cli.env.update(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(cli.cwd / "page.md"))
    with cli.start(
        "test", "suite.toml", "--junit", "junit.xml", "--summary", "summary.json"
    ) as run:
        out, err = run.communicate()
    assert run.returncode == 1
    assert 'failures="3"' in (cli.cwd / "junit.xml").read_text()
    assert json.loads((cli.cwd / "summary.json").read_text())["exit_status"] == 1
    assert "rows/two" in (cli.cwd / "page.md").read_text()
    assert "::error file=" in out
    assert "##[" not in out + err
    assert "##\\u005bstop-commands]tok" in out
