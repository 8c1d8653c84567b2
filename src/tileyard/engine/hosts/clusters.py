"""Places agents on nodes that a cluster's own scheduler gives to the run, and gives them back at its end."""

import asyncio
import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tileyard.base.errors import ToolMissingError, UsageError, WorkerLostError
from tileyard.base.modes import append_file
from tileyard.engine.hosts.listening import Listener
from tileyard.engine.hosts.meeting import (
    AGENT,
    ELSEWHERE,
    START_LIMIT_S,
    TOKEN,
    Address,
    Arrival,
    Place,
)
from tileyard.processes.supervise import Worker, WorkerCommand, time_limit
from tileyard.workers.placing import AgentGone, EndAgents, FindNodes, NodesFound, StartAgents

END_LIMIT_S = 15.0


class Nodes:
    """A process that has nodes for the run, under a keeper, so that they are given back in any case."""

    def __init__(self, worker: Worker, log: Path) -> None:
        """Use ``start`` instead."""
        self.worker = worker
        self._log = log

    @classmethod
    async def start(cls, argv: tuple[str, ...], log: Path) -> "Nodes":
        """Start it. Raises WorkerStartError."""
        command = WorkerCommand(
            argv=argv,
            env=dict(os.environ),
            cwd=str(Path.cwd()),
            log=str(log),
            grace_s=END_LIMIT_S,
        )
        return cls(await Worker.start(command), log)

    async def receive(self, limit_s: float) -> NodesFound:
        """The nodes. Raises UsageError if there are none within the limit."""
        try:
            async with time_limit(limit_s):
                found = await self.worker.receive(NodesFound)
        except TimeoutError:
            found = NodesFound(problem=f"no node was had within {limit_s:g} s")
        except WorkerLostError as error:
            lines = (await self.worker.ended()).log_tail.strip().splitlines()
            found = NodesFound(problem=lines[-1] if lines else error.message)
        if found.problem:
            raise UsageError(f"--hosts: {found.problem}", f"see {self._log}")
        return found

    async def close(self) -> None:
        """Have the nodes given back, and the process end."""
        with contextlib.suppress(WorkerLostError, TimeoutError):
            async with time_limit(END_LIMIT_S):
                await self.worker.send(EndAgents())
                await self.worker.ended()
        await self.worker.kill("the run has ended")


class SlurmNodes:
    """The nodes of an allocation that ``salloc`` makes with these arguments: on each, a step is the agent."""

    notice = ""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Raise ToolMissingError without Slurm's programs."""
        if shutil.which("salloc") is None:
            raise ToolMissingError("--hosts: Slurm's salloc is not on this host")
        self._arguments = arguments
        self._nodes: Nodes | None = None

    async def open(self, home: Path, limit_s: float) -> Sequence[Place]:
        """The nodes, for which it waits. See ``Placing``."""
        holder = (sys.executable, "-P", "-m", "tileyard.workers.placing")
        argv = ("salloc", "--quiet", *self._arguments, *holder)
        self._nodes = await Nodes.start(argv, home / "logs" / "slurm.log")
        found = await self._nodes.receive(limit_s)
        # Unbuffered, as the session is no lines of text; all CPUs and GPUs that the job has on the node.
        step = (
            "srun",
            "--quiet",
            "--unbuffered",
            "--overlap",
            f"--jobid={found.job}",
            "-N1",
            "-n1",
        )
        agent = ("/bin/sh", "-c", ELSEWHERE, sys.executable, *AGENT)
        return [Place(name, (*step, f"--nodelist={name}", *agent)) for name in found.names]

    async def wait_further(self) -> Place | None:
        """None: an allocation is fixed."""
        return None

    async def close(self) -> None:
        """Give the allocation back. See ``Placing``."""
        if self._nodes is not None:
            nodes, self._nodes = self._nodes, None
            await nodes.close()


