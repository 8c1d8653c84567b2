"""A target that builds, runs and checks like ``cpu`` but whose times are scripted: the same winner
every time. As a plug-in: ``TILEYARD_PLUGINS=scripted=tileyard.testing.doubles.scripted:ScriptedTarget``.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.base.model import Device, TensorSpec, Value
from tileyard.targets.base import NO_BINARIES, Array, Binaries, Launch, Loaded, RunsAgain, Source
from tileyard.targets.registry import make_target

FASTEST_NS = 100_000.0
LEVELS = 97
STEP = 0.08
JITTER = 0.002


def scripted_latency_ns(program: str) -> float:
    """The time of a kernel, which depends only on its text: one of LEVELS levels, STEP apart."""
    level = int(hashlib.sha256(program.encode()).hexdigest(), 16) % LEVELS
    return FASTEST_NS * float((1.0 + STEP) ** level)


class ScriptedTarget:
    """The ``cpu`` target with scripted times."""

    name = "scripted"
    needs_tir = False

    def __init__(self) -> None:
        self._cpu = make_target("cpu", {})

    def fingerprint(self) -> str:
        """The CPU target's fingerprint."""
        return f"scripted {self._cpu.fingerprint()}"

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Build for the CPU, and keep the Program's text beside the binary."""
        builds = list(self._cpu.build(sources, out, known))
        for number, (source, build) in enumerate(zip(sources, builds, strict=True)):
            if build.files:
                latency_ns = scripted_latency_ns(source.elaborated.kernel.program)
                path = out / str(number) / "latency.txt"
                path.write_text(repr(latency_ns), encoding="utf-8")
                builds[number] = msgspec.structs.replace(build, files=(*build.files, path.name))
        return builds

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Load for the CPU."""
        latency_ns = float(artifact.file("latency.txt").read_text(encoding="utf-8"))
        return _ScriptedLoaded(self._cpu.load(artifact, device), latency_ns)


class _ScriptedLoaded:
    def __init__(self, loaded: Loaded, latency_ns: float) -> None:
        self._loaded = loaded
        self._latency_ns = latency_ns

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        return self._loaded.specs(shapes, scalars)

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> Launch:
        return _ScriptedLaunch(self._loaded.bind(arrays, scalars), self._latency_ns)

    def as_callable(self) -> Callable[..., object]:
        return self._loaded.as_callable()


class _ScriptedLaunch:
    """Runs and reads like ``cpu``; its times follow a fixed pattern around the scripted time."""

    def __init__(self, launch: Launch, latency_ns: float) -> None:
        self._launch = launch
        self._latency_ns = latency_ns
        self._count = 0

    def run(self) -> None:
        self._launch.run()

    def run_again(self, *, inverted: bool) -> None:
        if isinstance(self._launch, RunsAgain):
            self._launch.run_again(inverted=inverted)

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        times = []
        for _ in range(samples):
            self._count += 1
            wave = (self._count * 7 % 11 - 5) / 5
            times.append(self._latency_ns * (1.0 + JITTER * wave))
        return times

    def read(self) -> Sequence[Array]:
        return self._launch.read()

    def reset(self) -> None:
        self._launch.reset()
