"""A study on devices of a foreign queue comes to what it would on devices of this host."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.e2e.lab_queue import is_left, serve_queue
from tests.e2e.own_process import refuse_run
from tests.endings import has_ended
from tests.samples import sampled

FAULTS = str(KERNELS / "faults.py")
SCRIPTED = "scripted=tileyard.testing.doubles.scripted:ScriptedTarget"
STORM = ("half", "garble")
REST = ("lose-results", "client-dies", "lose", "swallow duplicate", "truncate", "fail decorate")
"""What goes wrong with the first tasks; the rest only in a full storm, as each is tried alone, too."""
IS_FULL = "TILEYARD_STORM" in os.environ
OUTCOMES = {"none": "passed", "wrong_result": "mismatch"}
if IS_FULL:
    OUTCOMES |= {"stray_index": "runtime_error", "endless_loop": "timeout"}
BLOCKS = "block=16,32,64,128" if IS_FULL else "block=16,32"
ENDLESS = """
name = "endless"
build = ["sh", "-c", "echo > {suite}/built"]
run = ["sleep", "600"]
limits = { run_s = 500 }
[[testcase]]
name = "t"
"""

ONCE = """
name = "s"
run = ["sh", "-c", "cd '{suite}/a queue'; [ -e tasks/2 -a -e faults/1 ] || exec sleep 600"]
[[testcase]]
name = "t"
"""
"""A case that runs on in the first task, or in each if the fault is not only that one's."""
ENDS = {
    "killed": ("passed", 2, "ended with code 143"),
    "limit": ("infra_error", 2, "任务超时"),  # the server ends each task, whatever was asked for
    "hasty-later": ("passed", 2, "ended with code 1 ("),  # the client leaves its task running
    "hasty hang": ("queue_timeout", 1, "等待超时"),  # the client takes its task back
    "hang": ("queue_timeout", 1, "queue limit of 3 s"),
    "reject": ("infra_error", 1, "the task was rejected: "),
    "lose": ("infra_error", 1, "no result line came"),
}
"""By what happens to the first task, or all: verdict, least number of tasks, message about the client."""

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


@pytest.mark.sweep(0)  # by default: test_queue_suites.py and tests/faults/test_foreign_queue.py
def test_a_study_through_a_queue(cli: CommandLine, here: CommandLine, queue: Path) -> None:
    """Outcomes, winner and finals are as on this host, and many cases share a task. Also where the first
    tasks go wrong, each in its own way: what the queue fails is run again.
    """
    cli.env["TILEYARD_PLUGINS"] = here.env["TILEYARD_PLUGINS"] = SCRIPTED
    space = ("--config", f"fault={','.join(OUTCOMES)}", "--config", BLOCKS)
    command = ("tune", FAULTS, "--target", "scripted", "--run-limit", "2s", *space)
    local = here.run_json(*command)
    outcomes = {str(t["config"]): t["outcome"] for t in local["trials"]}
    assert {t["config"]["fault"]: t["outcome"] for t in local["trials"]} == OUTCOMES
    there = cli.run_json(*command, "--devices", "queue:lab")
    tasks = len(list((queue / "tasks").iterdir()))
    assert tasks < len(outcomes)
    for number, faults in enumerate((*STORM, *REST) if IS_FULL else STORM, tasks + 1):
        (queue / "faults" / str(number)).write_text(faults, encoding="utf-8")
    stormy = cli.run_json(*command, "--devices", "queue:lab", "--fresh")
    for study in (there, stormy):
        assert {str(t["config"]): t["outcome"] for t in study["trials"]} == outcomes
        assert len(study["trials"]) == len(outcomes)
        assert study["best"]["config"] == local["best"]["config"]
        assert [f["config"] for f in study["finals"]] == [f["config"] for f in local["finals"]]
        assert study["best"]["device"].startswith("queue:lab")
    assert any(trial["attempts"] for trial in stormy["trials"])


def test_a_run_that_cannot_submit_builds_nothing(cli: CommandLine, queue: Path) -> None:
    """A missing client, an unknown queue and a nested request are refused in one line."""
    (cli.cwd / "suite.toml").write_text(ENDLESS)
    command = ("test", "suite.toml", "--devices")
    text = (cli.cwd / "tileyard.toml").read_text(encoding="utf-8")
    nested = cli.run(*command, "queue:lab", TASK_DEVICE="0")
    unknown = refuse_run(cli, *command, "queue:lap")
    (cli.cwd / "tileyard.toml").write_text(text.replace(sys.executable, "/no/such", 1), "utf-8")
    missing = cli.run(*command, "queue:lab")
    expected = ("TASK_DEVICE is set", "there is no queue 'queue:lap'", "'/no/such', named by")
    for done, said in zip((nested, unknown, missing), expected, strict=True):
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert list((queue / "tasks").iterdir()) == []
    assert not (cli.cwd / "built").exists()


def test_a_cancelled_job_leaves_no_task(cli: CommandLine, queue: Path) -> None:
    """The card is free again although nobody told the engine anything."""
    os.mkfifo(queue / "started")
    (cli.cwd / "suite.toml").write_text(ENDLESS)
    with cli.start("test", "suite.toml", "--devices", "queue:lab") as process:
        expected = "1"
        assert (queue / "started").read_text(encoding="ascii") == expected
        process.terminate()
        process.communicate()
    assert has_ended(int((queue / "tasks/1/pid").read_text(encoding="ascii")), 60.0)
    assert not is_left(queue)
    assert (cli.cwd / "built").exists()


def test_one_interrupt_takes_waiting_tasks_out_of_the_queue(cli: CommandLine, queue: Path) -> None:
    """Nobody waits for a device once the run is stopping; the cases were not run."""
    (queue / "faults/all").write_text("hang", encoding="utf-8")
    os.mkfifo(queue / "waiting")
    (cli.cwd / "suite.toml").write_text(ENDLESS)
    with cli.start("test", "suite.toml", "--devices", "queue:lab", "--json") as process:
        (queue / "waiting").read_text(encoding="ascii")
        looked = cli.run_here("devices", "--window", "10ms", "--json")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    expected = ["not_run"]
    assert [verdict["outcome"] for verdict in json.loads(output)["verdicts"]] == expected
    assert process.returncode == 130
    assert not is_left(queue)
    (seen,) = json.loads(looked.stdout)["queues"]
    assert (seen["name"], seen["is_tool_found"]) == ("queue:lab", True)
    assert (
        seen["tasks"] >= 1
    )  # those of this host: other tests may have theirs in a queue of that name


@pytest.mark.parametrize("faults", sampled([*ENDS], [*ENDS][:-1]))
def test_each_end_of_a_task_has_its_verdict(cli: CommandLine, queue: Path, faults: str) -> None:
    """No case fails because of a queue or client, a begun case runs again, and no task is left."""
    outcome, count, said = ENDS[faults]
    (queue / "faults" / ("1" if outcome == "passed" else "all")).write_text(faults, "utf-8")
    (cli.cwd / "suite.toml").write_text(ONCE)
    limit = ("--queue-limit", "3s" if faults == "hang" else "60s", "--json")
    done = cli.run("test", "suite.toml", "--devices", "queue:lab", *limit)
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert (verdict["outcome"], done.returncode) == (outcome, 0 if outcome == "passed" else 3)
    logs = "".join(path.read_text() for path in cli.home.glob("logs/*/t/*"))
    assert said in verdict["message"] + logs
    assert not is_left(queue)
    assert len(list((queue / "tasks").iterdir())) >= count
