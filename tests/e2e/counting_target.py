"""The cpu target, which reports resources as a GPU's does: one register for each letter of a Program."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.targets.base import NO_BINARIES, Binaries, Source
from tileyard.targets.cpu.target import CpuTarget
from tileyard.targets.reported import Reported, Resources


class CountingTarget(CpuTarget):
    """Builds as the cpu target does, with more details."""

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Add the figures to what was built."""
        builds = super().build(sources, out, known)
        return [_add_figures(*pair) for pair in zip(sources, builds, strict=True)]


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
