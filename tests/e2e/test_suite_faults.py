"""Suites with mistakes in them, and runs that are ended: everybody is told, and nothing is left."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.endings import has_ended
from tests.samples import sampled

pytestmark = pytest.mark.slow


def run_suite(
    cli: CommandLine, text: str, *arguments: str
) -> tuple[int, dict[str, Mapping[str, object]], dict[str, str]]:
    """Exit status, verdicts by case, and logs by case."""
    (cli.cwd / "suite.toml").write_text('name = "s"\n' + text)
    done = cli.run("test", "suite.toml", "--json", *arguments)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    logs = {f"t/{p.stem}": p.read_text() for p in (cli.home / "logs").glob("*/t/*.log")}
    return done.returncode, {v["case"]: v for v in found["verdicts"]}, logs


def test_a_shared_build_that_fails_is_run_once(cli: CommandLine) -> None:
    """Each of its cases says why; the first one's log tells more, and no attempt changes that."""
    status, verdicts, logs = run_suite(
        cli,
        """
        build = ["sh", "-c", "echo x >> {suite}/builds; exit 7"]
        run = ["true"]
        [[testcase]]
        name = "t"
        case = [{ name = "a" }, { name = "b" }, { name = "c" }]
        """,
        "--retries",
        "2",
    )
    expected = "sh ended with exit code 7; no output"
    assert status == 1
    assert (cli.cwd / "builds").read_text() == "x\n"
    assert {v["outcome"] for v in verdicts.values()} == {"compile_error"}
    for verdict in verdicts.values():
        assert str(verdict["message"]).startswith(expected)
    told = sorted(log.partition(" ")[0] for log in logs.values())
    assert told == ["====", "built", "built"]


def test_complaints_of_steps_that_pass_are_flagged_and_kept(cli: CommandLine) -> None:
    """Of golden, build, run and check step, in the order in which they run."""
    steps = {
        step: f'{step} = ["sh", "-c", "echo {step} complains >&2{more}"]'
        for step, more in (
            ("build", ""),
            ("golden", "; echo x > {out}/g"),
            ("run", ""),
            ("check", ""),
        )
    }
    status, verdicts, logs = run_suite(
        cli, "\n".join([*steps.values(), '[[testcase]]\nname = "t"\ncase = [{ name = "a" }]'])
    )
    flags = str(verdicts["t/a"]["message"]).split("; ")
    expected = [
        "golden step wrote 1 line to stderr, kept in its log",
        "build step wrote 1 line to stderr, kept in its log",
        "wrote 1 line to stderr, kept in its log",
        "check step wrote 1 line to stderr, kept in its log",
    ]
    told = [line.split()[0] for line in logs["t/a"].splitlines() if line.endswith("complains")]
    assert status == 0
    assert flags == expected
    assert told == ["golden", "build", "run", "check"]


def test_a_golden_step_that_makes_nothing_is_told_by_its_file(cli: CommandLine) -> None:
    """What was to be compared with is named, or that there is nothing at all; other sizes are both given."""
    _, verdicts, _ = run_suite(
        cli,
        """
        dtype = "float32"
        golden = ["sh", "-c", "[ $0 = empty ] || head -c 16 /dev/zero > {out}/$0.bin", "{file}"]
        run = ["sh", "-c", "head -c 12 /dev/zero > o.bin; [ {case} = size ] || echo 123 >> o.bin"]
        output = { file = "o.bin", golden = "g.bin", shape = "4" }
        [[testcase]]
        name = "t"
        vars = { file = "g" }
        case = [
            { name = "empty", vars = { file = "empty" } },
            { name = "none", vars = { file = "h" } },
            { name = "size" },
        ]
        """,
    )
    assert "left {out} empty" in str(verdicts["t/empty"]["message"])
    assert "golden file g.bin cannot be read" in str(verdicts["t/none"]["message"])
    assert "o.bin has 12 bytes, 16 were expected" in str(verdicts["t/size"]["message"])


def test_a_flood_of_output_costs_its_case_nothing(cli: CommandLine) -> None:
    """Of 100 MB the log keeps the begin and the end, and the next case is not held up."""
    status, verdicts, logs = run_suite(
        cli,
        """
        run = ["sh", "-c", "yes | head -c 100000000; echo last words"]
        check = ["true"]
        [[testcase]]
        name = "t"
        case = [{ name = "a" }, { name = "b" }]
        """,
    )
    assert status == 0
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}
    for log in logs.values():
        assert len(log) < 40 << 20
        assert "last words\n==== ended with exit code 0" in log


