"""The whole way of the data, from a kernel file to a loaded winner, as a user goes it."""

import os
import re
import select
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from tests.conftest import DECIDED, KERNELS, ROOT, CommandLine
from tests.samples import sampled

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.events import (
    BuildStarted,
    CaseEnded,
    CaseLeft,
    CaseStarted,
    JudgeAnswered,
    PreparationEnded,
    is_final,
)
from tileyard.base.model import Outcome
from tileyard.devices.cpu import physical_core
from tileyard.show.timeline import fold_timeline
from tileyard.store.events import read_events
from tileyard.store.trials import TrialQuery, TrialStore

pytestmark = pytest.mark.slow

FAULTS = str(KERNELS / "faults.py")
HEALTHY = ("tune", FAULTS, "--config", "fault=none")
SCRIPTED = {"TILEYARD_PLUGINS": "scripted=tileyard.testing.doubles.scripted:ScriptedTarget"}

PHYSICAL = {physical_core(core): core for core in os.sched_getaffinity(0)}


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A home in which a file was tuned once, and what that run printed. Each test has a copy."""

    cli: CommandLine
    first: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """The run itself; tests take ``tuned``."""
    cli = CommandLine(tmp_path_factory.mktemp("tuned"), {**DECIDED})
    return Tuned(cli=cli, first=cli.run(*HEALTHY, "--time-reference"))


@pytest.fixture
def tuned(tuned_once: Tuned, tmp_path: Path) -> Tuned:
    """A tuned home of the test's own."""
    home = shutil.copytree(tuned_once.cli.home, tmp_path / "home")
    own = {**DECIDED, "TILEYARD_HOME": str(home), "TILEYARD_LOCK_DIR": str(tmp_path / "locks")}
    return Tuned(cli=CommandLine(tuned_once.cli.cwd, own), first=tuned_once.first)


def test_a_kernel_file_is_tuned(tuned: Tuned) -> None:
    """Every config is built, checked and timed; a winner is named with the line that loads it."""
    assert tuned.first.returncode == 0, tuned.first.stderr
    expected = "4 configs"
    assert expected in tuned.first.stdout
    assert "4 passed" in tuned.first.stdout
    assert "known from earlier runs" not in tuned.first.stdout
    assert 'tileyard.load("' in tuned.first.stdout
    assert re.search(
        r"^reference: \S+ \S+, \S+ x the time of the best config$", tuned.first.stdout, re.MULTILINE
    )


STALE = """
import tilelang.language as T
import tileyard


@tileyard.kernel(space={"everywhere": [True, False]}, shapes={"small": {"N": 256}}, reference=lambda X: X * 3)
def scaled(N, everywhere):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(N // 32, threads=128) as bx:
            factor = T.alloc_shared((1,), "float32")
            if everywhere or bx == 0:
                factor[0] = 3.0
            for i in T.Parallel(32):
                Y[bx * 32 + i] = X[bx * 32 + i] * factor[0]

    return main
"""


def test_what_reads_a_tile_of_another_block_is_not_timed_if_it_is_sanitized(
    cli: CommandLine,
) -> None:
    """Its result may be right, as the other block ran before on its thread; the fault has both lines."""
    (cli.cwd / "stale.py").write_text(STALE, encoding="utf-8")
    command = ("tune", "stale.py", "--sanitize", "--repeat", "3", "--warmup", "1")
    result = cli.run_json(*command)
    right, stale = sorted(result["trials"], key=lambda trial: str(trial["outcome"]))
    assert (result["best"]["config"], result["best"]["target"]) == ({"everywhere": True}, "cpu")
    assert (right["outcome"], stale["outcome"]) == ("passed", "runtime_error")
    read = "stale.py:15: factor is read where nothing has been written in this block"
    assert stale["message"] == f"sanitized: {read}; stale.py:11: factor is allocated"
    assert stale["measurement"] is None
    known = cli.run_json(*command, "--finals")["trials"]
    assert [one["reused"] for one in known] == [True, True]
    assert {one["message"] for one in known} == {"", stale["message"]}


