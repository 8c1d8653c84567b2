"""The engine's decisions, tested with plain values and no processes."""

import random
from collections import Counter

import pytest

from tileyard.engine.commands import (
    Ask,
    AuthorFreed,
    BatchesPlanned,
    BatchRun,
    Build,
    BuildFailed,
    CaseBuilt,
    CaseFinished,
    CasePrepared,
    Command,
    Drop,
    Fact,
    Prepare,
    Run,
    StopAsked,
    TrimAsked,
)
from tileyard.engine.state import LEGAL_MOVES, EngineState, Site, Stage
from tileyard.model import Batch, BuildKey, Case


def batch(name: str, *cases: str, timed: bool = True) -> Batch:
    """A batch of cases; one called like the batch if none is named."""
    made = [Case(id=case, kernel="k") for case in cases or (name,)]
    if not timed:
        made = [Case(id=case.id, kernel="k", timing=None) for case in made]
    return Batch(id=name, cases=tuple(made))


class World:
    """Carries out commands at random times and remembers what overlapped."""

    def __init__(self, state: EngineState, batches: list[Batch], seed: int = 0) -> None:
        self.state = state
        self.left = list(batches)
        self.random = random.Random(seed)
        self.under_way: list[Command] = []
        self.ended: list[str] = []
        self.built: list[str] = []
        self.runs: list[Run] = []
        self.key_of: dict[str, str] = {}
        self.failing: set[str] = set()
        self.shared_core_violations = 0
        self.peak_builds = 0

    def drive(self, stop_after: int = 10**9) -> None:
        """Run until nothing is left to do."""
        commands = self.state.start()
        steps = 0
        while True:
            for command in commands:
                self.under_way.append(command)
            self._look()
            if not self.under_way:
                return
            steps += 1
            if steps == stop_after:
                commands = self.state.step(StopAsked())
                continue
            index = 0
            if not isinstance(self.under_way[0], Ask | Drop):
                index = self.random.randrange(len(self.under_way))
            facts = self._facts(self.under_way.pop(index))
            commands = [command for fact in facts for command in self.state.step(fact)]

    def _facts(self, command: Command) -> list[Fact]:
        match command:
            case Ask(limit=limit):
                given, self.left = self.left[:limit], self.left[limit:]
                return [BatchesPlanned(batches=tuple(given), exhausted=not self.left)]
            case Prepare(case=case):
                key = BuildKey(self.key_of.get(case, case))
                built = key in {self.key_of.get(done, done) for done in self.built}
                built = built and key not in self.failing
                return [CasePrepared(case=case, build=key, built=built), AuthorFreed()]
            case Build(case=case, worker=worker):
                self.built.append(case)
                if self.key_of.get(case, case) in self.failing:
                    self.ended.append(case)
                    return [BuildFailed(case=case, worker=worker)]
                return [CaseBuilt(case=case, worker=worker)]
            case Run(batch=name, cases=cases, device=device):
                self.runs.append(command)
                self.ended += cases
                done: list[Fact] = [CaseFinished(case=case) for case in cases]
                return [*done, BatchRun(batch=name, device=device)]
            case Drop(case=case):
                self.ended.append(case)
                return [CaseFinished(case=case)]

    def _look(self) -> None:
        builds = [c for c in self.under_way if isinstance(c, Build)]
        self.peak_builds = max(self.peak_builds, len(builds))
        for run in (c for c in self.under_way if isinstance(c, Run)):
            owned = self.state.site.devices[run.device]
            busy = {self.state.site.workers[build.worker] for build in builds}
            self.shared_core_violations += not owned.isdisjoint(busy)


def all_cores(**changes: object) -> Site:
    """Two cores that building and the one device share."""
    given: dict[str, object] = {
        "workers": (0, 1),
        "devices": {"cpu:0": frozenset({0, 1})},
        "author": frozenset({0, 1}),
        **changes,
    }
    return Site(**given)  # type: ignore[arg-type]  # the changes are Site's own fields


@pytest.mark.parametrize("seed", range(8))
def test_every_case_ends_once(seed: int) -> None:
    """Whatever the order in which steps end, each planned case ends exactly once."""
    batches = [batch(f"b{i}") for i in range(40)] + [batch("pair", "p1", "p2")]
    expected = Counter({f"b{i}": 1 for i in range(40)} | {"p1": 1, "p2": 1})
    world = World(EngineState(all_cores()), batches, seed)
    world.drive()
    assert Counter(world.ended) == expected
    assert world.state.is_idle


@pytest.mark.parametrize("seed", range(8))
def test_nothing_builds_on_a_timing_devices_cores(seed: int) -> None:
    """While a batch is timed, no build runs on the cores that its device owns."""
    world = World(EngineState(all_cores()), [batch(f"b{i}") for i in range(30)], seed)
    world.drive()
    expected = 0
    assert world.shared_core_violations == expected
    assert world.peak_builds == 2


