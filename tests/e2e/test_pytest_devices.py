"""``pytest --tileyard`` on trees whose tests lease devices."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from tests.e2e.pytest_tree import Tree, is_alive, running, wait_for

pytestmark = pytest.mark.slow


def test_leases_are_real_exclusive_and_end_with_their_holder(tree: Tree) -> None:
    """Two tests at a time take turns, a second lease in a block is refused, a killed holder blocks nobody."""
    tree.write(
        test_devices="""
            import os, pathlib, pytest, signal, subprocess, sys

            @pytest.mark.parametrize("number", range(6))
            def test_turns(number, tile_device):
                held = pathlib.Path(__file__).parent / "held"
                with tile_device() as device:
                    held.mkdir()
                    assert os.environ["TILEYARD_LEASE"] == str(device.lease)
                    held.rmdir()
                assert os.environ.get("TILEYARD_LEASE") is None

            def test_nested(tile_device):
                with tile_device(), pytest.raises(Exception, match="holds cpu:0 already"):
                    with tile_device():
                        pass

            def test_nested_outside(tile_device):
                argv = [sys.executable, "-m", "tileyard", "lease", "--devices", "cpu", "--", "true"]
                with tile_device():
                    done = subprocess.run(argv, capture_output=True, text=True)
                assert done.returncode == 69
                assert "already runs under a lease of" in done.stderr

            def test_killed(tile_device):
                with tile_device():
                    os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    ran = tree.run("--tileyard-workers=2", "--tileyard-queue-limit=60s")
    expected = {"failed": ["test_killed"], "holds": 9}
    failed = [entry["test"] for entry in ran.report["tests"] if entry["outcome"] != "passed"]
    assert [name.rpartition("::")[2] for name in failed] == expected["failed"], ran.text
    holds = ran.report["holds"]
    assert len(holds) == expected["holds"]
    assert len({hold["lease"] for hold in holds}) == len(holds)
    again = tree.run("-k", "test_turns", "--tileyard-queue-limit=60s")
    assert again.code == 0, again.text


DECLARED = f"""
[[device]]
name = "npu:0"
id = "0000:c1:00.0"
env = {{ MY_NPU = "{{index}}" }}
probe = ["{sys.executable}", "-c", "import pathlib; pathlib.Path('PROBED').touch()"]

[[device]]
name = "npu:1"
id = "0000:c2:00.0"
env = {{ MY_NPU = "{{index}}" }}
"""


def declare(tree: Tree) -> dict[str, str]:
    """Declare two cards on this host; the variable by which a run finds them."""
    etc = tree.folder / "etc"
    etc.mkdir()
    (etc / "devices.toml").write_text(DECLARED.replace("PROBED", str(tree.folder / "probed")))
    return {"TILEYARD_HOST_CONFIG": str(etc)}


def test_accelerators_are_leased_by_class_and_probed_after_a_crash(tree: Tree) -> None:
    """Two tests hold two cards each and find them by variables; one that dies has its card probed."""
    tree.write(
        test_cards="""
            import ctypes, os, pathlib, pytest, time

            @pytest.mark.parametrize("mine, other", [("a", "b"), ("b", "a")])
            def test_both(mine, other, tile_device):
                with tile_device() as device:
                    assert device.name == "npu:" + os.environ["MY_NPU"]
                    pathlib.Path(mine).touch()
                    until = time.monotonic() + 60
                    while not pathlib.Path(other).exists():
                        assert time.monotonic() < until
                        time.sleep(0.01)
                assert "MY_NPU" not in os.environ

            def test_crash(tile_device):
                with tile_device():
                    ctypes.string_at(0)
        """
    )
    env = declare(tree)
    both = tree.run("--tileyard-device=npu", "--tileyard-workers=2", "-k", "both", env=env)
    assert both.code == 0, both.text
    expected = {"npu:0", "npu:1"}
    assert {use["device"] for use in both.report["devices"]} == expected
    assert not (tree.folder / "probed").exists()
    crash = tree.run("--tileyard-device=npu:0", "-k", "crash", env=env)
    assert crash.outcome("test_crash") == "crashed"
    wait_for(tree.folder / "probed")


