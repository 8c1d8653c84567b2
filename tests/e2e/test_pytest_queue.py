"""``pytest --tileyard`` with the devices of another queue: tests run as its tasks and are reported as ever."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.lab_queue import serve_queue
from tests.e2e.pytest_tree import OPTIONS, Tree, wait_for
from tests.endings import has_ended

pytestmark = pytest.mark.slow
QUEUE = ("--tileyard-device=queue:lab", "--tileyard-queue-limit=60s", "--tileyard-limit=20s")
PASSING = """
    import os, pytest

    @pytest.mark.parametrize("number", range(4))
    def test_passes(number, tile_device):
        with tile_device():
            assert os.environ["TILEYARD_SUBMISSION"]
"""


@pytest.fixture
def queue(tree: Tree) -> Iterator[Path]:
    """A queue with one core of this machine, declared in the tree."""
    core = str(min(os.sched_getaffinity(0)))
    fields = {"device": "cpu:cores={device}", "identity": "one core", "cases": 8}
    with serve_queue(tree.folder, core, **fields) as folder:
        yield folder


def test_one_task_runs_many_tests(tree: Tree, queue: Path) -> None:
    """Each is reported as if it had run here; one that dies or hangs fails alone; what needs no device stays here."""
    tree.write(
        test_far="""
            import os, signal, sys, time, warnings, pytest

            def test_dies(tile_device):
                print("last words")
                os.kill(os.getpid(), signal.SIGSEGV)

            @pytest.mark.tile_limit("1s")
            def test_hangs(tile_device):
                time.sleep(600)

            @pytest.fixture(scope="module")
            def shared():
                return []

            @pytest.mark.parametrize("number", range(3))
            def test_passes(number, tile_device, shared):
                shared.append(number)
                with tile_device() as device:
                    assert device.name.startswith("cpu:cores=")
                assert shared == list(range(number + 1))

            def test_fails(tile_device):
                print("on stdout")
                sys.stderr.write("on stderr")
                warnings.warn("a warning from afar")
                assert 1 == int("2")

            def test_skips(tile_device):
                pytest.skip("no need")

            def test_stays():
                assert "TILEYARD_SUBMISSION" not in os.environ
        """
    )
    ran = tree.run(*QUEUE, "-W", "default")
    outcomes = {
        entry["test"].partition("::test_")[2]: entry["outcome"] for entry in ran.report["tests"]
    }
    expected = {
        "dies": "crashed",
        "hangs": "timeout",
        **{f"passes[{number}]": "passed" for number in range(3)},
        "fails": "mismatch",
        "skips": "skipped",
        "stays": "passed",
    }
    assert outcomes == expected, ran.text
    said = ("last words", "assert 1 == 2", "on stdout", "on stderr", "a warning from afar")
    for text in (*said, "3 failed, 4 passed, 1 skipped, 1 warning", "7 tests ran whole"):
        assert text in ran.text
    (hold,) = ran.report["holds"]
    assert hold["device"].startswith("queue:lab cpu:cores=")
    assert [path.name for path in (queue / "tasks").iterdir()] == ["1"]


def test_what_a_queue_loses_is_run_again(tree: Tree, queue: Path) -> None:
    """A task that is killed blames one test, a cut environment none, a lost result is asked for again."""
    tree.write(test_far=PASSING)
    for number, faults in enumerate(("half", "truncate lose-results", "client-dies"), 1):
        (queue / "faults" / str(number)).write_text(faults, encoding="utf-8")
    ran = tree.run(*QUEUE)
    assert ran.code == 0, ran.text
    assert "4 passed" in ran.text
    assert len(list((queue / "tasks").iterdir())) > 3


@pytest.mark.parametrize(
    ("faults", "said"), [("hang", "gave no device"), ("lose", "tried 3 times")]
)
def test_a_queue_that_is_of_no_use_ends_the_run(
    tree: Tree, queue: Path, faults: str, said: str
) -> None:
    """Every test fails, in words and soon."""
    tree.write(test_far=PASSING)
    (queue / "faults/all").write_text(faults, encoding="utf-8")
    limit = "--tileyard-queue-limit=" + ("2s" if faults == "hang" else "60s")
    ran = tree.run(*QUEUE, limit)
    expected = "queue_timeout" if faults == "hang" else "infra_error"
    assert {entry["outcome"] for entry in ran.report["tests"]} == {expected}, ran.text
    assert ran.code == 1
    assert said in ran.message("test_passes[0]")


def test_an_interrupt_cancels_the_task(tree: Tree, queue: Path) -> None:
    """The device is free once pytest has ended."""
    tree.write(
        test_far="""
            import pathlib, time

            def test_endless(tile_device):
                pathlib.Path("begun").touch()
                time.sleep(600)
        """
    )
    command = [sys.executable, "-m", "pytest", "--tileyard", *OPTIONS, *QUEUE]
    with subprocess.Popen(
        command, cwd=tree.folder, env=tree.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(tree.folder / "begun")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 2, output
    assert (queue / "tasks/1/cancel").exists()
    assert has_ended(int((queue / "tasks/1/pid").read_text(encoding="ascii")), 60.0)


def test_simulated_platforms_never_borrow(tree: Tree, queue: Path) -> None:
    """The tree's own hook counts most, and a kernel that is built for other devices than the queue's keeps a test here."""
    text = (tree.folder / "tileyard.toml").read_text(encoding="utf-8")
    (tree.folder / "tileyard.toml").write_text(text.replace("cpu:cores=", "npu:"), encoding="utf-8")
    tree.write(
        conftest="""
            def pytest_tileyard_borrows(item):
                platform = getattr(item, "callspec", None) and item.callspec.params.get("platform")
                return None if platform is None else not platform.endswith("sim")
        """,
        kernels="""
            import tilelang.language as T

            def scale(N):
                @T.prim_func
                def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
                    with T.Kernel(1, threads=128) as bx:
                        for i in T.Parallel(N):
                            Y[i] = X[i] * 2.0
                return main
        """,
        test_far="""
            import os, pytest
            from kernels import scale

            @pytest.mark.parametrize("platform", ["a5", "a5sim"])
            def test_platform(platform):
                assert ("TILEYARD_SUBMISSION" in os.environ) == (platform == "a5")

            @pytest.mark.tile_kernel(kernel=scale, N=64)
            def test_kernel(tile_kernel, tile_device):
                assert "TILEYARD_SUBMISSION" not in os.environ
        """,
    )
    ran = tree.run(*QUEUE)
    assert ran.code == 0, ran.text
    assert len(ran.report["holds"]) == 1


def test_what_cannot_be_borrowed_is_refused(tree: Tree, queue: Path) -> None:
    """An unknown queue, a second one, pytest-xdist and a run inside a task: one line each, and nothing is submitted."""
    tree.write(test_far=PASSING)
    cases = (
        (("--tileyard-device=queue:lap",), {}, "there is no queue 'queue:lap'"),
        ((*QUEUE, "--tileyard-device=queue:dab"), {}, "are two queues"),
        ((*QUEUE, "-n1"), {}, "does not go with pytest-xdist's -n"),
        (QUEUE, {"TASK_DEVICE": "0"}, "TASK_DEVICE is set"),
    )
    for options, env, said in cases:
        ran = tree.run(*options, env=env)
        assert ran.code == 4, ran.text
        assert said in ran.text
    assert list((queue / "tasks").iterdir()) == []
