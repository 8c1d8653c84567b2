"""The target ``cpu``, which notes the modules that its runner imported under the lease so far."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.base.model import Device
from tileyard.targets.base import NO_BINARIES, Binaries, Loaded, Source
from tileyard.targets.registry import make_target

AHEAD: set[str] = set()
"""What was imported when the target was first made, which a runner does before its lease."""


class ImportingTarget:
    """Builds and loads as ``cpu`` does, on one core."""

    name = "importing"
    needs_tir = False

    def __init__(self) -> None:
        self._cpu = make_target("cpu", {})
        if not AHEAD:
            AHEAD.update(sys.modules)

    def fingerprint(self) -> str:
        """That of ``cpu``."""
        return f"importing {self._cpu.fingerprint()}"

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """As ``cpu`` does."""
        return self._cpu.build(sources, out, known)

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """As ``cpu`` does; one line for each kernel."""
        with Path(os.environ["TILEYARD_IMPORTED"]).open("a") as note:
            note.write(" ".join(sorted({*sys.modules} - AHEAD)) + "\n")
        core = min(os.sched_getaffinity(0))
        return self._cpu.load(artifact, msgspec.structs.replace(device, cores=(core,)))
