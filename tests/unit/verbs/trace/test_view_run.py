"""A run as trace events: what viewers ask of the format, and the command that writes them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.trace_format import require_valid
from tests.unit.show.simulated_runs import simulate

from tileyard.base.errors import UsageError
from tileyard.base.events import CasePlanned, CaseStarted, Event
from tileyard.base.model import Case, KernelWork
from tileyard.cli.main import main
from tileyard.show.timeline import fold_timeline
from tileyard.store.events import EventLog, find_run_file
from tileyard.verbs.trace.view.run import PATH, describe_timeline, describe_trace

HOSTILE = '</script><b>\x1b[31m"\u202e'


def trace_of(events: list[Event]) -> dict[str, Any]:
    """The document, as a viewer reads it."""
    made = json.dumps(describe_trace(fold_timeline(events), events), allow_nan=False)
    found: dict[str, Any] = json.loads(made)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_run_is_what_viewers_read(seed: int) -> None:
    """Each span is there once, beside the critical path; each arrow leads from a span to a later one."""
    run = simulate(seed, cases=20)
    document = trace_of(run.events)
    require_valid(document)
    events = document["traceEvents"]
    spans = [one for one in events if one["ph"] == "X" and one["cat"] != PATH]
    assert len(spans) == len(run.happened)
    begun = [one.case for one in run.events if isinstance(one, CaseStarted)]
    ran = [one["args"]["cases"] for one in spans if one["cat"] == "running"]
    assert sorted(ran) == sorted(begun)
    path = [one for one in events if one["ph"] == "X" and one["cat"] == PATH]
    assert sum(one["dur"] for one in path) == 1000 * run.end + 250_000
    hosts = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert hosts == {"run r", "this host", "host far"}
    assert {one["name"] for one in events if one["ph"] == "C"} == {"cases"}


def test_configs_and_hostile_names_are_text() -> None:
    """A span names its kernel and config; a name with controls and markup is shown as it is in JSON."""
    work = KernelWork(kernel=HOSTILE, config={"block": 64})
    events: list[Event] = [
        CasePlanned(case=Case(id=HOSTILE, work=work)),
        CaseStarted(case=HOSTILE, device="cpu:0", at=5.0),
    ]
    document = trace_of(events)
    require_valid(document)
    (span,) = (one for one in document["traceEvents"] if one["ph"] == "X")
    assert span["args"] == {"cases": HOSTILE, "configs": f"{HOSTILE} block=64"}


def test_an_empty_stream_is_an_empty_trace() -> None:
    """Nothing was recorded, as of a run that was killed before it began."""
    require_valid(trace_of([]))
    assert list(describe_timeline(fold_timeline([]))) == ["run : 0.0 s, no end recorded"]


def test_the_command_writes_and_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default the last run; its lanes with shares of their time that add up, the critical path, and
    the file.
    """
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("20261130-1", "20261130-2"):
        with EventLog(tmp_path / "home", name) as log:
            for event in simulate(1, cases=5).events:
                log.append(event)
    assert main(["trace", "20261130-1", "-o", "trace.json"]) == 0
    require_valid(json.loads((tmp_path / "trace.json").read_bytes()))
    shown = capsys.readouterr().out
    assert "judge: " in shown
    assert "\ncritical path: " in shown
    lanes = (
        shown.partition("to the end of the run:\n")[2].partition("critical path")[0].splitlines()
    )
    assert any(" idle (" in line for line in lanes)
    for line in lanes:
        shares = re.findall(r"([\d.]+) %", re.sub(r"\(.*", "", line))
        assert sum(map(float, shares)) == pytest.approx(100, abs=0.5 * len(shares)), line
    assert main(["trace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reason"] == "done"
    assert main(["trace", "2026"]) == 2
    assert "'2026' is the beginning of 2 runs: 20261130-1, 20261130-2" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no run 'r9' is recorded in "):
        find_run_file(tmp_path / "home", "r9")
