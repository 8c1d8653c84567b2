"""Builds kernels of one target on compile workers, each once however many tests ask for it."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from tileyard.artifacts.keys import build_key
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.engine.compilers import CompilePool
from tileyard.model import BuildKey, Elaborated, Limits
from tileyard.pytest_plugin.elaborating import CopyAuthor
from tileyard.pytest_plugin.records import StepResult
from tileyard.pytest_plugin.steps import KernelStep
from tileyard.workers.protocol import BuildKernel, ElaboratedConfig, Failed, TargetInfo

Ready = tuple[StepResult, Elaborated]
"""What is elaborated, with what is known of its step so far."""


@dataclass(kw_only=True)
class Wanted:
    """What is to be built for one target: kernels, and what is elaborated already."""

    kernels: list[KernelStep] = field(default_factory=list)
    ready: list[Ready] = field(default_factory=list)


class Builds:
    """Builds kernels of one target on compile workers. ``results`` grow as they are known."""

    def __init__(
        self, objects: ObjectStore, pool: CompilePool, info: TargetInfo, limits: Limits
    ) -> None:
        self.results: list[StepResult] = []
        self._objects = objects
        self._pool = pool
        self._info = info
        self._limits = limits
        self._first: dict[BuildKey, asyncio.Event] = {}
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for worker in range(len(pool.cores)):
            self._free.put_nowait(worker)

    async def prepare(
        self,
        steps: Sequence[KernelStep],
        author: CopyAuthor,
        lanes: asyncio.Semaphore,
        group: asyncio.TaskGroup,
    ) -> None:
        """Elaborate some kernels, and have each built as soon as that is done."""
        replies = author.elaborate(steps, self._limits.elaborate_s, with_tir=self._info.needs_tir)
        async with lanes, contextlib.aclosing(replies):
            async for result, reply in replies:
                if isinstance(reply, Failed):
                    failed = {"outcome": reply.outcome, "message": reply.message}
                    self.results.append(msgspec.structs.replace(result, **failed))
                elif isinstance(reply, ElaboratedConfig):
                    self.take(result, reply.elaborated, group)
                else:
                    raise AssertionError(f"an author answered an elaboration with {reply}")

    def take(self, result: StepResult, elaborated: Elaborated, group: asyncio.TaskGroup) -> None:
        """Build what is not there yet, once however many ask for it."""
        key = build_key(elaborated.kernel, result.target, self._info.fingerprint, {})
        result = msgspec.structs.replace(result, build=key)
        if key not in self._first and find_artifact(key, self._objects) is not None:
            self.results.append(msgspec.structs.replace(result, reused=True))
        elif key in self._first:
            group.create_task(self._await_first(result))
        else:
            self._first[key] = asyncio.Event()
            group.create_task(self._build(result, elaborated))

    async def _await_first(self, result: StepResult) -> None:
        await self._first[result.build].wait()
        first = next(known for known in self.results if known.build == result.build)
        self.results.append(
            msgspec.structs.replace(
                result, reused=True, outcome=first.outcome, message=first.message
            )
        )

    async def _build(self, result: StepResult, elaborated: Elaborated) -> None:
        wanted = BuildKernel(
            case=result.step, build=result.build, elaborated=elaborated, options={}
        )
        worker = await self._free.get()
        at = time.monotonic()
        try:
            async for built in self._pool.build(worker, [wanted], [self._limits.build_s]):
                result = msgspec.structs.replace(
                    result, at=at, outcome=built.outcome, message=built.message
                )
        finally:
            self._free.put_nowait(worker)
        self.results.append(msgspec.structs.replace(result, seconds=time.monotonic() - at))
        self._first[result.build].set()
