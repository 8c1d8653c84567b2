"""A tree of tests whose card is behind a queue: for how much of the time does a task hold it.

``python benchmarks/pytest_queue.py [--tests 200]``. Each test compiles for ``--compile`` seconds, computes
its reference for ``--golden`` seconds, runs on the card for ``--run`` seconds and compares; whatever starts
to use the card imports what it takes, ``--start`` seconds once in each process. All that is CPU time of this
host. The queue is the one of the tests, with one device. Beside it: one job that holds the card while pytest
runs as ever, and one task for each test.

``--manners``: the queue truncates environments, loses tasks and answers, rejects tasks, ends one at its
limit, lets its client die, refuses a submission from within a task, and has somebody else's task first; one
test hangs until its own limit. ``--faults``: more tests hang, and some crash and compute wrongly, too. How
each test ended is compared with what is documented.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.e2e.lab_queue import serve_queue

CARD = '''\
"""What a test needs of its platform. Seconds are processor time, as a compiler and a reference take it."""

import os
import signal
import subprocess
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


def launch(binary, data, manner=""):
    start()
    work({run})
    if manner == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if manner == "hang":
        time.sleep(600)
    if manner == "nest":
        assert subprocess.run({nested}).returncode == 126
    return [binary * one + (manner == "miscompute") for one in data]


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
    manner = {manners}.get(number, "")
    with tile_device():
        got = launch(binary, data, manner)
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


OUTCOMES = {"crash": "crashed", "hang": "timeout", "miscompute": "mismatch", "nest": "passed"}
"""How a test ends by its own manner: a submission from within a task is refused, and the test sees that."""
OF_MANNERS = (1, 3, 7)
"""The tests that meet limits and nested submissions, by places among those with own manners."""
OF_TASKS = {2: "truncate", 3: "reject", 4: "limit", 5: "lose", 6: "half", 7: "client-dies"}
"""What goes wrong with which task of a queue. Task 1 is somebody else's."""
HANG_S, OTHERS_S = 1, 5
"""The limit of tests that hang; for how long somebody else's task has the card first."""
QUEUE = str(ROOT / "tests/faults/fake_queue.py")
LIMITS = ["--device", "auto", "--max-time", "3600", "--timeout", "7200"]


def choose_manners(options: argparse.Namespace) -> dict[int, str]:
    """A twentieth of the tests, spread evenly, by their numbers."""
    manners = [*OUTCOMES, "crash", "hang", "miscompute", "nest", "crash", "miscompute"]
    return {
        place * options.tests // len(manners) + 3: manner
        for place, manner in enumerate(manners)
        if options.faults or (options.manners and place in OF_MANNERS)
    }


def write_tree(folder: Path, text: str, options: argparse.Namespace) -> None:
    """Five files of tests."""
    folder.mkdir()
    manners = choose_manners(options) if text is TESTS else {}
    values = {name: str(getattr(options, name)) for name in ("start", "run", "compile", "golden")}
    nested = [sys.executable, QUEUE, "task-submit", str(folder / "a queue"), *LIMITS]
    values |= {"manners": repr(manners), "nested": repr([*nested, "--run", "true"])}
    hanging = f"marks=pytest.mark.tile_limit('{HANG_S}s')"
    (folder / "card.py").write_text(fill(CARD, values))
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:cacheprovider -p no:randomly -q\n"
    )
    for number in range(5):
        listed = range(options.tests)[number::5]
        hangs = (f", {hanging}" if manners.get(one) == "hang" else "" for one in listed)
        params = (f"pytest.param({n}{mark})" for n, mark in zip(listed, hangs, strict=True))
        numbers = f"[{', '.join(params)}]"
        (folder / f"test_{number}.py").write_text(fill(text, {**values, "numbers": numbers}))


def fill(text: str, values: dict[str, str]) -> str:
    """A template with its values."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def measure(folder: Path, command: list[str]) -> tuple[float, float, int, str]:
    """Seconds in all, seconds for which tasks held the card, how many tasks there were, and the last line."""
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    wall_s = time.monotonic() - began
    if done.returncode and not (folder / "report.json").exists():
        raise SystemExit(done.stdout + done.stderr)
    tasks = [task for task in (folder / "a queue" / "tasks").iterdir() if not is_foreign(task)]
    held_s = sum(map(hold_s, tasks))
    return wall_s, held_s, len(tasks), done.stdout.strip().splitlines()[-1]


def hold_s(task: Path) -> float:
    """How long it held the card, from the pid at a task's start (none if rejected) to the code at its end."""
    ran = (task / "pid").exists()
    return (task / "code").stat().st_mtime - (task / "pid").stat().st_mtime if ran else 0.0


