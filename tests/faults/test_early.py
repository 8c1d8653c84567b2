"""A worker that starts before it has its device: it holds nothing until its keeper does."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.faults.test_processes import ask, command, gone, lock_file, run, wish
from tests.simulated_yard import simulated_devices

from tileyard.base.errors import SickDeviceError, WorkerStartError
from tileyard.base.events import Note
from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.engine.runners import RunnerSite, RunnerSlot
from tileyard.processes.keeper.quarantine import put_in_quarantine
from tileyard.processes.keeper.tree import read_process
from tileyard.processes.records import Place
from tileyard.processes.supervise import LeaseRequest, Worker

pytestmark = pytest.mark.slow


def test_it_holds_nothing_before_it_asks(tmp_path: Path) -> None:
    """Somebody else gets the device meanwhile; its own lease has a higher number."""
    lease = wish(lock_file(tmp_path))

    async def main() -> None:
        early = await Worker.start(command(tmp_path, lease=lease, early=True))
        async with early, await Worker.start(command(tmp_path, lease=lease)) as holder:
            assert early.lease == 0
            await holder.kill("done")
            await early.take_lease(0)
            assert early.lease > holder.lease
            expected = str(early.lease)
            assert await ask(early, "lease") == expected
            assert await ask(early, "variable TILEYARD_LEASE") == expected

    run(main)


def test_it_learns_its_number_only_with_the_lease(tmp_path: Path) -> None:
    """It waits for that as long as somebody else has the device, and its place in the queue is told."""
    lease = wish(lock_file(tmp_path))

    async def main() -> None:
        places: list[Place] = []
        early = await Worker.start(command(tmp_path, lease=lease, early=True))
        async with early, await Worker.start(command(tmp_path, lease=lease)) as holder:
            await early.send(Note(text="lease"))
            answer = asyncio.create_task(early.receive(Note))
            told = asyncio.Event()

            def waiting(place: Place) -> None:
                places.append(place)
                told.set()

            taking = asyncio.create_task(early.take_lease(0, waiting=waiting))
            await told.wait()
            assert not answer.done()
            await holder.kill("done")
            await taking
            expected = str(early.lease)
            assert (await answer).text == expected
            assert early.lease > holder.lease
            assert places[0].position == 1

    run(main)


def test_its_tree_is_marked_from_the_beginning(tmp_path: Path) -> None:
    """The next holder of the device could tell it by its environment, whenever it was started."""
    lock = lock_file(tmp_path)

    async def main() -> None:
        async with await Worker.start(command(tmp_path, lease=wish(lock), early=True)) as early:
            environment = read_process(early.pid, "environ").split(b"\0")
            expected = b"TILEYARD_PARTS=" + Path(lock).stem.encode()
            assert expected in environment
            assert any(variable.startswith(b"TILEYARD_TREE=") for variable in environment)

    run(main)


@pytest.mark.parametrize("is_held", [False, True])
def test_it_does_not_outlive_its_keeper(tmp_path: Path, *, is_held: bool) -> None:
    """Whether it has its lease by then or not; the device is free afterwards."""
    lease = wish(lock_file(tmp_path))

    async def main() -> None:
        early = await Worker.start(command(tmp_path, lease=lease, early=True))
        if is_held:
            await early.take_lease(0)
        os.kill(psutil.Process(early.pid).ppid(), signal.SIGKILL)
        await early.ended()
        assert gone(early.pid)
        async with await Worker.start(command(tmp_path, lease=lease)) as next_one:
            assert next_one.lease > early.lease
            assert bool(early.lease) == is_held

    run(main)


def test_one_that_dies_while_it_waits_leaves_the_queue(tmp_path: Path) -> None:
    """Who asked for it hears of it, and nobody waits behind a request of the dead."""
    lock = lock_file(tmp_path)

    async def main() -> None:
        early = await Worker.start(command(tmp_path, lease=wish(lock), early=True))
        async with early, await Worker.start(command(tmp_path, lease=wish(lock))):
            waits = asyncio.Event()
            taking = asyncio.create_task(early.take_lease(0, waiting=lambda _: waits.set()))
            await waits.wait()
            os.kill(early.pid, signal.SIGKILL)
            with pytest.raises(WorkerStartError, match="ended before it began"):
                await taking
            assert early.is_over
            expected: list[Path] = []
            assert list((tmp_path / "locks" / "requests").iterdir()) == expected

    run(main)


def test_its_memory_is_limited_from_its_lease_on(tmp_path: Path) -> None:
    """The limit comes with the first use, since what that needs was not known before."""

    async def main() -> None:
        early = await Worker.start(command(tmp_path, lease=wish(lock_file(tmp_path)), early=True))
        async with early:
            expected = str(1 << 30)
            assert await ask(early, f"allocate {1 << 30}") == expected
            await early.take_lease(1 << 29)
            await early.send(Note(text=f"allocate {1 << 30}"))
            ended = await early.ended()
            assert ended.memory_bytes == 1 << 29
            assert "MemoryError" in ended.log_tail

    run(main)


def test_it_outlives_the_probe_after_a_killed_holder(tmp_path: Path) -> None:
    """What the probe leaves is ended, the worker that waits for the device is not."""
    probe = (
        sys.executable,
        "-c",
        "import os\nif os.fork() == 0:\n os.setsid()\n __import__('signal').pause()",
    )
    device = Device(
        name="cpu:0",
        kind="cpu",
        identity="",
        locks=(lock_file(tmp_path),),
        probe=probe,
        probe_limit_s=20.0,
    )
    lease = LeaseRequest(choices=(device,))

    async def main() -> None:
        early = await Worker.start(command(tmp_path, lease=lease, early=True))
        async with early, await Worker.start(command(tmp_path, lease=lease)) as holder:
            os.kill(psutil.Process(holder.pid).ppid(), signal.SIGKILL)
            await holder.ended()
            await early.take_lease(0)
            assert await ask(early, "lease") == str(early.lease)
            assert early.lease > holder.lease
            family = psutil.Process(psutil.Process(early.pid).ppid()).children(recursive=True)
            assert [process.pid for process in family] == [early.pid]

    run(main)


def test_a_sick_device_is_refused_to_it(tmp_path: Path) -> None:
    """The error is the same as for a worker that starts under its lease, and nothing is left of it."""
    lock = lock_file(tmp_path)

    async def main() -> None:
        early = await Worker.start(command(tmp_path, lease=wish(lock), early=True))
        put_in_quarantine([lock], "cpu:0", "it smokes")
        expected = "it smokes"
        with pytest.raises(SickDeviceError, match=expected):
            await early.take_lease(0)
        assert gone(early.pid)

    run(main)


def test_a_runner_imports_its_target_before_it_has_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody holds a device while Python loads what runs kernels on it."""
    (tmp_path / "noting.py").write_text(
        "import os, pathlib\n"
        "held = 'TILEYARD_LEASE_PIPE' not in os.environ\n"
        "(pathlib.Path(__file__).parent / 'noted').write_text(str(held))\n"
    )
    settings = Settings(
        home=tmp_path / "home",
        lock_dir=tmp_path / "locks",
        cores=(0,),
        plugins={"noting": "noting:Target"},
    )
    (device,) = simulated_devices(1, tmp_path / "locks")
    site = RunnerSite(settings=settings, grounds={"noting": (device,)})
    slot = RunnerSlot(site, device)

    async def main() -> None:
        try:
            await slot.warm()
        finally:
            await slot.release()
            site.handed_over.close()

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asyncio.run(main())
    expected = "False"
    assert (tmp_path / "noted").read_text() == expected