def test_a_second_run_builds_and_measures_nothing(tuned: Tuned) -> None:
    """What is known is used again, and the summary says so."""
    second = tuned.cli.run_json(*HEALTHY)
    expected = " ".join(f"{key}={value}" for key, value in second["best"]["config"].items())
    assert f"best: {expected}" in tuned.first.stdout
    assert [t["reused"] for t in second["trials"]] == [True] * 4
    assert "4 known from earlier runs" in tuned.cli.run(*HEALTHY).stdout


def test_the_time_of_a_run_is_traced(tuned: Tuned) -> None:
    """Each build, start on the device and question to the judge has its span; also if the run was killed."""
    (stream,) = (tuned.cli.home / "runs").glob("*.jsonl")
    events = [one for one in read_events(stream) if one is not None]
    assert (
        tuned.cli.run_here("trace", stream.stem, "-o", f"{tuned.cli.home}/t.json").returncode == 0
    )
    document = msgspec.json.decode((tuned.cli.home / "t.json").read_bytes())
    assert {one["ph"] for one in document["traceEvents"]} == {*"MXsfC"}
    timeline = fold_timeline(events)
    kinds = {lane.kind: {one.kind for one in lane.spans} for lane in timeline.lanes}
    assert set(kinds) == {"author", "worker", "device", "judge"}
    assert kinds["device"] >= {"starting", "running"}
    spans = [span for lane in timeline.lanes for span in lane.spans]
    named = Counter((one.kind, case) for one in spans for case in one.cases)
    started = [one.case for one in events if isinstance(one, CaseStarted)]
    left = [one.case for one in events if isinstance(one, CaseLeft)]
    assert named == Counter(
        [("running", case) for case in started]
        + [("preparing", one.case) for one in events if isinstance(one, PreparationEnded)]
        + [("building", one.case) for one in events if isinstance(one, BuildStarted)]
        + [
            ("judging", case)
            for one in events
            if isinstance(one, JudgeAnswered)
            for case in one.cases
        ]
    )
    assert sorted(started) == sorted(left)
    assert all(one.at > 0 for one in events if isinstance(one, CaseEnded))
    assert all(one.outcome is Outcome.PASSED for one in spans if one.kind == "running")
    workers = {lane.name for lane in timeline.lanes if lane.kind == "worker"}
    numbers = {one.worker for one in events if isinstance(one, BuildStarted)}
    assert workers == {f"worker {number}" for number in numbers}
    whole = stream.read_bytes()
    stream.write_bytes(whole[: whole.index(b'"case_left"') + 5])
    shown = tuned.cli.run_here("trace").stdout
    assert "no end recorded" in shown
    assert "1 unreadable event" in shown


def test_a_run_is_reported(tuned: Tuned) -> None:
    """Its last line names the command, which makes the page from what the run has kept."""
    (stream,) = (tuned.cli.home / "runs").glob("*.jsonl")
    command = f"report {stream.stem} -o report.html"
    assert tuned.first.stderr.splitlines()[-1] == f"report: tileyard {command}"
    page = tuned.cli.home / "report.html"
    assert tuned.cli.run_here("report", "-o", str(page)).returncode == 0
    shown = page.read_text(encoding="utf-8")
    assert "the fastest of 4 configs" in shown or "stays the best of 4 configs" in shown
    assert "x the time of the best config</dd>" in shown
    assert 'data-draw="timeline"' in shown


