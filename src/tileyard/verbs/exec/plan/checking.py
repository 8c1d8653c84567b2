"""Checks kernels of a script for races, undefined accesses and wrong synchronization, each Program once."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.errors import TileyardError
from tileyard.base.wording import count_of
from tileyard.frontend.tilelang import MadeKernel
from tileyard.ir.printer import print_program
from tileyard.ir.tiles import Array
from tileyard.sync.control import deciding_numbers
from tileyard.workers.golden import to_numpy
from tileyard.workers.protocol import CheckSync, Failed, SyncChecked
from tileyard.workers.sync_check import MOST_ELEMENTS, check_made

TellChecked = Callable[[SyncChecked | str], None]
LIMIT_S = 1.0
"""Seconds for the check of one kernel if nobody asked for it."""
LIMIT_OF_ALL_S = 10.0
"""Seconds after which no further such check begins."""


@dataclass
class KeptKernel:
    """A kernel that is checked later, with the deciding whole numbers of its first launch. ``on_launch`` is
    called once these are known, before the launch.
    """

    name: str
    made: MadeKernel
    on_launch: "Callable[[KeptKernel], None] | None"
    known: dict[str, Array] | None = None

    def note_launch(self, tensors: Mapping[str, object]) -> None:
        """Keep the numbers of a launch, if it is the first one."""
        lowered = self.made.lowered
        if lowered is None or self.known is not None:
            return
        self.known = {}
        for name in deciding_numbers(lowered.written) & tensors.keys():
            with suppress(
                TypeError, ValueError, RuntimeError
            ):  # the launch says that it is no tensor
                array = to_numpy(tensors[name])
                if array.size <= MOST_ELEMENTS:
                    self.known[name] = array.copy()
        if self.on_launch is not None:
            self.on_launch(self)


@dataclass
class KernelChecker:
    """Checks kernels at their own sizes on random inputs; any thread may call it. One whose decisions depend
    on whole numbers is checked with those of its first launch, or not at all. If checks are ``asked`` for,
    they run at once, ``tell`` gets every result, or why there is none, and ``found`` is set by findings.
    Otherwise ``finish`` runs them, and ``tell`` gets results with findings, and one line on kernels that were
    not checked.
    """

    objects: ObjectStore
    tell: TellChecked
    asked: bool = True
    found: bool = False
    clock: Clock = field(default_factory=Clock)
    _later: list[KeptKernel] = field(default_factory=list)
    _seen: dict[tuple[str, bytes], KeptKernel] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, name: str, made: MadeKernel) -> KeptKernel | None:
        """Check a kernel now unless its content was given before, or keep it for later and return it."""
        lowered = made.lowered
        if lowered is None:
            return None
        content = (print_program(lowered.written), msgspec.json.encode(lowered.written_lines))
        is_later = not self.asked or bool(deciding_numbers(lowered.written))
        with self._lock:
            is_new = content not in self._seen
            on_launch = self._check_now if self.asked else None
            kept = self._seen.setdefault(content, KeptKernel(name, made, on_launch))
            if is_later:
                self._later += [kept] if is_new else []
                return kept
        if is_new:
            self._check_now(kept)
        return None

    def _check_now(self, kernel: KeptKernel) -> None:
        reply = self._check(kernel)
        if isinstance(reply, Failed):
            self.tell(f"{kernel.name}: not checked: {reply.message}")
            return
        self.found = self.found or bool(reply.findings)
        self.tell(reply)

    def finish(self) -> None:
        """Check what was kept for later, as far as there is time; if it was asked for, say what is left."""
        if self.asked:
            for kernel in self._later:
                if kernel.known is None:
                    self._check_now(kernel)
            return
        ends_at = self.clock.monotonic_s() + LIMIT_OF_ALL_S
        reasons: list[str] = []
        while self._later and self.clock.monotonic_s() < ends_at:
            kernel = self._later.pop(0)
            reply = self._check(kernel)
            if isinstance(reply, Failed):
                reasons.append(f"{kernel.name}: {reply.message}")
            elif reply.findings:
                self.tell(reply)
            elif not reply.blocks:
                reasons.append(f"{kernel.name}: {reply.unchecked[0]}")
        if self._later:
            reasons.append(
                f"{self._later[0].name}: the checks of all kernels take longer than {LIMIT_OF_ALL_S:g} s"
            )
        count = len(reasons) + len(self._later[1:])
        if count:
            self.tell(
                f"{count_of(count, 'kernel')} not checked for races and undefined accesses: {reasons[0]}"
            )

    def _check(self, kernel: KeptKernel) -> SyncChecked | Failed:
        question = CheckSync(
            kernel=kernel.name,
            arguments={},
            config={},
            limit_s=0.0 if self.asked else LIMIT_S,
            is_unasked=not self.asked,
        )
        try:
            return check_made(kernel.made, question, self.objects, known=kernel.known or {})
        except TileyardError as error:
            return Failed(message=str(error))
        except Exception as error:  # noqa: BLE001 (the script has nothing to do with it)
            return Failed(message=f"the check failed: {error!r}")
