"""Checks the synchronization of the kernels that a script compiles, each Program once."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import TileyardError
from tileyard.frontend.tilelang import MadeKernel
from tileyard.ir.text import print_program
from tileyard.ir.walk import has_order
from tileyard.workers.program_replies import SyncChecked
from tileyard.workers.protocol import CheckSync, Failed
from tileyard.workers.sync_check import check_made

TellChecked = Callable[[SyncChecked | str], None]


@dataclass
class KernelChecker:
    """Checks on inputs of its own when a kernel is compiled; any thread may call it.

    ``tell`` gets the result of each check, or why there was none. ``found`` is set if there were findings.
    """

    objects: ObjectStore
    tell: TellChecked
    found: bool = False
    _seen: set[tuple[str, bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, name: str, made: MadeKernel) -> None:
        """Check a kernel unless it is already checked, or there is nothing to check."""
        lowered = made.lowered
        if lowered is None or not has_order(lowered.written):
            return
        content = (print_program(lowered.written), msgspec.json.encode(lowered.written_lines))
        with self._lock:
            if content in self._seen:
                return
            self._seen.add(content)
        try:
            question = CheckSync(kernel=name, arguments={}, config={})
            reply = check_made(made, question, self.objects)
        except TileyardError as error:
            reply = Failed(message=str(error))
        if isinstance(reply, Failed):
            self.tell(f"{name}: not checked: {reply.message}")
            return
        self.found = self.found or bool(reply.findings)
        self.tell(reply)
