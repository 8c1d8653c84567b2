"""The cpu target with a planted bug: it takes the smaller of two numbers for the larger one.

``TILEYARD_PLUGINS=wrong=tests.reduction.wrong_target:WrongTarget``
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.targets.base import NO_BINARIES, Binaries, Source
from tileyard.targets.cpu.target import CpuTarget


class WrongTarget(CpuTarget):
    """Builds ``max`` as ``min``."""

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Build what the user has not written."""
        return super().build([_spoiled(source) for source in sources], out, known)


def _spoiled(source: Source) -> Source:
    kernel = source.elaborated.kernel
    wrong = msgspec.structs.replace(kernel, program=kernel.program.replace("max(", "min("))
    elaborated = msgspec.structs.replace(source.elaborated, kernel=wrong)
    return msgspec.structs.replace(source, elaborated=elaborated)
