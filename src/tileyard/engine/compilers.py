"""The engine's compile workers: one per core it may build on, of limited memory, replaced when they die."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from tileyard.artifacts.manifest import Build
from tileyard.base.clock import Clock
from tileyard.base.errors import WorkerLostError
from tileyard.base.model import BuildKey, Device, Outcome, Side
from tileyard.base.settings import Settings
from tileyard.devices.classes import find_class
from tileyard.processes.records import Verdict
from tileyard.processes.supervise import Limit, Worker, WorkerCommand, time_limit
from tileyard.targets.command.target import CommandTarget
from tileyard.targets.registry import COMMAND, find_needs
from tileyard.workers.command_runs import host_memory_bytes, worker_environment
from tileyard.workers.protocol import (
    BuildKernel,
    BuildKernels,
    BuiltKernels,
    CompilerReply,
    DescribeTarget,
    PartBuilt,
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
"""Least address space of a worker: twice what TileLang and NVRTC take for a GEMM, mostly not memory."""


class Builder(NamedTuple):
    """What a compile worker builds for: a side's name and a target; for one ``kind`` of CPU if a run has
    several, and what is built depends on it.
    """

    side: str
    target: str
    kind: str = ""


TellBuilt = Callable[[BuildKey], None]
"""Called with a build that is in the store while others are still made together with it."""


def depends_on_cpu(target: str) -> bool:
    """Whether what is built for a target may differ between kinds of CPU."""
    return target != COMMAND and find_class(find_needs(target).device_class).is_cores


def ignore(build: BuildKey) -> None:
    """Tell nobody."""


class Builders(Protocol):
    """What builds the kernels of a run; see ``CompilePool``."""

    cores: tuple[int, ...]

    async def begin(self, builder: Builder) -> None:
        """Start what describes a target."""

    async def describe(self, builder: Builder) -> TargetInfo:
        """The target's description of itself."""

    async def find_host(self, worker: tuple[Builder, int]) -> str:
        """The other host on which a worker builds; empty for this one."""

    def build(
        self,
        worker: tuple[Builder, int],
        kernels: Sequence[BuildKernel],
        limits_s: Sequence[float],
        *,
        tell: TellBuilt = ignore,
        anew: bool = False,
    ) -> AsyncIterator[Build]:
        """Build kernels; yield a verdict for each."""

    async def close(self) -> None:
        """End what builds."""


