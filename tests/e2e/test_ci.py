"""``tileyard ci`` from the outside, and the example workflows run as GitHub would run them."""

import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import KERNELS, ROOT, CommandLine
from tests.e2e.hosted import WORKFLOWS, Hosted, building_path
from tests.e2e.lab_queue import serve_queue
from tests.e2e.own_process import OwnProcess, in_a_process
from tests.e2e.repositories import git
from tests.unit.verbs.test.plan.planted import plant
from tests.warm_python import warm

from tileyard.base.model import Outcome, Trial
from tileyard.store.trials import TrialStore

SUITE = """
name = "sums"
run = ["true", "{suite}/kernels/{testcase}.pto", "{case}"]
[[testcase]]
name = "row"
case = [{ name = "f32", smoke = true }, { name = "f16" }]
[[testcase]]
name = "col"
case = [{ name = "f32", smoke = true }, { name = "f16" }]
"""
TOOLS = (
    "bash sh env cat cp cut date dirname basename git grep head ls mkdir mv nproc rm sed sleep "
    "sort tail tr true"
)
"""What a machine without a compiler still has."""
FEWER = {
    'REDUCTIONS = ("sum", "prod", "min", "max")': 'REDUCTIONS = ("sum",)',
    '("argmax", "argmin")': '("argmax",)',
    "for axis in (1, 0):": "for axis in (1,):",
    "for dtype, shape, valid in REDUCED:": "for dtype, shape, valid in REDUCED[:1]:",
    '    ("f32", (40, 96), (37, 81)),\n': "",
    '    ("i32", (8, 128), (8, 100)),\n': "",
    '("f32", "bf16"), ("f32", "i32"), ("f16", "f32"), ("i32", "i8")': "",
}
"""What is replaced in the example's list of cases, where each has a program that takes long to compile."""
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "cmake", "ninja", "make", "ld", "as")

pytestmark = pytest.mark.slow


@pytest.fixture
def cli(tmp_path: Path) -> OwnProcess:
    """A command line in this process, with a fresh home."""
    return OwnProcess(tmp_path)


@pytest.fixture
def suite(cli: CommandLine) -> Path:
    """A suite of two testcases, each of which names a file; the suite's own file."""
    (cli.cwd / "suite" / "kernels").mkdir(parents=True)
    for testcase in ("row", "col"):
        (cli.cwd / "suite" / "kernels" / f"{testcase}.pto").touch()
    path = cli.cwd / "suite" / "suite.toml"
    path.write_text(SUITE, encoding="utf-8")
    return path


# ---- duplicates -------------------------------------------------------------------------------


def duplicates(cli: CommandLine, *arguments: str) -> dict[str, Any]:
    """What is found in jobs."""
    return cli.run_json("ci", "duplicates", *arguments)


def test_duplicates_of_jobs_are_named(cli: CommandLine, suite: Path) -> None:
    """What a fast job and a nightly one both run is kept by the one that runs more; nothing is run."""
    found = duplicates(cli, f"fast={suite}:smoke", f"nightly={suite}")
    expected = [
        ("row/f32", "nightly", ["fast", "nightly"]),
        ("col/f32", "nightly", ["fast", "nightly"]),
    ]
    assert [(one["name"], one["keeper"], one["jobs"]) for one in found["duplicates"]] == expected
    assert (found["seconds"], found["saves_s"]) == (60.0, 20.0)
    assert not cli.home.exists()


def test_duplicates_fail_a_job_only_where_they_are_asked_to(cli: CommandLine, suite: Path) -> None:
    """Exit status 1 with --fail, 0 without it, and 0 where there are none."""
    jobs = (f"one={suite}?row", f"two={suite}?f32")
    expected = [0, 1, 0, 0]
    found = [
        cli.run("ci", "duplicates", *jobs),
        cli.run("ci", "duplicates", *jobs, "--fail"),
        cli.run("ci", "duplicates", *jobs, "--fail", "--independent", "one"),
        cli.run("ci", "duplicates", f"one={suite}?row", f"two={suite}?col", "--fail"),
    ]
    assert [done.returncode for done in found] == expected
    assert "one and two run the same 1 check" in found[0].stdout