def test_a_test_holds_two_devices_or_none(tree: Tree) -> None:
    """Both at once, in whichever order tests ask, and found by one variable; more than exist are refused."""
    tree.write(
        test_pairs="""
            import contextlib, os, pathlib, pytest

            @contextlib.contextmanager
            def alone(device):
                held = pathlib.Path(__file__).parent / device.name
                held.mkdir()
                yield
                held.rmdir()

            @pytest.mark.parametrize("number", range(4))
            def test_pair(number, tile_device):
                with tile_device(count=2) as devices, alone(devices[0]), alone(devices[1]):
                    names = [device.name for device in devices]
                    assert sorted(names) == ["npu:0", "npu:1"]
                    assert os.environ["MY_NPU"] == ",".join(name[-1] for name in names)
                    assert os.environ["TILEYARD_LEASE"] == ",".join(str(one.lease) for one in devices)
                assert "MY_NPU" not in os.environ

            @pytest.mark.parametrize("number", range(4))
            def test_single(number, tile_device):
                with tile_device() as device, alone(device):
                    assert os.environ["MY_NPU"] == device.name[-1]
                with tile_device(count=1) as (device,), alone(device):
                    assert os.environ["MY_NPU"] == device.name[-1]

            def test_three(tile_device):
                with tile_device(count=3): pass
        """,
    )
    options = ("--tileyard-device=npu", "--tileyard-workers=3", "--tileyard-queue-limit=60s")
    ran = tree.run(*options, env=declare(tree))
    failed = [entry["test"] for entry in ran.report["tests"] if entry["outcome"] != "passed"]
    assert [name.rpartition("::")[2] for name in failed] == ["test_three"], ran.text
    assert "tile_device(count=3): this test can lease npu:0, npu:1" in ran.text
    holds = Counter(hold["device"] for hold in ran.report["holds"])
    expected = 4 * 2 + 4 * 2
    assert (holds.total(), set(holds)) == (expected, {"npu:0", "npu:1"})


def test_no_device_in_time_is_a_queue_timeout(tree: Tree) -> None:
    """A test without a device within the queue limit fails, saying who has it; its own limit stands still."""
    tree.write(
        test_queue="""
            import pytest

            @pytest.mark.tile_limit("4s")
            def test_waits(tile_device):
                with tile_device():
                    pass
        """,
    )
    argv = [sys.executable, "-m", "tileyard", "lease", "--devices", "cpu", "--"]
    script = "echo held; sleep 600"
    with subprocess.Popen(
        [*argv, "/bin/sh", "-c", script], env=tree.environment(), stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        ran = tree.run("--tileyard-queue-limit=5s")
        holder.terminate()
    expected = "queue_timeout"
    assert ran.outcome("test_waits") == expected
    assert "FAILED test_queue.py::test_waits - no cpu:0 within 5 s" in ran.text
    assert "1 test failed for an infrastructure reason" in ran.text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=str)
def test_the_end_of_pytest_gives_the_device_back(tree: Tree, number: signal.Signals) -> None:
    """However pytest is ended while a test holds a device, the test ends too and the next one gets it. Where
    pytest can, it names the test and its hold.
    """
    tree.write(
        test_holds="""
            import os, pathlib, signal
            pathlib.Path("pytest.pid").write_text(str(os.getpid()))
            def test_holds(tile_device):
                with tile_device():
                    pathlib.Path("pid").write_text(str(os.getpid()))
                    pathlib.Path("held").touch()
                    signal.pause()
        """,
        test_next="""
            def test_next(tile_device):
                with tile_device() as device:
                    assert device.lease > 0
        """,
    )
    with running(tree, "held", "test_holds.py") as (pid, ran):
        os.kill(pid, number)
    ended = ran.result()
    expected = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: int(pytest.ExitCode.INTERRUPTED)}
    assert ended.code == expected[number], ended.text
    if number is signal.SIGINT:
        assert "test_holds.py::test_holds was running when the run ended" in ended.text
        assert ended.outcome("test_holds") == "interrupted"
        assert [hold["device"] for hold in ended.report["holds"]] == ["cpu:0"]
    following = tree.run("test_next.py", "--tileyard-queue-limit=60s")
    assert following.code == 0, following.text
    assert not is_alive(tree.folder / "pid")
