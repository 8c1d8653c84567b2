"""A target whose kernels do what their text says: sleep, hang, crash, grow, or nothing at all.

For tests and benchmarks of the engine, which need devices by the dozen and faults on demand. The
text of a kernel's Program is a ``Behaviour`` as JSON. Use it as a plug-in:
``TILEYARD_PLUGINS=simulated=tileyard.testing.simulated:SimulatedTarget``.
"""

import ctypes
import fcntl
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.errors import ContextLostError, KernelFault
from tileyard.model import Device, Diagnostic, Outcome, Record, TensorSpec, Value
from tileyard.targets.base import NO_BINARIES, Array, Binaries, Launch, Source

RIGHT = 1.0
CLAIMS_VARIABLE = "TILEYARD_SIMULATED_CLAIMS"
"""A directory in which every use of a device is claimed, so that a double grant is noticed."""

Fault = Literal[
    "", "wrong", "error", "hang", "segv", "abort", "memory", "detach", "killed_once", "killed",
    "refused", "build_hang", "build_crash", "lost", "lost_timing",
]  # fmt: skip


class Behaviour(Record):
    """What a kernel does. ``sample_ns`` is what its timing says, ``note`` a path for ``killed_once``.

    ``size`` is the number of elements of its output. ``says`` is what it prints before it does anything. ``lost``, and for the first sample
    ``lost_timing``, take the device from the process: nothing can run in it any more.
    """

    build_s: float = 0.0
    run_s: float = 0.0
    sample_ns: float = 1000.0
    size: int = 1
    fault: Fault = ""
    note: str = ""
    says: str = ""


class SimulatedTarget:
    """Builds by sleeping, and loads what was written down."""

    name = "simulated"
    needs_tir = False

    def fingerprint(self) -> str:
        """Never changes."""
        return "simulated 1"

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Write each kernel's text down, or fail as it says."""
        return [self._build(source, out / str(i)) for i, source in enumerate(sources)]

    def load(self, artifact: Artifact, device: Device) -> "SimulatedKernel":
        """The kernel, once the device is claimed."""
        behaviour = msgspec.json.decode(artifact.manifest.details, type=Behaviour)
        return SimulatedKernel(behaviour, device)

    def _build(self, source: Source, folder: Path) -> Build:
        text = source.elaborated.kernel.program
        behaviour = msgspec.json.decode(text, type=Behaviour)
        time.sleep(behaviour.build_s)
        if behaviour.fault == "refused":
            refusal = Diagnostic(message="refused, as requested")
            return Build(outcome=Outcome.COMPILE_ERROR, diagnostic=refusal)
        if behaviour.fault == "build_hang":
            _hang()
        if behaviour.fault == "build_crash":
            ctypes.string_at(0)
        return Build(outcome=Outcome.PASSED, details=text, binary=source.elaborated.kernel.name)


class GroupedTarget(SimulatedTarget):
    """The same, and says that it likes to build several at once. Each group's size is noted down."""

    name = "grouped"
    group_size = 0

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Note the size of the group, then build."""
        if folder := os.environ.get(CLAIMS_VARIABLE):
            with (Path(folder) / "groups").open("a") as file:
                file.write(f"{len(sources)}\n")
        return super().build(sources, out, known)


class SimulatedKernel:
    """A loaded kernel, and its launch."""

    def __init__(self, behaviour: Behaviour, device: Device) -> None:
        self._behaviour = behaviour
        self._device = device
        wrong = behaviour.fault == "wrong"
        self._output = np.full(behaviour.size, RIGHT + wrong, dtype=np.float32)

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """Nobody asks."""
        return ()

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> Launch:
        """Itself."""
        return self

    def as_callable(self) -> Callable[..., object]:
        """A function that runs it."""
        return lambda *_: self.run()

    def run(self) -> None:
        """Do what the text says."""
        claim_device(self._device)
        self._require_context()
        if self._behaviour.says:
            os.write(2, f"{self._behaviour.says}\n".encode())
        time.sleep(self._behaviour.run_s)
        fault = self._behaviour.fault
        match fault:
            case "error":
                raise KernelFault("failed, as requested")
            case "lost":
                self._lose_context()
            case "hang":
                _hang()
            case "segv":
                ctypes.string_at(0)
            case "abort":
                os.abort()
            case "memory":
                np.ones(1 << 40, dtype=np.uint8)
            case "detach":
                _detach()
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "killed_once":
                if not Path(self._behaviour.note).exists():
                    Path(self._behaviour.note).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            case _:
                pass

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """What the text says, each time."""
        self._require_context()
        if self._behaviour.fault == "lost_timing":
            self._lose_context()
        return [self._behaviour.sample_ns] * samples

    def _lose_context(self) -> None:
        _lost.add(self._device.name)
        self._require_context()

    def _require_context(self) -> None:
        if self._device.name in _lost:
            raise ContextLostError("the context is lost, as requested")

    def read(self) -> Sequence[Array]:
        """The one output, all of whose elements are right or wrong."""
        return [self._output]

    def reset(self) -> None:
        """Nothing is left of a run."""


_claims: dict[str, int] = {}
_lost: set[str] = set()


def claim_device(device: Device) -> None:
    """Say that this process and what it starts use a device; note down if somebody else does too.

    The claim ends with the last process that inherited it, unlike the lease's own locks, which
    the keeper holds.
    """
    folder = os.environ.get(CLAIMS_VARIABLE)
    if not folder or device.name in _claims:
        return
    path = Path(folder) / device.name.replace(":", "-")
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.set_inheritable(fd, True)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with (Path(folder) / "violations").open("a") as file:
            file.write(f"{device.name} was given to {os.getpid()} while somebody else used it\n")
    _claims[device.name] = fd


def _hang() -> None:
    """For ever, and deaf to TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def _detach() -> None:
    """Leave a daemon behind: another session, another parent, deaf to TERM."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _hang()
