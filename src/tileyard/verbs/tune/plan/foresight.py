"""Tells a strategy that wants to know it the work of configs: of built ones, and while others are tried."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.errors import DamagedError, InvalidProgramError, TileyardError
from tileyard.base.model import WELL, BuildKey, Trial, Value
from tileyard.ir.reader import read_program
from tileyard.ir.work import count_work
from tileyard.targets.own_sources import read_reported
from tileyard.targets.registry import PROGRAM_FILE
from tileyard.verbs.tune.plan.strategies.base import Config, Foresees, StrategyThread, Subject, Work
from tileyard.workers.protocol import Failed

Count = Callable[[Config], Awaitable[Work | Failed]]
"""Counts the work of a config."""
AHEAD: Final = 8
"""Configs that are asked for together."""
REST: Final = 2.0
MOST_REST_S: Final = 0.5
"""Rest after each count, in times of its length: the author elaborates what is built next, too."""
MOST_FAILED: Final = 3
"""Failures after which no more is counted: each may end the author's process, which imports all again."""
MOST_TIMES: Final = 100
"""Latest times of a kernel's other arguments and devices from which costs are learnt."""


def count_built(build: BuildKey, arguments: Mapping[str, Value], objects: ObjectStore) -> Work:
    """The work of a Program that was built, and of its device functions the largest spills and the least
    occupancy; nothing if it is not kept, or of a version that cannot be read here.
    """
    artifact = find_artifact(build, objects) if build else None
    if artifact is None or PROGRAM_FILE not in artifact.manifest.files:
        return {}
    numbers = {name: value for name, value in arguments.items() if type(value) is int}
    try:
        program = read_program(artifact.file(PROGRAM_FILE).read_text(encoding="utf-8"))
    except (InvalidProgramError, DamagedError):
        return {}
    work = {name: round(amount) for name, amount in count_work(program, numbers).items()}
    resources = read_reported(artifact.manifest.details).resources
    spilled = [one.spilled_bytes for one in resources]
    occupancies = [one.occupancy for one in resources if one.occupancy]
    return {
        **work,
        **({"spilled_bytes": max(spilled)} if spilled else {}),
        **({"occupancy": min(occupancies)} if occupancies else {}),
    }


def list_subjects(
    recorded: Iterable[Trial], objects: ObjectStore, units_of: Mapping[str, int]
) -> list[Subject]:
    """The work and the times of the latest trials, of each arguments, target and silicon by themselves.
    ``units_of`` has those of known silicon; how blocks are divided elsewhere is not known.
    """
    subjects: defaultdict[tuple[str, str], list[tuple[Work, float]]] = defaultdict(list)
    timed = [one for one in recorded if one.outcome in WELL and one.measurement is not None]
    for trial in timed[-MOST_TIMES:]:
        work = count_built(trial.keys.build, trial.arguments, objects)
        if work and trial.measurement is not None:
            subject = canonical_json((trial.arguments, trial.target))
            subjects[subject, trial.silicon].append((work, trial.measurement.median_ns))
    return [(units_of.get(silicon, 1), times) for (_, silicon), times in subjects.items()]


class Foresight:
    """Counts the work of one config after another, each in a ``turn`` that it shares with other studies; once
    nothing is wanted it waits for ``wake``. If that fails too often it ends, and ``tell`` gets the reason.
    """

    def __init__(
        self,
        strategy: Foresees,
        thread: StrategyThread,
        count: Count,
        turn: asyncio.Lock,
        tell: Callable[[str], None],
    ) -> None:
        self._strategy = strategy
        self._thread = thread
        self._count = count
        self._turn = turn
        self._tell = tell
        self._wanted: deque[Config] = deque()
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Something was proposed, or has ended."""
        self._news.set()

    def raise_error(self) -> None:
        """Raise what ended it, if that was an error of the strategy."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def close(self) -> None:
        """End it. Repeatable."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        failed = 0
        while True:
            self._news.clear()
            while (config := await self._find_next()) is not None:
                async with self._turn:
                    began_s = time.monotonic()
                    try:
                        work = await self._count(config)
                    except TileyardError as error:
                        work = Failed(message=error.message, is_final=True)
                    if isinstance(work, Failed):
                        failed += 1
                        if failed == MOST_FAILED or work.is_final:
                            self._tell(work.message)
                            return
                        work = {}
                    self._thread.tell(partial(self._strategy.foresee, config, work))
                    took_s = time.monotonic() - began_s
                    await asyncio.sleep(min(REST * took_s, MOST_REST_S))
            await self._news.wait()

    async def _find_next(self) -> Config | None:
        """The config whose work is wanted next; None if there is none."""
        if not self._wanted:
            unforeseen = partial(self._strategy.list_unforeseen, AHEAD)
            self._wanted.extend(await self._thread.ask(unforeseen))
        return self._wanted.popleft() if self._wanted else None
