"""The engine's compile workers: one per core it may build on, long-lived, replaced when they die."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tileyard.engine.yard import Yard
from tileyard.errors import ToolMissingError, WorkerLostError
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


class CompilePool:
    """Compile workers by number; worker ``i`` is pinned to ``cores[i]``."""

    def __init__(self, yard: Yard, cores: tuple[int, ...]) -> None:
        self.cores = cores
        self._yard = yard
        self._workers: dict[int, Worker] = {}
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
        several kernels at once, each is built again alone, so that only the guilty one is blamed.
        """
        started = self._yard.clock.monotonic_s()
        process = await self._worker(worker)
        limit_s = sum(limits_s)
        try:
            async with asyncio.timeout(limit_s):
                await process.send(BuildKernels(kernels=tuple(kernels)))
                reply: CompilerReply = await process.receive(CompilerReply)
        except TimeoutError:
            del self._workers[worker]
            end = judge_end(await process.kill("time limit"), limit=f"build limit of {limit_s:g} s")
        except WorkerLostError:
            del self._workers[worker]
            end = judge_end(await process.ended())
        else:
            if not isinstance(reply, BuiltKernels):
                raise AssertionError(f"a compile worker answered a build with {reply}")
            for built in reply.verdicts:
                yield built
            return
        if len(kernels) > 1:
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

    async def _worker(self, number: int) -> Worker:
        if number not in self._workers:
            process = await Worker.start(self._command(self.cores[number]))
            self._workers[number] = process
            async with asyncio.timeout(START_LIMIT_S):
                await process.send(
                    DescribeTarget(target=self._yard.target, plugins=self._yard.settings.plugins)
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
            cores=() if self._yard.build_threads else (core,),
            fixed=True,  # compilers keep images of their memory, which fit only where they were made
        )
