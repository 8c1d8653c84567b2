"""How much of the time that a device is held neither loads, runs nor times anything.

A suite and a study of an elementwise kernel with outputs of 1 kB, 1 MB and 64 MB, each through the whole
command line: on a device that sleeps for each run (it owns no cores), and on the CPU's core 0. What the
runner loads, runs and times is noted by targets that wrap ``cpu``; how long the device was held is in the
events of the run, and when the first case of each lease began: only once that has loaded its target can
anything be noted. The rest of that time is what handing over, judging and talking cost. Prints also the
most memory that outputs took at once while they waited for the judge, where a run has such memory.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.base.model import Device, SourceLine, TensorSpec, Value
from tileyard.targets.base import NO_BINARIES, Array, Binaries, Launch, Source
from tileyard.targets.registry import make_target

SIZES = {"1 kB": 1 << 8, "1 MB": 1 << 18, "64 MB": 1 << 24}
"""Elements of a float32 output."""
LOG_VARIABLE = "TILEYARD_HOLD_LOG"
SLEEP_S = 0.02
KERNEL = """
import numpy as np
import tilelang.language as T
import tileyard

@tileyard.kernel(space={{"block": {blocks}}}, shapes={{{shapes}}}, reference=lambda A: A + np.float32(1))
def add_one(N, block=128, tag=0):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            for i in T.Parallel(block):
                tile[i] = tile[i] + 1.0
            T.copy(tile, B[bx * block])
    return main
"""
T = TypeVar("T")


def note(work: Callable[..., T], *arguments: object) -> T:
    """Do it, and write down when that began and when it ended."""
    began = time.time()
    try:
        return work(*arguments)
    finally:
        os.write(find_log(), f"{began} {time.time()}\n".encode())


@functools.cache
def find_log() -> int:
    """Where all is noted; opened once, since samples take less than that."""
    return os.open(os.environ[LOG_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class HeldTarget:
    """The target ``cpu``, which notes what it does on a device."""

    name = "held"
    needs_tir = False
    sleep_s = 0.0

    def __init__(self) -> None:
        self._cpu = make_target("cpu", {})
        runner = getattr(sys.modules["__main__"], "Runner", None)
        if runner is not None and not hasattr(runner, "bind_silently"):
            # All that a runner does to load a case: artifact, inputs, binding.
            runner.bind_silently = runner._bind  # noqa: SLF001 - nothing else sees this
            runner._bind = lambda *given: note(runner.bind_silently, *given)  # noqa: SLF001

    def fingerprint(self) -> str:
        """That of ``cpu``."""
        return f"held {self._cpu.fingerprint()}"

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """As ``cpu`` does."""
        return self._cpu.build(sources, out, known)

    def load(self, artifact: Artifact, device: Device) -> "HeldKernel":
        """As ``cpu`` does, on core 0 where the device has none."""
        cores = device.cores or (min(os.sched_getaffinity(0)),)
        device = msgspec.structs.replace(device, cores=cores)
        return HeldKernel(self._cpu.load(artifact, device), self.sleep_s)


class SleepingTarget(HeldTarget):
    """One whose runs take longer, and nobody's core."""

    name = "sleeping"
    sleep_s = SLEEP_S


class HeldKernel:
    """A loaded kernel, and its launch."""

    def __init__(self, loaded: object, sleep_s: float) -> None:
        self._loaded: object = loaded
        self._sleep_s = sleep_s
        self._launch: Launch

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """Those of the kernel."""
        return self._loaded.specs(shapes, scalars)  # type: ignore[attr-defined, no-any-return]

    def know_lines(self, lines: dict[int, SourceLine]) -> None:
        """Nobody reads them."""

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> "HeldKernel":
        """Bound, which is part of loading."""
        self._launch = self._loaded.bind(arrays, scalars)  # type: ignore[attr-defined]
        return self

    def bind_into(
        self, arrays: Sequence[Array], scalars: Sequence[Value], allocate: Callable[..., Array]
    ) -> "HeldKernel":
        """Bound to memory that the judge reads, where the commit at hand has such."""
        self._launch = self._loaded.bind_into(arrays, scalars, allocate)  # type: ignore[attr-defined]
        return self

    def run(self) -> None:
        """Launch once."""
        note(self._run)

    def _run(self) -> None:
        self._launch.run()
        time.sleep(self._sleep_s)

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """Sampled."""
        return note(self._launch.sample_ns, samples, launches)

    def read(self) -> Sequence[Array]:
        """The outputs."""
        return self._launch.read()

    def reset(self) -> None:
        """As at first."""
        self._launch.reset()


