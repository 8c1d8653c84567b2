"""The engine's compile workers: one per core it may build on, long-lived, replaced when they die.

Their address space is limited, so that excessive memory use of a compiler ends only its kernel, and not the host.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tileyard.artifacts.manifest import Build
from tileyard.engine.yard import Yard
from tileyard.errors import WorkerLostError
from tileyard.model import Outcome
from tileyard.processes.limits import Limit, time_limit
from tileyard.processes.outcomes import Verdict
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.targets.command.target import CommandTarget
from tileyard.targets.registry import COMMAND, find_needs
from tileyard.workers.environment import host_memory_bytes, worker_environment
from tileyard.workers.protocol import (
    BuildKernel,
    BuildKernels,
    BuiltKernels,
    CompilerReply,
    DescribeTarget,
    SharedBegan,
    SharedEnded,
    TargetInfo,
)

START_LIMIT_S = 60.0
ATTEMPTS = 3
"""Number of attempts to start a worker that is killed or stopped from outside."""
SHARED_LIMIT_S = 300.0
"""Seconds a worker may take for what many kernels share, such as importing a compiler or its headers."""
MEMORY_SHARE = 0.8
"""Share of the host's memory that all compile workers together may take."""
LEAST_MEMORY_BYTES = 4 << 30
"""Least address space of a worker: twice the addresses that TileLang and NVRTC take for a GEMM, of which
less than half is memory."""


Builder = tuple[str, str]
"""A side's name and a target: what a compile worker builds for."""


