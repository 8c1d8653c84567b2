"""A tree of tests whose card is behind a queue: for how much of the time does a task hold it.

``python benchmarks/pytest_queue.py [--tests 200]``. Each test compiles for ``--compile`` seconds, computes its reference for
``--golden`` seconds, runs on the card for ``--run`` seconds and compares; whatever starts to use the card imports what it
takes, ``--start`` seconds once in each process. All that is CPU time of this host. The queue is the one of the tests, with
one device. Beside it: one job that holds the card while pytest runs as ever, and one task for each test.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.e2e.lab_queue import serve_queue

CARD = '''\
"""What a test needs of its platform. Seconds are processor time, as a compiler and a reference take it."""

import os
import time


def work(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def start():
    global started
    if os.getpid() != started:
        work({start})
        started = os.getpid()


started = 0


def launch(binary, data):
    start()
    work({run})
    return [binary * one for one in data]


def build(number):
    work({compile})
    return number


def reference(number, data):
    work({golden})
    return [number * one for one in data]
'''
TESTS = """\
import pytest
from card import build, launch, reference


@pytest.mark.tile_compile(function=build)
@pytest.mark.parametrize("number", {numbers})
def test_case(number, tile_built, tile_device):
    data = list(range(100))
    want = reference(number, data)
    binary = tile_built.result
    with tile_device():
        got = launch(binary, data)
    assert got == want
"""
TODAY = """\
import pytest
from card import build, launch, reference


@pytest.mark.parametrize("number", {numbers})
def test_case(number):
    data = list(range(100))
    want = reference(number, data)
    binary = build(number)
    got = launch(binary, data)
    assert got == want
"""
TASK = """
import subprocess, sys
sys.exit(max(subprocess.run(command).returncode for command in {commands}))
"""


def write_tree(folder: Path, text: str, options: argparse.Namespace) -> None:
    """Five files of tests."""
    folder.mkdir()
    values = {name: str(getattr(options, name)) for name in ("start", "run", "compile", "golden")}
    (folder / "card.py").write_text(fill(CARD, values))
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:cacheprovider -p no:randomly -q\n"
    )
    for number in range(5):
        numbers = str(list(range(options.tests))[number::5])
        (folder / f"test_{number}.py").write_text(fill(text, {"numbers": numbers}))


def fill(text: str, values: dict[str, str]) -> str:
    """A template with its values."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def measure(folder: Path, command: list[str]) -> tuple[float, float, int, str]:
    """Seconds in all, seconds for which tasks held the card, how many tasks there were, and the last line."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)  # fmt: skip
    wall_s = time.monotonic() - began
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    held_s = 0.0
    tasks = list((folder / "a queue" / "tasks").iterdir())
    for task in tasks:
        # The queue writes the pid as it starts a task, and the code as the task ends.
        held_s += (task / "code").stat().st_mtime - (task / "pid").stat().st_mtime
    return wall_s, held_s, len(tasks), done.stdout.strip().splitlines()[-1]


def environment(folder: Path) -> dict[str, str]:
    """A home of its own."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TILEYARD_")}
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**kept, "TILEYARD_HOME": str(folder / "home"), "PYTHONPATH": path}


def submit_by_hand(folder: Path, commands: list[list[str]]) -> list[str]:
    """A command that submits one task for each of these, one after another."""
    client = [sys.executable, str(ROOT / "tests/faults/fake_queue.py"), "task-submit"]
    limits = ["--device", "auto", "--max-time", "3600", "--timeout", "7200"]
    submitted = [
        [
            *client,
            str(folder / "a queue"),
            *limits,
            "--run",
            f"cd '{folder}' && {' '.join(command)}",
        ]
        for command in commands
    ]
    return [sys.executable, "-c", fill(TASK, {"commands": repr(submitted)})]


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--compile", type=float, default=0.5)
    parser.add_argument("--golden", type=float, default=0.2)
    parser.add_argument("--run", type=float, default=0.01)
    parser.add_argument("--start", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--each", type=int, default=10, help="tests of the last line")
    options = parser.parse_args()
    pytest = [sys.executable, "-m", "pytest"]
    ours = [*pytest, "--tileyard", "--tileyard-device=queue:lab", "--tileyard-limit=30s", f"--tileyard-workers={options.workers}"]  # fmt: skip
    core = str(min(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="tileyard-benchmark-") as scratch:
        for name, text, count in (
            ("tests' blocks as tasks", TESTS, options.tests),
            ("one job, pytest within", TODAY, options.tests),
            ("one task for each test", TODAY, options.each),
        ):
            folder = Path(scratch) / name.replace(" ", "-").replace("'", "")
            options.tests = count
            write_tree(folder, text, options)
            files = sorted(path.name for path in folder.glob("test_*.py"))
            each = [[*pytest, f"'{file}::test_case[{number}]'"] for place, file in enumerate(files) for number in range(count)[place::5]]  # fmt: skip
            with serve_queue(
                folder, core, device="cpu:cores={device}", identity="one core", cases=options.batch
            ):
                if text is TESTS:
                    command = ours
                else:
                    command = submit_by_hand(
                        folder, [pytest] if name.startswith("one job") else each
                    )
                wall_s, held_s, tasks, last = measure(folder, command)
            print(
                f"{name:24} {count:4} tests {wall_s:7.1f} s, card held {held_s:7.1f} s = {held_s / wall_s:6.1%} "
                f"in {tasks} tasks; {held_s / count:.2f} s a test; {last}",
                flush=True,
            )


if __name__ == "__main__":
    main()
