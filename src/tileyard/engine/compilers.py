"""The engine's compile workers: one per core it may build on, long-lived, replaced when they die.

Their address space is limited, so that a kernel on which a compiler eats memory ends alone, and not the host.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tileyard.engine.yard import Yard
from tileyard.errors import ToolMissingError, WorkerLostError
from tileyard.model import Outcome
from tileyard.processes.outcomes import judge_end
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import (
    BuildKernel,
    BuildKernels,
    BuildRefused,
    Built,
    BuiltKernels,
    CompilerReply,
    DescribeTarget,
    TargetInfo,
)

START_LIMIT_S = 60.0
MEMORY_SHARE = 0.8
"""How much of the host's memory compile workers may take together."""
LEAST_MEMORY_BYTES = 4 << 30
"""What a worker may take in any case: twice the addresses that TileLang and NVRTC take for a GEMM, of which
less than half is memory."""


class CompilePool:
    """Compile workers by number; worker ``i`` is pinned to ``cores[i]``."""

    def __init__(self, yard: Yard, cores: tuple[int, ...]) -> None:
        self.cores = cores
        self._yard = yard
        self._workers: dict[int, Worker] = {}
        self._used: set[int] = set()
        self._memory_bytes = choose_memory(host_memory_bytes(), len(cores))
        self._info: TargetInfo | None = None

    async def describe(self) -> TargetInfo:
        """What the target says of itself. Raises ToolMissingError where it cannot be used."""
        await self._worker(0)
        if self._info is None:
            raise AssertionError("a compile worker started without describing its target")
        return self._info

    async def build(
        self, worker: int, kernels: Sequence[BuildKernel], limits_s: Sequence[float]
    ) -> AsyncIterator[Built]:
        """Build kernels together; yield a verdict for each, in order.

        A compiler that hangs, crashes or eats memory becomes an outcome. Where that happened to
        several kernels at once, each is built again alone, so that only the guilty one is blamed: a
        group is given no longer than its most patient kernel alone. Want of memory is
        blamed on a kernel only if the worker had built nothing before.
        """
        started = self._yard.clock.monotonic_s()
        process = await self._worker(worker)
        limit_s = max(limits_s)
        was_used = worker in self._used
        self._used.add(worker)
        try:
            async with asyncio.timeout(limit_s):
                await process.send(BuildKernels(kernels=tuple(kernels)))
                reply: CompilerReply = await process.receive(CompilerReply)
        except TimeoutError:
            self._forget(worker)
            end = judge_end(await process.kill("time limit"), limit=f"build limit of {limit_s:g} s")
        except WorkerLostError:
            self._forget(worker)
            end = judge_end(await process.ended())
        else:
            if not isinstance(reply, BuiltKernels):
                raise AssertionError(f"a compile worker answered a build with {reply}")
            for built in reply.verdicts:
                yield built
            return
        if len(kernels) > 1 or (was_used and end.outcome is Outcome.OUT_OF_MEMORY):
            for kernel, own_limit_s in zip(kernels, limits_s, strict=True):
                async for built in self.build(worker, [kernel], [own_limit_s]):
                    yield built
            return
        yield Built(
            case=kernels[0].case,
            outcome=end.outcome,
            seconds=self._yard.clock.monotonic_s() - started,
            message=f"the compile worker {end.message}",
        )

    async def close(self) -> None:
        """End every worker."""
        workers = list(self._workers.values())
        self._workers.clear()
        await asyncio.gather(*(worker.kill("run ended") for worker in workers))

    def _forget(self, worker: int) -> None:
        del self._workers[worker]
        self._used.discard(worker)

    async def _worker(self, number: int) -> Worker:
        if number not in self._workers:
            process = await Worker.start(self._command(self.cores[number]))
            self._workers[number] = process
            async with asyncio.timeout(START_LIMIT_S):
                await process.send(
                    DescribeTarget(
                        target=self._yard.target,
                        plugins=self._yard.settings.plugins,
                        group_size=self._yard.group_size or 0,
                    )
                )
                reply = await process.receive(CompilerReply)
            if isinstance(reply, BuildRefused):
                raise ToolMissingError(reply.message, reply.hint)
            if not isinstance(reply, TargetInfo):
                raise AssertionError(f"a compile worker described its target with {reply}")
            self._info = reply
        return self._workers[number]

    def _command(self, core: int) -> WorkerCommand:
        log = self._yard.home / "logs" / "compiler.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        return WorkerCommand(
            argv=(sys.executable, "-m", "tileyard.workers.compiler", str(self._yard.home)),
            env=worker_environment(threads=self._yard.build_threads or 1),
            cwd=str(Path.cwd()),
            log=str(log),
            memory_bytes=self._memory_bytes,
            cores=() if self._yard.build_threads else (core,),
            fixed=True,  # compilers keep images of their memory, which fit only where they were made
        )


def choose_memory(host_bytes: int, workers: int) -> int:
    """The address space of each of so many workers."""
    return max(LEAST_MEMORY_BYTES, int(MEMORY_SHARE * host_bytes) // max(workers, 1))


def host_memory_bytes() -> int:
    """The memory of this host, or of the container that this process is in where that is less."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # none, or "max"
        return host
    return min(host, limit)
