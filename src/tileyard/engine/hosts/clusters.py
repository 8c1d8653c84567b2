"""Places agents on nodes that a cluster's own scheduler gives to the run, and gives them back at its end."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tileyard.base.errors import ToolMissingError, UsageError, WorkerLostError
from tileyard.base.modes import append_file
from tileyard.engine.hosts.listening import Listener
from tileyard.engine.hosts.meeting import TOKEN, Address
from tileyard.engine.hosts.placing import AGENT, ELSEWHERE, START_LIMIT_S, Arrival, Place
from tileyard.processes.supervise import Worker, WorkerCommand, time_limit
from tileyard.workers.placing import AgentGone, EndAgents, FindNodes, NodesFound, StartAgents

END_LIMIT_S = 15.0


class RayNodes:
    """The nodes of the Ray cluster that ``RAY_ADDRESS`` names, each with an actor of these resources."""

    def __init__(self, cpus: int, gpus: int) -> None:
        """Raise ToolMissingError without Ray, and UsageError without its address."""
        if find_spec("ray") is None:
            raise ToolMissingError("--hosts: Ray is not installed", "pip install 'tileyard[ray]'")
        if not os.environ.get("RAY_ADDRESS"):
            raise UsageError("--hosts: no cluster of Ray is named", "set RAY_ADDRESS to HOST:PORT")
        self._wanted = FindNodes(cpus=cpus, gpus=gpus)
        self._worker: Worker | None = None
        self._listener: Listener | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, home: Path, limit_s: float) -> Sequence[Place]:
        """The nodes, on which agents begin as soon as Ray has room for them. See ``Placing``."""
        logs = home / "logs"
        self._worker = await Worker.start(
            WorkerCommand(
                argv=(sys.executable, "-P", "-m", "tileyard.workers.ray_agents"),
                env=dict(os.environ),
                cwd=str(Path.cwd()),
                log=str(logs / "ray.log"),
                grace_s=END_LIMIT_S,
            )
        )
        found = await self._find(self._worker)
        if found.problem or not found.names:
            raise UsageError(
                f"--hosts: {found.problem or 'no node of the cluster has such resources'}",
                f"see {logs / 'ray.log'}" if found.problem else "",
            )
        self._listener = Listener(Address(host=found.address))
        arrivals = {name: self._listener.expect() for name in found.names}
        await self._worker.send(
            StartAgents(
                script=ELSEWHERE,
                arguments=(*AGENT, "--connect", str(self._listener.address)),
                variable=TOKEN,
                tickets={name: str(one.ticket) for name, one in arrivals.items()},
            )
        )
        self._reading = asyncio.create_task(self._read(self._worker, arrivals, logs))
        return [Place(name, arrival=arrival, limit_s=limit_s) for name, arrival in arrivals.items()]

    async def _find(self, worker: Worker) -> NodesFound:
        try:
            async with time_limit(START_LIMIT_S):
                await worker.send(self._wanted)
                return await worker.receive(NodesFound)
        except TimeoutError:
            return NodesFound(problem=f"the cluster of Ray did not answer in {START_LIMIT_S:g} s")
        except WorkerLostError:
            lines = (await worker.ended()).log_tail.strip().splitlines()
            return NodesFound(problem=lines[-1] if lines else "Ray's driver was lost")

    async def _read(self, worker: Worker, arrivals: dict[str, Arrival], logs: Path) -> None:
        """End the session of an agent whose actor is gone."""
        with contextlib.suppress(WorkerLostError):
            while True:
                gone = await worker.receive(AgentGone)
                with contextlib.suppress(OSError):
                    append_file(
                        logs / f"agent-{gone.name}.log", bytearray(gone.said.encode() + b"\n")
                    )
                arrivals[gone.name].end()
        for arrival in arrivals.values():
            arrival.end()

    async def close(self) -> None:
        """Let the agents end, and give the nodes back. See ``Placing``."""
        if self._listener is not None:
            await self._listener.close()
        if self._worker is not None:
            with contextlib.suppress(WorkerLostError, TimeoutError):
                async with time_limit(END_LIMIT_S):
                    await self._worker.send(EndAgents())
                    await self._worker.ended()
            await self._worker.kill("the run has ended", 0.0)
        if self._reading is not None:
            await self._reading
