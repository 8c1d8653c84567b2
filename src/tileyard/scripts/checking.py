"""Checks the kernels that a script compiles for races, undefined accesses and wrong synchronization, each Program once."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import Clock
from tileyard.errors import TileyardError
from tileyard.frontend.tilelang import MadeKernel
from tileyard.ir.text import print_program
from tileyard.wording import count_of
from tileyard.workers.program_replies import SyncChecked
from tileyard.workers.protocol import CheckSync, Failed
from tileyard.workers.sync_check import check_made

TellChecked = Callable[[SyncChecked | str], None]
LIMIT_S = 1.0
"""Seconds for the check of one kernel if nobody asked for it."""
LIMIT_OF_ALL_S = 10.0
"""Seconds after which no further such check begins."""


@dataclass
class KernelChecker:
    """Checks kernels at their own sizes, on inputs of its own; any thread may call it.

    If checks are ``asked`` for, each kernel is checked when it is compiled, ``tell`` gets every result, or why there is none, and
    ``found`` is set if there were findings. Otherwise they are checked by ``finish``, and ``tell`` gets results with findings,
    and one line on those that were not checked.
    """

    objects: ObjectStore
    tell: TellChecked
    asked: bool = True
    found: bool = False
    clock: Clock = field(default_factory=Clock)
    _later: list[tuple[str, MadeKernel]] = field(default_factory=list)
    _seen: set[tuple[str, bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, name: str, made: MadeKernel) -> None:
        """Check a kernel, now or later, unless one with this content was given before."""
        lowered = made.lowered
        if lowered is None:
            return
        content = (print_program(lowered.written), msgspec.json.encode(lowered.written_lines))
        with self._lock:
            if content in self._seen:
                return
            self._seen.add(content)
            if not self.asked:
                self._later.append((name, made))
                return
        reply = self._check(name, made)
        if isinstance(reply, Failed):
            self.tell(f"{name}: not checked: {reply.message}")
            return
        self.found = self.found or bool(reply.findings)
        self.tell(reply)

    def finish(self) -> None:
        """Check what was kept for later, as far as there is time."""
        ends_at = self.clock.monotonic_s() + LIMIT_OF_ALL_S
        reasons: list[str] = []
        while self._later and self.clock.monotonic_s() < ends_at:
            name, made = self._later.pop(0)
            reply = self._check(name, made)
            if isinstance(reply, Failed):
                reasons.append(f"{name}: {reply.message}")
            elif reply.findings:
                self.tell(reply)
            elif not reply.blocks:
                reasons.append(f"{name}: {reply.unchecked[0]}")
        if self._later:
            reasons.append(
                f"{self._later[0][0]}: the checks of all kernels take longer than {LIMIT_OF_ALL_S:g} s"
            )
        count = len(reasons) + len(self._later[1:])
        if count:
            self.tell(
                f"{count_of(count, 'kernel')} not checked for races and undefined accesses: {reasons[0]} (--check-sync allows more time)"
            )

    def _check(self, name: str, made: MadeKernel) -> SyncChecked | Failed:
        question = CheckSync(
            kernel=name,
            arguments={},
            config={},
            limit_s=0.0 if self.asked else LIMIT_S,
            is_unasked=not self.asked,
        )
        try:
            return check_made(made, question, self.objects)
        except TileyardError as error:
            return Failed(message=str(error))
        except Exception as error:  # noqa: BLE001 (the script has nothing to do with it)
            return Failed(message=f"the check failed: {error!r}")
