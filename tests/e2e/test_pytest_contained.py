"""Tests of ``pytest --tileyard`` leave nothing running, and harm neither pytest nor each other."""

import os
import select
import signal
from concurrent.futures import Future
from contextlib import AbstractContextManager

import pytest
from tests.e2e.pytest_tree import Ran, Tree, is_alive, running, wait_for_end

from tileyard.processes.keeper.tree import SIGCONT, SIGSTOP, descendants_of, parent_of, signal_child

pytestmark = pytest.mark.slow

CONFTEST = """
    import os, pathlib, subprocess, time

    DAEMON = "echo $$ > {0}.new; mv {0}.new {0}.pid; while :; do echo x >> {0}.log; sleep 0.05; done"

    # with no environment, in a session of its own, and a child of nobody here
    def leave_daemon(name):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        script = f"env -i setsid sh -c '{DAEMON.format(name)}' &"
        subprocess.run(["sh", "-c", script], check=True, **quiet)
        while not pathlib.Path(f"{name}.log").exists():
            time.sleep(0.01)

    def note(name, pid):
        pathlib.Path(f"{name}.new").write_text(str(pid))
        os.rename(f"{name}.new", f"{name}.pid")

    def parent_of(pid):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def alive():
        pids = [path.read_text().strip() for path in pathlib.Path().glob("*.pid")]
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
"""
LEAVES = """
    import ctypes, os, pytest, signal, time
    from conftest import alive, leave_daemon

    @pytest.fixture(autouse=True)
    def daemon(request):
        assert alive() == []
        leave_daemon(request.node.name)

    def test_returns(): pass
    def test_raises(): raise ValueError
    def test_exits(): os._exit(0)
    def test_segfaults(): ctypes.string_at(0)
    def test_kills_itself(): os.kill(os.getpid(), signal.SIGKILL)
    def test_kills_its_parent(): os.kill(os.getppid(), signal.SIGKILL)
    def test_hangs(): time.sleep(600)
"""


def test_nothing_survives_its_test(tree: Tree) -> None:
    """However a test ends, a daemon of it that shares nothing with it is gone before the next one begins."""
    tree.write(conftest=CONFTEST, test_leaves=LEAVES)
    ran = tree.run("--tileyard-limit=5s")
    expected = {
        "test_returns": "passed",
        "test_raises": "runtime_error",
        "test_exits": "crashed",
        "test_segfaults": "crashed",
        "test_kills_itself": "crashed",
        "test_kills_its_parent": "crashed",
        "test_hangs": "timeout",
    }
    assert ran.code == 1
    assert {name: ran.outcome(name) for name in expected} == expected, ran.text
    assert "in test_hangs" in ran.text
    assert "the test's process ended because its parent was killed" in ran.text
    assert [name for name in expected if is_alive(tree.folder / f"{name}.pid")] == []


STOPS = """
    import os, signal
    from conftest import parent_of

    def test_stops_its_parent():
        os.kill(os.getppid(), signal.SIGSTOP)

    def test_stops_both_above():
        parent = os.getppid()
        os.kill(parent_of(parent), signal.SIGSTOP)
        os.kill(parent, signal.SIGSTOP)

    def test_stops_itself():
        os.kill(os.getpid(), signal.SIGSTOP)

    def test_passes(): pass
    def test_passes_too(): pass
"""


def test_a_stopped_process_harms_no_other_test(tree: Tree) -> None:
    """A parent that a test stops goes on at once; what else it stops, the limit ends, and it alone fails."""
    tree.write(conftest=CONFTEST, test_stops=STOPS)
    ran = tree.run("--tileyard-limit=5s")
    expected = {
        "test_stops_its_parent": "passed",
        "test_stops_both_above": "timeout",
        "test_stops_itself": "timeout",
        "test_passes": "passed",
        "test_passes_too": "passed",
    }
    assert {name: ran.outcome(name) for name in expected} == expected, ran.text
    limit = "the test's process ran past its limit of 5 s"
    assert ran.message("test_stops_both_above") == f"{limit}, killed with SIGKILL (Killed)"
    assert limit in ran.message("test_stops_itself")
    assert "SIGKILL" not in ran.message("test_stops_itself")  # it went on, to say where it is
    assert ran.code == 1


WAITS = """
    import os, pathlib, time
    from conftest import leave_daemon, note, parent_of

    note("pytest", os.getpid())

    def test_waits():
        leave_daemon("daemon")
        parent = os.getppid()
        note("guard", parent_of(parent))
        note("parent", parent)
        note("test", os.getpid())
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
"""


def waiting_run(tree: Tree, limit: str) -> AbstractContextManager[tuple[int, Future[Ran]]]:
    """The pid of a pytest whose only test waits for the file ``go``, and how it will have ended."""
    tree.write(conftest=CONFTEST, test_waits=WAITS)
    return running(tree, "test.pid", f"--tileyard-limit={limit}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 2)], ids=str)
def test_nothing_survives_pytest(tree: Tree, number: signal.Signals, code: int) -> None:
    """Killed or interrupted, pytest takes its tests along, what they started, and the processes between."""
    with waiting_run(tree, "120s") as (pid, ran):
        os.kill(pid, number)
    assert ran.result().code == code
    wait_for_end(*(tree.folder / f"{name}.pid" for name in ("daemon", "guard", "parent", "test")))


def test_a_pause_is_no_time_out(tree: Tree) -> None:
    """A run whose processes are all stopped for longer than its test's limit goes on after that."""
    with waiting_run(tree, "10s") as (pid, ran):
        stopped = [(pid, parent_of(pid)), *descendants_of(pid)]
        for process, parent in stopped:
            signal_child(process, parent, SIGSTOP)
        select.select([], [], [], 12.0)
        for process, parent in stopped:
            signal_child(process, parent, SIGCONT)
        select.select([], [], [], 2.0)  # in which pytest looks at the limit
        (tree.folder / "go").touch()
    assert ran.result().code == 0, ran.result().text
