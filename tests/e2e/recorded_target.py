"""The target ``cuda`` with recorded latencies: builds are real, and a launch waits as long as one took.

Which latency a kernel has follows from its CUDA source, so that every tuner that builds the same source finds
the same time. ``TILEYARD_PLUGINS=cuda=tests.e2e.recorded_target:RecordedTarget`` puts it in the place of the
target, on devices that ``devices.toml`` declares.
"""

import hashlib
import re
import time
from collections.abc import Callable, Sequence

import numpy as np

from tileyard.artifacts.manifest import Artifact
from tileyard.base.decoding import decode_json
from tileyard.base.model import Device, TensorSpec, TimingPolicy, Value
from tileyard.ir.nodes import Scalar
from tileyard.ir.specs import bind_dims, tensor_specs
from tileyard.targets.base import Array
from tileyard.targets.cuda.launching import SOURCE_FILE, Details
from tileyard.targets.cuda.target import CudaTarget

RECORDED_MS = (0.1157, 0.1328, 0.1495, 0.1878, 0.231, 0.2882, 0.3116, 0.4259, 0.4606, 0.5213, 0.5686, 0.6436,
               0.8437, 0.9847, 1.0517, 1.09, 1.1022, 1.3105)  # fmt: skip
"""Times of TileLang's own examples on a GPU, from a public report of its performance tests."""
SYMBOL = re.compile(r"\b\w+_kernel(_[0-9a-f]{12})?\b")


def recall_ms(source: str, symbol: str = "") -> float:
    """The latency of a source's kernel ``symbol``, by default the last, by its code without its name."""
    parts = source.split('extern "C"')
    body = SYMBOL.sub("kernel", next(part for part in reversed(parts) if symbol in part))
    place = int.from_bytes(hashlib.sha256(body.encode()).digest()[:8], "little")
    # Apart by parts of a percent, so that there is one winner.
    return RECORDED_MS[place % len(RECORDED_MS)] * (1 + place // len(RECORDED_MS) % 97 / 1e4)


class RecordedTarget(CudaTarget):
    """Builds as ``cuda`` does."""

    def load(self, artifact: Artifact, device: Device) -> "Recorded":  # type: ignore[override]
        """No driver is asked."""
        return Recorded(artifact)


class Recorded:
    """An artifact whose launches are recorded ones."""

    def __init__(self, artifact: Artifact) -> None:
        self._signature = decode_json(artifact.manifest.details, Details).launch.signature
        self._latency_ns = recall_ms(artifact.file(SOURCE_FILE).read_text()) * 1e6

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """See ``Loaded``."""
        dims = bind_dims(self._signature, shapes, scalars)
        names = [one.var.name for one in self._signature.params if isinstance(one, Scalar)]
        numbers = dict(zip(names, scalars, strict=True)) | dims
        return tensor_specs(
            self._signature, {name: one for name, one in numbers.items() if isinstance(one, int)}
        )

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> "RecordedLaunch":
        """See ``Loaded``."""
        specs = self.specs([array.shape for array in arrays], scalars)
        outputs = [spec for spec in specs if spec.role != "in"]
        return RecordedLaunch(self._latency_ns, outputs)

    def as_callable(self) -> Callable[..., object]:
        """A function that waits."""
        return lambda *_: time.sleep(self._latency_ns / 1e9)


class RecordedLaunch:
    """Waits, as who launches on a GPU does."""

    def __init__(self, latency_ns: float, outputs: Sequence[TensorSpec]) -> None:
        self._latency_ns = latency_ns
        self._outputs = outputs

    def time_by(self, policy: TimingPolicy) -> None:
        """All ways have the same times."""

    def run(self) -> None:
        """Launch once."""
        time.sleep(self._latency_ns / 1e9)

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """See ``Launch``."""
        time.sleep(samples * launches * self._latency_ns / 1e9)
        return [self._latency_ns] * samples

    def read(self) -> Sequence[Array]:
        """Zeros: nobody compares them."""
        return [np.zeros(spec.shape, np.uint8) for spec in self._outputs]

    def reset(self) -> None:
        """Nothing was written."""