def test_only_finals_of_recorded_configs_are_held(tuned: Tuned) -> None:
    """A config never measured is not built, an undecided time is known, the finals are measured anew."""
    with TrialStore.open(tuned.cli.home) as store:
        trials = store.list_trials(TrialQuery(limit=0))
        known = next(one for one in trials if one.config["block"] == 64 and not is_final(one))
        assert known.measurement is not None
        wide = msgspec.structs.replace(
            known.measurement, low_ns=known.measurement.low_ns / 9, abandoned=True
        )
        store.record(
            msgspec.structs.replace(
                known, id="wide.1", run="wide", started_at=known.started_at + 1, measurement=wide
            )
        )
    result = tuned.cli.run_json(*HEALTHY, "--config", "block=32,64,256", "--finals")
    told = {one["config"]["block"]: (one["outcome"], one["reused"]) for one in result["trials"]}
    assert told == {32: ("passed", True), 64: ("passed", True), 256: ("not_run", False)}
    unknown = next(one for one in result["trials"] if one["outcome"] == "not_run")
    assert unknown["message"] == "it is not recorded here, and only finals were asked for"
    assert unknown["build_s"] == 0.0
    assert result["reason"] == "done"
    with TrialStore.open(tuned.cli.home) as store:
        again = store.list_trials(TrialQuery(run=result["run"], limit=0))
    finals = [one for one in again if one.outcome is Outcome.PASSED]
    assert all(is_final(one) for one in finals)
    assert bool(finals) == bool(result["finals"] or result["disturbed"])


def test_times_of_a_busy_run_are_doubted_until_all_are_measured_again(tuned: Tuned) -> None:
    """Its A/A control told that equal things looked different; --fresh measures the artifacts that exist."""
    replace = msgspec.structs.replace
    with TrialStore.open(tuned.cli.home) as store:
        trials = store.list_trials(TrialQuery(limit=0))
        known = next(one for one in trials if one.keys.measurement and not is_final(one))
        measurement = known.measurement
        assert measurement is not None
        known = replace(known, id="busy.1", run="busy", started_at=known.started_at + 3600)
        final = replace(known, batch="finals", keys=replace(known.keys, measurement=""))
        even, uneven = (100.0,) * 20, (60.0, 160.0) * 10
        for number, (config, samples) in enumerate([("a", even), ("b", even), ("a", uneven)]):
            measured = replace(measurement, samples_ns=samples)
            entry = replace(final, id=f"busy.f{number}", config={"of": config}, control=number == 2)
            store.record(replace(entry, measurement=measured))
        store.record(known)
    said = tuned.cli.run(*HEALTHY, "--config", f"block={known.config['block']}").stdout
    doubt = "1 timing known from run busy, in which the machine was busy; --fresh measures again"
    assert doubt in said
    assert any(doubt in log.read_text() for log in (tuned.cli.home / "runs").glob("*.jsonl"))
    fresh = tuned.cli.run(*HEALTHY, "--fresh").stdout
    assert "run busy" not in fresh
    run = fresh.splitlines()[0].split()[-1]
    with TrialStore.open(tuned.cli.home) as store:
        again = store.list_trials(TrialQuery(run=run, limit=0))
    screened = {
        one.config["block"]: (one.reused, one.build_s) for one in again if not is_final(one)
    }
    expected = [(False, 0.0)] * 4
    assert list(screened.values()) == expected


def test_a_comment_rebuilds_nothing_and_moves_the_line_of_an_error(cli: CommandLine) -> None:
    """Source lines are in no key; a message names the line as it is now."""
    source = Path(FAULTS).read_text(encoding="utf-8")
    file = cli.cwd / "mine.py"
    file.write_text(source, encoding="utf-8")
    arguments = ("tune", "mine.py", "--config", "fault=none,compile_error", "--config", "block=32")
    first = cli.run_json(*arguments)
    file.write_text("# a comment\n\n" + source, encoding="utf-8")
    second = cli.run_json(*arguments)
    by_fault = [{t["config"]["fault"]: t for t in run["trials"]} for run in (first, second)]
    expected = True
    assert by_fault[1]["none"]["reused"] is expected
    lines = [
        int(run["compile_error"]["message"].split("mine.py:")[1].split()[0].strip(":"))
        for run in by_fault
    ]
    assert lines[1] == lines[0] + 2
    assert "call_extern" in by_fault[0]["compile_error"]["message"]