def is_foreign(task: Path) -> bool:
    """Whether it is somebody else's."""
    return f"sleep {OTHERS_S};" in (task / "request").read_text()


@contextmanager
def bad_manners(folder: Path) -> Iterator[None]:
    """Have the first tasks go wrong, and the card be somebody else's to begin with."""
    queue = folder / "a queue"
    for number, fault in OF_TASKS.items():
        (queue / "faults" / str(number)).write_text(fault)
    command = [sys.executable, QUEUE, "task-submit", str(queue), *LIMITS]
    with subprocess.Popen([*command, "--run", f"sleep {OTHERS_S};"]) as other:
        while not (queue / "tasks/1/pid").exists():
            time.sleep(0.01)
        yield
        other.wait()


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Print which tests the faulty tasks held, and whether exactly those failed that had to."""
    parts: Counter[str] = Counter()
    for task in sorted((folder / "a queue/tasks").iterdir(), key=lambda path: int(path.name)):
        if is_foreign(task):
            print(f"  task {task.name}: somebody else's, {OTHERS_S} s")
            continue
        argv = json.loads((task / "request").read_text())["argv"]
        written = next(word for word in reversed(shlex.split(argv[-1])) if word.endswith(".json"))
        held = json.loads(Path(written).read_text())
        names = [part["name"] for part in (*held["calls"], *held["tests"])]
        parts.update(names)
        fault = folder / "a queue/faults" / task.name
        said = fault.read_text() if fault.exists() else "in order"
        code = (task / "code").read_text()
        print(f"  task {task.name}: {said}, {len(names)} parts, {hold_s(task):.1f} s, code {code}")
    report = json.loads((folder / "report.json").read_text())
    manners, count = choose_manners(options), options.tests
    wrong = []
    for entry in report["tests"]:
        number = int(entry["test"].partition("[")[2].rstrip("]"))
        due = OUTCOMES.get(manners.get(number, ""), "passed")
        if entry["outcome"] != due:
            wrong.append(
                f"{entry['test']}: {entry['outcome']}, not {due}: {entry['message'][:200]}"
            )
    if wrong or len(report["tests"]) != count:
        raise SystemExit("\n".join(wrong))
    again = sum(1 for number in parts.values() if number > 1)
    most = max(parts.values())
    print(f"  {count} of {count} as documented; {again} in a second task, one in {most} at most")


def environment(folder: Path) -> dict[str, str]:
    """A home of its own."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TILEYARD_")}
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**kept, "TILEYARD_HOME": str(folder / "home"), "PYTHONPATH": path}


def submit_by_hand(folder: Path, commands: list[list[str]]) -> list[str]:
    """A command that submits one task for each of these, one after another."""
    client = [sys.executable, QUEUE, "task-submit", str(folder / "a queue"), *LIMITS, "--run"]
    submitted = [[*client, f"cd '{folder}' && {' '.join(command)}"] for command in commands]
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
    parser.add_argument("--manners", action="store_true")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--alone", action="store_true", help="only the first line")
    parser.add_argument("--each", type=int, default=10, help="tests of the last line")
    options = parser.parse_args()
    pytest = [sys.executable, "-m", "pytest"]
    ours = [
        *pytest,
        "--tileyard",
        "--tileyard-device=queue:lab",
        "--tileyard-limit=30s",
        "--tileyard-report=report.json",
        f"--tileyard-workers={options.workers}",
    ]
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
            each = [
                [*pytest, f"'{file}::test_case[{number}]'"]
                for place, file in enumerate(files)
                for number in range(count)[place::5]
            ]
            with serve_queue(
                folder, core, device="cpu:cores={device}", identity="one core", cases=options.batch
            ):
                command = ours
                if text is not TESTS:
                    by_hand = [pytest] if name.startswith("one job") else each
                    command = submit_by_hand(folder, by_hand)
                is_bad = options.manners and text is TESTS
                with bad_manners(folder) if is_bad else nullcontext():
                    wall_s, held_s, tasks, last = measure(folder, command)
            print(
                f"{name:24} {count:4} tests {wall_s:7.1f} s, card held {held_s:7.1f} s = "
                f"{held_s / wall_s:6.1%} "
                f"in {tasks} tasks; {held_s / count:.2f} s a test; {last}",
                flush=True,
            )
            if text is TESTS:
                compare(folder, options)
            if options.alone:
                break


if __name__ == "__main__":
    main()
