"""What a borrowed slot costs, and what batches save: no-op cases through a queue, and on this host.

``python benchmarks/foreign_queue.py [CASES]``. The queue is the one of the tests: real processes, one
device, polled every 10 ms. Each row is beside the same cases on a warm runner of this host.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import msgspec

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.faults.deed_target import plan_deeds

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import WELL, Batch, Side
from tileyard.base.settings import Settings
from tileyard.devices.foreign import ForeignQueue, decode_queues
from tileyard.devices.locks import prepare_locks
from tileyard.devices.registry import parse_device
from tileyard.engine.authors import Authors
from tileyard.engine.foreign_queue.slots import QueueSlot
from tileyard.engine.provider import Slot
from tileyard.engine.runners import RunnerSlot
from tileyard.engine.yard import Yard
from tileyard.workers.protocol import CaseRan, RunEntry

QUEUE = ROOT / "tests" / "faults" / "fake_queue.py"
CORE = min(os.sched_getaffinity(0))
SIZES = (1, 4, 16, 64)


class Count:
    """A Watch that counts, and notes when the first result came."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.first_s = 0.0

    def began(self, case: str) -> None:
        """Nothing."""

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """Count a case that ended well."""
        if reply.outcome not in WELL:
            raise SystemExit(f"{reply.case}: {reply.outcome}: {reply.message}")
        self.first_s = self.first_s or time.monotonic()
        self.done.add(reply.case)


async def run(slot: Slot, batch: Batch, entries: tuple[RunEntry, ...]) -> tuple[float, float]:
    """Seconds for all of it, and until the first result."""
    watch, started_s = Count(), time.monotonic()
    await slot.acquire(batch.cases[0].limits.memory_bytes, lambda _: None)
    while left := [entry for entry in entries if entry.case not in watch.done]:
        await slot.run(batch, left, watch)
    await slot.release()
    return time.monotonic() - started_s, watch.first_s - started_s


def declare(folder: Path) -> ForeignQueue:
    """The queue as a site would declare it."""
    client = [sys.executable, str(QUEUE), "task-submit", str(folder)]
    limits = ["--max-time", "{run_limit_s}", "--timeout", "{limit_s}"]
    table = {
        "name": "lab",
        "submit": [*client, *limits, "{env:--env}", "--run", "{shell_command}"],
        "device": "cpu:cores={device}",
        "identity": "one core",
    }
    return decode_queues([table], "benchmark")[0]


def main(count: int) -> None:
    """Measure in a folder that is removed afterwards."""
    os.environ["PYTHONPATH"] = str(QUEUE.parent)
    with tempfile.TemporaryDirectory(prefix="tileyard-benchmark-") as folder:
        compare(count, Path(folder))


def compare(count: int, folder: Path) -> None:
    """Print one row for each way."""
    settings = Settings(
        home=folder / "home",
        lock_dir=folder / "locks",
        cores=tuple(sorted(os.sched_getaffinity(0))),
        plugins={"deed": "deed_target:DeedTarget"},
    )
    yard = Yard(
        settings=settings,
        store=cast(Any, None),
        objects=ObjectStore(settings.home / "objects"),
        authors=Authors((Side(),), (), cast(Any, None)),
        grounds={},
    )
    batch, entries = plan_deeds(yard.objects, ["copy"] * count)
    device = parse_device(f"cpu:cores={CORE}", settings)
    prepare_locks(device)
    here_s, first_s = asyncio.run(run(RunnerSlot(yard, device), batch, entries))
    print(f"{count} no-op cases; ratio: against the same cases on a warm runner of this host")
    print(f"{'where':>16} {'cases a task':>12} {'all':>8} {'a case':>9} {'first':>8} {'ratio':>7}")
    row = "{:>16} {:>12} {:>6.2f} s {:>6.1f} ms {:>6.2f} s {:>7.2f}"
    print(row.format("this host", "", here_s, here_s / count * 1e3, first_s, 1.0))
    for name in ("tasks", "faults"):
        (folder / name).mkdir()
    command = [sys.executable, str(QUEUE), "serve", str(folder), str(CORE)]
    with subprocess.Popen(command) as server:
        for size in SIZES:
            queue = msgspec.structs.replace(declare(folder), cases=size)
            slot = QueueSlot(queue, queue.make_devices()[0], yard)
            taken_s, first_s = asyncio.run(run(slot, batch, entries))
            cells = (taken_s, taken_s / count * 1e3, first_s, taken_s / here_s)
            print(row.format("queue", size, *cells))
        server.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
