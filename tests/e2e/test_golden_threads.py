"""Golden results are made side by side: by several processes of a file, by several steps of a suite."""

import os
import sqlite3
from contextlib import closing
from itertools import accumulate

import pytest
from tests.conftest import CommandLine

pytestmark = pytest.mark.slow

KERNELS = """
import os
import time
from pathlib import Path

import tilelang.language as T
import tileyard

# More than the process took to come here, so that another one is worth its start.
os.environ.setdefault("SLOW_S", str(time.process_time() + 0.2))

def note(A):
    with Path(os.environ["MADE_BY"]).open("a") as log:
        log.write(f"{os.getpid()}\\n")
    until = time.thread_time() + float(os.environ["SLOW_S"])
    while time.thread_time() < until:
        pass
    return A + A

@tileyard.kernel(reference=note, shapes={f"of{n}": {"N": 32 * n} for n in range(1, 6)})
def double(N, block=32):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(N // block, threads=block) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + A[bx * block + i]
    return main
"""


def run_kernels(cli: CommandLine, lanes: str, **slow: str) -> tuple[int, set[tuple[str, str]]]:
    """By how many processes the golden results of a file of five were made, and their keys."""
    log, home = cli.cwd / f"{lanes}.log", cli.cwd / f"home{lanes}"
    done = cli.run(
        *("test", "mine.py", "--target", "scripted"),
        TILEYARD_PLUGINS="scripted=tileyard.testing.doubles.scripted:ScriptedTarget",
        TILEYARD_GOLDEN_THREADS=lanes,
        TILEYARD_HOME=str(home),
        MADE_BY=str(log),
        **slow,
    )
    assert done.returncode == 0, done.stderr
    made_by = log.read_text(encoding="utf-8").split()
    assert len(made_by) == 5
    with closing(sqlite3.connect(home / "store.db")) as database:
        found = database.execute("select case_id, golden_key from trials").fetchall()
    return len(set(made_by)), set(found)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a second process needs a core")
def test_slow_references_of_a_file_are_made_by_two_processes(cli: CommandLine) -> None:
    """With two lanes there are two of them, with one there is one; results and keys are the same."""
    (cli.cwd / "mine.py").write_text(KERNELS, encoding="utf-8")
    processes, keys = run_kernels(cli, "2")
    assert processes == 2
    assert run_kernels(cli, "1", SLOW_S="0") == (1, keys)
    assert len({key for _, key in keys}) == 5


SUITE = """
name = "s"
golden = ["sh", "-c", "echo $1 $OMP_NUM_THREADS >>../golden; echo x >$2/x", "sh", "{threads}", "{out}"]
run = ["sh", "-c", "echo $1 $OMP_NUM_THREADS >>$2/../run", "sh", "{threads}", "{suite}"]
testcase = [{ name = "a" }]
"""


def test_steps_share_the_cores_with_those_beside_them(cli: CommandLine) -> None:
    """A golden step on the only lane has all cores, a run step one; known results serve any lanes."""
    (suite := cli.cwd / "s" / "suite.toml").parent.mkdir()
    suite.write_text(SUITE, encoding="utf-8")
    for lanes in ("1", "64"):
        done = cli.run("test", "s", "--golden-threads", lanes)
        assert done.returncode == 0, done.stderr
    cores = len(os.sched_getaffinity(0))
    assert (cli.cwd / "golden").read_text(encoding="utf-8") == f"{cores} {cores}\n"
    assert (cli.cwd / "run").read_text(encoding="utf-8") == "1 1\n" * 2


NOTED = """
name = "s"
golden = ["sh", "-c", "echo + >>../at_work; sleep 0.1; echo x >$1/x; echo - >>../at_work", "sh", "{out}"]
run = ["sh", "-c", "echo + >>$1/../at_work; sleep 0.1; echo - >>$1/../at_work", "sh", "{suite}"]
check = ["sh", "-c", "echo + >>$1/../at_work; sleep 0.1; echo - >>$1/../at_work", "sh", "{suite}"]
testcase = [{ name = "a" }, { name = "b" }, { name = "c" }]
"""


@pytest.mark.parametrize(("slots", "lanes", "most"), [(2, 1, 2), (1, 2, 2), (1, 1, 1)])
def test_steps_and_slots_share_the_places_of_the_cores(
    cli: CommandLine, slots: int, lanes: int, most: int
) -> None:
    """No more programs run at once than there are slots, or lanes if these are more."""
    (suite := cli.cwd / "s" / "suite.toml").parent.mkdir()
    suite.write_text(NOTED, encoding="utf-8")
    done = cli.run("test", "s", "--slots", str(slots), "--golden-threads", str(lanes))
    assert done.returncode == 0, done.stderr
    marks = (cli.cwd / "at_work").read_text(encoding="utf-8").split()
    running = list(accumulate(1 if mark == "+" else -1 for mark in marks))
    assert (len(marks), max(running), running[-1]) == (2 * (1 + 3 + 3), most, 0)


@pytest.mark.parametrize("command", ["test", "tune", "bundle"])
def test_a_number_that_makes_no_sense_is_refused(cli: CommandLine, command: str) -> None:
    """In one line, with exit status 2, as an option and as a variable."""
    done = cli.run_here(command, "mine.py", "--golden-threads", "0")
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert "--golden-threads" in done.stderr
    done = cli.run_here("devices", TILEYARD_GOLDEN_THREADS="many")
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert "TILEYARD_GOLDEN_THREADS is 'many'" in done.stderr
