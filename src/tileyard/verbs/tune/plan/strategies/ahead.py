"""Strategies whose proposals take long, in a process of their own that works ahead. This is both ends."""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tileyard.base.errors import WorkerLostError
from tileyard.base.model import Record, Trial, Value, Values, sequence_of, shorten_span
from tileyard.frontend.constraints import Expr
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.processes.wire import Channel
from tileyard.verbs.tune.plan.strategies.base import Config, Points, check_strategy, make_strategy
from tileyard.verbs.tune.plan.strategies.proposing import Proposing
from tileyard.workers.command_runs import worker_environment

MOST_AHEAD: Final = 16
"""Proposals that are wanted ahead, at most: each is made without the results that come later."""


class Begin(Record, tag="begin"):
    """The strategy to make, and the arguments of its points."""

    name: str
    axes: dict[str, Values]
    listed: tuple[dict[str, Value], ...]
    constraints: tuple[Expr, ...]
    defaults: dict[str, Value]
    trials: int
    seed: int

    def open_points(self) -> Points:
        """The points."""
        axes = {name: sequence_of(values) for name, values in self.axes.items()}
        return Points(axes, self.listed, self.constraints, self.defaults)


class Want(Record, tag="want"):
    """The number of further proposals that are wanted."""

    count: int


class Ended(Record, tag="ended"):
    """How a config ended."""

    trial: Trial


class Rejected(Record, tag="rejected"):
    """A config that cannot be tried."""

    config: dict[str, Value]


class Proposed(Record):
    """A proposal."""

    config: dict[str, Value]


News = Want | Ended | Rejected


class Ahead(Proposing):
    """What the strategy of this name proposes in a process of its own; random points while nothing is ready.

    The process runs from ``begin`` to ``close``, and dies with this one. Without it all points are random.
    Which proposals are ready depends on the clock, so equal seeds do not give equal orders.
    """

    def __init__(self, name: str, points: Points, *, trials: int, seed: int) -> None:
        """Raise UsageError or ToolMissingError for a strategy that cannot be had here."""
        check_strategy(name)
        self.name = name
        super().__init__(points, seed=seed)
        self._begin = Begin(
            name=name,
            axes={key: _list_values(values) for key, values in points.axes.items()},
            listed=points.listed,
            constraints=points.constraints,
            defaults=dict(points.defaults),
            trials=trials,
            seed=seed,
        )
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self._ready: deque[int] = deque()
        self._wanted = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._worker: Worker | None = None

    async def begin(self, cores: tuple[int, ...], lost: Callable[[], None]) -> None:
        """Start the process on these cores; ``lost`` is called if it ends early. Raises WorkerStartError."""
        command = WorkerCommand(
            argv=(sys.executable, "-P", "-m", __name__),
            env=worker_environment(threads=1),
            cwd=str(Path.cwd()),
            cores=cores,
        )
        worker = self._worker = await Worker.start(command)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._send(worker)),
            loop.create_task(self._receive(worker, lost)),
        ]

    async def close(self) -> None:
        """End the process. Repeatable; what is ready is forgotten."""
        for task in self._tasks:
            task.cancel()
        if self._worker is not None:
            await self._worker.kill("the search is over")
        self._ready.clear()

    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs, at most ``limit``; as many are then worked out ahead."""
        configs = super().ask(limit)
        missing = min(limit, MOST_AHEAD) - len(self._ready) - self._wanted
        if missing > 0:
            self._wanted += missing
            self._news.put_nowait(Want(count=missing))
        return configs

    def tell(self, trial: Trial) -> None:
        """Learn how a config ended."""
        super().tell(trial)
        self._news.put_nowait(Ended(trial=trial))

    def reject(self, config: Config) -> None:
        """Learn that a config cannot be tried."""
        super().reject(config)
        self._news.put_nowait(Rejected(config=config))

    def _choose(self) -> int:
        while self._ready:
            number = self._ready.popleft()
            if number not in self._proposed:
                return number
        return self._draw(1)[0]

    async def _send(self, worker: Worker) -> None:
        with contextlib.suppress(WorkerLostError):  # which the other task reports
            await worker.send(self._begin)
            while True:
                await worker.send(await self._news.get())

    async def _receive(self, worker: Worker, lost: Callable[[], None]) -> None:
        try:
            while True:
                proposed = await worker.receive(Proposed)
                number = self._points.find(proposed.config)
                self._wanted -= 1
                if number is not None:
                    self._ready.append(number)
        except WorkerLostError:
            lost()


def _list_values(values: Sequence[Value]) -> Values:
    return shorten_span(values) if isinstance(values, range) else tuple(values)


def main() -> None:
    """Propose as many configs as are wanted, but none that is tried already, until the channel is closed."""
    with Channel.serving() as channel:
        begin = channel.receive(Begin)
        if begin is None:
            return
        points = begin.open_points()
        strategy = make_strategy(begin.name, points, trials=begin.trials, seed=begin.seed)
        wanted = 0
        known: set[int | None] = set()
        while True:
            while not wanted or strategy.is_exhausted or channel.has_news():
                news: News | None = channel.receive(News)
                match news:
                    case None:
                        return
                    case Want(count=count):
                        wanted += count
                    case Ended(trial=trial):
                        if not trial.reused:
                            known.add(points.find(trial.config))
                        strategy.tell(trial)
                    case Rejected(config=config):
                        known.add(points.find(config))
                        strategy.reject(config)
            (config,) = strategy.ask(1)
            if points.find(config) not in known:
                channel.send(Proposed(config=config))
                wanted -= 1


if __name__ == "__main__":
    main()
