"""A study on devices of a foreign queue comes to what it would on devices of this host."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.e2e.lab_queue import serve_queue
from tests.endings import has_ended

FAULTS = str(KERNELS / "faults.py")
SCRIPTED = "scripted=tileyard.testing.scripted:ScriptedTarget"
STORM = ("half", "lose-results", "client-dies", "garble")
REST = ("lose", "swallow duplicate", "truncate", "fail decorate")
"""What goes wrong with the first tasks; the rest in a storm of full size only, since each is tried alone, too."""
IS_FULL = "TILEYARD_STORM" in os.environ

pytestmark = pytest.mark.slow


@pytest.fixture
def cli(knowing: CommandLine) -> CommandLine:
    """What kernels' authors answer is known here: who runs them is what matters."""
    return knowing


@pytest.fixture
def here(cli: CommandLine, answers: Path) -> CommandLine:
    """The same, with a home that knows nothing of the other's runs."""
    other = CommandLine(cli.cwd, {"TILEYARD_HOME": str(cli.cwd / "here")})
    other.share(answers)
    return other


@pytest.fixture
def queue(cli: CommandLine) -> Iterator[Path]:
    """A queue with one core of this machine."""
    core = str(min(os.sched_getaffinity(0)))
    fields = {"device": "cpu:cores={device}", "identity": "one core", "slots": 2, "cases": 3}
    with serve_queue(cli.cwd, core, **fields) as folder:
        yield folder


def test_a_study_through_a_queue(cli: CommandLine, here: CommandLine, queue: Path) -> None:
    """Outcomes, winner and finals are as on this host; many cases share a task."""
    cli.env["TILEYARD_PLUGINS"] = here.env["TILEYARD_PLUGINS"] = SCRIPTED
    command = ("tune", FAULTS, "--target", "scripted", "--run-limit", "2s")
    space = ("--config", "fault=none,wrong_result,endless_loop", "--config", "block=16,32")
    local = here.run_json(*command, *space)
    there = cli.run_json(*command, *space, "--devices", "queue:lab")
    expected = {str(t["config"]): t["outcome"] for t in local["trials"]}
    assert {str(t["config"]): t["outcome"] for t in there["trials"]} == expected
    assert there["best"]["config"] == local["best"]["config"]
    assert [f["config"] for f in there["finals"]] == [f["config"] for f in local["finals"]]
    assert there["best"]["device"].startswith("queue:lab")
    tasks = len(list((queue / "tasks").iterdir()))
    assert tasks < len(expected)


def test_what_a_queue_fails_is_run_again(cli: CommandLine, here: CommandLine, queue: Path) -> None:
    """The first tasks go wrong, each in its own way, and every case gets its right outcome."""
    cli.env["TILEYARD_PLUGINS"] = here.env["TILEYARD_PLUGINS"] = SCRIPTED
    for number, faults in enumerate((*STORM, *REST) if IS_FULL else STORM, 1):
        (queue / "faults" / str(number)).write_text(faults, encoding="utf-8")
    blocks = "block=16,32,64,128" if IS_FULL else "block=16,32"
    space = ("--config", "fault=none,wrong_result,stray_index", "--config", blocks)
    command = ("tune", FAULTS, "--target", "scripted", *space)
    result = cli.run_json(*command, "--devices", "queue:lab")
    expected = {"none": "passed", "wrong_result": "mismatch", "stray_index": "runtime_error"}
    for trial in result["trials"]:
        assert trial["outcome"] == expected[trial["config"]["fault"]], trial
    assert len(result["trials"]) == (12 if IS_FULL else 6)
    assert any(trial["attempts"] for trial in result["trials"])
    assert result["best"]["config"] == here.run_json(*command)["best"]["config"]


def test_a_study_that_cannot_submit_builds_nothing(cli: CommandLine, queue: Path) -> None:
    """A missing client, an unknown queue and a nested request are refused in one line."""
    command = ("tune", FAULTS, "--config", "fault=none")
    text = (cli.cwd / "tileyard.toml").read_text(encoding="utf-8")
    nested = cli.run(*command, "--devices", "queue:lab", TASK_DEVICE="0")
    unknown = cli.run(*command, "--devices", "queue:lap")
    (cli.cwd / "tileyard.toml").write_text(text.replace(sys.executable, "/no/such", 1), "utf-8")
    missing = cli.run(*command, "--devices", "queue:lab")
    expected = ("TASK_DEVICE is set", "there is no queue 'queue:lap'", "'/no/such', named by")
    for done, said in zip((nested, unknown, missing), expected, strict=True):
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert list((queue / "tasks").iterdir()) == []
    assert not (cli.home / "objects" / "records" / "build").exists()


def test_a_cancelled_job_leaves_no_task(cli: CommandLine, queue: Path) -> None:
    """The card is free again although nobody told the engine anything."""
    os.mkfifo(queue / "started")
    space = ("--config", "fault=endless_loop", "--config", "block=32")
    with cli.start("tune", FAULTS, *space, "--devices", "queue:lab") as process:
        expected = "1"
        assert (queue / "started").read_text(encoding="ascii") == expected
        process.terminate()
        process.communicate()
    assert has_ended(int((queue / "tasks/1/pid").read_text(encoding="ascii")), 60.0)
    assert (queue / "tasks/1/cancel").exists()


def test_one_interrupt_takes_waiting_tasks_out_of_the_queue(cli: CommandLine, queue: Path) -> None:
    """Nobody waits for a device once the run is stopping; the cases were not run."""
    (queue / "faults/all").write_text("hang", encoding="utf-8")
    os.mkfifo(queue / "waiting")
    space = ("--config", "fault=none", "--config", "block=32")
    with cli.start("tune", FAULTS, *space, "--devices", "queue:lab", "--json") as process:
        (queue / "waiting").read_text(encoding="ascii")
        (seen,) = cli.run_json("devices", "--window", "10ms")["queues"]
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    expected = ["not_run"]
    assert [trial["outcome"] for trial in json.loads(output)["trials"]] == expected
    assert process.returncode == 130
    assert (queue / "tasks/1/cancel").exists()
    assert (seen["name"], seen["is_tool_found"]) == ("queue:lab", True)
    assert (
        seen["tasks"] >= 1
    )  # those of this host: other tests may have theirs in a queue of that name


@pytest.mark.parametrize(
    ("faults", "outcome", "said"),
    [
        ("hang", "queue_timeout", "queue limit of 3 s"),
        ("lose", "infra_error", "no result line came"),
    ],
)
def test_a_queue_that_is_of_no_use_fails_no_case(
    cli: CommandLine, queue: Path, faults: str, outcome: str, said: str
) -> None:
    """The run ends, every case says why it could not run, and so does the exit status."""
    (queue / "faults/all").write_text(faults, encoding="utf-8")
    space = ("--config", "fault=none", "--config", "block=16,32")
    limit = ("--queue-limit", "3s" if faults == "hang" else "60s", "--json")
    done = cli.run("tune", FAULTS, *space, "--devices", "queue:lab", *limit)
    expected = {outcome}
    trials = json.loads(done.stdout)["trials"]
    assert {trial["outcome"] for trial in trials} == expected
    assert said in trials[0]["message"]
    assert done.returncode == 3
