"""An engine for test_foreign_queue.py: hands a batch to a queue's slot, and says what begins.

Argument: a file with the batch, its entries, the queue and the home.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, cast

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Batch, Side
from tileyard.base.settings import Settings
from tileyard.devices.foreign import ForeignQueue
from tileyard.engine.authors import Authors
from tileyard.engine.foreign_queue.slots import QueueSlot
from tileyard.engine.yard import Yard
from tileyard.workers.protocol import CaseRan, RunEntry


class Teller:
    """A Watch that prints."""

    def began(self, case: str) -> None:
        """A case was turned to."""
        os.write(1, f"began {case}\n".encode())

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """A case ended."""
        os.write(1, f"{reply.case} {reply.outcome}\n".encode())


def main(plan: Path) -> None:
    """Run the batch."""
    kind = tuple[Batch, tuple[RunEntry, ...], ForeignQueue, str]
    batch, entries, queue, home = msgspec.json.decode(plan.read_bytes(), type=kind)
    plugins = {"deed": "deed_target:DeedTarget"}
    yard = Yard(
        settings=Settings(home=Path(home), lock_dir=Path(home), cores=(0,), plugins=plugins),
        store=cast(Any, None),
        objects=ObjectStore(Path(home) / "objects"),
        authors=Authors((Side(),), (), cast(Any, None)),
        grounds={},
    )
    slot = QueueSlot(queue, queue.make_devices()[0], yard)
    asyncio.run(slot.run(batch, entries, Teller()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
