"""Calls the functions of compile steps, each in a copy of this process; keeps results with a key."""

import asyncio
import contextlib
import os
import pickle
import time
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from tileyard.artifacts.kept_folders import KeptFolder, open_kept
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Outcome
from tileyard.base.modes import make_folder, write_file
from tileyard.frontend.blame import call_by_name
from tileyard.pytest_plugin.copies import Copies, describe_death, quote_output
from tileyard.pytest_plugin.forked import Forked, Teller, follow, make_lane, print_to, yield_cores
from tileyard.pytest_plugin.identifying import (
    Identity,
    StepReader,
    describe_change,
    doubt,
    note_identity,
)
from tileyard.pytest_plugin.records import Answered, FunctionStep, StepResult
from tileyard.workers.protocol import Failed

KEPT = "kept"
"""The reason of a step that was not carried out; that of others begins with ``built:``."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a function builds, and why; ``kept`` is a folder that stays, None for the run's own."""

    folder: Path
    pickled: Path
    why: str
    kept: KeptFolder | None = None


class Calling:
    """Carries out steps, ``lanes`` at a time, in the data directory ``home`` and a run's ``folder``."""

    def __init__(self, home: Path, folder: Path, copies: Copies, lanes: asyncio.Semaphore) -> None:
        self._home = home
        self._folder = folder
        self._copies = copies
        self._lanes = lanes
        self._objects = ObjectStore(home / "objects")
        self._made: dict[str, tuple[Identity, KeptFolder]] = {}

    async def run(self, steps: Sequence[FunctionStep], limit_s: float) -> list[StepResult]:
        """What became of all; to look at what one depends on may take ``limit_s``."""
        nothing = doubt("the step declares no inputs, so it is not cached")
        declaring = [step for step in steps if step.declared is not None]
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._carry_out(step, nothing))
                for step in steps
                if step.declared is None
            ]
            async for step, found in self._identify(declaring, limit_s):
                calls.append(group.create_task(self._carry_out(step, found)))
        results = {result.step: result for result in (call.result() for call in calls)}
        await self._publish([step for step in declaring if step.id in self._made], results, limit_s)
        return list(results.values())

    async def _identify(
        self, steps: Sequence[FunctionStep], limit_s: float
    ) -> AsyncIterator[tuple[FunctionStep, Identity]]:
        """What steps depend on, examined in a copy that has no state yet."""
        make_reader = cache(lambda: StepReader(self._home, os.environ))
        asked = self._copies.ask_all(steps, lambda step: make_reader().identify(step), limit_s)
        async with contextlib.aclosing(asked) as answers:
            async for step, _, reply in answers:
                yield step, doubt(reply.message) if isinstance(reply, Failed) else reply

    async def _publish(
        self, steps: Sequence[FunctionStep], results: dict[str, StepResult], limit_s: float
    ) -> None:
        """Keep results, unless what they depend on has changed since."""
        async for step, now in self._identify(steps, limit_s):
            identity, kept = self._made[step.id]
            result = results[step.id]
            if result.outcome is not Outcome.PASSED:
                continue
            problem = now.problem
            if not problem and now.key != identity.key:
                problem = "what it depends on changed while it was made"
            try:
                if not problem:
                    kept.publish()
                    note_identity(step, identity, self._objects)
            except UsageError as error:
                problem = f"what it left cannot be kept: {error.message}"
            if problem:
                why = f"{result.why}; not kept: {problem}"
                results[step.id] = msgspec.structs.replace(result, why=why)

    async def _carry_out(self, step: FunctionStep, identity: Identity) -> StepResult:
        async with self._lanes:
            at = time.monotonic()
            place = self._find_place(step, identity)
            result = StepResult(
                step=step.id,
                at=at,
                folder=str(place.folder),
                pickled=str(place.pickled),
                why=place.why,
            )
            if place.why == KEPT:
                seconds = time.monotonic() - at
                return msgspec.structs.replace(result, seconds=seconds, reused=True)
            if place.kept is not None:
                self._made[step.id] = (identity, place.kept)
            return await self._call(step, place, identity.env, result)

    def _find_place(self, step: FunctionStep, identity: Identity) -> _Place:
        why = identity.problem
        kept = open_kept(self._home, identity.key) if identity.key else None
        if identity.key:
            why = "it is being made already"
        if kept is not None and (kept.is_made or kept.clear()):
            why = describe_change(step, identity, self._objects)
            content = kept.content
            return _Place(
                folder=content / "out",
                pickled=content / "result.pickle",
                why=KEPT if kept.is_made else f"built: {why}",
                kept=kept,
            )
        own = self._folder / "built" / f"{zlib.crc32(step.id.encode()):08x}"
        return _Place(folder=own, pickled=own.with_suffix(".pickle"), why=f"built: {why}")

    async def _call(
        self, step: FunctionStep, place: _Place, env: Mapping[str, str], result: StepResult
    ) -> StepResult:
        def work(_: int, teller: Teller) -> None:
            yield_cores()
            print_to(log)
            if env:  # it has a key, which is over these
                os.environ.clear()
                os.environ.update(env)
            teller.tell(Answered(reply=_call_function(step, place)))

        make_folder(place.folder)
        log = self._folder / "built" / f"{zlib.crc32(step.id.encode()):08x}.log"
        copy = Forked(make_lane(work), 0, step.limit_s, log, goes_on=True)
        answers = [m.reply async for m in follow(copy) if isinstance(m, Answered)]
        result = msgspec.structs.replace(result, seconds=time.monotonic() - result.at)
        if not answers:
            failed = describe_death(copy, "of its compile step")
            return msgspec.structs.replace(result, outcome=failed.outcome, message=failed.message)
        if not answers[0]:
            return result
        message = "\n".join(filter(None, [answers[0], quote_output(copy)]))
        return msgspec.structs.replace(result, outcome=Outcome.COMPILE_ERROR, message=message)


def _call_function(step: FunctionStep, place: _Place) -> str:
    """In the copy: call it and keep its return value; returns why that failed, or an empty string."""
    what = getattr(step.function, "__name__", "the compile step")
    try:
        result = call_by_name(step.function, {**step.values, "out": place.folder}, what)
    except TileyardError as error:
        return f"{what} failed: {error}"
    try:
        write_file(place.pickled, pickle.dumps(result))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        return f"{what} returned what cannot be kept: {error}"
    return ""
