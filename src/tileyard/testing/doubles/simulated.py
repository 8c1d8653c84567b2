"""A target whose kernels do what their text, a ``Behaviour`` as JSON, says: sleep, hang, crash, grow, or
nothing. As a plug-in: ``TILEYARD_PLUGINS=simulated=tileyard.testing.doubles.simulated:SimulatedTarget``.
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
from tileyard.base.errors import ContextLostError, KernelFault
from tileyard.base.model import Device, Diagnostic, Outcome, Record, TensorSpec, Value
from tileyard.targets.base import NO_BINARIES, Array, Binaries, Launch, Source

RIGHT = 1.0
CLAIMS_VARIABLE = "TILEYARD_SIMULATED_CLAIMS"
"""The variable for a directory of claims, one per use of a device, so that a double grant is noticed."""

Fault = Literal[
    "", "wrong", "error", "hang", "segv", "abort", "memory", "detach", "killed_once", "killed",
    "refused", "build_hang", "build_crash", "lost", "lost_timing",
]  # fmt: skip


class Behaviour(Record):
    """The behaviour of a kernel: its scripted time ``sample_ns``, ``size`` elements of output. ``note`` is a
    path for ``killed_once``, the limit that a ``refused`` one exceeds; ``says`` is printed first. ``lost`` or
    ``lost_timing`` at the first sample, lose the process's context on the device.
    """

    build_s: float = 0.0
    run_s: float = 0.0
    sample_ns: float = 1000.0
    size: int = 1
    fault: Fault = ""
    note: str = ""
    says: str = ""


class SimulatedTarget:
    """Builds by sleeping, and loads the recorded behaviour."""

    name = "simulated"
    needs_tir = False

    def fingerprint(self) -> str:
        """A constant."""
        return "simulated 1"

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Write each kernel's text to a file, or fail as it specifies."""
        return [self._build(source, out / str(i)) for i, source in enumerate(sources)]

    def load(self, artifact: Artifact, device: Device) -> "SimulatedKernel":
        """Claim the device, and return the kernel."""
        behaviour = msgspec.json.decode(artifact.manifest.details, type=Behaviour)
        return SimulatedKernel(behaviour, device)

    def _build(self, source: Source, folder: Path) -> Build:
        text = source.elaborated.kernel.program
        behaviour = msgspec.json.decode(text, type=Behaviour)
        time.sleep(behaviour.build_s)
        if behaviour.fault == "refused":
            refusal = Diagnostic(message="refused, as requested")
            return Build(outcome=Outcome.COMPILE_ERROR, diagnostic=refusal, exceeds=behaviour.note)
        if behaviour.fault == "build_hang":
            _hang()
        if behaviour.fault == "build_crash":
            ctypes.string_at(0)
        return Build(outcome=Outcome.PASSED, details=text, binary=source.elaborated.kernel.name)


class GroupedTarget(SimulatedTarget):
    """The same target with builds in groups. The size of each group is recorded."""

    name = "grouped"
    group_size = 0

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Record the size of the group, then build."""
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
        """Empty, because nothing uses it."""
        return ()

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> Launch:
        """The kernel itself."""
        return self

    def as_callable(self) -> Callable[..., object]:
        """A function that runs it."""
        return lambda *_: self.run()

    def run(self) -> None:
        """Do what the text specifies."""
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
        """The scripted time, for each sample."""
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
        """Do nothing: a run leaves no state."""


_claims: dict[str, int] = {}
_lost: set[str] = set()


def claim_device(device: Device) -> None:
    """Claim a device until the last child of this process ends; record a violation if another has it."""
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def _detach() -> None:
    """Leave a daemon in another session, with another parent, that ignores SIGTERM."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _hang()