def test_what_a_job_runs_on_tells_it_apart(cli: CommandLine, suite: Path) -> None:
    """The same cases on a simulator and on a device are not the same check."""
    found = duplicates(cli, f"sim={suite}@sim", f"npu={suite}@npu", f"again={suite}@npu")
    expected = {("npu", "again")}
    assert {tuple(one["jobs"]) for one in found["duplicates"]} == expected


def test_two_workflows_that_build_the_same_are_found(cli: CommandLine, suite: Path) -> None:
    """Commands with the same arguments and inputs of the same content, as a jobs file tells of them."""
    job = 'argv = ["make", "tools"]\ninputs = ["suite/kernels"]\nseconds = 300\n'
    text = f"[jobs.sim]\n{job}[jobs.npu]\n{job}[jobs.wheel]\nindependent = true\n{job}"
    (cli.cwd / "ci-jobs.toml").write_text(text, encoding="utf-8")
    found = duplicates(cli, "--jobs-file", "ci-jobs.toml", f"tests={suite}")
    expected = [("make tools", "sim", ["wheel"], 300.0, False)]
    assert [
        (one["name"], one["keeper"], one["independent"], one["saves_s"], one["is_guess"])
        for one in found["duplicates"]
    ] == expected
    assert [job["name"] for job in found["jobs"]] == ["sim", "npu", "wheel", "tests"]


def test_workflows_are_read_as_they_are(cli: CommandLine) -> None:
    """Those of the repository if nothing is named, and jobs of a file; bad ones are refused by line."""
    plant(cli.cwd / "checkout")
    (cli.cwd / "checkout" / ".git").mkdir()
    inside = OwnProcess(cwd=cli.cwd / "checkout", env=cli.env)
    (inside.cwd / "ci-jobs.toml").write_text('[jobs.own]\ndoes = "models"\nseconds = 60\n')
    found = duplicates(inside)
    kinds = Counter(one["kind"] for one in found["findings"])
    expected = {"build": 4, "tests": 2, "command": 2, "label": 1, "copies": 1}
    assert (kinds, len(found["duplicates"])) == (expected, 6)  # three builds are not the same
    library = next(one for one in found["findings"] if one["what"] == "lib")
    assert [spot["where"] for spot in library["spots"]] == [
        f".github/workflows/{place}" for place in ("build.yml:23", "nightly.yml:26")
    ]
    assert library["differences"]["WITH_TRACE"] == ["OFF", "ON"]
    jobs = duplicates(
        inside, ".", "--jobs-file", "ci-jobs.toml", "--independent", "nightly/toolchain"
    )
    models = next(one for one in jobs["duplicates"] if one["name"] == "models")
    assert (models["keeper"], models["independent"]) == ("own", ["nightly/toolchain"])
    shown = in_a_process(inside).run("ci", "duplicates", "--fail")
    assert shown.returncode == 1
    assert (
        "keep it in build/native: that saves 5 min 0 s (guessed), on pull_request" in shown.stdout
    )
    assert "built 2 times: lib; none serves the others: -G, CMAKE_BUILD_TYPE, WITH" in shown.stdout
    assert "bash scripts/run_cases.sh: .github/workflows/build.yml:76, " in shown.stdout
    bad = inside.cwd / ".github" / "workflows" / "bad.yml"
    bad.write_text("on: push\njobs:\n  a:\n    step: []\n", encoding="utf-8")
    refused = inside.run("ci", "duplicates")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "bad.yml:4: jobs.a.step: unknown key (did you mean 'steps'?)" in refused.stderr


