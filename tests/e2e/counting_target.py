"""The cpu target, which reports resources as a GPU's does: one register for each letter of a Program.

It writes down where the arrays of launches lie.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.base.model import Device, Value
from tileyard.targets.base import NO_BINARIES, Allocate, Array, Binaries, Loaded, Source
from tileyard.targets.cpu.loaded import CpuLaunch, CpuLoaded
from tileyard.targets.cpu.target import CpuTarget
from tileyard.targets.own_sources import Reported, Resources


class CountingTarget(CpuTarget):
    """Builds as the cpu target does, with more details."""

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Add the figures to what was built."""
        builds = super().build(sources, out, known)
        return [_add_figures(*pair) for pair in zip(sources, builds, strict=True)]

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Its launches tell."""
        return _Placed(artifact, device.cores, is_pinned=True)


class _Placed(CpuLoaded):
    def bind_into(
        self, arrays: Sequence[Array], scalars: Sequence[Value], allocate: Allocate
    ) -> CpuLaunch:
        """The process, and the places of inputs and outputs in their pages."""
        launch = super().bind_into(arrays, scalars, allocate)
        places = [array.ctypes.data % 4096 for array in (*arrays, *launch.read())]
        with (Path(os.environ["TILEYARD_HOME"]) / "places").open("a", encoding="utf-8") as file:
            print(os.getpid(), *places, file=file)
        return launch


def _add_figures(source: Source, build: Build) -> Build:
    function = Resources(
        symbol="main_kernel",
        registers=len(source.elaborated.kernel.program),
        spilled_bytes=0,
        stack_bytes=0,
        shared_bytes=0,
        code_bytes=0,
        parameter_bytes=0,
    )
    figures = msgspec.to_builtins(Reported(resources=(function,)))
    details = {**json.loads(build.details or "{}"), **figures}
    return msgspec.structs.replace(build, details=json.dumps(details))
