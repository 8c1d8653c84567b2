"""``pytest --tileyard`` with devices of another queue: tests run as its tasks, with the usual reports."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.lab_queue import serve_queue
from tests.e2e.pytest_tree import KERNELS, Ran, Tree, running
from tests.endings import has_ended
from tests.samples import IS_WHOLE

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
    probe = ["sh", "-c", f"echo >> '{tree.folder}/probes'"]
    with serve_queue(tree.folder, core, **fields, probe=probe) as folder:
        yield folder


def outcomes_of(ran: Ran) -> dict[str, str]:
    """How each test ended, by what tells it apart."""
    names = (entry["test"].partition("::")[2] for entry in ran.report["tests"])
    ends = (entry["outcome"] for entry in ran.report["tests"])
    return {name.removeprefix("test_"): end for name, end in zip(names, ends, strict=True)}


def test_whole_tests_share_a_task(tree: Tree, queue: Path) -> None:
    """Each is reported as if it had run here; one that dies or hangs fails alone, and then the card is
    probed; what needs no device stays here, and so does what the tree says is simulated.
    """
    tree.write(
        conftest="""
            def pytest_tileyard_borrows(item):
                return not item.name.endswith(("sim]", "stays"))
        """,
        test_far="""
            import os, signal, sys, time, warnings, pytest

            def test_dies():
                print("last words")
                os.kill(os.getpid(), signal.SIGSEGV)

            @pytest.mark.tile_limit("1s")
            def test_hangs():
                time.sleep(600)

            @pytest.fixture(scope="module")
            def shared():
                return []

            @pytest.mark.parametrize("number", range(3))
            def test_passes(number, shared):
                shared.append(number)
                assert shared == list(range(number + 1))

            def test_fails():
                print("on stdout")
                sys.stderr.write("on stderr")
                warnings.warn("a warning from afar")
                assert 1 == int("2")

            def test_skips():
                pytest.skip("no need")

            def test_stays():
                assert "TILEYARD_SUBMISSION" not in os.environ

            @pytest.mark.parametrize("platform", ["a5", "a5sim"])
            def test_on(platform):
                assert ("TILEYARD_SUBMISSION" in os.environ) == (platform == "a5")
        """,
    )
    ran = tree.run(*QUEUE, "-W", "default")
    expected = {
        "dies": "crashed",
        "hangs": "timeout",
        **{f"passes[{number}]": "passed" for number in range(3)},
        "fails": "mismatch",
        "skips": "skipped",
        "stays": "passed",
        **{f"on[{platform}]": "passed" for platform in ("a5", "a5sim")},
    }
    assert outcomes_of(ran) == expected, ran.text
    said = ("last words", "assert 1 == 2", "on stdout", "on stderr", "a warning from afar")
    for text in (*said, "3 failed, 6 passed, 1 skipped, 1 warning", "8 tests ran whole"):
        assert text in ran.text
    (hold,) = ran.report["holds"]
    assert hold["device"].startswith("queue:lab cpu:cores=")
    assert [path.name for path in (queue / "tasks").iterdir()] == ["1"]
    assert (tree.folder / "probes").read_text() == "\n" * 2


def test_only_the_block_runs_elsewhere(tree: Tree, queue: Path) -> None:
    """Values travel, what dies or hangs there fails alone, and what cannot be sent runs whole."""
    tree.write(
        test_far="""
            import ctypes, os, sys, threading, time
            import numpy as np, pytest

            HERE = "TILEYARD_SUBMISSION"

            def test_arrays(tile_device):
                x, seen = np.arange(4), np.zeros(1)
                assert HERE not in os.environ
                with tile_device() as device:
                    y = x + 1
                    seen[0] = 7
                    assert HERE in os.environ
                assert HERE not in os.environ
                assert seen[0] == 7 and device.name.startswith("cpu:cores=")
                assert y.tolist() == [1, 2, 3, 4]

            def add(one, other):
                return one + other, HERE in os.environ

            class TestRun:
                def test_run(self, tile_device):
                    assert tile_device.run(add, 1, other=2) == (3, True)
                    total = 1
                    with tile_device():
                        total += 1
                    assert total == 2

            def test_fails(tile_device):
                one = 1
                with tile_device():
                    print("said before it failed")
                    assert one == int("2")

            def test_raises(tile_device):
                with pytest.raises(ZeroDivisionError):
                    with tile_device():
                        1 / 0

            def test_dies(tile_device):
                with tile_device():
                    os.write(1, b"last words")
                    ctypes.string_at(0)

            @pytest.mark.tile_limit("2s")
            def test_hangs(tile_device):
                with tile_device():
                    time.sleep(600)

            def test_sends_a_lock(tile_device):
                lock = threading.Lock()
                with tile_device():
                    lock.acquire()

            @pytest.fixture
            def harness(tile_device):
                return lambda *values: tile_device.run(add, *values)

            def test_harness(harness):
                assert harness(1, 2) == (3, True)

            @pytest.fixture
            def held(tile_device):
                with tile_device() as device:
                    yield device

            def test_held(held):
                assert HERE in os.environ

            def test_nests_a_change(tile_device):
                outer = [[1]]
                with tile_device():
                    outer[0].append(2)
                assert outer == [[1, 2]]
        """,
    )
    ran = tree.run(*QUEUE, "--tileyard-workers=2")
    expected = {
        "arrays": "passed",
        "TestRun::test_run": "passed",
        "fails": "mismatch",
        "raises": "passed",
        "dies": "crashed",
        "hangs": "timeout",
        "sends_a_lock": "passed",
        "harness": "passed",
        "held": "passed",
        "nests_a_change": "passed",
    }
    assert outcomes_of(ran) == expected, ran.text
    for text in ("assert 1 == 2", "said before it failed", "last words", "3 tests ran whole"):
        assert text in ran.text
    for text in ("test_sends_a_lock: what its block is given", "changes outer, a list, in place"):
        assert text in ran.text
    assert "SIGSEGV" in ran.message("test_dies")
    assert len(ran.report["holds"]) == len(list((queue / "tasks").iterdir()))


@pytest.mark.sweep(0)  # by default: a block with one device
def test_a_block_holds_several_devices(tree: Tree) -> None:
    """Its count is known once its test reaches it; blocks of one count share a task, as do whole tests. A
    queue that is not told how many refuses them in words.
    """
    tree.write(
        test_far="""
            import os, pytest

            def check(devices):
                names = [device.name for device in devices]
                assert sorted(names) == ["npu:3", "npu:4"]
                for name in ("ASCEND_RT_VISIBLE_DEVICES",):
                    assert os.environ[name] == ",".join(name[-1] for name in names)
                assert [list(device.env.values()) for device in devices] == [[n[-1]] for n in names]
                return names

            def test_alone(tile_device):
                with tile_device() as device:
                    seen = os.environ["TASK_DEVICE"]
                assert seen == "0"

            @pytest.mark.parametrize("ranks", [1, 2])
            def test_ranks(ranks, tile_device):
                with tile_device(count=ranks) as devices:
                    seen = os.environ["TASK_DEVICE"]
                assert seen == ",".join(map(str, range(len(devices))))

            def test_pair(tile_device):
                with tile_device(count=2) as (one, other):
                    names = check((one, other))
                assert names == [one.name, other.name]

            @pytest.fixture
            def pair(tile_device):
                with tile_device(count=2) as devices:
                    yield devices

            def test_fixture(pair):
                check(pair)

            @pytest.mark.parametrize("number", range(2))
            def test_whole(number, tile_device):
                for count in (2, 1):
                    with tile_device(count=count) as devices:
                        if count == 1:
                            return
                        check(devices)

            @pytest.mark.parametrize("count", [0, "two"])
            def test_none(count, tile_device):
                with tile_device(count=count):
                    pass
        """,
    )
    fields = {"device": "npu:{device}", "identity": "a card", "cases": 8}
    expected = {
        "alone": "passed",
        "ranks[1]": "passed",
        "ranks[2]": "passed",
        "pair": "passed",
        "fixture": "passed",
        "whole[0]": "passed",
        "whole[1]": "passed",
        "none[0]": "runtime_error",
        "none[two]": "runtime_error",
    }
    with serve_queue(tree.folder, "3 4", slots=2, **fields) as folder:
        ran = tree.run(*QUEUE)
        tasks = len(list((folder / "tasks").iterdir()))
    assert outcomes_of(ran) == expected, ran.text
    assert "tile_device(count='two'): it takes a number of devices" in ran.text
    # blocks of one and of two, then whole tests of two, after their first try with one
    most = 5
    assert tasks <= most, ran.text
    (tree.folder / "a queue").rename(tree.folder / "the other queue")
    with serve_queue(tree.folder, "3 4", counted=False, **fields) as folder:
        ran = tree.run(*QUEUE, "-k", "pair or fixture or alone")
    several = dict.fromkeys(("pair", "fixture"), "infra_error")
    assert outcomes_of(ran) == {"alone": "passed", **several}, ran.text
    said = (
        "tile_device(count=2) needs 2 devices, and `submit` of queue 'lab' has no {devices} (add it"
    )
    assert said in ran.message("test_pair")
    assert said in ran.message("test_fixture")


def test_a_kernel_runs_in_a_block(tree: Tree, queue: Path) -> None:
    """It is built here, and called elsewhere with what the test computed here."""
    tree.write(
        kernels=KERNELS,
        test_far="""
            import numpy as np, pytest
            from kernels import scale

            @pytest.mark.tile_kernel(kernel=scale, N=64)
            @pytest.mark.parametrize("factor", [3.0])
            def test_kernel(factor, tile_kernel, tile_device):
                x = np.arange(64, dtype="float32")
                with tile_device():
                    y = tile_kernel(x)
                np.testing.assert_allclose(y, factor * x)
        """,
    )
    ran = tree.run(*QUEUE)
    assert ran.code == 0, ran.text
    assert "target cpu, tests run as tasks of queue:lab, 1 at a time; in " in ran.text
    assert "1 compile step took" in ran.text
    assert "ran whole" not in ran.text
    assert len(ran.report["holds"]) == 1


def test_what_a_queue_loses_is_run_again(tree: Tree, queue: Path) -> None:
    """A killed task blames one test, a cut environment none, a lost result is in its file: two tasks do."""
    tree.write(test_far=PASSING)
    for number, faults in enumerate(("half", "truncate lose-results"), 1):
        (queue / "faults" / str(number)).write_text(faults, encoding="utf-8")
    ran = tree.run(*QUEUE)
    assert ran.code == 0, ran.text
    assert "4 passed" in ran.text
    assert len(list((queue / "tasks").iterdir())) == 2


def test_three_lost_tasks_in_a_row_fail_no_test(tree: Tree, queue: Path) -> None:
    """Each blames another test, for what was lost comes last; all have begun before one asks for a device."""
    begun = tree.folder / "begun"
    begun.mkdir()
    tree.write(
        test_far=f"""
            import os, pathlib, pytest, time

            def wait_for_four(folder):
                while len(os.listdir(folder)) < 4:
                    time.sleep(0.1)

            @pytest.mark.parametrize("number", range(4))
            def test_passes(number, tile_device):
                pathlib.Path({str(begun)!r}, str(number)).touch()
                wait_for_four({str(begun)!r})
                with tile_device():
                    wait_for_four({str(queue / "tasks")!r})
        """
    )
    for number in (1, 2, 3):
        (queue / "faults" / str(number)).write_text("client-dies", encoding="utf-8")
    ran = tree.run(*QUEUE, "--tileyard-workers=4")
    assert ran.code == 0, ran.text
    assert "4 passed" in ran.text
    assert len(list((queue / "tasks").iterdir())) == 4


@pytest.mark.parametrize(
    ("faults", "said"), [("hang", "gave no device"), ("reject", "tried 3 times")]
)
def test_a_queue_that_is_of_no_use_ends_the_run(
    tree: Tree, queue: Path, faults: str, said: str
) -> None:
    """Every test fails, in words and soon."""
    tree.write(test_far=PASSING.replace("range(4)", "range(2)"))
    (queue / "faults/all").write_text(faults, encoding="utf-8")
    limit = "--tileyard-queue-limit=" + ("2s" if faults == "hang" else "60s")
    ran = tree.run(*QUEUE, limit)
    expected = "queue_timeout" if faults == "hang" else "infra_error"
    assert {entry["outcome"] for entry in ran.report["tests"]} == {expected}, ran.text
    assert ran.code == 1
    assert said in ran.message("test_passes[0]")
    assert "with tile_device" not in ran.text
    assert "2 tests failed for an infrastructure reason" in ran.text


@pytest.mark.parametrize("leaves", ["pass", *(["return"] if IS_WHOLE else [])])
def test_an_interrupt_cancels_the_task(tree: Tree, queue: Path, leaves: str) -> None:
    """The device is free once pytest ends, which names the test: one in parts, or one that runs whole."""
    tree.write(
        test_far=f"""
            import os, pathlib, time

            if "TILEYARD_SUBMISSION" not in os.environ:
                pathlib.Path("pytest.pid").write_text(str(os.getpid()))

            def test_endless(tile_device):
                with tile_device():
                    pathlib.Path("begun").touch()
                    time.sleep(600)
                    {leaves}
        """
    )
    with running(tree, "begun", *QUEUE) as (pid, ran):
        os.kill(pid, signal.SIGINT)
    ended = ran.result()
    assert ended.code == 2, ended.text
    assert ended.outcome("test_endless") == "interrupted"
    assert len(ended.report["holds"]) == 1
    assert "test_endless was running when the run ended" in ended.text
    assert (queue / "tasks/1/cancel").exists()
    assert has_ended(int((queue / "tasks/1/pid").read_text(encoding="ascii")), 60.0)


def test_what_cannot_be_borrowed_is_refused(tree: Tree, queue: Path) -> None:
    """An unknown or second queue, pytest-xdist and a run inside a task: one line each, nothing submitted."""
    tree.write(test_far=PASSING)
    cases = (
        (("--tileyard-device=queue:lap",), {}, "there is no queue 'queue:lap'"),
        ((*QUEUE, "--tileyard-device=queue:dab"), {}, "are two queues"),
        ((*QUEUE, "-n1"), {}, "cannot be combined with pytest-xdist's -n"),
        (QUEUE, {"TASK_DEVICE": "0"}, "TASK_DEVICE is set"),
    )
    for options, env, said in cases:
        ran = tree.run(*options, env=env)
        assert ran.code == 4, ran.text
        assert said in ran.text
    assert list((queue / "tasks").iterdir()) == []