def test_trials_and_show(tuned: Tuned) -> None:
    """Recorded trials are listed, and one is shown with its log, Program and generated C."""
    best = tuned.first.stdout.split('tileyard.load("')[1].split('"')[0]
    listed = tuned.cli.run_here("trials")
    shown = tuned.cli.run("show", best)
    expected = "add_one"
    assert expected in listed.stdout
    none = tuned.cli.run_here("trials", "--kernel", "nonesuch")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no trials of nonesuch\n")
    assert tuned.cli.run_here("trials", "--kernel", "nonesuch", "--json").stdout == "[]\n"
    assert "def add_one(A: float32[256]" in shown.stdout
    assert re.search(r"^program\.tile: /\S+$", shown.stdout, re.MULTILINE)
    assert "copy(A[bx * " in shown.stdout
    assert "int32_t ty_kernel(" in shown.stdout
    assert re.search(r"^tile\.h: /\S+$", shown.stdout, re.MULTILINE)
    assert "define TY_" not in shown.stdout
    assert "measurement key" in shown.stdout
    latency = re.search(r"^ +latency  (\S+ \S+),", shown.stdout, re.MULTILINE)
    first = next(line for line in tuned.first.stdout.splitlines() if line.startswith("│ 1 "))
    assert latency is not None
    assert f" {latency[1]} " in first


def test_some_cores_phases_one_after_another_and_a_single_compile_worker(
    knowing: CommandLine,
) -> None:
    """On a device of declared cores, without overlap and with one compile worker, the same configs pass; and
    no others, as rules of the run exclude them. Once all are built, those that should be fast run first.
    """
    options = ("--devices", "cpu:cores=0", "--no-overlap", "--compile-workers", "1")
    options += ("--strategy", "model", "--fresh")
    rules = ("--where", "block > 16", "--where", "fault == 'none'")
    result = knowing.run_json(*HEALTHY, "--config", "block=pow2:16..256", *rules, *options)
    expected = "cpu:cores=0"
    assert result["device"] == expected
    assert [trial["outcome"] for trial in result["trials"]] == ["passed"] * 4
    ran = sorted(result["trials"], key=lambda trial: int(trial["id"].rpartition(".")[2]))
    assert [trial["config"]["block"] for trial in ran] == [256, 128, 64, 32]
    assert result["best"] or result["leader"]


def test_a_device_budget_ends_a_study(knowing: CommandLine) -> None:
    """What had not begun is left out, one of what ran is the best, and the result says why."""
    result = knowing.run_json(*HEALTHY, "--device-budget", "1ms")
    assert {trial["outcome"] for trial in result["trials"]} == {"passed", "not_run"}
    assert result["stopped"] == "the device budget of 0.001 s was spent"
    assert (result["reason"], result["best"]["outcome"]) == ("budget", "passed")


@pytest.mark.skipif(len(PHYSICAL) < 2, reason="needs two cores that are not threads of one")
def test_two_devices_share_one_study(knowing: CommandLine) -> None:
    """While building goes on, each config counts once, from either of two devices without common cores.
    Unless one of them is slower today.
    """
    first, second = sorted(PHYSICAL.values())[:2]
    names = [f"cpu:cores={core}" for core in (first, second)]
    devices = [part for name in names for part in ("--devices", name)]
    blocks = ("--config", "block=1,2,4,8,16,32,64,128")
    result = knowing.run_json(*HEALTHY, *blocks, *devices)
    expected = ["passed"] * 8
    assert [t["outcome"] for t in result["trials"]] == expected
    kept_out = {one["device"] for one in result["kept_out"]}
    assert {t["device"] for t in result["trials"]} == set(names) - kept_out
    again = knowing.run_json(*HEALTHY, *blocks, *devices)
    assert [t["reused"] for t in again["trials"]] == [True] * 8