def test_what_cmake_declares_is_known_and_a_job_that_may_not_run_keeps_nothing(
    cli: CommandLine,
) -> None:
    """A label of ctest means its tests; what cannot be seen is listed, never counted as done once."""
    root = cli.cwd / "checkout"
    (root / ".git").mkdir(parents=True)
    (root / ".github" / "workflows").mkdir(parents=True)
    (root / "dsl").mkdir()
    (root / "dsl" / "test_a.py").touch()
    (root / "CMakeLists.txt").write_text(
        "foreach(n a)\n add_test(NAME t_${n} COMMAND python3 -m unittest discover -s "
        '"${CMAKE_SOURCE_DIR}/dsl")\n'
        ' set_tests_properties(t_${n} PROPERTIES LABELS "DSL" ENVIRONMENT "A=1")\nendforeach()\n',
        encoding="utf-8",
    )
    inside = OwnProcess(cwd=root, env=cli.env)

    def show(always: str, maybe: str) -> str:
        jobs = (("a", "x", always), ("b", "y", maybe))
        for file, job, run in jobs:
            detect = "  d: {runs-on: u, steps: [{run: tool}]}\n" if file == "b" else ""
            given = "needs: d, if: needs.d.outputs.x == '1', " if file == "b" else ""
            text = (
                f"on: pull_request\njobs:\n{detect}  {job}: {{{given}steps: "
                f"{json.dumps([{'run': run}])}}}\n"
            )
            (root / ".github" / "workflows" / f"{file}.yml").write_text(text, encoding="utf-8")
        return inside.run("ci", "duplicates").stdout

    build = "cmake -S . -B build -DA=1 && cmake --build build"
    shown = show("ctest --test-dir build -L DSL", "cd dsl; python3 -m unittest discover")
    assert "1 test run 2 times" in shown
    assert "keep it in a/x: " in shown
    shown = show(build, f"{build}\n./one\n./two\n./three")
    assert "keep it in a/x: " in shown  # though b/y runs more, so that it would leave less work
    assert "not seen: 3 commands that may run tests" in shown
    shown = show(build, build.replace("A=1", "A=2"))
    assert "none serves the others: A differ" in shown
    assert "keep it" not in shown
    for run in ("ctest --test-dir build -L NONE", "ninja -C build check-x", "./unit", "tox"):
        shown = show(build, run)
        assert run in shown.partition("not seen: 1 command")[2]
        assert "no check is run twice" not in shown


def test_times_decide_what_is_saved(cli: CommandLine, suite: Path) -> None:
    """An imported history says what cases take; what it does not know is guessed."""
    times = cli.cwd / "times.json"
    times.write_text('{"row/f32": 90, "row/f16": 30}', encoding="utf-8")
    jobs = (f"one={suite}?row", f"two={suite}?row/f32")
    found = duplicates(cli, *jobs, "--durations", str(times))
    expected = (90.0, 210.0, 0)
    assert (found["saves_s"], found["seconds"], found["guessed"]) == expected


def record(home: Path, **runs: float) -> None:
    """Record how long cases of the suite took on devices, given as ``case__device=seconds``."""
    with TrialStore.open(home) as store:
        for number, (name, run_s) in enumerate(runs.items()):
            case, _, device = name.partition("__")
            store.record(
                Trial(
                    id=f"r.{number}",
                    run="r",
                    case=case.replace("_", "/"),
                    batch="b",
                    testcase=case.partition("_")[0],
                    target="command",
                    device=f"{device}:0",
                    outcome=Outcome.PASSED,
                    started_at=float(number),
                    run_s=run_s,
                )
            )


def test_what_ran_before_decides_too(cli: CommandLine, suite: Path) -> None:
    """The store's times count: those of the class that a job runs on, else those of all devices."""
    record(cli.home, row_f32__npu=40.0, row_f32__slot=4.0, row_f32__slot2=4.0)
    expected_s = {"npu": 40.0, "slot": 4.0, "board": 4.0}
    for on, seconds in expected_s.items():
        one, two = f"one={suite}@{on}?row/f32", f"two={suite}@{on}?row/f32"
        found = duplicates(cli, one, two)
        assert (on, found["saves_s"], found["guessed"]) == (on, seconds, 0)


def test_kernels_are_compared_too(knowing: CommandLine) -> None:
    """A file of kernels is asked for its cases; other targets make other checks."""
    file = KERNELS / "light.py"
    found = duplicates(knowing, f"a={file}", f"b={file}@cpu", f"c={file}@cuda:sm_90a")
    expected = {("a", "b")}
    assert {tuple(one["jobs"]) for one in found["duplicates"]} == expected