def test_building_goes_on_beside_a_device_with_cores_of_its_own() -> None:
    """A device that shares no core with the compile workers runs while they build."""
    site = all_cores(workers=(0,), devices={"cpu:0": frozenset({1})}, author=frozenset({0}))
    state = EngineState(site)
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"), batch("b")), exhausted=True))
    state.step(CasePrepared(case="a", build=BuildKey("a"), built=True))
    state.step(AuthorFreed())
    commands = state.step(CasePrepared(case="b", build=BuildKey("b"), built=False))
    expected = [Build(case="b", worker=0)]
    assert [c for c in commands if isinstance(c, Build)] == expected
    assert state.stages["a"] is Stage.RUNNING


def test_equal_builds_are_made_once() -> None:
    """Cases with the same build key wait for one build and all become ready with it."""
    world = World(EngineState(all_cores()), [batch(f"b{i}") for i in range(6)])
    world.key_of = {f"b{i}": "same" for i in range(6)}
    world.drive()
    expected = 1
    assert len(world.built) == expected
    assert len(world.ended) == 6


def test_a_failed_build_ends_each_case_that_shares_it() -> None:
    """Cases whose key failed to build are told one by one."""
    world = World(EngineState(all_cores()), [batch(f"b{i}") for i in range(5)])
    world.key_of = {f"b{i}": "bad" for i in range(5)}
    world.failing = {"bad"}
    world.drive()
    expected = Counter({f"b{i}": 1 for i in range(5)})
    assert Counter(world.ended) == expected
    assert world.runs == []


def test_a_batch_waits_for_all_its_cases() -> None:
    """A batch runs once, with those of its cases whose builds succeeded."""
    world = World(EngineState(all_cores()), [batch("trio", "x", "y", "z")])
    world.failing = {"y"}
    world.drive()
    expected = ("x", "z")
    assert [run.cases for run in world.runs] == [expected]


@pytest.mark.parametrize("stop_after", [1, 3, 7, 20, 45])
def test_a_stop_ends_what_was_planned(stop_after: int) -> None:
    """After a stop every planned case still ends, and nothing more is asked for."""
    batches = [batch(f"b{i}") for i in range(100)]
    world = World(EngineState(all_cores(window=10)), batches, seed=stop_after)
    world.drive(stop_after)
    expected = 1
    assert set(Counter(world.ended).values()) <= {expected}
    assert world.state.is_idle
    assert world.left


def test_a_trim_drops_what_is_not_begun_and_goes_on() -> None:
    """After a trim the dropped cases end, and what the source asks later is run."""
    state = EngineState(all_cores())
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"), batch("b")), exhausted=True))
    dropped = state.step(TrimAsked())
    expected = [Drop(case="b")]
    assert dropped == expected
    asked = state.step(CaseFinished(case="b"))
    assert [type(command) for command in asked] == [Ask]
    state.step(CaseFinished(case="a"))
    state.step(AuthorFreed())
    state.step(BatchesPlanned(batches=(batch("later"),), exhausted=True))
    assert state.stages["later"] is Stage.PREPARING


def test_without_overlap_running_waits_for_all_building() -> None:
    """With overlap switched off, nothing runs as long as something can be built."""
    world = World(EngineState(all_cores(overlap=False)), [batch(f"b{i}") for i in range(5)])
    seen: list[bool] = []
    original = world._look

    def look() -> None:
        original()
        if any(isinstance(c, Run) for c in world.under_way):
            seen.append(len(world.built) == 5)

    world._look = look  # type: ignore[method-assign]  # watches the same moments
    world.drive()
    assert seen
    assert all(seen)


def test_untimed_batches_share_their_cores() -> None:
    """A batch that is not timed does not keep others off its device's cores."""
    state = EngineState(all_cores())
    state.start()
    planned = (batch("a", timed=False), batch("b", timed=False))
    state.step(BatchesPlanned(batches=planned, exhausted=True))
    state.step(CasePrepared(case="a", build=BuildKey("a"), built=True))
    state.step(AuthorFreed())
    state.step(CasePrepared(case="b", build=BuildKey("b"), built=False))
    state.step(AuthorFreed())
    state.step(CaseBuilt(case="b", worker=0))
    expected = Stage.RUNNING
    assert state.stages["a"] is expected


def test_illegal_moves_are_refused() -> None:
    """A fact that contradicts the state is a bug and is raised as one."""
    state = EngineState(all_cores())
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"),), exhausted=True))
    state.step(CaseFinished(case="a"))
    assert LEGAL_MOVES[Stage.ENDED] == frozenset()
    with pytest.raises(KeyError):
        state.step(CaseFinished(case="a"))