KERNEL = """
import numpy as np, tilelang.language as T, tileyard
@tileyard.kernel(space={"block": [64, 128, 256]}, reference=lambda A: A + np.float32(1))
def add_one(N, block=128):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1.0
    return main
"""


def test_nothing_is_imported_under_a_lease(tmp_path: Path) -> None:
    """Screening and finals of a study: what running, timing and summing up need is there before. A study in
    which one config is clearly the fastest has no finals, which noise decides: then its configs are measured
    again.
    """
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "devices.toml").write_text('[[device]]\nname = "board:0"\nid = "early"\n')
    studies = (imported_in_study(tmp_path) for _ in range(10))
    lines = next(lines for lines in studies if len(lines) >= 2 * 3)
    assert lines == [""] * len(lines)


def imported_in_study(folder: Path) -> list[str]:
    """What was imported under the lease, one line for each kernel that was loaded."""
    note = folder / "imported"
    note.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tileyard", "tune", str(folder / "kernels.py")]
    done = subprocess.run(
        [*command, "--arg", "N=4096", "--target", "importing", "--devices", "board:0", "--fresh"],
        env={
            **os.environ,
            "TILEYARD_HOME": str(folder / "home"),
            "TILEYARD_LOCK_DIR": str(folder / "locks"),
            "TILEYARD_PLUGINS": "importing=importing_target:ImportingTarget",
            "TILEYARD_IMPORTED": str(note),
            "PYTHONPATH": str(Path(__file__).parent),
        },
        check=False,
        stdout=subprocess.DEVNULL,
    )
    assert done.returncode in (0, 3)  # 3: other work disturbed it
    return note.read_text().splitlines()