# ---- matrix -----------------------------------------------------------------------------------


def matrix_of(suite: Path, jobs: int, *options: str) -> tuple[str, ...]:
    """The command that cuts a suite into jobs."""
    return ("ci", "matrix", str(suite), "--jobs", str(jobs), *options)


def test_a_matrix_is_printed_for_people_and_for_github(cli: CommandLine, suite: Path) -> None:
    """The step's outputs are lines of their own; what is printed says the same."""
    output = cli.cwd / "output"
    output.write_text("before=1\n", encoding="utf-8")
    arguments = matrix_of(suite, 2, "--times", "times.json")
    done = cli.run(*arguments, "--github-output", GITHUB_OUTPUT=str(output))
    lines = output.read_text(encoding="utf-8").splitlines()
    expected = ["before=1", "jobs=2", "cases=4"]
    assert [line for line in lines if not line.startswith("matrix=")] == expected
    matrix = json.loads(lines[1].removeprefix("matrix="))
    assert [row["shard"] for row in matrix["include"]] == ["1/2", "2/2"]
    assert "4 cases in 2 jobs, 40 s of work (4 never ran: guessed)" in done.stdout
    assert cli.run_json(*arguments)["matrix"] == matrix
    assert json.loads((cli.cwd / "times.json").read_text(encoding="utf-8")) == {
        "row/f32": 10.0,
        "row/f16": 10.0,
        "col/f32": 10.0,
        "col/f16": 10.0,
    }


def test_the_jobs_of_a_matrix_run_each_case_once(cli: CommandLine, suite: Path) -> None:
    """``tileyard test`` with the arguments of all jobs, each in a home of its own."""
    matrix = cli.run_json(*matrix_of(suite, 2, "--times", "t.json"))
    ran: list[str] = []
    for number, row in enumerate(matrix["matrix"]["include"]):
        home = str(cli.cwd / f"home{number}")
        done = in_a_process(cli).run(
            "test", str(suite), *row["arguments"].split(), "--json", TILEYARD_HOME=home
        )
        verdicts = json.loads(done.stdout)["verdicts"]
        assert len(verdicts) == row["cases"]
        ran += [verdict["case"] for verdict in verdicts]
    expected = ["col/f16", "col/f32", "row/f16", "row/f32"]
    assert sorted(ran) == expected


def test_changed_files_leave_what_they_touch(cli: CommandLine, suite: Path) -> None:
    """From a file or stdin, relative to the top of the checkout; the others are counted, as commands are."""
    (cli.cwd / "changed").write_text("suite/kernels/row.pto\nREADME.md\n", encoding="utf-8")
    arguments = matrix_of(suite, 1, "--root", ".")
    (cli.cwd / "jobs.toml").write_text(
        '[jobs.rows]\nargv = ["make"]\ninputs = ["suite/kernels/row.pto"]\n'
        '[jobs.cols]\nargv = ["make"]\ninputs = ["suite/kernels/col.pto"]\n',
        encoding="utf-8",
    )
    output = cli.cwd / "output"
    changed = (*arguments, "--changed-files", "changed", "--jobs-file", "jobs.toml")
    every = cli.run_json(*changed)["details"]
    assert (every["cases"], every["suite"]) == (4, "suite/suite.toml")
    assert every["touched"]["why_all"] == "no step names README.md"
    with suite.open("a", encoding="utf-8") as file:
        file.write('[[belongs]]\nfiles = ["../*.md"]\ncases = []\n')
    cli.run(*changed, "--github-output", GITHUB_OUTPUT=str(output))
    assert output.read_text(encoding="utf-8").splitlines()[-1] == 'commands=["rows"]'
    found = cli.run_json(*changed)
    because = [(one["job"], one["because"]) for one in found["details"]["commands"]]
    assert because == [("rows", "suite/kernels/row.pto"), ("cols", "")]
    expected = {"cases": 2, "left_out": 2}
    assert {name: found["details"][name] for name in expected} == expected
    assert found["details"]["touched"]["unnamed"] == []
    assert "--select row" in found["matrix"]["include"][0]["arguments"]
    done = subprocess.run(
        [sys.executable, "-m", "tileyard", *arguments, "--changed-files", "-"],
        input="suite/suite.toml\n",
        cwd=cli.cwd,
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "all cases stay: suite/suite.toml declares them" in done.stdout


def test_the_times_of_several_jobs_are_read_together(cli: CommandLine, suite: Path) -> None:
    """A folder of JUnit files, as the jobs of a matrix leave it."""
    for number in (1, 2):
        folder = cli.cwd / "history" / f"job{number}"
        folder.mkdir(parents=True)
        (folder / "junit.xml").write_text(
            f'<testsuite name="row"><testcase classname="row" name="f{16 * number}"'
            f' time="{number}.5"/></testsuite>',
            encoding="utf-8",
        )
    arguments = matrix_of(suite, 1, "--select", "row")
    found = cli.run_json(*arguments, "--durations", "history", "--times", "times.json")
    expected = (4.0, 0)
    assert (found["details"]["total_s"], found["details"]["guessed"]) == expected


# ---- the example workflows ----------------------------------------------------------------------

PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({place!r})
    asked = dict(arguments=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ))
    line.sendall(json.dumps(asked).encode() + b"\\n")
    done = json.loads(line.makefile().readline())
