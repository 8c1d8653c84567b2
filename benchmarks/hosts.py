"""What other hosts cost the engine: cases that do nothing, on real agents over the real wire.

The devices of the agents are simulated: they answer at once, so that a thousand of them fit on one machine.
Prints the engine's CPU time per case beside that of a real runner of this host, and the memory it takes. With
``--stop`` one agent is stopped for some seconds, and the longest wait for a case of each side is printed.

``--speed-up ROUNDS`` measures instead how much faster two agents with a core each build than one: in turns,
48 configs of a GEMM for a GPU. Engine and author share these cores; their part of them is printed.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tileyard.base.model import Batch, Device, Outcome, Value
from tileyard.base.settings import Settings
from tileyard.engine import runners
from tileyard.engine.driver import Driver, make_pool
from tileyard.engine.hosts import agent as agents
from tileyard.engine.hosts.meeting import NamedHosts, Place
from tileyard.engine.hosts.slots import RemoteDevices
from tileyard.engine.provider import UnheldSlot, Waiting, Watch
from tileyard.engine.yard import Yard
from tileyard.store.events import EventLog
from tileyard.workers.protocol import CaseRan, RunEntry

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.simulated_yard import (
    PLUGINS,
    FixedSource,
    open_simulated_yard,
    plan_cases,
    simulated_devices,
)

KERNEL = Path(__file__).with_name("cuda_gemm.py")
CONFIG = "[simulators]\nslots = {slots}\n"


class SimulatedSlot(UnheldSlot):
    """A device of an agent that runs everything at once, and well."""

    appetite = 0

    def __init__(self, site: object, device: Device) -> None:
        self.device = device
        self._leases = itertools.count(1)
        self._lease = 0

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """A lease of its own."""
        self._lease = next(self._leases)
        return self._lease

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Answer every case."""
        for entry in entries:
            watch.began(entry.case)
            await asyncio.sleep(0)
            ran = CaseRan(case=entry.case, outcome=Outcome.PASSED, seconds=1e-4, lease=self._lease)
            watch.ran(ran, self.device.name, self._lease)
        return True

    def withdraw(self) -> None:
        """Do nothing: it is done already."""


def serve() -> None:
    """Be an agent with simulated devices."""
    runners.RunnerSlot = SimulatedSlot  # type: ignore[misc, assignment]
    from tileyard.base.settings import read_settings

    agents.serve_stdio(read_settings(os.environ, Path.cwd()))


def place_agents(count: int, devices: int, folder: Path) -> list[Place]:
    """The places of as many agents, which together have as many devices."""
    places = []
    for number in range(count):
        own = folder / f"host-{number}"
        (own / "etc").mkdir(parents=True)
        slots = devices * (number + 1) // count - devices * number // count
        (own / "etc/devices.toml").write_text(CONFIG.format(slots=slots), encoding="utf-8")
        variables = (
            f"TILEYARD_HOME={own / 'home'}",
            f"TILEYARD_LOCK_DIR={own / 'locks'}",
            f"TILEYARD_HOST_CONFIG={own / 'etc'}",
        )
        argv = ("env", *variables, sys.executable, __file__, "--agent")
        places.append(Place(f"host-{number}", argv))
    return places


def configs(count: int) -> Iterator[dict[str, Value]]:
    """One artifact, many cases."""
    return ({"n": number, "size": 1} for number in range(count))