def test_a_case_may_be_called_like_a_path(cli: CommandLine) -> None:
    """Also one of several that share a hot process."""
    _, verdicts, _ = run_suite(
        cli,
        r"""
        run.argv = ["false"]
        run.hot.argv = ["sh", "-c", "for c; do echo begin $c; echo end $c ok; done", "sh", "{cases}"]
        run.hot.began = '^begin (?P<case>\S+)'
        run.hot.ended = '^end (?P<case>\S+) (?P<verdict>\w+)'
        run.hot.verdicts = { ok = "passed" }
        [[testcase]]
        name = "t"
        case = [{ name = "a/one" }, { name = "b/two" }]
        """,
        "--slots",
        "1",
    )
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}


DEADLINE_S = 60.0
"""Within which what is ended is gone; a machine full of other work takes its time."""

ENDLESS = """
name = "endless"
run = ["sh", "-c", "setsid sleep 600 & echo $! > daemon; echo $$ > {suite}/fifo; sleep 600"]
limits = { run_s = 500 }
[[testcase]]
name = "t"
case = [{ name = "a" }, { name = "b" }]
"""


def children(pid: int) -> list[int]:
    """The processes that this one has started."""
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


ENDS = ("ctrl-c twice", "client killed", "engine killed", "hung up")
READERS = list(product(((), ("--json",)), ("echo", "false")))


def find_engine(client: subprocess.Popen[str]) -> int:
    """The engine's process, below the client's."""
    todo = children(client.pid)
    while todo:
        pid = todo.pop()
        if b"tileyard.service.process" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return pid
        todo += children(pid)
    raise AssertionError("the client has no engine")


@pytest.mark.parametrize("how", sampled([*ENDS, "terminated"], ENDS))
def test_whatever_ends_a_run_leaves_nothing(how: str, cli: CommandLine) -> None:
    """Neither the program of a case nor what it has sent into a session of its own. A run that is asked to
    end writes its reports.
    """
    (cli.cwd / "suite.toml").write_text(ENDLESS)
    os.mkfifo(cli.cwd / "fifo")
    reports = ("--junit", "junit.xml", "--summary", "summary.json")
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    process = cli.start("test", "suite.toml", "--slots", "1", *reports)
    signal.signal(signal.SIGHUP, inherited)
    pid = int((cli.cwd / "fifo").read_text())
    match how:
        case "ctrl-c twice":
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            assert any("press Ctrl-C again to stop at once" in line for line in process.stdout)
            process.send_signal(signal.SIGINT)
            expected = 130
        case "client killed":
            process.kill()
            expected = -signal.SIGKILL
        case "engine killed":
            os.kill(find_engine(process), signal.SIGKILL)
            expected = 3
        case _:
            process.send_signal(signal.SIGTERM if how == "terminated" else signal.SIGHUP)
            expected = 130
    _, said = process.communicate()
    (daemon,) = (cli.home / "work").glob("*/t/*/data/daemon")
    assert process.returncode == expected
    assert ("--changed any skips those that passed" in said) == (expected == 3)
    if expected == 130:
        cases = json.loads((cli.cwd / "summary.json").read_text())["result"]["verdicts"]
        expected_ends = [
            ("t/a", "not_run", "the run was ended while this case was under way"),
            ("t/b", "not_run", "the run was ended while this case was under way"),
        ]
        assert [(one["case"], one["outcome"], one["message"]) for one in cases] == expected_ends
        assert (cli.cwd / "junit.xml").read_text().count("<testcase ") == len(cases)
        listed = json.loads(cli.run_here("trials", "--json").stdout)
        assert [trial["outcome"] for trial in listed] == ["not_run", "not_run"]
    assert has_ended(pid, DEADLINE_S)
    assert has_ended(int(daemon.read_text()), DEADLINE_S)


@pytest.mark.parametrize(("options", "second"), sampled(READERS, [READERS[0], READERS[3]]))
def test_who_stops_reading_ends_nothing(
    options: tuple[str, ...], second: str, cli: CommandLine
) -> None:
    """As ``| head -1`` does: reports are written, and the exit status is that of the run."""
    (cli.cwd / "suite.toml").write_text(
        f"""
        name = "two"
        run = ["sh", "-c", "while [ ! -e {{suite}}/closed ]; do sleep 0.01; done; {{case}}"]
        [[testcase]]
        name = "t"
        case = [{{ name = "true" }}, {{ name = "{second}" }}]
        """
    )
    reports = ("--junit", "junit.xml", "--summary", "summary.json")
    process = cli.start("test", "suite.toml", "--slots", "1", *reports, *options)
    assert process.stdout is not None
    if not options:
        process.stdout.readline()
    process.stdout.close()
    (cli.cwd / "closed").touch()
    _, said = process.communicate()
    assert process.returncode == (1 if second == "false" else 0), said
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    cases = json.loads((cli.cwd / "summary.json").read_text())["result"]["verdicts"]
    assert len(cases) == 2
    assert (cli.cwd / "junit.xml").exists()
