"""The six verbs from Python come to what the commands of these names come to."""

import asyncio
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.own_process import FileAuthor

import tileyard
from tileyard.verbs.check.command import checking

pytestmark = pytest.mark.slow

PIPELINES = ROOT / "examples" / "pipelines.py"
RUNS = {"run", "seconds", "reused"}
"""Fields that differ from run to run."""

SUITE = """
name = "two"
[[testcase]]
name = "a"
run = { argv = ["true"] }
case = [{ name = "1" }, { name = "2" }]
[[testcase]]
name = "b"
run = { argv = ["false"] }
case = [{ name = "1" }]
"""


@pytest.fixture
def place(cli: CommandLine, one_core: None, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A folder, home and locks of its own, also for calls in this process, on one core."""
    for name, text in cli.environment().items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(cli.cwd)
    return cli


def plain(record: object) -> Any:  # noqa: ANN401 - JSON
    """A record as ``--json`` prints it."""
    return json.loads(msgspec.json.encode(record))


def without(record: dict[str, Any], *fields: str) -> dict[str, Any]:
    """A record without what differs from run to run."""
    return {key: value for key, value in record.items() if key not in {*RUNS, *fields}}


@pytest.fixture
def pipelines(place: CommandLine) -> ModuleType:
    """The module of a file with a kernel that copies asynchronously, in the folder."""
    file = place.cwd / "pipelines.py"
    file.write_text(PIPELINES.read_text(encoding="utf-8"), encoding="utf-8")
    # Not at the top: it brings TileLang.
    module: ModuleType = importlib.import_module("tileyard.frontend.discover").import_file(file)
    return module


@pytest.mark.sweep(0)  # by default: test_tune.py and test_compile.py
def test_tune_and_compile(place: CommandLine, pipelines: ModuleType) -> None:
    """What the command has measured and built is what Python finds; limits and values in their own forms."""
    options = ("pipelines.py::scale", "--arg", "N=96", "--run-limit", "5m", "--trials", "1")
    told = place.run_json("tune", *options)
    given: dict[str, Any] = {"arg": {"N": 96}, "run_limit": 300, "trials": 1}
    study = tileyard.tune("pipelines.py::scale", **given)
    assert [trial["id"] for trial in told["trials"]] == [trial.id for trial in study.result.trials]
    assert told["best"]["id"] == study.best.trial.id
    fresh = tileyard.tune(pipelines.scale, **given, resume=False, overlap=False, group_size=1)
    assert fresh.best.trial.keys.build == study.best.trial.keys.build
    assert fresh.best.trial.id != study.best.trial.id

    told = place.run_json("compile", "pipelines.py::scale", "--arg", "N=96")
    for kernel in ("pipelines.py::scale", pipelines.scale):
        built = tileyard.compile(kernel, arg=["N=96"])
        assert without(plain(built)["configs"][0]) == without(told["configs"][0])
        assert built.exit_status == 0


def test_check(place: CommandLine, pipelines: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file, and of a function that this process has; also where a loop is running, as in a notebook."""
    told = place.run_json("check", "pipelines.py::scale", "--arg", "N=96")
    monkeypatch.setattr(checking, "WorkerAuthor", FileAuthor)
    assert plain(tileyard.check("pipelines.py::scale", arg={"N": 96})) == told

    async def check() -> object:
        return tileyard.check(pipelines.scale, arg={"N": 96}, limit=60)

    assert plain(asyncio.run(check())) == told


def test_plan_and_test(place: CommandLine) -> None:
    """A failing case is a verdict, as the exit status says, and no exception; files are written."""
    (place.cwd / "suite.toml").write_text(SUITE)
    told = place.run_json("test", "suite.toml", "--slots", "1")
    found = tileyard.test("suite.toml", slots=1, junit=Path("junit.xml"))
    assert found.exit_status == 1
    ended = [(one["case"], one["outcome"]) for one in told["verdicts"]]
    assert [(one.case, one.outcome.value) for one in found.verdicts] == ended
    assert "<testsuites" in (place.cwd / "junit.xml").read_text()
    told = place.run_json("plan", "suite.toml", "--slots", "2", "--startup", "1s")
    assert plain(tileyard.plan("suite.toml", slots=2, startup=1)) == told


def test_regress(place: CommandLine) -> None:
    """Of numbers that others have measured, with the comment that is asked for."""
    for side, time_s in (("base", 1.0), ("head", 1.5)):
        stats = {"mean": time_s, "min": time_s, "median": time_s, "stddev": 0.001, "rounds": 9}
        found = {"benchmarks": [{"name": "scale", "fullname": "scale", "stats": stats}]}
        (place.cwd / f"{side}.json").write_text(json.dumps(found))
    done = place.run("regress", "base.json", "head.json", "--json")
    found = tileyard.regress("base.json", "head.json", margin=0.02, comment="comment.md")
    assert without(plain(found)) == without(json.loads(done.stdout))
    assert found.exit_status == done.returncode
    assert "scale" in (place.cwd / "comment.md").read_text()
    with pytest.raises(tileyard.TileyardError, match="devices has no effect with static=True"):
        tileyard.regress("base.json", "head.json", static=True, devices="cpu")
