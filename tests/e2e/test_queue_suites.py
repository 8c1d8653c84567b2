"""Suites of programs on devices behind a queue: each case has a verdict, a limit and a log of its own."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.lab_queue import is_left, serve_queue

pytestmark = pytest.mark.slow

PROGRAM = """
import os, shutil, signal, sys, time
cases, _, works = " ".join(sys.argv[1:]).partition(" -- ")
for case, work in zip(cases.split(), works.split() or ["."]):
    output = os.path.join(work, "output.bin")
    used = os.path.exists(output)
    print("BEGIN", case, "card", os.environ["CARD"], "used" if used else "fresh", flush=True)
    verdict = "PASS"
    if case == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "hang":
        time.sleep(600)
    if case == "quiet":
        sys.exit(0)
    if case == "infra" and not os.path.exists(os.environ["SEEN"]):
        open(os.environ["SEEN"], "w").close()
        verdict = "INFRA"
    if case == "large":
        import mmap
        mmap.mmap(-1, 40 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    shutil.copy(os.path.join(work, "golden.bin"), output)
    if case == "wrong":
        open(output, "wb").write(bytes([1, 2, 3, 5]))
    print(f"PYPTO_EXEC_RESULT={verdict} case={case}", flush=True)
"""

SUITE = r"""
name   = "cards"
dtype  = "uint8"
limits = { run_s = 3 }
env    = { SEEN = "{suite}/seen" }

[build]
argv   = ["sh", "-c", "cp program.py {out} && echo x >> {suite}/builds"]
inputs = ["program.py"]

[golden]
argv = ["sh", "-c", "printf '\\001\\002\\003\\004' > {out}/golden.bin"]

[run]
argv = ["{python}", "{build}/program.py", "{case}"]
env  = { CARD = "{device}" }

[run.hot]
argv     = ["{python}", "{build}/program.py", "{cases}", "--", "{works}"]
env      = { CARD = "{device}" }
began    = '^BEGIN (?P<case>\S+)'
ended    = '^PYPTO_EXEC_RESULT=(?P<verdict>\w+) case=(?P<case>\S+)'
verdicts = { PASS = "passed", FAIL = "mismatch", INFRA = "infra_error" }

[output]
file   = "output.bin"
golden = "golden.bin"
shape  = "4"

[check]
argv = ["sh", "-c", "echo near; [ -z \"$TASK_DEVICE\" ] || exit 9"]

[[testcase]]
name = "t"
case = [CASES]
"""


CARD = {"device": "npu:{device}", "identity": "a card"}


@pytest.fixture
def queue(cli: CommandLine) -> Iterator[Path]:
    """A queue with one card of a class that this machine knows nothing of."""
    probe = ["sh", "-c", f"echo {{device}} >> '{cli.cwd}/probes'"]
    with serve_queue(cli.cwd, "3", **CARD, probe=probe) as folder:
        yield folder


def run_suite(
    cli: CommandLine, names: tuple[str, ...], text: str = SUITE
) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
    """Run the suite with these cases: verdicts and logs, both by the case's name."""
    cases = ", ".join(f'{{ name = "{name}" }}' for name in names)
    (cli.cwd / "suite.toml").write_text(text.replace("CASES", cases))
    (cli.cwd / "program.py").write_text(PROGRAM)
    done = cli.run("test", "suite.toml", "--devices", "queue:lab", "--json")
    assert done.stdout, done.stderr
    verdicts = {v["case"].rpartition("/")[2]: v for v in json.loads(done.stdout)["verdicts"]}
    (folder,) = (cli.home / "logs").glob("*/t")
    return verdicts, {path.stem: path.read_text() for path in folder.iterdir()}


PAIRS = """
name = "pairs"
run = ["sh", "-c", "echo {device} {device_physical} $TASK_DEVICE $LEVEL >> {suite}/told"]
[[testcase]]
name = "one"
[[testcase]]
name = "two"
devices = 2
"""


def test_several_devices_come_from_a_queue_together(cli: CommandLine) -> None:
    """``submit`` asks for as many as a case needs; without a place for the number the run is refused. Steps
    get what the queue's prologue sets.
    """
    (cli.cwd / "suite.toml").write_text(PAIRS)
    submitted = {**CARD, "prologue": "export LEVEL=$((1 + 1))"}
    with serve_queue(cli.cwd, "3 4", **submitted):
        done = cli.run("test", "suite.toml", "--devices", "queue:lab")
    assert done.returncode == 0, done.stderr
    told = sorted((cli.cwd / "told").read_text().splitlines(), key=len)
    assert told[0] in ("0 3 0 2", "0 4 0 2")
    assert told[1] in ("0,1 3,4 0,1 2", "0,1 4,3 0,1 2")
    assert "{device} and TASK_DEVICE count from 0" in done.stdout
    shutil.rmtree(cli.cwd / "a queue")
    with serve_queue(cli.cwd, "3", counted=False, **CARD):
        done = cli.run("test", "suite.toml", "--devices", "queue:lab")
    expected = "a case needs 2 devices, and `submit` of queue 'lab' has no {devices}"
    assert (done.returncode, expected in done.stderr) == (2, True), done.stderr


SICK = """
name = "sick"
run = ["sh", "-c", "echo {case} {device_physical} >> {suite}/ran; \
[ {case} != first ] || (echo {device_physical} > {suite}/sick); [ {case} != first ] || kill -SEGV $$"]
[[testcase]]
name = "t"
case = [{ name = "first" }, { name = "second" }, { name = "third" }]
"""


def test_a_card_that_fails_its_probe_is_given_up(cli: CommandLine) -> None:
    """The rest of its task goes to another card, as the run says; without one, no case is blamed for it."""
    (cli.cwd / "suite.toml").write_text(SICK)
    probe = ["sh", "-c", f"echo fan; ! grep -q {{device}} '{cli.cwd}/sick'"]
    options = ("test", "suite.toml", "--devices", "queue:lab", "--json")
    ends = {}
    for cards in ("3 4", "3"):
        with serve_queue(cli.cwd, cards, **CARD, probe=probe) as folder:
            done = cli.run(*options)
            ends[cards] = [v["outcome"] for v in json.loads(done.stdout)["verdicts"]]
            assert not is_left(folder)
        assert "npu:3@" in done.stderr
        assert "was given up: npu:3 is sick: fan" in done.stderr
        shutil.rmtree(folder)
    expected = {"3 4": ["crashed", "passed", "passed"], "3": ["crashed", *["infra_error"] * 2]}
    assert ends == expected
    ran = [line.split() for line in (cli.cwd / "ran").read_text().splitlines()]
    assert [card for _, card in ran] == ["3", "4", "4", "3"]


def test_a_prologue_that_fails_is_no_fault_of_a_case(cli: CommandLine) -> None:
    """Nothing is run, and the message has what bash said."""
    (cli.cwd / "suite.toml").write_text(PAIRS.partition('[[testcase]]\nname = "two"')[0])
    with serve_queue(cli.cwd, "3", **CARD, prologue="source /no/activate.sh"):
        done = cli.run("test", "suite.toml", "--devices", "queue:lab")
    assert done.returncode == 3
    assert "/no/activate.sh: No such file or directory" in done.stderr + done.stdout
    assert not (cli.cwd / "told").exists()


def test_each_case_of_a_hot_task_has_its_own_verdict(cli: CommandLine, queue: Path) -> None:
    """Crash, hang and silent end blame one case each; after the first two the card is probed. The silent one
    runs again alone, and then exit code 0 says that it ran. Outputs are compared here. Logs hold the steps of
    both sides in order: golden and build step, the far side's output, and the check step.
    """
    names = ("a", "crash", "b", "hang", "wrong", "c", "quiet", "d")
    # Each case has a golden step of its own, whose log is not the other one's.
    verdicts, logs = run_suite(cli, names, SUITE.replace("printf", ": {case}; printf"))
    expected = {
        "a": "passed",
        "crash": "crashed",
        "b": "passed",
        "hang": "timeout",
        "wrong": "mismatch",
        "c": "passed",
        "quiet": "mismatch",
        "d": "passed",
    }
    assert {name: v["outcome"] for name, v in verdicts.items()} == expected
    assert (cli.cwd / "probes").read_text() == "3\n3\n"
    assert "ran past its run limit of 3 s" in str(verdicts["hang"]["message"])
    assert "output.bin[3] is 5, expected 4" in str(verdicts["wrong"]["message"])
    for name in names:
        others = [line for line in logs[name].splitlines() if line.startswith("BEGIN")]
        assert {line.split()[1] for line in others} == {name}
    assert "near" in logs["a"].splitlines()
    assert (cli.cwd / "builds").read_text() == "x\n"
    # All need the same build: it is in the log of the one that was ready for it first.
    (first,) = (name for name, log in logs.items() if "==== build:" in log)
    begun, ended = f"BEGIN {first} card 0", "PYPTO_EXEC_RESULT=PASS"
    assert_in_order(logs[first], ("==== golden:", "==== build:", begun))
    assert_in_order(logs["a"], ("==== golden:", "BEGIN a card 0", ended, "==== check:"))


def assert_in_order(log: str, texts: tuple[str, ...]) -> None:
    """All of them are in the log, one after another."""
    places = [log.find(text) for text in texts]
    assert places == sorted(places)
    assert places[0] >= 0


def test_what_the_device_failed_runs_again_in_a_fresh_folder(cli: CommandLine, queue: Path) -> None:
    """The attempt is kept, the folder is made anew, and the next one decides. No memory of a program is
    counted: its suite does not.
    """
    verdicts, logs = run_suite(cli, ("a", "infra", "large"))
    expected = ["BEGIN infra card 0 fresh", "BEGIN infra card 0 fresh"]
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}
    assert [line for line in logs["infra"].splitlines() if "BEGIN" in line] == expected
    assert len(list((queue / "tasks").iterdir())) == 2


def test_a_task_that_is_lost_is_submitted_again(cli: CommandLine, queue: Path) -> None:
    """Its results did not come, so its cases run once more, and none is blamed. A program has the memory that
    its suite gives it, and has to do with it alone.
    """
    (queue / "faults" / "1").write_text("lose-results")
    limited = SUITE.replace("run_s = 3", "run_s = 9, memory_bytes = 100_000_000")
    verdicts, logs = run_suite(cli, ("a", "large", "b"), limited)
    assert verdicts.pop("large")["outcome"] != "passed", logs
    assert {v["outcome"] for v in verdicts.values()} == {"passed"}, logs
    assert len(list((queue / "tasks").iterdir())) > 1