def measure(verb: str, where: str, size: int, cases: int) -> str:
    """One run in a fresh home; the share of held time that is lost, and the memory of outputs. All is built
    by a first run, so that the device waits for nothing but what is measured.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home, log = folder / "home", folder / "log"
        home.mkdir()
        (home / "devices.toml").write_text('[[device]]\nname = "board:0"\nid = "hold"\n')
        shapes = ", ".join(f'"s{n}": {{"N": {size}, "tag": {n}}}' for n in range(cases))
        blocks = [64 * (n + 1) for n in range(cases)]
        kernels = folder / "kernels.py"
        kernels.write_text(KERNEL.format(blocks=blocks, shapes=shapes))
        target, device = ("sleeping", "board:0") if where == "asleep" else ("held", "cpu:cores=0")
        command = [sys.executable, "-m", "tileyard", verb, str(kernels), "--target", target]
        command += ["--devices", device]
        command += ["--arg", f"N={size}"] if verb == "tune" else []
        plugins = "held=hold:HeldTarget,sleeping=hold:SleepingTarget"
        env = {
            **os.environ,
            "TILEYARD_HOME": str(home),
            "TILEYARD_LOCK_DIR": str(folder / "locks"),
            "TILEYARD_PLUGINS": plugins,
            "PYTHONPATH": str(Path(__file__).parent),
            LOG_VARIABLE: str(log),
        }
        if verb == "tune":
            command.append("--fresh")
        follow(command, env, folder / "output")  # builds everything
        known = set(home.glob("runs/*.jsonl"))
        log.unlink()
        peak = follow(command, env, folder / "output")
        worked = sorted(
            (float(began), float(ended))
            for began, ended in (line.split() for line in log.read_text().splitlines())
        )
        held_s = used_s = 0.0
        for events in {*home.glob("runs/*.jsonl")} - known:
            for lease in read_leases(events, worked[-1][1]):
                within = [one for one in worked if lease.since <= one[0] <= lease.until]
                held_s += lease.until - lease.since
                used_s += sum(ended - began for began, ended in within)
                used_s += within[0][0] - lease.turned if within else 0.0
        if not held_s:
            raise SystemExit((folder / "output").read_text()[-3000:])
        share = 100 * (held_s - used_s) / held_s
        return f"held {held_s:6.2f} s, lost {share:5.1f} %   outputs at once {peak >> 20:4} MB"


def follow(command: Sequence[str], env: dict[str, str], output: Path) -> int:
    """Run a command to its end; the most memory that outputs took, looked at now and then."""
    peak = 0
    with (
        output.open("w") as file,
        subprocess.Popen(command, env=env, stdout=file, stderr=file) as own,
    ):
        while own.poll() is None:
            peak = max(peak, outputs_bytes(env["TILEYARD_HOME"]))
            time.sleep(0.02)
    if own.returncode:
        raise SystemExit(output.read_text()[-3000:])
    return peak


def outputs_bytes(home: str) -> int:
    """The size of the memory for outputs of the runners with this home."""
    found: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            if b"tileyard.workers.runner" not in line or home.encode() not in line:
                continue
            for link in (process / "fd").iterdir():
                if "tileyard-outputs" in str(link.readlink()):
                    status = link.stat()
                    found[status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return sum(found.values())


class Lease(NamedTuple):
    """When a device was held, in seconds since the epoch, and ``turned`` to its runner's first case."""

    since: float
    turned: float
    until: float


def read_leases(events: Path, last: float) -> Iterator[Lease]:
    """The leases of a run; one that is not given back in its events was held until ``last``."""
    since, turned = dict[str, float](), dict[str, float]()
    for line in events.read_text().splitlines():
        event = json.loads(line)
        device = event.get("device")
        if event["type"] == "device_leased":
            since[device] = event["at"]
        elif event["type"] == "case_started":
            turned.setdefault(device, event["at"])
        elif event["type"] == "device_released" and device in since:
            began = since.pop(device)
            yield Lease(began, turned.pop(device, event["at"]), event["at"])
    for device, began in since.items():
        yield Lease(began, turned.get(device, last), last)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--sizes", default=",".join(SIZES))
    options = parser.parse_args()
    for where in ("asleep", "core 0"):
        for verb in ("test", "tune"):
            for size in options.sizes.split(","):
                found = measure(verb, where, SIZES[size], options.cases)
                print(f"{where:7} {verb:5} {size:>6}   {found}", flush=True)


if __name__ == "__main__":
    main()