print(done["stdout"], end="", flush=True)
print(done["stderr"], end="", flush=True, file=sys.stderr)
sys.exit(done["code"])
"""
"""The program that scripts find: it has the test process run the command."""


class Answering(socketserver.StreamRequestHandler):
    """Runs a command in a copy of a warm process, and prints its output at the end. One at a time: a step of
    a suite that itself runs ``tileyard`` would wait for its own run, for ever.
    """

    def handle(self) -> None:
        """Run it in its own environment, with the variables by which the interpreter of a copy began."""
        asked = json.loads(self.rfile.readline())
        outer = {name: text for name, text in os.environ.items() if name.startswith("PYTHON")}
        outer.pop("PYTHONPATH", None)
        environment = {**outer, **asked["environment"]}
        done = warm("tileyard").run(asked["arguments"], Path(asked["folder"]), environment)
        told = {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        self.wfile.write(json.dumps(told).encode() + b"\n")


@contextmanager
def serve_commands() -> Iterator[Path]:
    """A folder with a program ``tileyard`` for scripts."""
    with tempfile.TemporaryDirectory(prefix="tileyard-bin-") as folder:
        place = Path(folder, "asked")
        program = Path(folder, "bin", "tileyard")
        program.parent.mkdir()
        program.write_text(PROGRAM.format(python=sys.executable, place=str(place)))
        program.chmod(0o755)
        with socketserver.UnixStreamServer(os.fspath(place), Answering) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield program.parent
            finally:
                server.shutdown()


@pytest.fixture
def change(tmp_path: Path) -> dict[str, str]:
    """A checkout of the examples in ``origin`` with one commit on top of its base, as a pull request. Of the
    example's cases a few are there, or all of them where ``TILEYARD_EXAMPLE_CASES`` is set.
    """
    origin = tmp_path / "origin"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples", origin / "examples", ignore=ignore)
    listed = origin / "examples" / "suites" / "reduce_sim" / "cases.py"
    text = listed.read_text(encoding="utf-8")
    for part, fewer in FEWER.items() if "TILEYARD_EXAMPLE_CASES" not in os.environ else ():
        assert text.count(part) == 1
        text = text.replace(part, fewer)
    listed.write_text(text, encoding="utf-8")
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "base")
    git(origin, "update-ref", "refs/remotes/origin/main", "HEAD")
    changed = origin / "examples" / "suites" / "reduce_sim" / "check_argmax.py"
    changed.write_text(changed.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    git(origin, "commit", "-q", "-a", "-m", "change")
    return {"GITHUB_SHA": git(origin, "rev-parse", "HEAD"), "GITHUB_BASE_REF": "main"}


@pytest.fixture
def command() -> Iterator[Path]:
    """A folder with a program ``tileyard``."""
    with serve_commands() as folder:
        yield folder


@pytest.fixture
def building(command: Path) -> str:
    """The PATH of a machine that builds."""
    return f"{command}{os.pathsep}{building_path()}"


@pytest.fixture
def bare(tmp_path: Path, command: Path) -> str:
    """A PATH with tileyard and the usual tools, and no compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS.split():
        found = shutil.which(tool)
        assert found, tool
        (folder / tool).symlink_to(found)
    (folder / "tileyard").symlink_to(command / "tileyard")
    assert not any(shutil.which(compiler, path=str(folder)) for compiler in COMPILERS)
    return str(folder)