class CompilePool:
    """Compile workers of each builder; those of number ``i`` are pinned to ``cores[i]``, and one of
    them builds at a time. Build tools that start processes of their own are not pinned.
    """

    def __init__(
        self,
        settings: Settings,
        sides: Mapping[str, Side],
        cores: tuple[int, ...],
        group_size: int | None = None,
    ) -> None:
        self.cores = cores
        self._settings = settings
        self._sides = sides
        self._group_size = group_size
        self._clock = Clock()
        self._begun: dict[tuple[Builder, int], Worker] = {}
        self._workers: dict[tuple[Builder, int], Worker] = {}
        self._used: set[tuple[Builder, int]] = set()
        # Each has its own log, without a name: the last lines decide what the worker has died of.
        self._logs: dict[tuple[Builder, int], IO[bytes]] = {}
        self._memory_bytes = choose_memory(host_memory_bytes(), len(cores))
        self._infos: dict[Builder, TargetInfo] = {}
        self.is_spare = False
        """Others build, unless they are lost: workers import their compilers only for a build."""

    async def begin(self, builder: Builder) -> None:
        """Start the worker that describes a target, without waiting for its imports."""
        which = (builder, 0)
        if not self._is_own(builder):
            with contextlib.suppress(WorkerLostError):  # then it is started again when it is needed
                self._begun[which] = await Worker.start(self._command(which))

    async def describe(self, builder: Builder) -> TargetInfo:
        """The target's description of itself on that side. Raises ToolMissingError if it cannot be used."""
        if builder not in self._infos and self._is_own(builder):
            own = CommandTarget()
            self._infos[builder] = TargetInfo(
                fingerprint=own.fingerprint(), needs_tir=own.needs_tir
            )
        elif builder not in self._infos:
            try:
                await self._worker((builder, 0))
            except WorkerLostError as error:
                message = f"the compile worker for {builder.target} {error.message}"
                raise WorkerLostError(message) from error
        return self._infos[builder]

    async def find_host(self, _worker: tuple[Builder, int]) -> str:
        """All build here."""
        return ""

    async def build(
        self,
        worker: tuple[Builder, int],
        kernels: Sequence[BuildKernel],
        limits_s: Sequence[float],
        *,
        tell: TellBuilt = ignore,
        anew: bool = False,
    ) -> AsyncIterator[Build]:
        """Build kernels together, ``anew`` even if their binaries exist; yield a verdict for each. ``tell``
        gets builds that are ready before. A hang, crash or lack of memory is an outcome; after one of several
        kernels, each is built again alone. Lack of memory is blamed on a kernel only if the worker had built
        nothing before. What is made for many kernels has a limit of its own.
        """
        left = {k.case: (k, limit_s) for k, limit_s in zip(kernels, limits_s, strict=True)}
        if len(kernels) > 1:
            for built in await self._try(worker, kernels, max(limits_s), tell, anew=anew):
                if built.outcome is not Outcome.INFRA_ERROR:
                    del left[built.case]
                    yield built
        for kernel, limit_s in left.values():
            was_used = worker in self._used
            (built,) = await self._try(worker, [kernel], limit_s, tell, anew=anew)
            if was_used and built.outcome is Outcome.OUT_OF_MEMORY:
                (built,) = await self._try(worker, [kernel], limit_s, tell, anew=anew)
            yield built

    async def _try(
        self,
        worker: tuple[Builder, int],
        kernels: Sequence[BuildKernel],
        limit_s: float,
        tell: TellBuilt,
        *,
        anew: bool,
    ) -> Sequence[Build]:
        """The verdicts on all of these; for several kernels, nothing if the worker died."""
        started = self._clock.monotonic_s()
        try:
            process = await self._worker(worker)
        except WorkerLostError as error:
            end, printed = Verdict(outcome=Outcome.INFRA_ERROR, message=error.message), ""
        else:
            self._used.add(worker)
            try:
                async with time_limit(limit_s) as limit:
                    watch = _BuildWatch(limit, limit_s, tell)
                    request = BuildKernels(kernels=tuple(kernels), anew=anew)
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
                build_s=self._clock.monotonic_s() - started,
                message=f"the compile worker {end.message}",
                printed=printed,
            ),
        )

    async def close(self) -> None:
        """End every worker."""
        workers = [*self._workers.values(), *self._begun.values()]
        self._workers.clear()
        self._begun.clear()
        await asyncio.gather(*(worker.kill("run ended") for worker in workers))
        while self._logs:
            self._logs.popitem()[1].close()

    def _forget(self, worker: tuple[Builder, int]) -> None:
        del self._workers[worker]
        self._used.discard(worker)

    async def _worker(self, which: tuple[Builder, int]) -> Worker:
        """Raises WorkerLostError if it ends before it has described its target."""
        if which in self._workers and self._workers[which].is_over:
            self._forget(which)
        if which not in self._workers:
            for left in reversed(range(ATTEMPTS)):
                process = self._begun.pop(which, None) or await Worker.start(self._command(which))
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

    def _is_own(self, builder: Builder) -> bool:
        """Whether it is our own target for programs, which is described without a worker."""
        is_ours = builder.target == COMMAND and COMMAND not in self._settings.plugins
        return is_ours and not self._sides[builder.side].python

    def _describe_target(self, builder: Builder) -> DescribeTarget:
        side = self._sides[builder.side]
        return DescribeTarget(
            target=builder.target,
            plugins=self._settings.plugins,
            group_size=self._group_size or 0,
            # Images of compilers' memory fit only processes with the same libraries.
            caches=side.name if side.python else "",
            warms_up=not self.is_spare,
        )

    def _command(self, which: tuple[Builder, int]) -> WorkerCommand:
        builder, number = which
        side, target = self._sides[builder.side], builder.target
        if which in self._logs:
            self._logs[which].close()
        self._logs[which] = log = tempfile.TemporaryFile(prefix="tileyard-compiler-")  # noqa: SIM115
        is_wide = find_needs(target).uses_all_cores
        return WorkerCommand(
            argv=(
                side.python or sys.executable,
                "-P",
                "-m",
                "tileyard.workers.compiler",
                str(self._settings.home),
                target,
            ),
            env={
                **worker_environment(threads=len(self._settings.cores) if is_wide else 1),
                **side.variables,
            },
            cwd=str(Path.cwd()),
            log=f"/proc/self/fd/{log.fileno()}",
            memory_bytes=self._memory_bytes,
            cores=() if is_wide else (self.cores[number],),
            fixed=True,  # compilers keep images of their memory, which fit only where they were made
        )


class _BuildWatch:
    """Stops a build's clock while its worker makes what many kernels share; tells of ready builds."""

    def __init__(self, running: Limit, limit_s: float, tell: TellBuilt) -> None:
        self._running = running
        self._tell = tell
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
            case PartBuilt(build=build):
                self._tell(build)
            case _:
                raise AssertionError(f"a compile worker answered a build with {notice}")


def choose_memory(host_bytes: int, workers: int) -> int:
    """The address space of each worker, in bytes."""
    return max(LEAST_MEMORY_BYTES, int(MEMORY_SHARE * host_bytes) // max(workers, 1))


def choose_cores(
    settings: Settings, devices: Sequence[Device], workers: int | None
) -> tuple[int, ...]:
    """The core of each compile worker (None: one per core), those that no device owns if there are any."""
    owned = {core for device in devices for core in device.cores}
    free = tuple(core for core in settings.cores if core not in owned) or settings.cores
    return tuple(free[number % len(free)] for number in range(workers or len(free)))
