"""``tileyard run-artifact`` by hand: what was built runs again, wherever the object store is."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from tests.conftest import ROOT, CommandLine
from tests.faults.deed_target import build_deed, plan_deeds
from tests.run_records import remember_run

from tileyard.artifacts.objects import ObjectStore, run_key
from tileyard.base.model import Case, KernelWork, Keys, Limits, Outcome, RunKey, TimingPolicy, Trial
from tileyard.store.trials import TrialStore
from tileyard.workers.run_records import RunRecord
from tileyard.workers.task_lines import Task

pytestmark = pytest.mark.slow


@pytest.fixture
def deeds(cli: CommandLine) -> CommandLine:
    """A command line that knows the target of deeds."""
    cli.env["TILEYARD_PLUGINS"] = "deed=deed_target:DeedTarget"
    cli.env["PYTHONPATH"] = str(ROOT / "tests" / "faults")
    return cli


def remember(objects: ObjectStore, deed: str) -> RunKey:
    """A run that was made before."""
    entry = build_deed(objects, "c0001", deed)
    case = Case(
        id="c0001",
        work=KernelWork(kernel="deed", config={"deed": deed}),
        target="deed",
        timing=TimingPolicy(max_samples=12, warmup_ns=0),
        limits=Limits(run_s=1.0 if deed == "hang" else 30.0),
    )
    key = run_key(entry.build, entry.golden.key, case.check)
    remember_run(objects, key, RunRecord(case=case, entry=entry))
    return key


def results(output: str) -> list[dict[str, Any]]:
    """The result lines of an output."""
    lines = [line.partition("TILEYARD_RESULT ") for line in output.splitlines()]
    return [json.loads(rest) for _, found, rest in lines if found]


def test_a_run_key_needs_no_database(deeds: CommandLine, tmp_path: Path) -> None:
    """The object store may lie anywhere; several cases end each in its own way."""
    folder = tmp_path / "else where"
    keys = [remember(ObjectStore(folder), deed) for deed in ("print", "crash", "hang", "copy")]
    done = deeds.run("run-artifact", *keys, "--objects", str(folder), "--devices", "cpu")
    expected = dict(zip(keys, ("passed", "crashed", "timeout", "passed"), strict=True))
    assert {r["case"]: r["outcome"] for r in results(done.stdout)} == expected
    assert done.returncode == 1, done.stderr
    assert "deed deed=print: passed on cpu:0 in" in done.stdout
    assert "something to say\n" in done.stdout
    assert not (deeds.home / "store.db").exists()


def test_a_trial_or_a_build_key_is_looked_up(deeds: CommandLine) -> None:
    """Both find the inputs of the trial."""
    objects = ObjectStore(deeds.home / "objects")
    key = remember(objects, "spoil")
    build = build_deed(objects, "c0001", "spoil").build
    trial = Trial(
        id="r1.1",
        run="r1",
        case="c0001",
        batch="b",
        kernel="deed",
        arguments={},
        config={},
        target="deed",
        outcome=Outcome.MISMATCH,
        keys=Keys(build=build, run=key),
    )
    with TrialStore.open(deeds.home) as store:
        store.record(trial)
    for named in ("r1.1", build):
        done = deeds.run("run-artifact", named)
        expected = ["mismatch"]
        assert [r["outcome"] for r in results(done.stdout)] == expected, done.stderr
        assert "4 of 4 elements are wrong" in done.stdout
        assert done.returncode == 1


def test_what_is_not_there_is_named(deeds: CommandLine) -> None:
    """A key that was never run, a batch that does not exist, and no request at all."""
    messages = {
        ("f" * 40,): "nothing is recorded",
        ("--batch", "0" * 40): "object 0000",
        ("--batch", "no-such-file"): "no-such-file",
        (): "takes trials, or --batch",
    }
    for arguments, expected in messages.items():
        done = deeds.run("run-artifact", *arguments)
        assert done.returncode in (2, 3)
        assert expected in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_batch_file_runs_by_hand(deeds: CommandLine, tmp_path: Path) -> None:
    """As a queue would run it, on the device that the command line gives."""
    batch, entries = plan_deeds(ObjectStore(deeds.home / "objects"), ["copy", "exit", "copy"])
    task = Task(
        token="t",
        batch=batch,
        entries=entries,
        plugins={"deed": "deed_target:DeedTarget"},
        device="cpu:cores={device}",
    )
    file = tmp_path / "batch.json"
    file.write_bytes(msgspec.json.encode(task))
    done = deeds.run("run-artifact", "--batch", str(file), "--devices", "0")
    expected = ["passed", "crashed", "passed"]
    assert [r["outcome"] for r in results(done.stdout)] == expected, done.stderr
    assert done.returncode == 1
    lines = [line.split(" ")[0] for line in done.stdout.splitlines()]
    assert lines[0] == "TILEYARD_TASK"
    assert lines[-1] == "TILEYARD_BATCH"
    assert "exit code 0" in results(done.stdout)[1]["message"]


def test_an_artifact_that_is_gone_is_an_infra_error(deeds: CommandLine) -> None:
    """The far side builds nothing: it says what it lacks."""
    objects = ObjectStore(deeds.home / "objects")
    key = remember(objects, "copy")
    shutil.rmtree(objects.root / "records" / "build")
    done = deeds.run("run-artifact", key)
    expected = ["infra_error"]
    assert [r["outcome"] for r in results(done.stdout)] == expected
    assert "is missing or damaged" in done.stdout
    assert done.returncode == 3


def test_the_far_side_needs_no_kernel_language(deeds: CommandLine) -> None:
    """Neither the command nor its runner loads TileLang, torch or SQLAlchemy."""
    objects = ObjectStore(deeds.home / "objects")
    key = remember(objects, "copy")
    blocker = deeds.cwd / "blocked"
    for package in ("tilelang", "torch", "tvm", "sqlalchemy"):
        (blocker / package).mkdir(parents=True)
        (blocker / package / "__init__.py").write_text("raise SystemExit(99)", encoding="utf-8")
    path = f"{blocker}:{deeds.env['PYTHONPATH']}"
    done = deeds.run("run-artifact", key, PYTHONPATH=path)
    expected = 0
    assert done.returncode == expected, (done.stderr, sys.path)


def test_term_ends_the_runner_and_tidies_up(deeds: CommandLine, tmp_path: Path) -> None:
    """A queue that ends a task politely finds nothing left of it."""
    objects = ObjectStore(deeds.home / "objects")
    batch, entries = plan_deeds(objects, ["hang"])
    batch = msgspec.structs.replace(
        batch, cases=(msgspec.structs.replace(batch.cases[0], limits=Limits()),)
    )
    plugins = {"deed": "deed_target:DeedTarget"}
    task = Task(token="t", batch=batch, entries=entries, plugins=plugins, device="cpu:0")
    file = tmp_path / "batch.json"
    file.write_bytes(msgspec.json.encode(task))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    deeds.env["TMPDIR"] = str(scratch)
    with deeds.start("run-artifact", "--batch", str(file)) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("TILEYARD_CASE"):
            pass
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.communicate()
    expected = 143
    assert process.returncode == expected
    assert family
    assert not any(member.is_running() for member in family)
    assert list(scratch.iterdir()) == []
