"""A target whose builds go as their kernels' names say: for faults of compile workers without a compiler.

The target's option is what it does when it warms up.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from tileyard.artifacts.manifest import Build
from tileyard.base.model import Outcome
from tileyard.targets.base import NO_BINARIES, Aside, Binaries, Source

LONG_S = 1.5


class SlowTarget:
    """Builds nothing, in the ways in which that can go."""

    needs_tir = False
    group_size = 0

    def __init__(self, at_first: str = "") -> None:
        self.name = "slow"
        self.aside: Aside = nullcontext
        self._at_first = at_first

    def warm_up(self) -> None:
        """Do what every build needs."""
        self._do(self._at_first)

    def fingerprint(self) -> str:
        """The same for the same tools."""
        return f"slow {os.environ.get('SLOW_TOOLS', '1')}"

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Do what the names say."""
        for source in sources:
            self._do(source.elaborated.kernel.name)
        return [Build(outcome=Outcome.PASSED, details="{}") for _ in sources]

    def _do(self, deed: str) -> None:
        match deed:
            case "slow":
                signal.sigtimedwait([], LONG_S)
            case "hang":
                signal.pause()
            case "shared":
                with self.aside():
                    self._do("slow")
            case "shared_hang":
                with self.aside():
                    self._do("hang")
            case "abort":
                os.abort()
            case "memory":
                print("LLVM ERROR: out of memory", file=sys.stderr, flush=True)  # noqa: T201 - it is the deed
                os.abort()
            case _:
                pass