def listed_cases(origin: Path) -> set[str]:
    """The names of all cases of the example, as its own list has them."""
    listing = [sys.executable, str(origin / "examples" / "suites" / "reduce_sim" / "cases.py")]
    lines = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    return {f"{case['testcase']}/{case['name']}" for case in map(json.loads, lines)}


def verdicts_of(artifacts: Path) -> Counter[tuple[str, str]]:
    """How often each case ended in which way, in the uploaded results of some jobs."""
    summaries = [json.loads(path.read_text()) for path in artifacts.glob("*/summary.json")]
    return Counter(
        (verdict["case"], verdict["outcome"])
        for summary in summaries
        for verdict in summary["result"]["verdicts"]
    )


needs_cmake = pytest.mark.skipif(
    shutil.which("cmake") is None, reason="the example is built by CMake"
)


@needs_cmake
def test_a_pull_request_builds_once_and_runs_in_the_next_jobs(
    tmp_path: Path, change: dict[str, str], building: str, bare: str
) -> None:
    """Only what the change touches runs on simulators, and machines without a compiler run all of it."""
    hosted = Hosted.of("pull-request.yml", tmp_path, change)
    hosted.run("build", "builder", building)
    rows = list(hosted.rows("simulator"))
    for number, row in enumerate(rows):
        hosted.run("simulator", f"simulator{number}", bare, **row)
    hosted.run("device", "board", bare)
    touched = ("rowargmax/f16_32x48", "rowargmax/f32_16x64")
    casts = [case for case in listed_cases(tmp_path / "origin") if case.startswith("cast/")]
    expected = [(case, "passed") for case in (*touched, *casts)]
    assert verdicts_of(tmp_path / "artifacts") == Counter(expected)
    assert hosted.context["needs.build.outputs.cases"] == str(len(touched))
    assert not (tmp_path / "board" / "examples").exists()
    assert "## Suite installed: passed\n\n2 cases in" in hosted.pages["simulator0"]


@needs_cmake
def test_the_nightly_run_covers_all_cases_and_keeps_their_times(
    tmp_path: Path, change: dict[str, str], building: str, bare: str
) -> None:
    """Four jobs run every case once, and what they took is there for the next day's jobs."""
    hosted = Hosted.of("nightly.yml", tmp_path, change)
    hosted.run("build", "builder", building)
    rows = list(hosted.rows("simulator"))
    for number, row in enumerate(rows):
        hosted.run("simulator", f"simulator{number}", bare, **row)
    keeper = hosted.run("history", "keeper", bare)
    found = verdicts_of(tmp_path / "artifacts")
    expected = listed_cases(tmp_path / "origin")
    assert (len(rows), len(found), set(found.values())) == (4, len(expected), {1})
    assert set(found) == {(case, "passed") for case in expected}
    times = json.loads((keeper / "times.json").read_text(encoding="utf-8"))
    assert times.keys() == expected
    assert 10.0 not in times.values()  # what is guessed


