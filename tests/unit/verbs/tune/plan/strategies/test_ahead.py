"""A strategy in a process of its own proposes ahead; nothing waits for it, and it is not missed."""

import asyncio
import os
import signal
import sys
from collections import deque
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from tileyard.base.errors import ToolMissingError
from tileyard.testing import StrategyContract
from tileyard.testing.strategies import AXES, RULED, MakeStrategy, end, is_each_point_once
from tileyard.verbs.tune.plan.strategies.ahead import Ahead
from tileyard.verbs.tune.plan.strategies.base import Config, make_strategy


class TestAhead(StrategyContract):
    """Without its process, as while that begins."""

    @pytest.fixture
    def make(self) -> MakeStrategy:
        """Makes it."""
        return partial(Ahead, "grid")


class Noticed(deque[int]):
    """Proposals that are ready; tells when there are three."""

    def __init__(self) -> None:
        super().__init__()
        self.are_three = asyncio.Event()

    def append(self, number: int) -> None:
        """One more."""
        super().append(number)
        if len(self) == 3:
            self.are_three.set()


@pytest.mark.slow
def test_proposals_are_those_of_the_process_once_they_are_ready() -> None:
    """They are random before, and after its death; all points are proposed. Closing ends it."""
    listed = [RULED.config_at(number) for number in range(RULED.size)]

    async def search() -> list[Config]:
        strategy = Ahead("grid", RULED, trials=20, seed=11)  # among the first is a random one
        strategy._ready = ready = Noticed()
        lost = asyncio.Event()
        await strategy.begin((), lost.set)
        worker = strategy._worker
        assert worker is not None
        try:
            early = [*strategy.ask(3)]
            for config in early:
                strategy.tell(end(config))
            await ready.are_three.wait()
            later = [*strategy.ask(3)]
            assert later == [config for config in listed if config not in early][:3]
            os.kill(worker.pid, signal.SIGKILL)
            await lost.wait()
            return [*early, *later, *strategy.ask(RULED.size)]
        finally:
            await strategy.close()
            assert worker.is_over

    assert is_each_point_once(asyncio.run(search()), RULED)


@pytest.mark.slow
def test_closing_ends_a_process_that_works() -> None:
    """It is not reported as lost."""

    async def begin() -> None:
        strategy = Ahead("grid", AXES, trials=20, seed=1)
        strategy._ready = ready = Noticed()
        await strategy.begin((), lambda: pytest.fail("it is lost"))
        strategy.ask(3)
        await ready.are_three.wait()
        await strategy.close()
        await strategy.close()
        assert strategy._worker is not None
        assert strategy._worker.is_over

    asyncio.run(begin())


@pytest.mark.parametrize(
    ("name", "package"),
    [("optuna-tpe", "optuna"), ("optuna-gp", "torch"), ("optuna-cmaes", "cmaes")],
)
def test_a_missing_extra_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with the command that installs it; before a process is started, too."""
    there = ModuleType("optuna")
    there.__spec__ = ModuleSpec("optuna", None)
    monkeypatch.setitem(sys.modules, "optuna", there)
    monkeypatch.setitem(sys.modules, package, None)
    for make in (make_strategy, Ahead):
        with pytest.raises(ToolMissingError, match=f"{name} needs the package {package}") as raised:
            make(name, AXES, trials=1, seed=0)
        assert "[optuna]" in raised.value.hint