def test_killing_the_engine_loses_only_what_was_in_flight(cli: CommandLine) -> None:
    """After kill -9 of the engine no process is left, and the next run goes on, to the same winner."""
    cli.env.update(SCRIPTED)
    arguments = (*HEALTHY, "--config", "block=1,2,4,8,16,32,64,128", "--target", "scripted")
    process = cli.start(*arguments)
    engine = wait_for_trials(process, cli.home, 2)
    family = [engine, *engine.children(recursive=True)]
    engine.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert "engine process ended by SIGKILL" in errors
    assert process.returncode == 3
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    resumed = cli.run_json(*arguments)
    assert [trial["outcome"] for trial in resumed["trials"]] == ["passed"] * 8
    fastest = min(resumed["trials"], key=lambda trial: read_latency_ns(cli, trial))
    assert resumed["best"]["config"] == fastest["config"]
    assert sum(t["reused"] for t in resumed["trials"]) >= 2


def read_latency_ns(cli: CommandLine, trial: dict[str, Any]) -> float:
    """The time that is scripted for what a trial ran."""
    artifact = find_artifact(trial["keys"]["build"], ObjectStore(cli.home / "objects"))
    assert artifact is not None
    return float(artifact.file("latency.txt").read_text(encoding="utf-8"))


def wait_for_trials(process: subprocess.Popen[str], home: Path, count: int) -> psutil.Process:
    """The engine process, once so many trials are recorded."""
    while process.poll() is None:
        children = psutil.Process(process.pid).children()
        if children and recorded(home) >= count:
            return children[0]
        select.select([], [], [], 0.02)  # cores are few, and those who are waited for need them
    raise AssertionError(process.communicate())


def recorded(home: Path) -> int:
    """How many trials there are."""
    try:
        with (
            closing(sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)) as database,
            database,
        ):
            return int(database.execute("select count(*) from trials").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_interrupting_once_finishes_what_runs(knowing: CommandLine) -> None:
    """Ctrl-C ends the run in order: the rest is not run nor built for other targets, the status is 130."""
    options = ("--config", "block=8,16,32,64,128", "--also-build", "cpu:x86-64-v2")
    process = knowing.start(*HEALTHY, *options)
    wait_for_trials(process, knowing.home, 1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    expected = 130
    assert process.returncode == expected, output + errors
    assert "stopped early: interrupted" in output
    assert len([line for line in output.splitlines() if line.startswith("not_run ")]) <= 1
    assert "not_run" in output
    assert "configs build for cpu:x86-64-v2; " in output


@pytest.mark.sweep(0)
def test_a_study_interrupted_at_its_beginning_has_no_winner(knowing: CommandLine) -> None:
    """Ctrl-C once ends the study in order, and says how many configs were built."""
    blocks = ("--config", "block=1,2,4,8,16,32,64,128")
    process = knowing.start(*HEALTHY, *blocks, "--also-build", "cpu:x86-64-v2")
    assert process.stdout is not None
    assert "tune add_one  target cpu  " in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    expected = 130
    assert process.returncode == expected, output + errors
    assert "no config passed" in output
    assert "configs build for cpu:x86-64-v2; " in output


def test_interrupting_twice_ends_everything_and_records_the_rest(cli: CommandLine) -> None:
    """The second Ctrl-C does not wait for what runs: all is gone, and every case has an outcome."""
    faults = ("--config", "fault=none,endless_loop", "--config", "block=32,64")
    process = cli.start("tune", FAULTS, *faults)
    engine = wait_for_trials(process, cli.home, 1)
    family = [engine, *engine.children(recursive=True)]
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "not_run" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    expected = 130
    assert process.returncode == expected, output + errors
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    assert recorded(cli.home) == 4


# By default the demo, which is gemm, is tuned in test_packages.py, and softmax is checked in test_suites.py.
@pytest.mark.parametrize(
    "example", sampled(["gemm", "softmax", "flash_attention"], ["flash_attention"])
)
def test_the_examples_tune_and_check_out(cli: CommandLine, example: str) -> None:
    """Each example finds a winner among configs that all gave right results."""
    file = str(ROOT / "examples" / f"{example}.py")
    result = cli.run_json("tune", file, "--shape", "small", "--trials", "2")
    expected = {"passed"}
    assert {t["outcome"] for t in result["trials"]} == expected
    assert result["best"] or result["leader"]