@pytest.mark.sweep(0)  # by default: the nightly run and the pull request
@needs_cmake
def test_one_workflow_runs_what_another_one_built(
    tmp_path: Path, change: dict[str, str], building: str, bare: str
) -> None:
    """By the commit, with no compiler; what is missing is built, homes and build trees are kept."""
    sha = change["GITHUB_SHA"]
    built = Hosted.of("toolchain.yml", tmp_path, change)
    built.run("build", "builder", building, **{"github.sha": sha})
    (tree,) = (tmp_path / "caches").glob("tree-Linux-X64-*")
    assert list(tree.rglob("*.o"))
    simulators = Hosted.of("simulators.yml", tmp_path, change)
    told = {"github.event.workflow_run.head_sha": sha, "github.event.workflow_run.id": "7"}
    simulators.run("simulator", "first", bare, **told)
    ran = verdicts_of(tmp_path / "artifacts")
    assert {outcome for _, outcome in ran} == {"passed"}
    shutil.rmtree(tmp_path / "first")  # a runner's folder is the same each time
    simulators.run("simulator", "first", bare, **told, **{"github.run_id": "2"})
    again = verdicts_of(tmp_path / "artifacts") - ran  # the second time cases may stand for others
    assert {(case, "skipped") for case, _ in ran} & again.keys()
    assert not again.keys() & ran.keys()
    assert len(list((tmp_path / "caches").glob("home-Linux-X64-*"))) == 2

    night = {"github.event_name": "schedule", "github.sha": sha, "github.run_id": "3"}
    failed = Hosted.of("simulators.yml", tmp_path, change).try_run(
        "simulator", "bare", bare, **night
    )
    assert "out/toolchain.tyb" in failed
    Hosted.of("simulators.yml", tmp_path, change).run("simulator", "night", building, **night)


@pytest.mark.sweep(0)  # by default: test_queue_suites.py
def test_a_runner_without_a_card_borrows_one_through_a_queue(
    tmp_path: Path, change: dict[str, str], bare: str
) -> None:
    """The far side has a bare Python and a script that sets it up; its files come by the mount."""
    hosted = Hosted.of("borrowed.yml", tmp_path, change)
    hosted.run("build", "builder", building_path())  # with the program that pip installs
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "activate.sh").write_text("export CARD_LIBRARIES=/opt/cards\n")
    given = {
        "device": "npu:{device}",
        "identity": "a card",
        "python": str(Path(sys.base_prefix) / "bin" / "python3"),
        "prologue": f"source {tmp_path}/etc/activate.sh",
        "environment": {"PYTHONPATH": str(tmp_path / "login" / ".tileyard" / "site")},
        "inherit": [],
    }
    with serve_queue(tmp_path, "7", **given):
        (tmp_path / "tileyard.toml").rename(tmp_path / "etc" / "devices.toml")
        hosted.event = {**change, "TILEYARD_HOST_CONFIG": str(tmp_path / "etc")}
        hosted.run("cards", "login", bare)
    casts = [case for case in listed_cases(tmp_path / "origin") if case.startswith("cast/")]
    assert verdicts_of(tmp_path / "artifacts") == Counter((case, "passed") for case in casts)


# ---- the page about it ---------------------------------------------------------------------------


def test_the_page_shows_the_workflows_as_they_are() -> None:
    """Each piece of YAML in the docs stands in the workflow that is run here, letter by letter."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    workflows = [path.read_text(encoding="utf-8") for path in WORKFLOWS.glob("*.yml")]
    pieces = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    expected = 5
    assert len(pieces) == expected
    assert [piece for piece in pieces if not any(piece in text for text in workflows)] == []


def test_the_page_names_options_that_there_are(cli: CommandLine) -> None:
    """Every option of every command that the docs and the workflows show."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "docs" / "ci.md", *WORKFLOWS.glob("*.yml"))
    ]
    shown = "\n".join(texts).replace("\\\n", " ")
    commands = re.findall(r"^ *(?:run: )?tileyard ((?:ci )?[a-z]+) (.+)$", shown, re.MULTILINE)
    expected = {"ci duplicates", "ci matrix", "bundle", "doctor", "test", "regress", "site"}
    assert {name for name, _ in commands} == expected
    for name in expected:
        known = cli.run(*name.split(), "--help").stdout
        used = {
            one
            for command, line in commands
            if command == name
            for one in re.findall(r"--[a-z-]+", line)
        }
        assert [option for option in sorted(used) if not re.search(rf"{option}[ ,]", known)] == []