class RayNodes:
    """The nodes of the Ray cluster that ``RAY_ADDRESS`` names, each with an actor of these resources."""

    notice = ""

    def __init__(self, cpus: int, gpus: int) -> None:
        """Raise ToolMissingError without Ray, and UsageError without its address."""
        if find_spec("ray") is None:
            raise ToolMissingError("--hosts: Ray is not installed", "pip install 'tileyard[ray]'")
        if not os.environ.get("RAY_ADDRESS"):
            raise UsageError("--hosts: no cluster of Ray is named", "set RAY_ADDRESS to HOST:PORT")
        self._wanted = FindNodes(cpus=cpus, gpus=gpus)
        self._nodes: Nodes | None = None
        self._listener: Listener | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._expected: dict[str, tuple[int, Arrival]] = {}
        self._further: asyncio.Queue[str | None] = asyncio.Queue()

    async def open(self, home: Path, limit_s: float) -> Sequence[Place]:
        """The nodes, on which agents begin as soon as Ray has room for them. See ``Placing``."""
        logs = home / "logs"
        argv = (sys.executable, "-P", "-m", "tileyard.workers.ray_agents")
        self._nodes = await Nodes.start(argv, logs / "ray.log")
        worker = self._nodes.worker
        await worker.send(self._wanted)
        found = await self._nodes.receive(START_LIMIT_S)
        if not found.names:
            raise UsageError("--hosts: no node of the cluster has such resources")
        self._listener = Listener(Address(host=found.address))
        await self._start(worker, self._listener, found.names)
        self._reading = asyncio.create_task(self._read(worker, logs))
        return [self._place(worker, self._listener, name, limit_s) for name in found.names]

    async def wait_further(self) -> Place | None:
        """A node that has joined the cluster. See ``Placing``."""
        name = await self._further.get()
        if name is None or self._nodes is None or self._listener is None:
            return None
        return self._place(self._nodes.worker, self._listener, name, None)

    def _place(self, worker: Worker, listener: Listener, name: str, limit_s: float | None) -> Place:
        return Place(name, expect=partial(self._expect, worker, listener, name), limit_s=limit_s)

    async def _expect(self, worker: Worker, listener: Listener, name: str) -> Arrival:
        """The arrival of the agent on a node, which is started again if the last one has come and gone."""
        if name not in self._expected or self._expected[name][1].is_spent:
            await self._start(worker, listener, (name,))
        return self._expected[name][1]

    async def _start(self, worker: Worker, listener: Listener, names: Sequence[str]) -> None:
        number = next(self._numbers)
        self._expected |= {name: (number, listener.expect()) for name in names}
        order = StartAgents(
            number=number,
            script=ELSEWHERE,
            arguments=(*AGENT, "--connect", str(listener.address)),
            variable=TOKEN,
            tickets={name: str(self._expected[name][1].ticket) for name in names},
        )
        try:
            await worker.send(order)
        except WorkerLostError:
            for name in names:
                self._expected[name][1].end()

    async def _read(self, worker: Worker, logs: Path) -> None:
        """End the session of an agent whose actor is gone, and name the nodes that join."""
        with contextlib.suppress(WorkerLostError):
            while True:
                told: AgentGone | NodesFound = await worker.receive(AgentGone | NodesFound)
                if isinstance(told, NodesFound):
                    for name in told.names:
                        self._further.put_nowait(name)
                    continue
                with contextlib.suppress(OSError):
                    append_file(
                        logs / f"agent-{told.name}.log", bytearray(told.said.encode() + b"\n")
                    )
                number, arrival = self._expected[told.name]
                if number == told.number:
                    arrival.end()
        self._further.put_nowait(None)
        for _, arrival in self._expected.values():
            arrival.end()

    async def close(self) -> None:
        """Let the agents end, and give the nodes back. See ``Placing``."""
        if self._listener is not None:
            await self._listener.close()
        if self._nodes is not None:
            nodes, self._nodes = self._nodes, None
            await nodes.close()
        if self._reading is not None:
            await self._reading