class CompilePool:
    """Compile workers by number, separate ones for each builder; those of number ``i`` are pinned to ``cores[i]``.

    At most one worker of each number builds at a time. Build tools that start processes of their own are not pinned.
    Their logs are in the folder of ``run``, or in the folder of all logs if there is no run.
    """

    def __init__(self, yard: Yard, cores: tuple[int, ...], run: str = "") -> None:
        self.cores = cores
        self._yard = yard
        self._run = run
        self._workers: dict[tuple[Builder, int], Worker] = {}
        self._used: set[tuple[Builder, int]] = set()
        self._logs: set[Path] = set()
        self._memory_bytes = choose_memory(host_memory_bytes(), len(cores))
        self._infos: dict[Builder, TargetInfo] = {}

    async def describe(self, builder: Builder) -> TargetInfo:
        """The target's information about itself on that side. Raises ToolMissingError if the target cannot be used.

        Our own target for programs needs no worker for it: many suites build nothing.
        """
        side, target = builder
        is_own = target == COMMAND and COMMAND not in self._yard.settings.plugins
        if builder not in self._infos and is_own and not self._yard.authors.sides[side].python:
            own = CommandTarget()
            self._infos[builder] = TargetInfo(
                fingerprint=own.fingerprint(), needs_tir=own.needs_tir
            )
        elif builder not in self._infos:
            await self._worker((builder, 0))
        return self._infos[builder]

    async def build(
        self,
        worker: tuple[Builder, int],
        kernels: Sequence[BuildKernel],
        limits_s: Sequence[float],
    ) -> AsyncIterator[Build]:
        """Build kernels together; yield a verdict for each.

        A compiler that hangs, crashes or eats memory becomes an outcome. If that happened to
        several kernels at once, each is built again alone, so that only the guilty one is blamed: a
        group is given no longer than its most patient kernel alone. Lack of memory is
        blamed on a kernel only if the worker had built nothing before. What the worker
        makes for many kernels, such as precompiled headers, has a limit of its own.
        """
        left = {k.case: (k, limit_s) for k, limit_s in zip(kernels, limits_s, strict=True)}
        if len(kernels) > 1:
            for built in await self._try(worker, kernels, max(limits_s)):
                if built.outcome is not Outcome.INFRA_ERROR:
                    del left[built.case]
                    yield built
        for kernel, limit_s in left.values():
            was_used = worker in self._used
            (built,) = await self._try(worker, [kernel], limit_s)
            if was_used and built.outcome is Outcome.OUT_OF_MEMORY:
                (built,) = await self._try(worker, [kernel], limit_s)
            yield built

    async def _try(
        self, worker: tuple[Builder, int], kernels: Sequence[BuildKernel], limit_s: float
    ) -> Sequence[Build]:
        """The verdicts of a compile worker on all of these; for several kernels, nothing if it died."""
        started = self._yard.clock.monotonic_s()
        try:
            process = await self._worker(worker)
        except WorkerLostError as error:
            end, printed = Verdict(outcome=Outcome.INFRA_ERROR, message=error.message), ""
        else:
            self._used.add(worker)
            try:
                async with time_limit(limit_s) as limit:
                    watch = _BuildWatch(limit, limit_s)
                    request = BuildKernels(kernels=tuple(kernels), anew=self._yard.rebuild)
                    await process.send(request)
                    while not isinstance(
                        reply := await process.receive(CompilerReply), BuiltKernels
                    ):
                        watch.take(reply)
                    return reply.verdicts
            except (TimeoutError, WorkerLostError) as error:
                self._forget(worker)
                end, ended = await process.judge_silence(error, watch.limit)
                printed = ended.log_tail
        if len(kernels) > 1:
            return ()
        return (
            Build(
                case=kernels[0].case,
                build=kernels[0].build,
                outcome=end.outcome,
                build_s=self._yard.clock.monotonic_s() - started,
                message=f"the compile worker {end.message}",
                printed=printed,
            ),
        )

    async def close(self) -> None:
        """End every worker; remove empty logs."""
        workers = list(self._workers.values())
        self._workers.clear()
        await asyncio.gather(*(worker.kill("run ended") for worker in workers))
        for log in self._logs:
            if log.is_file() and not log.stat().st_size:
                log.unlink()

    def _forget(self, worker: tuple[Builder, int]) -> None:
        del self._workers[worker]
        self._used.discard(worker)

    async def _worker(self, which: tuple[Builder, int]) -> Worker:
        """The worker, started if necessary. Raises WorkerLostError if it ends before it has described its target."""
        if which in self._workers and self._workers[which].is_over:
            self._forget(which)
        if which not in self._workers:
            for left in reversed(range(ATTEMPTS)):
                process = await Worker.start(self._command(which))
                try:
                    async with time_limit(START_LIMIT_S):
                        await process.send(request := self._describe_target(which[0]))
                        self._infos[which[0]] = request.check(await process.receive(CompilerReply))
                    break
                except (TimeoutError, WorkerLostError) as error:
                    end, _ = await process.judge_silence(error, f"limit of {START_LIMIT_S:g} s")
                    if not left:
                        message = f"did not start: it {end.message}"
                        raise WorkerLostError(message) from error
                except BaseException:
                    await process.kill("it cannot be used")
                    raise
            self._workers[which] = process
        return self._workers[which]

    def _describe_target(self, builder: Builder) -> DescribeTarget:
        side = self._yard.authors.sides[builder[0]]
        return DescribeTarget(
            target=builder[1],
            plugins=self._yard.settings.plugins,
            group_size=self._yard.group_size or 0,
            # Images of compilers' memory fit only processes with the same libraries.
            caches=side.name if side.python else "",
        )

    def _command(self, which: tuple[Builder, int]) -> WorkerCommand:
        (side_name, target), number = which
        side = self._yard.authors.sides[side_name]
        # A separate log: its last lines decide what a worker has died of.
        log = self._yard.home / "logs" / self._run / f"compiler-{len(self._logs) + 1}.log"
        self._logs.add(log)
        is_wide = find_needs(target).uses_all_cores
        return WorkerCommand(
            argv=(
                side.python or sys.executable,
                "-P",
                "-m",
                "tileyard.workers.compiler",
                str(self._yard.home),
            ),
            env={
                **worker_environment(threads=len(self._yard.settings.cores) if is_wide else 1),
                **side.variables,
            },
            cwd=str(Path.cwd()),
            log=str(log),
            memory_bytes=self._memory_bytes,
            cores=() if is_wide else (self.cores[number],),
            fixed=True,  # compilers keep images of their memory, which fit only where they were made
        )


class _BuildWatch:
    """Stops the clock of a build while its worker makes what many kernels share."""

    def __init__(self, running: Limit, limit_s: float) -> None:
        self._running = running
        self._own = self.limit = f"build limit of {limit_s:g} s"
        self._left_s = limit_s

    def take(self, notice: CompilerReply) -> None:
        """Take in what a worker reports before its verdicts."""
        match notice:
            case SharedBegan():
                self._left_s = self._running.left_s()
                self._running.reset(SHARED_LIMIT_S)
                self.limit = f"limit of {SHARED_LIMIT_S:g} s for what kernels share"
            case SharedEnded():
                self._running.reset(self._left_s)
                self.limit = self._own
            case _:
                raise AssertionError(f"a compile worker answered a build with {notice}")


def choose_memory(host_bytes: int, workers: int) -> int:
    """The address space of each worker, in bytes."""
    return max(LEAST_MEMORY_BYTES, int(MEMORY_SHARE * host_bytes) // max(workers, 1))