class Run:
    """A run of no-op cases: what it cost, and when each case of each host ended."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0
        self.ended: dict[str, list[float]] = {}

    async def drive(self, driver: Driver, yard: Yard, stop: Callable[[int], None]) -> None:
        """Follow a run to its end; from the hundredth case on it counts."""
        await driver.open()
        cpu_s = wall_s = 0.0
        with EventLog(yard.home, "bench") as log:
            yard.listeners.append(log.add)
            yard.flushes.append(log.flush)
            number = 0
            try:
                async for trial in driver.trials():
                    number += 1
                    if number == 100:
                        cpu_s, wall_s = time.process_time(), time.perf_counter()
                    host = trial.device.partition("@")[2]
                    self.ended.setdefault(host, []).append(time.perf_counter())
                    stop(number)
            finally:
                self.cpu_s = time.process_time() - cpu_s
                self.wall_s = time.perf_counter() - wall_s
                await driver.close()


async def run_here(folder: Path, cases: int) -> Run:
    """On a real runner of this host."""
    run = Run()
    devices = simulated_devices(1, folder / "locks")
    source = FixedSource(plan_cases(configs(cases)))
    source.keep = False
    with open_simulated_yard(folder, devices, tuple(os.sched_getaffinity(0))) as yard:
        await run.drive(Driver(source, yard, "bench"), yard, lambda _: None)
    return run


async def run_there(folder: Path, cases: int, agents: int, devices: int, stop_s: float) -> Run:
    """On agents; for ``stop_s`` one of them is stopped."""
    run = Run()
    cores = tuple(os.sched_getaffinity(0))
    home = folder / "home"
    settings = Settings(home=home, lock_dir=folder / "locks", cores=cores, plugins=PLUGINS)
    hosts = RemoteDevices(NamedHosts(tuple(place_agents(agents, devices, folder))), settings)
    found = await hosts.find(("sim",), title="benchmark", queue_limit_s=60.0)
    source = FixedSource(plan_cases(configs(cases)))
    source.keep = False

    def stop(number: int) -> None:
        process = hosts._sessions[0]._process  # noqa: SLF001 - what a user cannot reach is stopped
        if stop_s and number == cases // 4 and process is not None:
            os.kill(process.pid, signal.SIGSTOP)
            loop = asyncio.get_running_loop()
            loop.call_later(stop_s, os.kill, process.pid, signal.SIGCONT)

    try:
        with open_simulated_yard(folder, found, cores) as yard:
            yard.compilers = await hosts.open_builders(make_pool(yard), yard.authors.sides)
            await run.drive(Driver(source, yard, "bench", hosts), yard, stop)
    finally:
        await hosts.close()
    return run


def pin(core: str, file: str, *argv: str) -> int:
    """Run a program on one core, and write its CPU seconds into a file."""
    os.sched_setaffinity(0, {int(core)})
    code = subprocess.call(argv)
    Path(file).write_text(str(children_s()), encoding="utf-8")
    return code


def children_s() -> float:
    """CPU seconds of the processes that this one started, and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build(cores: Sequence[int], caches: Path) -> tuple[float, float, float]:
    """Build 48 configs on an agent for each of these cores: seconds, CPU seconds, and those of the agents."""
    with tempfile.TemporaryDirectory() as name:
        folder, hosts = Path(name), ""
        for core in cores:
            reach = json.dumps([sys.executable, __file__, "--pin", str(core), f"{name}/{core}"])
            env = f'{{ TILEYARD_HOME = "{name}/home{core}", TILEYARD_LOCK_DIR = "{name}/locks" }}'
            hosts += f'[[host]]\nname = "core{core}"\nreach = {reach}\nenv = {env}\n'
            if caches.is_dir():
                shutil.copytree(caches, folder / f"home{core}/caches")
        (folder / "hosts.toml").write_text(hosts, encoding="utf-8")
        argv = [sys.executable, "-m", "tileyard", "compile", str(KERNEL), "--all-configs"]
        argv += ["--target", "cuda:sm_90a", "--config", "pipeline=tilelang,tileyard"]
        env = {**os.environ, "TILEYARD_HOME": f"{name}/home", "TILEYARD_LOCK_DIR": f"{name}/lock"}
        before_s, began_s = children_s(), time.perf_counter()
        argv += ["--hosts", "hosts.toml", "--json"]
        subprocess.run(argv, cwd=name, env=env, check=True, stdout=subprocess.DEVNULL)
        wall_s, cpu_s = time.perf_counter() - began_s, children_s() - before_s
        if not caches.is_dir():
            shutil.copytree(folder / f"home{cores[0]}/caches", caches)
        return wall_s, cpu_s, sum(float((folder / str(core)).read_text()) for core in cores)


def measure_speed_up(rounds: int) -> None:
    """Print the speed-up of each pair. The first build makes images of headers, and does not count."""
    one, two, *_ = sorted(os.sched_getaffinity(0))
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        caches = Path(name) / "caches"
        build([one], caches)
        for _ in range(rounds):
            alone_s, *_ = build([one], caches)
            both_s, cpu_s, agents_s = build([one, two], caches)
            ratios.append(alone_s / both_s)
            print(
                f"one agent {alone_s:5.1f} s, two {both_s:5.1f} s: {ratios[-1]:.2f} x; engine and author "
                f"{cpu_s - agents_s:.1f} CPU s, {(cpu_s - agents_s) / (2 * both_s):.0%} of both cores",
                flush=True,
            )
    print(f"speed-up {statistics.median(ratios):.2f} x (median of {rounds})")


def tell(name: str, run: Run, cases: int) -> None:
    """One line of the table."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:34} {run.cpu_s / cases * 1e3:6.3f} ms of the engine's CPU per case, "
        f"{run.wall_s / cases * 1e3:6.3f} ms elapsed, peak {peak:5.0f} MB",
        flush=True,
    )


def gap(times: Sequence[float]) -> float:
    """The longest time between two that ended one after another, in seconds."""
    return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", action="store_true", help="be an agent")
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--devices", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--stop", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--speed-up", type=int, default=0, metavar="ROUNDS")
    parser.add_argument("--pin", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        serve()
        return
    if options.pin:
        sys.exit(pin(*options.pin))
    if options.speed_up:
        measure_speed_up(options.speed_up)
        return
    here = min(options.cases, 10_000)
    with tempfile.TemporaryDirectory() as name:
        tell("a runner of this host", asyncio.run(run_here(Path(name), here)), here)
    for devices in options.devices:
        with tempfile.TemporaryDirectory() as name:
            asked = run_there(Path(name), options.cases, options.agents, devices, options.stop)
            run = asyncio.run(asked)
        tell(f"{devices} devices of {options.agents} agents", run, options.cases)
        if options.stop:
            others = sorted(
                one for host, ended in run.ended.items() if host != "host-0" for one in ended
            )
            print(
                f"  longest wait for a case of others {gap(others):.2f} s, of the stopped "
                f"{gap(run.ended.get('host-0', [])):.2f} s"
            )


if __name__ == "__main__":
    main()
