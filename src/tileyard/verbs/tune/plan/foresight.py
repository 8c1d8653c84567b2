"""Tells a strategy that wants to know it the work of configs: of built ones, and while others are tried."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.errors import InvalidProgramError
from tileyard.base.model import WELL, BuildKey, Trial, Value
from tileyard.ir.reader import read_program
from tileyard.ir.work import count_work
from tileyard.targets.registry import PROGRAM_FILE
from tileyard.verbs.tune.plan.strategies.base import Config, Foresees, Work
from tileyard.workers.protocol import Failed

Count = Callable[[Config], Awaitable[Work | Failed]]
"""Counts the work of a config."""
REST: Final = 2.0
"""Rest after each count, in times of its length: the author elaborates what is built next, too."""
MOST_TIMES: Final = 300
"""Latest times of a kernel's other arguments and devices from which costs are learnt."""


def count_built(build: BuildKey, arguments: Mapping[str, Value], objects: ObjectStore) -> Work:
    """The work of a Program that was built: nothing if it is not kept, or of a version that cannot be read
    here.
    """
    artifact = find_artifact(build, objects) if build else None
    if artifact is None or PROGRAM_FILE not in artifact.manifest.files:
        return {}
    numbers = {name: value for name, value in arguments.items() if type(value) is int}
    try:
        program = read_program(artifact.file(PROGRAM_FILE).read_text(encoding="utf-8"))
    except InvalidProgramError:
        return {}
    return {name: round(amount) for name, amount in count_work(program, numbers).items()}


def list_subjects(
    recorded: Iterable[Trial], objects: ObjectStore
) -> Sequence[Sequence[tuple[Work, float]]]:
    """The work and the times of the latest trials, per arguments and silicon."""
    subjects: defaultdict[str, list[tuple[Work, float]]] = defaultdict(list)
    timed = [one for one in recorded if one.outcome in WELL and one.measurement is not None]
    for trial in timed[-MOST_TIMES:]:
        if trial.measurement is not None and (
            work := count_built(trial.keys.build, trial.arguments, objects)
        ):
            subject = canonical_json((trial.arguments, trial.silicon))
            subjects[subject].append((work, trial.measurement.median_ns))
    return list(subjects.values())


class Foresight:
    """Counts the work of one config after another, each in a ``turn`` that it shares with other studies; once
    nothing is wanted it waits for ``wake``. If that fails it ends, and ``tell`` gets the reason.
    """

    def __init__(
        self, strategy: Foresees, count: Count, turn: asyncio.Lock, tell: Callable[[str], None]
    ) -> None:
        self._strategy = strategy
        self._count = count
        self._turn = turn
        self._tell = tell
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Something was proposed, or has ended."""
        self._news.set()

    async def close(self) -> None:
        """End it. Repeatable."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            self._news.clear()
            while configs := self._strategy.list_unforeseen(1):
                async with self._turn:
                    began_s = time.monotonic()
                    work = await self._count(configs[0])
                    if isinstance(work, Failed):
                        self._tell(work.message)
                        return
                    self._strategy.foresee(configs[0], work)
                    await asyncio.sleep(REST * (time.monotonic() - began_s))
            await self._news.wait()
