"""A target whose artifacts say what is to happen when they run: for faults without a compiler.

``TILEYARD_PLUGINS=deed=tests.faults.deed_target:DeedTarget``. An artifact has one file, ``deed``.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

import numpy as np

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.manifest import Artifact, Manifest, publish
from tileyard.artifacts.objects import ObjectStore, digest_parts
from tileyard.base.errors import KernelFault
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    GoldenKey,
    KernelWork,
    Limits,
    TensorSpec,
    TimingPolicy,
    Value,
)
from tileyard.targets.base import Array
from tileyard.workers.protocol import Golden, RunEntry

SHAPE = (4,)
OUTCOME_OF = {
    "copy": "passed",
    "print": "passed",
    "variable": "passed",
    "spoil": "mismatch",
    "raise": "runtime_error",
    "crash": "crashed",
    "exit": "crashed",
    "hang": "timeout",
    "memory": "out_of_memory",
}
"""What a deed must come to."""


class DeedLaunch:
    """One artifact bound to its one input."""

    def __init__(self, deed: str, given: Array) -> None:
        self._deed = deed
        self._given = given

    def run(self) -> None:
        """Do it."""
        match self._deed.partition(" ")[0]:
            case "crash":
                ctypes.string_at(0)
            case "exit":
                os._exit(0)
            case "hang":
                signal.pause()
            case "memory":
                raise MemoryError
            case "raise":
                raise KernelFault("an index is outside its shape")
            case "print":
                print("something to say", file=sys.stderr, flush=True)  # noqa: T201 - it is the deed
            case "variable":
                print(repr(os.environ.get(self._deed.partition(" ")[2])), flush=True)  # noqa: T201

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """Always the same."""
        return [1000.0 + sample % 3 for sample in range(samples)]

    def read(self) -> Sequence[Array]:
        """The input, unless it is spoilt."""
        return [self._given + np.float32(self._deed == "spoil")]

    def reset(self) -> None:
        """Nothing was changed."""


class DeedLoaded:
    """One artifact."""

    def __init__(self, deed: str) -> None:
        self._deed = deed

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """One input, one output."""
        return SPECS

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> DeedLaunch:
        """Take the input."""
        return DeedLaunch(self._deed, arrays[0])


class DeedTarget:
    """Loads deeds."""

    name = "deed"
    needs_tir = False

    def load(self, artifact: Artifact, device: object) -> DeedLoaded:
        """Read what is to be done."""
        return DeedLoaded(artifact.file("deed").read_text(encoding="utf-8"))


SPECS = (
    TensorSpec(name="a", dtype="float32", shape=SHAPE, role="in"),
    TensorSpec(name="b", dtype="float32", shape=SHAPE, role="out"),
)


def build_deed(objects: ObjectStore, case: str, deed: str) -> RunEntry:
    """An artifact that does this, ready to be run as this case."""
    key = BuildKey(digest_parts("deed", deed))
    file = objects.put_bytes(deed.encode())
    publish(
        Manifest(
            kernel="deed",
            target="deed",
            fingerprint="deed 1",
            build=key,
            binary=key,
            files={"deed": file},
            details="{}",
        ),
        objects,
    )
    array = put_array(objects, np.arange(4, dtype=np.float32))
    golden = Golden(key=GoldenKey(digest_parts("golden")), inputs=(array,), outputs=(array,))
    return RunEntry(
        case=case, build=key, golden=golden, specs=SPECS, scalars=(), log=f"logs/r/{case}.log"
    )


def plan_deeds(
    objects: ObjectStore, deeds: Sequence[str], run_s: float = 30.0
) -> tuple[Batch, tuple[RunEntry, ...]]:
    """A batch of one case for each deed, named ``1 copy`` and so on; one that hangs has a short limit."""
    names = [f"{number}-{deed.partition(' ')[0]}" for number, deed in enumerate(deeds, 1)]
    timing = TimingPolicy(max_samples=12, warmup_ns=0)
    cases = tuple(
        Case(
            id=name,
            work=KernelWork(kernel="deed"),
            target="deed",
            timing=timing,
            limits=Limits(run_s=1.0 if name.endswith("hang") else run_s),
        )
        for name in names
    )
    entries = tuple(build_deed(objects, *pair) for pair in zip(names, deeds, strict=True))
    return Batch(id="batch", cases=cases), entries
