"""The scripted target on devices that differ, as their variables say.

``SLOWER`` multiplies times, ``REVERSED`` turns their order round. A device that ``READS`` or ``WRITES`` a
pipe begins once another one that does the opposite has begun, so that both are used.
"""

from collections.abc import Sequence
from pathlib import Path

from tileyard.artifacts.manifest import Artifact
from tileyard.base.model import Device, Value
from tileyard.targets.base import Array, Launch, Loaded
from tileyard.testing.doubles.scripted import FASTEST_NS, ScriptedTarget


class UnevenTarget(ScriptedTarget):
    """Builds as the scripted target does."""

    name = "uneven"

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Times are those of the device."""
        return _Uneven(super().load(artifact, device), device.env)


class _Uneven:
    def __init__(self, loaded: Loaded, env: dict[str, str]) -> None:
        self._loaded = loaded
        self._env = env
        self.specs, self.as_callable = loaded.specs, loaded.as_callable

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> Launch:
        return _UnevenLaunch(self._loaded.bind(arrays, scalars), self._env)


class _UnevenLaunch:
    def __init__(self, launch: Launch, env: dict[str, str]) -> None:
        self._launch = launch
        self._env = env
        self.read, self.reset = launch.read, launch.reset

    def run(self) -> None:
        for variable, mode in (("READS", "rb"), ("WRITES", "wb")):
            pipe = Path(self._env.get(variable, "/none"))
            if pipe.exists():
                pipe.open(mode).close()
                pipe.unlink(missing_ok=True)
        self._launch.run()

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        times = self._launch.sample_ns(samples, launches)
        if "REVERSED" in self._env:
            times = [1e3 * FASTEST_NS**2 / time for time in times]
        return [time * float(self._env.get("SLOWER", "1")) for time in times]
