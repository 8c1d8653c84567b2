"""The engine's decisions, tested with plain values and no processes."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec
import pytest

from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    CommandWork,
    KernelWork,
    Outcome,
    Step,
    TimingPolicy,
)
from tileyard.engine.cases import LEGAL_MOVES, MAX_RETRIES, Site, Stage
from tileyard.engine.commands import (
    Acquire,
    Ask,
    AuthorAwaited,
    AuthorFreed,
    AuthorStarted,
    BatchesPlanned,
    Build,
    BuildFailed,
    CaseBuilt,
    CaseFinished,
    CaseLost,
    CasePrepared,
    CaseRanWell,
    Command,
    CompilerFreed,
    Drop,
    Fact,
    GiveUp,
    Joined,
    Judge,
    Keep,
    LeaseAwaited,
    Leased,
    LeaseFailed,
    Linger,
    LingerOver,
    LookAfter,
    LookUp,
    NothingKnown,
    PartBuilt,
    Prepare,
    Readmitted,
    Release,
    Released,
    Run,
    RunOver,
    StopAsked,
    Strand,
    TrimAsked,
    Withdraw,
)
from tileyard.engine.lending import MAX_STRIKES, DeviceSite
from tileyard.engine.state import MAX_JUDGED, QUESTION_BYTES, EngineState, Unjudged


def batch(
    name: str, *cases: str, timed: bool = True, order: Literal["any", "interleaved"] = "any"
) -> Batch:
    """A batch of cases; one called like the batch if none is named."""
    made = [Case(id=case, work=KernelWork(kernel="k")) for case in cases or (name,)]
    if not timed:
        made = [Case(id=case.id, work=KernelWork(kernel="k"), timing=None) for case in made]
    return Batch(id=name, cases=tuple(made), order=order)


class World:
    """Carries out commands at random times and remembers what overlapped."""

    def __init__(self, state: EngineState, batches: list[Batch], seed: int = 0) -> None:
        self.state = state
        self.left = list(batches)
        self.random = random.Random(seed)
        self.group, self.cache = 1, ""
        self.under_way: list[Command] = []
        self.ended: list[str] = []
        self.built: list[str] = []
        self.runs: list[Run] = []
        self.withdrawn: list[Run] = []
        self.key_of: dict[str, str] = {}
        self.failing: set[str] = set()
        self.together: list[str] = []
        self.losses: dict[str, int] = {}
        self.held: set[str] = set()
        self.held_at_build = 0
        self.shared_core_violations = 0
        self.peak_builds = 0

    def drive(self, stop_after: int = 10**9, stop: Fact | None = None) -> None:
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
                commands = self.state.step(stop or StopAsked())
                continue
            index = 0
            if not isinstance(self.under_way[0], Ask | Drop | GiveUp | Strand):
                index = self.random.randrange(len(self.under_way))
            facts = self._facts(self.under_way.pop(index))
            commands = [command for fact in facts for command in self.state.step(fact)]

    def _facts(self, command: Command) -> list[Fact]:
        match command:
            case Ask(limit=limit):
                given, self.left = self.left[:limit], self.left[limit:]
                return [BatchesPlanned(batches=tuple(given), exhausted=not self.left)]
            case Prepare(cases=cases):
                return [*map(self._prepare, cases), AuthorFreed()]
            case Build() if self.together:
                self.under_way.append(command)  # and goes on
                build = self.together.pop()
                if build in self.failing:
                    return []
                self.built.append(build)
                return [PartBuilt(builder=("", ""), build=BuildKey(build))]
            case Build(cases=cases, worker=worker):
                return [*map(self._build, cases), CompilerFreed(worker=worker)]
            case LookUp(batch=name):
                return [NothingKnown(batch=name)]
            case Acquire(device=device):
                assert device not in self.held
                rivals = self.state.site.devices[device].parts
                assert all(
                    rivals.isdisjoint(self.state.site.devices[one].parts) for one in self.held
                )
                self.held.add(device)
                return [Leased(device=device)]
            case Withdraw():
                self.withdrawn += [one for one in self.under_way if isinstance(one, Run)]
                return []
            case Run(cases=cases, device=device):
                assert device in self.held
                self.runs.append(command)
                return self._run(cases[:1] if command in self.withdrawn else cases, device)
            case Linger(device=device):
                return [LingerOver(device=device)]
            case Release(device=device):
                self.held.discard(device)
                asked = [c for c in self.under_way if isinstance(c, Acquire) and c.device == device]
                self.under_way = [c for c in self.under_way if c not in asked]
                return [Released(device=device)]
            case Drop(case=case) | GiveUp(case=case) | Strand(case=case):
                self.ended.append(case)
                return [CaseFinished(case=case)]

    def _prepare(self, case: str) -> Fact:
        key = BuildKey(self.key_of.get(case, case))
        built = key in {self.key_of.get(done, done) for done in self.built}
        return CasePrepared(
            case=case,
            build=key,
            built=built and key not in self.failing,
            group=self.group,
            cache=self.cache,
        )

    def _build(self, case: str) -> Fact:
        self.built.append(case)
        if self.key_of.get(case, case) in self.failing:
            self.ended.append(case)
            return BuildFailed(case=case)
        return CaseBuilt(case=case)

    def _run(self, cases: tuple[str, ...], device: str) -> list[Fact]:
        """Answer case by case; a loss ends the runner, and the rest is handed back."""
        facts: list[Fact] = []
        for case in cases:
            if self.losses.get(case, 0):
                self.losses[case] -= 1
                self.held.discard(device)
                return [
                    *facts,
                    CaseLost(case=case, device=device),
                    RunOver(device=device, held=False),
                ]
            self.ended.append(case)
            facts.append(CaseFinished(case=case, device=device, seconds=0.001))
        return [*facts, RunOver(device=device, held=True)]

    def _look(self) -> None:
        builds = [c for c in self.under_way if isinstance(c, Build)]
        self.peak_builds = max(self.peak_builds, len(builds))
        for run in (c for c in self.under_way if isinstance(c, Run)):
            owned = self.state.site.devices[run.device].cores
            busy = {self.state.site.workers[build.worker] for build in builds}
            self.shared_core_violations += not owned.isdisjoint(busy)


def all_cores(**changes: object) -> Site:
    """Two cores that building and the one device share."""
    given: dict[str, object] = {
        "workers": (0, 1),
        "devices": {"cpu:0": DeviceSite(cores=frozenset({0, 1}))},
        "author": frozenset({0, 1}),
        **changes,
    }
    given.setdefault("grounds", {("cpu", 1): frozenset(given["devices"])})  # type: ignore[call-overload]
    return Site(**given)  # type: ignore[arg-type]  # the changes are Site's own fields


def boards(count: int, **changes: object) -> Site:
    """Devices that own no cores of this host."""
    devices = {f"board:{number}": DeviceSite() for number in range(count)}
    return all_cores(devices=devices, **changes)


def prepared(
    state: EngineState, *batches: Batch, expected_s: dict[str, float] | None = None
) -> list[Command]:
    """Plan batches and have each of their cases prepared and found built; the last commands."""
    commands = state.step(BatchesPlanned(batches=batches, exhausted=True))
    for case in [case for planned in batches for case in planned.cases]:
        commands += state.step(
            CasePrepared(
                case=case.id,
                build=BuildKey(case.id),
                built=True,
                expected_s=(expected_s or {}).get(case.id),
            )
        )
        commands += state.step(AuthorFreed())
    return commands


def of_kind(commands: list[Command], *kinds: type) -> list[Command]:
    """Those of these kinds."""
    return [command for command in commands if isinstance(command, kinds)]


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
def test_cases_run_once_their_own_target_of_a_joint_build_is_built(seed: int) -> None:
    """The first build goes on; only cases of the unbuildable target fail, each other one runs once."""
    targets = {f"c{i}": f"t{i % 4}" for i in range(20)}
    world = World(EngineState(all_cores()), [batch(case) for case in targets], seed)
    world.key_of, world.cache, world.together = targets, "cache", [f"t{i}" for i in range(4)]
    world.failing = {"t1"}
    world.drive()
    assert world.peak_builds == 1
    assert Counter(world.ended) == Counter([*targets])
    assert world.state.is_idle
    ran = {case for run in world.runs for case in run.cases}
    assert ran == {case for case, target in targets.items() if target != "t1"}


def test_a_further_process_of_an_author_is_a_further_lane() -> None:
    """Once it has started two cases are prepared at a time; one that took the place of another adds none."""
    state = EngineState(all_cores())
    state.start()
    batches = tuple(batch(name) for name in "abcd")
    commands = state.step(BatchesPlanned(batches=batches, exhausted=True))
    assert of_kind(commands, Prepare) == [Prepare(cases=("a",))]
    assert not of_kind(state.step(AuthorAwaited()), Prepare)
    commands = state.step(AuthorStarted(lanes=2))
    assert of_kind(commands, Prepare) == [Prepare(cases=("b",))]
    assert not of_kind(state.step(AuthorAwaited(), AuthorStarted(lanes=2)), Prepare)


def test_no_process_of_an_author_starts_on_cores_that_are_timed() -> None:
    """What is ready waits until a process that is being started has started."""
    state = EngineState(all_cores())
    state.start()
    prepared(state, batch("a"))
    state.step(AuthorAwaited())
    commands = state.step(Leased(device="cpu:0"))
    assert not of_kind(commands, Run)
    assert of_kind(state.step(AuthorStarted(lanes=2)), Run)


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
    site = all_cores(
        workers=(0,), devices={"cpu:0": DeviceSite(cores=frozenset({1}))}, author=frozenset({0})
    )
    state = EngineState(site)
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"), batch("b")), exhausted=True))
    state.step(CasePrepared(case="a", build=BuildKey("a"), built=True))
    state.step(AuthorFreed())
    commands = state.step(CasePrepared(case="b", build=BuildKey("b"), built=False))
    expected = [Build(cases=("b",), worker=0)]
    assert of_kind(commands, Build) == expected
    state.step(Leased(device="cpu:0"))
    assert state.cases.stages["a"] is Stage.RUNNING


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
    assert state.cases.stages["later"] is Stage.PREPARING


@pytest.mark.parametrize("trim_after", [1, 3, 7, 20, 45, 90])
def test_a_trim_begins_nothing_that_was_planned_before(trim_after: int) -> None:
    """Each case planned before a trim ends once, and those asked for later are all run."""
    batches = [batch(f"b{i}") for i in range(100)]
    world = World(EngineState(boards(2, window=10)), batches, seed=trim_after)
    world.losses = {f"b{i}": 1 for i in range(0, 100, 7)}
    world.drive(trim_after, TrimAsked())
    expected = Counter({f"b{i}": 1 for i in range(100)})
    assert Counter(world.ended) == expected
    assert world.state.is_idle


def test_after_a_trim_nothing_moves_on_that_had_not_begun_to_run() -> None:
    """What was being prepared, built, or waited in a queue is dropped; what runs is finished."""
    state = EngineState(boards(1, workers=(0,)))
    state.start()
    names = ("queued", "building", "preparing")
    state.step(BatchesPlanned(batches=tuple(map(batch, names)), exhausted=True))
    state.step(CasePrepared(case="queued", build=BuildKey("q"), built=True), AuthorFreed())
    state.step(Leased(device="board:0"))
    state.step(CasePrepared(case="building", build=BuildKey("b"), built=False), AuthorFreed())
    expected = [Stage.RUNNING, Stage.BUILDING, Stage.PREPARING]
    assert [state.cases.stages[name] for name in names] == expected
    assert state.step(TrimAsked()) == []
    facts: list[tuple[str, Fact]] = [
        ("queued", RunOver(device="board:0", held=False)),
        ("building", CaseBuilt(case="building")),
        ("preparing", CasePrepared(case="preparing", build=BuildKey("p"), built=False)),
    ]
    for name, fact in facts:
        assert state.step(fact) == [Drop(case=name)]
    state.step(CompilerFreed(worker=0), AuthorFreed())
    state.step(*(CaseFinished(case=name) for name in names))
    assert not state.cases.stages


def test_a_case_that_is_lost_after_a_trim_is_not_run_again() -> None:
    """Its last attempt is its outcome."""
    state = EngineState(boards(1))
    prepared(state, batch("a"))
    state.step(Leased(device="board:0"))
    state.step(TrimAsked())
    expected = [GiveUp(case="a")]
    assert state.step(CaseLost(case="a", device="board:0")) == expected


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
    state.step(CaseBuilt(case="b"))
    state.step(CompilerFreed(worker=0))
    state.step(Leased(device="cpu:0"))
    expected = Stage.RUNNING
    assert state.cases.stages["a"] is expected


def test_illegal_moves_are_refused() -> None:
    """A fact that contradicts the state is a bug and is raised as one."""
    state = EngineState(all_cores())
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"),), exhausted=True))
    state.step(CaseFinished(case="a"))
    assert LEGAL_MOVES[Stage.ENDED] == frozenset()
    with pytest.raises(KeyError):
        state.step(CaseFinished(case="a"))


# ---- devices --------------------------------------------------------------------------------


def test_a_device_is_asked_for_once_a_case_is_built_and_not_before() -> None:
    """While inputs, reference or artifact are missing, no lease is asked for."""
    state = EngineState(boards(1))
    commands = state.start()
    commands += state.step(BatchesPlanned(batches=(batch("a"),), exhausted=True))
    commands += state.step(CasePrepared(case="a", build=BuildKey("a"), built=False))
    commands += state.step(AuthorFreed())
    assert of_kind(commands, Acquire) == []
    expected = [Acquire(device="board:0", case="a")]
    built = state.step(CaseBuilt(case="a"))
    assert of_kind(built, Acquire) == expected


def test_no_build_begins_while_a_device_on_its_core_is_held() -> None:
    """From the grant of a lease to its end, nothing is built on the device's cores."""
    world = World(EngineState(all_cores()), [batch(f"b{i}") for i in range(30)], 3)
    facts, look = world._facts, world._look
    shared: list[bool] = []

    def watch(command: Command) -> list[Fact]:
        if isinstance(command, Build):
            shared.append(command in started and bool(world.held))
        return facts(command)

    started: list[Command] = []

    def note() -> None:
        look()
        if world.held and not of_kind(world.under_way, Release):
            fresh = [c for c in of_kind(world.under_way, Build) if c not in started]
            assert fresh == []
        started[:] = of_kind(world.under_way, Build)

    world._facts, world._look = watch, note  # type: ignore[method-assign]  # watches the same moments
    world.drive()
    expected = 30
    assert len(world.ended) == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [2, 5])
def test_all_devices_draw_from_one_queue(seed: int, count: int) -> None:
    """Several devices share the work, every case ends once, and no device runs two at a time."""
    world = World(EngineState(boards(count)), [batch(f"b{i}") for i in range(60)], seed)
    world.drive()
    expected = Counter({f"b{i}": 1 for i in range(60)})
    assert Counter(world.ended) == expected
    assert len({run.device for run in world.runs}) > 1


def test_only_as_many_devices_are_asked_for_as_there_is_work() -> None:
    """One ready case asks for one device, and for the next one only if somebody else has that."""
    state = EngineState(boards(3))
    state.start()
    commands = prepared(state, batch("a"))
    expected = [Acquire(device="board:0", case="a")]
    assert of_kind(commands, Acquire) == expected
    more = state.step(LeaseAwaited(device="board:0"))
    assert of_kind(more, Acquire) == [Acquire(device="board:1", case="a")]


def test_whichever_device_comes_first_gets_the_case() -> None:
    """A case is bound to no device before a device is there."""
    state = EngineState(boards(2))
    state.start()
    prepared(state, batch("a"))
    state.step(LeaseAwaited(device="board:0"))
    commands = state.step(Leased(device="board:1"))
    expected = [Run(device="board:1", cases=("a",))]
    assert of_kind(commands, Run) == expected
    assert of_kind(commands, Release) == [Release(device="board:0")]


def test_a_lease_is_given_up_when_nothing_can_follow() -> None:
    """With nothing ready and nothing on its way, the device is released at once."""
    state = EngineState(boards(1))
    state.start()
    prepared(state, batch("a"))
    state.step(Leased(device="board:0"))
    state.step(CaseFinished(case="a", device="board:0"))
    state.step(BatchesPlanned(batches=(), exhausted=True))
    expected = [Release(device="board:0")]
    assert of_kind(state.step(RunOver(device="board:0", held=True)), Release) == expected


def test_an_answer_that_does_not_know_of_the_last_end_is_asked_for_again() -> None:
    """The source had nothing when asked; the case that it waited for ended before its answer came."""
    state = EngineState(boards(1))
    state.start()
    prepared(state, batch("a"), batch("b"))
    state.step(Leased(device="board:0"))
    assert of_kind(state.step(CaseFinished(case="a", device="board:0")), Ask)
    assert not of_kind(state.step(CaseFinished(case="b", device="board:0")), Ask)
    assert of_kind(state.step(BatchesPlanned(batches=(), exhausted=True)), Ask)
    assert not state.is_idle
    state.step(BatchesPlanned(batches=(), exhausted=True))
    assert state.is_idle


def test_a_run_that_stops_does_not_wait_for_its_source() -> None:
    """The source may be in a pause, and nothing more would be started."""
    state = EngineState(boards(1))
    state.start()
    assert not state.is_idle
    state.step(StopAsked())
    assert state.is_idle


def test_a_lease_lingers_only_while_more_is_on_its_way() -> None:
    """A device waits for the next build for as long as it is told to, and then is released."""
    state = EngineState(boards(1, workers=(0,)))
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"), batch("b")), exhausted=True))
    state.step(CasePrepared(case="a", build=BuildKey("a"), built=True))
    state.step(AuthorFreed())
    state.step(CasePrepared(case="b", build=BuildKey("b"), built=False))
    state.step(AuthorFreed())
    state.step(Leased(device="board:0"))
    state.step(CaseFinished(case="a", device="board:0"))
    idle = state.step(RunOver(device="board:0", held=True))
    expected = [Linger(device="board:0")]
    assert of_kind(idle, Linger, Release) == expected
    assert of_kind(state.step(LingerOver(device="board:0")), Release) == [Release(device="board:0")]


def test_a_lingering_device_takes_what_becomes_ready() -> None:
    """A runner that is still warm is used again, and the timer that was set means nothing then."""
    state = EngineState(boards(1, workers=(0,)))
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"), batch("b")), exhausted=True))
    state.step(CasePrepared(case="a", build=BuildKey("a"), built=True))
    state.step(AuthorFreed())
    state.step(CasePrepared(case="b", build=BuildKey("b"), built=False))
    state.step(AuthorFreed())
    state.step(Leased(device="board:0"))
    state.step(CaseFinished(case="a", device="board:0"))
    state.step(RunOver(device="board:0", held=True))
    expected = [Run(device="board:0", cases=("b",))]
    assert of_kind(state.step(CaseBuilt(case="b")), Run) == expected
    assert of_kind(state.step(LingerOver(device="board:0")), Release) == []


def test_a_lease_lingers_while_the_next_batch_is_looked_up() -> None:
    """What is known of it from before is asked once all of it is built; a device is held meanwhile."""
    state = EngineState(boards(1))
    state.start()
    prepared(state, batch("a"))
    state.step(Leased(device="board:0"))
    state.step(CaseFinished(case="a", device="board:0"))
    finals = batch("finals", "b", "c", order="interleaved")
    state.step(BatchesPlanned(batches=(finals,), exhausted=True))
    idle = state.step(RunOver(device="board:0", held=True))
    for name in "bc":
        idle += state.step(CasePrepared(case=name, build=BuildKey(name), built=True), AuthorFreed())
    assert of_kind(idle, Release) == []
    assert of_kind(idle, LookUp) == [LookUp(batch="finals")]
    found = state.step(NothingKnown(batch="finals"))
    assert of_kind(found, Run) == [Run(device="board:0", cases=("b", "c"))]


def test_a_batch_that_waits_for_one_like_it_keeps_no_device_away() -> None:
    """It is looked up until the other has run, on a device whose cores building needs, too."""
    state = EngineState(all_cores())
    state.start()
    first, second = (msgspec.structs.replace(batch(name), alike=True) for name in "ab")
    assert len(of_kind(prepared(state, first, second), LookUp)) == 2
    assert of_kind(state.step(NothingKnown(batch="a")), Acquire)


# ---- faults of devices ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_lost_case_is_run_again_and_the_rest_of_its_run_goes_on(seed: int) -> None:
    """What a device failed, and what it had not come to, ends once all the same."""
    world = World(EngineState(boards(2)), [batch(f"b{i}") for i in range(40)], seed)
    world.losses = {"b3": 1, "b17": 2, "b30": 9}
    world.drive()
    expected = Counter({f"b{i}": 1 for i in range(40)})
    assert Counter(world.ended) == expected
    assert world.losses == {"b3": 0, "b17": 0, "b30": 9 - 1 - MAX_RETRIES}


def test_a_lost_case_goes_to_another_device_if_there_is_one() -> None:
    """The device that failed a case does not get it again while there is another."""
    state = EngineState(boards(2))
    state.start()
    prepared(state, batch("a"))
    state.step(Leased(device="board:0"))
    state.step(CaseLost(case="a", device="board:0"))
    commands = state.step(RunOver(device="board:0", held=False))
    expected = [Acquire(device="board:1", case="a")]
    assert of_kind(commands, Acquire) == expected


def test_a_lost_case_is_given_up_after_two_retries() -> None:
    """A case that every attempt loses ends as its last attempt did."""
    state = EngineState(boards(1))
    state.start()
    prepared(state, batch("a"))
    commands: list[Command] = []
    for _ in range(1 + MAX_RETRIES):
        assert of_kind(commands, GiveUp) == []
        state.step(Leased(device="board:0"))
        commands = state.step(CaseLost(case="a", device="board:0"))
        state.step(RunOver(device="board:0", held=False))
    expected = [GiveUp(case="a")]
    assert of_kind(commands, GiveUp) == expected


def test_programs_are_not_timed_in_turn_while_others_are_judged() -> None:
    """The steps that judge them would disturb the times."""
    state = EngineState(boards(1))
    state.start()
    pairs = [batch(name, name, order="interleaved") for name in ("x", "y")]
    prepared(state, *pairs)
    for name in ("x", "y"):
        state.step(NothingKnown(batch=name))
    assert of_kind(state.step(Leased(device="board:0")), Run) == [
        Run(device="board:0", cases=("x",))
    ]
    ran = CaseRanWell(case="x", device="board:0", seconds=1.0, is_kernel=False)
    commands = state.step(ran, RunOver(device="board:0", held=True))
    assert of_kind(commands, Judge, Run) == [Judge(cases=("x",))]
    assert [state.take_pauses() for _ in range(2)] == [{"board:0": "quiet"}, {}]
    commands = state.step(CaseFinished(case="x"))
    assert state.take_pauses() == {}
    assert of_kind(commands, Run) == [Run(device="board:0", cases=("y",))]


@pytest.mark.parametrize("seed", range(6))
def test_interleaved_batches_on_several_devices_all_end(seed: int) -> None:
    """Beside others, some of which fail to build or lose their device, each case ends once."""
    orders: tuple[Literal["interleaved", "any"], ...] = ("interleaved", "any")
    mixed = [batch(f"b{i}", f"b{i}", f"c{i}", order=orders[i % 2]) for i in range(30)]
    world = World(EngineState(boards(3)), mixed, seed)
    world.failing, world.losses = {"b4", "b5", "c5"}, {"b3": 1, "b16": 2, "b8": 9}
    world.drive()
    assert Counter(world.ended) == Counter({f"{side}{i}": 1 for side in "bc" for i in range(30)})


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_runs_on_the_devices_that_it_names(seed: int) -> None:
    """Beside others that run anywhere, also after it was lost there."""
    named = [
        msgspec.structs.replace(batch(f"b{i}"), devices=(f"board:{i % 3}",) if i % 2 else ())
        for i in range(30)
    ]
    world = World(EngineState(boards(3)), named, seed)
    world.losses = {"b3": 1, "b5": 2}
    world.drive()
    assert Counter(world.ended) == Counter({f"b{i}": 1 for i in range(30)})
    ran = {case: run.device for run in world.runs for case in run.cases}
    assert all(ran[f"b{i}"] == f"board:{i % 3}" for i in range(1, 30, 2))


def several(name: str, count: int) -> Batch:
    """A batch of one case, which holds so many devices."""
    work = CommandWork(run=Step(argv=("true",)), devices=count)
    return Batch(id=name, cases=(Case(id=name, work=work, target="cpu", timing=None),))


def pairs_of(count: int) -> Site:
    """Boards, and each two neighbours among them as one device."""
    boards = {f"board:{n}": DeviceSite(parts=frozenset({str(n)})) for n in range(count)}
    pairs = {
        f"board:{n},{n + 1}": DeviceSite(count=2, parts=frozenset({str(n), str(n + 1)}))
        for n in range(count - 1)
    }
    grounds = {("cpu", 1): frozenset(boards), ("cpu", 2): frozenset(pairs)}
    return all_cores(devices={**boards, **pairs}, grounds=grounds)


@pytest.mark.parametrize("seed", range(12))
def test_cases_that_hold_two_devices_run_beside_others(seed: int) -> None:
    """Nothing is held twice, and each case ends once, whatever is lost."""
    mixed = [several(f"b{i}", 1 + (i % 3 == 0)) for i in range(30)]
    world = World(EngineState(pairs_of(4)), mixed, seed)
    world.losses = {"b3": 1, "b16": 2}
    world.drive()
    assert Counter(world.ended) == Counter({f"b{i}": 1 for i in range(30)})
    for run in world.runs:
        assert all(("," in run.device) == (int(name[1:]) % 3 == 0) for name in run.cases)


def test_a_case_for_two_devices_is_not_passed_by_others() -> None:
    """The boards begin nothing more on which the fewest others have to end first; the others go on."""
    state = EngineState(pairs_of(3))
    state.start()
    prepared(state, several("a", 1), several("b", 1))
    for number in range(2):
        state.step(Leased(device=f"board:{number}"))
    commands = prepared(state, several("pair", 2), several("c", 1))
    assert of_kind(commands, Acquire) == []
    over = CaseFinished(case="b", device="board:1"), RunOver(device="board:1", held=True)
    assert of_kind(state.step(*over), Run, Release) == [Release(device="board:1")]
    assert of_kind(state.step(Released(device="board:1")), Acquire) == [
        Acquire(device="board:1,2", case="pair")
    ]
    over = CaseFinished(case="a", device="board:0"), RunOver(device="board:0", held=True)
    assert of_kind(state.step(*over), Run) == [Run(device="board:0", cases=("c",))]


def test_as_many_interleaved_batches_begin_together_as_there_are_devices() -> None:
    """None is made ready while another is timed: the first's device waits for the second, not the third."""
    state = EngineState(boards(2, workers=(0,)))
    state.start()
    pairs = [batch(name, order="interleaved") for name in "xyz"]
    state.step(BatchesPlanned(batches=tuple(pairs), exhausted=True))

    def make_ready(name: str) -> list[Command]:
        state.step(CasePrepared(case=name, build=BuildKey(name), built=True), AuthorFreed())
        return state.step(NothingKnown(batch=name))

    assert of_kind(make_ready("x"), Acquire, Run) == []
    assert len(of_kind(make_ready("y"), Acquire)) == 2
    make_ready("z")
    for number, name in enumerate("xy"):
        device = f"board:{number}"
        assert of_kind(state.step(Leased(device=device)), Run) == [
            Run(device=device, cases=(name,))
        ]


def test_an_interleaved_batch_waits_for_none_that_failed() -> None:
    """The device is asked for once nothing else can become ready."""
    state = EngineState(boards(2))
    state.start()
    pairs = [batch(name, order="interleaved") for name in "xy"]
    state.step(BatchesPlanned(batches=tuple(pairs), exhausted=True))
    state.step(CasePrepared(case="x", build=BuildKey("x"), built=True), AuthorFreed())
    assert of_kind(state.step(NothingKnown(batch="x")), Acquire) == []
    assert len(of_kind(state.step(CaseFinished(case="y")), Acquire)) == 1


def test_an_interleaved_batch_that_was_lost_is_run_again_as_a_whole() -> None:
    """Its members were timed against each other, so none of them is run again alone."""
    state = EngineState(boards(2))
    state.start()
    commands = prepared(state, batch("pair", "x", "y", order="interleaved"))
    assert of_kind(commands, LookUp) == [LookUp(batch="pair")]
    state.step(NothingKnown(batch="pair"))
    state.step(Leased(device="board:0"))
    state.step(CaseLost(case="x", device="board:0"))
    state.step(RunOver(device="board:0", held=False))
    expected = [Run(device="board:1", cases=("x", "y"))]
    assert of_kind(state.step(Leased(device="board:1")), Run) == expected


def test_a_device_that_does_not_come_in_time_strands_those_who_waited_for_it() -> None:
    """Only what was ready when it was asked for has waited as long as the limit says."""
    state = EngineState(boards(1, workers=(0,)))
    state.start()
    state.step(BatchesPlanned(batches=(batch("a"), batch("b")), exhausted=True))
    state.step(CasePrepared(case="a", build=BuildKey("a"), built=True))
    state.step(AuthorFreed())
    state.step(CasePrepared(case="b", build=BuildKey("b"), built=True))
    state.step(AuthorFreed())
    failed = LeaseFailed(device="board:0", outcome=Outcome.QUEUE_TIMEOUT)
    commands = state.step(failed)
    expected = [Strand(case="a", device="board:0")]
    assert of_kind(commands, Strand) == expected
    assert of_kind(commands, Acquire) == [Acquire(device="board:0", case="b")]


def test_a_device_that_gives_no_runner_is_done_without() -> None:
    """After three failures in a row a device is left alone; without any, every case is stranded."""
    state = EngineState(boards(1))
    state.start()
    asked = of_kind(prepared(state, batch("a")), Acquire)
    failed = LeaseFailed(device="board:0", outcome=Outcome.INFRA_ERROR)
    commands: list[Command] = []
    for _ in range(3):
        assert asked == [Acquire(device="board:0", case="a")]
        commands = state.step(failed)
        asked = of_kind(commands, Acquire)
    expected = [Strand(case="a", device="board:0")]
    assert of_kind(commands, Strand) == expected
    assert asked == []


def test_a_device_that_was_given_up_is_used_again_once_it_is_well() -> None:
    """It is looked after as long as there is something for it to run, and then asked for again."""
    state = EngineState(boards(2))
    asked = prepared(state, batch("a"), batch("b"), batch("c"))
    assert Acquire(device="board:1", case="a") in asked
    failed = LeaseFailed(device="board:1", outcome=Outcome.INFRA_ERROR)
    looked_after = [c for _ in range(MAX_STRIKES) for c in of_kind(state.step(failed), LookAfter)]
    expected = [LookAfter(devices=("board:1",))]
    assert looked_after == expected
    again = state.step(Readmitted(device="board:1"))
    assert again == [Acquire(device="board:1", case="a"), LookAfter(devices=())]
    assert state.step(Readmitted(device="board:1")) == []


def test_a_device_that_joins_runs_what_was_planned_before() -> None:
    """Of its target, but what names its devices; its host's workers build, and more is planned ahead."""
    state = EngineState(boards(1, workers=()))
    bound = Batch(id="bound", cases=batch("bound").cases, devices=("board:0",))
    other = Batch(id="other", cases=(Case(id="other", work=KernelWork(), target="cuda"),))
    prepared(state, batch("a"), batch("b"), bound, other)
    unbuilt = Batch(id="u", cases=batch("u").cases)
    state.step(BatchesPlanned(batches=(unbuilt,), exhausted=True))
    assert not of_kind(state.step(CasePrepared(case="u", build=BuildKey("u"), built=False)), Build)
    joined = Joined(
        devices={"board:9": DeviceSite()},
        grounds={("cpu", 1): frozenset({"board:9"})},
        kinds={},
        workers=(7,),
        window=99,
    )
    commands = state.step(joined)
    assert Acquire(device="board:9", case="a") in commands
    assert Build(cases=("u",), worker=0) in commands
    assert state.site.window == 99
    state.step(Leased(device="board:0"))
    (run,) = of_kind(state.step(Leased(device="board:9")), Run)
    assert isinstance(run, Run)
    assert run.device == "board:9"
    assert {*run.cases} <= {"a", "b"}
    ready = {entry.batch: entry.devices for entry in state.cases.ready}
    assert ready["other"] == frozenset()
    assert all(ready[name] == {"board:0"} for name in ready if name == "bound")


JOINED = Joined(
    devices={"board:9": DeviceSite()},
    grounds={("cpu", 1): frozenset({"board:9"})},
    kinds={},
    workers=(0, 1),
    window=99,
)


def test_a_device_that_joins_gets_its_share_of_what_has_not_begun() -> None:
    """Also of a batch that another device has got: it gives the rest back after the case that it runs."""
    state = EngineState(boards(1))
    state.start()
    names = tuple(f"c{number}" for number in range(8))
    prepared(state, batch("b", *names, timed=False), batch("other", "x", "y", timed=False))
    (run,) = of_kind(state.step(Leased(device="board:0")), Run)
    assert run == Run(device="board:0", cases=names)
    commands = state.step(JOINED)
    assert of_kind(commands, Withdraw)
    assert Acquire(device="board:9", case="x") in commands
    state.step(Leased(device="board:9"))
    state.step(CaseFinished(case="c0", device="board:0", seconds=1.0))
    state.step(RunOver(device="board:0", held=True))
    parts = [len(state.cases.runnable(entry.batch)) for entry in state.cases.ready]
    assert parts == [3, 1]
    assert not of_kind(
        state.step(msgspec.structs.replace(JOINED, devices={}, grounds={})), Withdraw
    )
    alone = EngineState(boards(1))
    alone.start()
    prepared(
        alone, batch("b", *names[:1], timed=False), batch("p", "p1", "p2", order="interleaved")
    )
    alone.step(Leased(device="board:0"))
    assert not of_kind(alone.step(JOINED), Withdraw)


def test_what_is_judged_holds_up_no_others() -> None:
    """The cases that a device gives back are ready though another of their batch is not ended."""
    state = EngineState(boards(1))
    state.start()
    names = tuple(f"c{number}" for number in range(8))
    prepared(state, batch("b", *names, timed=False))
    state.step(Leased(device="board:0"))
    state.step(JOINED)
    state.step(Leased(device="board:9"))
    state.step(CaseRanWell(case="c0", device="board:0", seconds=1.0))
    state.step(RunOver(device="board:0", held=True))
    waiting = [one.key for entry in state.cases.ready for one in state.cases.runnable(entry.batch)]
    running = [case for case in names if state.cases.is_running(case)]
    assert {*waiting, *running} == {*names[1:]}


@pytest.mark.parametrize("seed", range(8))
def test_what_is_divided_ends_once(seed: int) -> None:
    """Whatever has become of the cases of a batch, on devices that were there or have joined."""
    batches = [batch(f"b{i}", *(f"b{i}.{n}" for n in range(9)), timed=False) for i in range(6)]
    world = World(EngineState(boards(1)), batches, seed)
    world.losses = {"b1.3": 1, "b4.0": 1}
    world.drive(stop_after=20 + 5 * seed, stop=JOINED)
    assert Counter(world.ended) == Counter(case.id for one in batches for case in one.cases)
    assert world.state.is_idle
    assert {run.device for run in world.runs} == {"board:0", "board:9"}


def test_a_device_that_joined_is_given_up_and_comes_back_like_others() -> None:
    """It is looked after; it also goes on alone, if the devices that were there before are given up."""
    state = EngineState(boards(1))
    prepared(state, batch("a"), batch("b"))
    grounds = {("cpu", 1): frozenset({"board:9"})}
    state.step(
        Joined(devices={"board:9": DeviceSite()}, grounds=grounds, kinds={}, workers=(), window=9)
    )
    failed = LeaseFailed(device="board:9", outcome=Outcome.INFRA_ERROR)
    looked_after = [c for _ in range(MAX_STRIKES) for c in of_kind(state.step(failed), LookAfter)]
    assert looked_after == [LookAfter(devices=("board:9",))]
    assert LookAfter(devices=()) in state.step(Readmitted(device="board:9"))
    failed = LeaseFailed(device="board:0", outcome=Outcome.INFRA_ERROR)
    commands = [command for _ in range(MAX_STRIKES) for command in state.step(failed)]
    assert LookAfter(devices=("board:0",)) in commands
    assert not of_kind(commands, Strand)


def test_nothing_is_looked_after_when_nothing_is_left_to_run() -> None:
    """Neither once the last cases run, nor after a stop."""
    expected = [LookAfter(devices=())]
    for fact in (Leased(device="board:1"), StopAsked()):
        state = EngineState(boards(2))
        prepared(state, batch("a"))
        for _ in range(MAX_STRIKES):
            state.step(LeaseFailed(device="board:0", outcome=Outcome.INFRA_ERROR))
        found = of_kind(state.step(fact), LookAfter)
        assert found == expected


def test_a_stop_ends_the_wait_for_a_device() -> None:
    """What waits for a device has not begun: it is dropped, and the device asked for no more."""
    state = EngineState(boards(1))
    state.start()
    prepared(state, batch("a"))
    state.step(LeaseAwaited(device="board:0"))
    commands = state.step(StopAsked())
    expected = [Drop(case="a"), Release(device="board:0")]
    assert of_kind(commands, Drop, Release) == expected


def test_what_is_built_and_not_run_is_bounded() -> None:
    """While no device comes, building stops once the window is full."""
    state = EngineState(boards(1, window=10))
    left = [batch(f"b{i}") for i in range(100)]
    commands = state.start()
    built: list[str] = []
    while commands:
        command = commands.pop(0)
        match command:
            case Ask(limit=limit):
                given, left = left[:limit], left[limit:]
                commands += state.step(BatchesPlanned(batches=tuple(given), exhausted=False))
            case Prepare(cases=cases):
                for case in cases:
                    key = BuildKey(case)
                    commands += state.step(CasePrepared(case=case, build=key, built=False))
                commands += state.step(AuthorFreed())
            case Build(cases=cases, worker=worker):
                built += cases
                for case in cases:
                    commands += state.step(CaseBuilt(case=case))
                commands += state.step(CompilerFreed(worker=worker))
            case Acquire(device=device):
                commands += state.step(LeaseAwaited(device=device))
            case _:
                raise AssertionError(command)
    expected = 10
    assert len(built) == expected
    assert len(left) == 90


# ---- order ----------------------------------------------------------------------------------


def test_what_is_expected_to_run_longest_goes_first() -> None:
    """The longest known case is started first, one of unknown length before it."""
    state = EngineState(boards(1))
    state.start()
    expected_s = {"short": 0.1, "long": 3.0, "middle": 1.0}
    names = ("short", "long", "unknown", "middle")
    prepared(state, *map(batch, names), expected_s=expected_s)
    order: list[str] = []
    commands = state.step(Leased(device="board:0"))
    while run := of_kind(commands, Run):
        assert isinstance(run[0], Run)
        (case,) = run[0].cases
        order.append(case)
        state.step(CaseFinished(case=case, device="board:0", seconds=1.0))
        commands = state.step(RunOver(device="board:0", held=True))
    expected = ["unknown", "long", "middle", "short"]
    assert order == expected


def test_short_cases_are_handed_over_together_within_a_devices_share() -> None:
    """Once cases are known to be short, a run has several, at most a device's share."""
    world = World(EngineState(boards(2, window=64)), [batch(f"b{i}") for i in range(200)])
    world.drive()
    longest = max(len(run.cases) for run in world.runs)
    expected = range(2, 33)
    assert longest in expected
    assert len(world.ended) == 200


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 8), (0.03, 4)])
def test_the_shortest_cases_are_handed_over_together_beyond_a_devices_share(
    seconds: float, most: int
) -> None:
    """Of 64 cases eight devices get eight of 1 ms at once, of longer ones each only half of its share."""
    state = EngineState(boards(8))
    state.start()
    prepared(state, *(batch(f"b{number}") for number in range(64)))
    runs = of_kind(state.step(Leased(device="board:0")), Run)
    sizes = []
    while runs:
        assert isinstance(runs[0], Run)
        sizes.append(len(runs[0].cases))
        for case in runs[0].cases:
            state.step(CaseFinished(case=case, device="board:0", seconds=seconds))
        runs = of_kind(state.step(RunOver(device="board:0", held=True)), Run)
    assert sum(sizes) == 64
    assert max(sizes) == most


@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
def test_long_cases_after_short_ones_are_shared_by_all_devices(*, is_known: bool) -> None:
    """The pace of the run is that of the short ones: that says nothing of a call that has not run."""
    state = EngineState(boards(8))
    state.start()
    prepared(state, *(batch(f"b{number}") for number in range(64)))
    commands = [one for number in range(8) for one in state.step(Leased(device=f"board:{number}"))]
    while runs := [one for one in commands if isinstance(one, Run)]:
        commands = []
        for run in runs:
            for case in run.cases:
                commands += state.step(CaseFinished(case=case, device=run.device, seconds=0.001))
            commands += state.step(RunOver(device=run.device, held=True))
    work = KernelWork(kernel="k", arguments={"size": 1 << 20})
    late = [Batch(id=name, cases=(Case(id=name, work=work),)) for name in "abcdefgh"]
    length_s = 9.0 if is_known else None
    ready = [
        CasePrepared(case=one.id, build=BuildKey(one.id), built=True, expected_s=length_s)
        for one in late
    ]
    state.step(BatchesPlanned(batches=tuple(late), exhausted=False))
    commands = state.step(*ready, *[AuthorFreed()] * 8)
    for device in boards(8).devices:
        commands += state.step(Leased(device=device))
    assert [len(run.cases) for run in commands if isinstance(run, Run)] == [1] * 8


def test_kernels_are_built_together_within_the_group_size() -> None:
    """A compile worker gets up to the group's size, and leaves the others their share."""
    state = EngineState(boards(1))
    state.start()
    state.step(BatchesPlanned(batches=tuple(batch(n) for n in "abcdefg"), exhausted=True))
    sizes: list[int] = []
    for name in "abcdefg":
        commands = state.step(CasePrepared(case=name, build=BuildKey(name), built=False, group=4))
        commands += state.step(AuthorFreed())
        sizes += [len(c.cases) for c in of_kind(commands, Build) if isinstance(c, Build)]
    freed = state.step(CompilerFreed(worker=0))
    sizes += [len(c.cases) for c in of_kind(freed, Build) if isinstance(c, Build)]
    expected = [1, 1, 3]
    assert sizes == expected


def test_only_kernels_of_one_builder_are_built_together() -> None:
    """Kernels of another side or target are built by a worker of their own, and overtaken meanwhile."""
    state = EngineState(boards(1, workers=(0,)))
    state.start()
    state.step(BatchesPlanned(batches=tuple(batch(n) for n in "abcd"), exhausted=True))
    commands: list[Command] = []
    for name, side in zip("abcd", ("", "base", "head", "base"), strict=True):
        fact = CasePrepared(
            case=name, build=BuildKey("same"), built=False, builder=(side, "cpu"), group=4
        )
        commands += state.step(fact, AuthorFreed())
    commands += state.step(CaseBuilt(case="a"), CompilerFreed(worker=0))
    commands += state.step(CaseBuilt(case="b"), CompilerFreed(worker=0))
    builds = [c.cases for c in of_kind(commands, Build) if isinstance(c, Build)]
    expected = [("a",), ("b",), ("c",)]
    assert builds == expected  # "d" is built with "b"


def test_a_case_runs_only_on_devices_of_its_target() -> None:
    """Each device is asked for what it can run, and what none is left for is given up alone."""
    devices = {"gpu": DeviceSite(), "slot": DeviceSite()}
    grounds = {("cuda", 1): frozenset({"gpu"}), ("command", 1): frozenset({"slot"})}
    state = EngineState(all_cores(devices=devices, grounds=grounds))
    state.start()
    kernel = Batch(id="k", cases=(Case(id="k", work=KernelWork(), target="cuda"),))
    program = Batch(id="p", cases=(Case(id="p", work=KernelWork(), target="command"),))
    commands = prepared(state, kernel, program)
    for _ in range(MAX_STRIKES):
        asked = {c.device: c.case for c in of_kind(commands, Acquire) if isinstance(c, Acquire)}
        assert asked.get("gpu", "k") == "k"
        assert asked.get("slot", "p") == "p"
        commands = state.step(LeaseFailed(device="gpu", outcome=Outcome.INFRA_ERROR))
    assert Strand(case="k", device="gpu") in commands
    assert not [c for c in commands if isinstance(c, Strand) and c.case == "p"]
    (run,) = of_kind(state.step(Leased(device="slot")), Run)
    assert run == Run(device="slot", cases=("p",))


def test_what_is_only_to_be_built_asks_for_no_device() -> None:
    """Such a case is laid on the shelf once its artifact is there."""
    state = EngineState(all_cores(devices={}, grounds={("cpu", 1): frozenset()}))
    state.start()
    case = Case(id="a", work=KernelWork(), until="built")
    commands = prepared(state, Batch(id="a", cases=(case,)))
    assert of_kind(commands, Keep, Acquire) == [Keep(case="a")]
    state.step(CaseFinished(case="a"))
    state.step(BatchesPlanned(batches=(), exhausted=True))
    assert state.is_idle


OWN, OTHER = frozenset({0}), frozenset({1})


def make_state(  # noqa: PLR0913 - each test changes one or two
    *names: str,
    cores: frozenset[int] = OWN,
    judge: frozenset[int] = OWN,
    timed: bool = True,
    is_one: bool = False,
    window: int = 16,
    exhausted: bool = True,
    room_bytes: int = 100,
    appetite: int = 0,
    burst: int = 8,
) -> EngineState:
    """A device with room for 100 bytes of outputs, and built cases whose outputs take 40 bytes each. Each is
    a batch of its own, unless all of them are one.
    """
    site = Site(
        workers=(min(judge),),
        devices={"d": DeviceSite(cores=cores, room_bytes=room_bytes, appetite=appetite)},
        author=judge,
        judge=judge,
        grounds={("cpu", 1): frozenset({"d"})},
        lanes=16,
        window=window,
        burst=burst,
    )
    state = EngineState(site)
    state.start()
    timing = TimingPolicy(group="g") if timed else None
    cases = [Case(id=name, work=KernelWork(kernel="k"), timing=timing) for name in names]
    planned = [Batch(id=case.id, cases=(case,)) for case in cases]
    if is_one:
        planned = [Batch(id="one", cases=tuple(cases))]
    state.step(BatchesPlanned(batches=tuple(planned), exhausted=exhausted))
    return state


def prepare(state: EngineState, *names: str) -> list[Command]:
    """All are prepared, and built already."""
    facts = [
        CasePrepared(case=name, build=BuildKey(name), built=True, expected_s=0.001, output_bytes=40)
        for name in names
    ]
    return state.step(*facts)


def run_well(state: EngineState, *names: str, is_rival: bool = True) -> list[Command]:
    """The device is done with these, and still ours."""
    facts = [
        CaseRanWell(
            case=name,
            device="d",
            seconds=0.001,
            is_kernel=True,
            is_rival=is_rival,
            unjudged_bytes=40,
        )
        for name in names
    ]
    return state.step(*facts, RunOver(device="d", held=True))


def runs(commands: Iterable[Command]) -> list[tuple[str, ...]]:
    """What is run."""
    return [command.cases for command in commands if isinstance(command, Run)]


def judged(commands: Iterable[Command]) -> list[tuple[str, ...]]:
    """What is judged."""
    return [command.cases for command in commands if isinstance(command, Judge)]


def begin(state: EngineState, *names: str) -> list[Command]:
    """Everything is ready, and the device is ours."""
    asked = [*prepare(state, *names), *state.step(*[AuthorFreed() for _ in names])]
    assert any(isinstance(command, Acquire) for command in asked)
    return state.step(Leased(device="d"))


def test_a_device_apart_goes_on_while_the_judge_compares() -> None:
    """The judge has cores of its own, so neither waits for the other."""
    state = make_state("a", "b", "c", "d", judge=OTHER)
    assert runs(begin(state, "a", "b", "c", "d")) == [("a",)]
    commands = run_well(state, "a")
    assert (runs(commands), judged(commands)) == ([("b",)], [("a",)])


def test_a_judge_waits_for_a_pause_of_the_device_on_its_cores() -> None:
    """The device runs nothing before the verdict, and the judge is asked nothing while it runs."""
    state = make_state("a", "b", "c", "d")
    begin(state, "a", "b", "c", "d")
    early = state.step(
        CaseRanWell(
            case="a",
            device="d",
            seconds=0.001,
            is_kernel=True,
            is_rival=True,
            unjudged_bytes=40,
        )
    )
    assert judged(early) == []
    commands = state.step(RunOver(device="d", held=True))
    assert (runs(commands), judged(commands)) == ([], [("a",)])
    assert state.take_pauses() == {"d": "judge"}
    assert runs(state.step(CaseFinished(case="a"))) == [("b",)]
    assert state.take_pauses() == {}


def test_a_device_that_paused_waits_for_a_burst_if_building_went_on() -> None:
    """On its cores, else each build would wait and run alone; the device is held unless waited for."""
    state = make_state("a", "b", "c", exhausted=False, burst=4)
    assert runs(begin(state, "a", "b", "c")) == [("a",)]
    assert judged(run_well(state, "a")) == [("a",)]
    assert state.take_pauses() == {"d": "judge"}
    later = [Case(id=name, work=KernelWork(kernel="k"), timing=TimingPolicy()) for name in "de"]
    batches = tuple(Batch(id=case.id, cases=(case,)) for case in later)
    unbuilt = [CasePrepared(case=name, build=BuildKey(name), built=False) for name in "de"]
    state.step(BatchesPlanned(batches=batches, exhausted=True))
    assert Build(cases=("d",), worker=0) in state.step(*unbuilt, AuthorFreed(), AuthorFreed())
    assert runs(state.step(CaseFinished(case="a"))) == []
    assert state.take_pauses() == {"d": "burst"}
    assert Linger(device="d") in state.step(LingerOver(device="d", is_wanted=False))
    assert Build(cases=("e",), worker=0) in state.step(CaseBuilt(case="d"), CompilerFreed(worker=0))
    assert runs(state.step(CaseBuilt(case="e"), CompilerFreed(worker=0))) != []


def test_what_is_not_timed_and_far_from_the_bound_pauses_nothing() -> None:
    """A device times nothing then, so the judge may use its cores beside it."""
    state = make_state("a", "b", "c", "d", timed=False)
    begin(state, "a", "b", "c", "d")
    commands = run_well(state, "a", is_rival=False)
    assert (runs(commands), judged(commands)) == ([("b",)], [("a",)])


@pytest.mark.parametrize("judge", [OWN, OTHER])
def test_a_device_waits_for_room(judge: frozenset[int]) -> None:
    """No more is run than has room: two cases of 40 bytes in 100, and the next once one is judged."""
    names = [f"c{number}" for number in range(8)]
    state = make_state(*names, judge=judge, timed=False)
    begin(state, *names)
    assert judged(run_well(state, "c0", is_rival=False)) == [("c0",)]
    commands = run_well(state, "c1", is_rival=False)
    assert (runs(commands), judged(commands)) == ([], [])
    commands = state.step(CaseFinished(case="c0"))
    assert (runs(commands), judged(commands)) == ([("c2",)], [("c1",)])


def test_a_device_that_waits_for_room_is_given_back_after_a_while() -> None:
    """It is asked for again once there is room, and not before."""
    names = [f"c{number}" for number in range(8)]
    state = make_state(*names, judge=OTHER, timed=False)
    begin(state, *names)
    run_well(state, "c0", is_rival=False)
    assert Linger(device="d") in run_well(state, "c1", is_rival=False)
    assert Release(device="d") in state.step(LingerOver(device="d"))
    assert not any(isinstance(command, Acquire) for command in state.step(Released(device="d")))
    commands = state.step(CaseFinished(case="c0"))
    assert any(isinstance(command, Acquire) for command in commands)
    assert runs(state.step(Leased(device="d"))) == [("c2",)]


@pytest.mark.parametrize("is_rival", [False, True])
@pytest.mark.parametrize("is_exhausted", [False, True])
def test_a_device_is_held_for_verdicts_that_more_may_follow(
    *, is_rival: bool, is_exhausted: bool
) -> None:
    """Times that spare others are waited for, as finals follow the last; other verdicts lead to nothing."""
    names = "abcd"
    state = make_state(*names, judge=OTHER, window=4, exhausted=is_exhausted, room_bytes=1000)
    begin(state, *names)
    for name in names:
        commands = run_well(state, name, is_rival=is_rival)
    expected = Linger if is_rival else Release
    assert expected(device="d") in commands


def test_finals_run_on_the_device_that_is_still_held() -> None:
    """It waits for the last verdict on shared cores, the source's answer, and while both are looked up."""
    state = make_state("a")
    begin(state, "a")
    commands = run_well(state, "a")
    assert judged(commands) == [("a",)]
    commands += state.step(CaseFinished(case="a"))
    finals = tuple(Case(id=name, work=KernelWork(kernel="k")) for name in "fg")
    batch = Batch(id="finals", cases=finals, order="interleaved")
    commands += state.step(BatchesPlanned(batches=(batch,), exhausted=True))
    commands += prepare(state, "f", "g")
    commands += state.step(AuthorFreed(), AuthorFreed(), NothingKnown(batch="finals"))
    assert not [one for one in commands if isinstance(one, Release | Acquire)]
    assert runs(commands) == [("f", "g")]


def test_a_batch_with_more_outputs_than_room_runs_in_parts() -> None:
    """Two cases of 40 bytes in 100; another once one of them is judged, and no case twice."""
    names = [f"c{number}" for number in range(4)]
    state = make_state(*names, judge=OTHER, timed=False, is_one=True)
    assert runs(begin(state, *names)) == [("c0", "c1")]
    commands = run_well(state, "c0", "c1", is_rival=False)
    assert (runs(commands), judged(commands)) == ([], [("c0", "c1")])
    assert runs(state.step(CaseFinished(case="c0"))) == [("c2",)]
    run_well(state, "c2", is_rival=False)
    assert runs(state.step(CaseFinished(case="c1"))) == [("c3",)]
    run_well(state, "c3", is_rival=False)
    state.step(CaseFinished(case="c2"))
    state.step(CaseFinished(case="c3"))
    assert not state.cases.stages


def test_what_hands_nothing_over_needs_no_room() -> None:
    """It is run although nothing else can be, and takes nothing else with it."""
    later = ["none", "c2", "c3", "c4"]
    state = make_state("c0", "c1", *later, judge=OTHER, timed=False, room_bytes=80, appetite=8)
    facts = [
        CasePrepared(
            case=name,
            build=BuildKey(name),
            built=True,
            expected_s=0.001,
            output_bytes=0 if name == "none" else 40,
        )
        for name in later
    ]
    prepare(state, "c0", "c1")
    assert runs(state.step(Leased(device="d"))) == [("c0", "c1")]
    state.step(*facts)
    assert runs(run_well(state, "c0", "c1", is_rival=False)) == [("none",)]


def test_the_rest_of_a_batch_in_parts_is_run_after_a_crash() -> None:
    """What the crashed runner did not reach goes on, beside what had no room."""
    names = [f"c{number}" for number in range(4)]
    state = make_state(*names, judge=OTHER, timed=False, is_one=True)
    begin(state, *names)
    state.step(CaseFinished(case="c0", device="d"), RunOver(device="d", held=False))
    assert runs(state.step(Leased(device="d"))) == [("c1", "c2")]
    run_well(state, "c1", "c2", is_rival=False)
    assert runs(state.step(CaseFinished(case="c1"))) == [("c3",)]


def test_a_device_that_waits_for_room_has_the_others_pause() -> None:
    """The judge needs a core that another device times on: that one pauses, although nothing else is due."""
    site = Site(
        workers=(0,),
        devices={
            "d": DeviceSite(room_bytes=100),
            "e": DeviceSite(cores=OWN, room_bytes=100),
        },
        author=OWN,
        judge=OWN,
        grounds={("cpu", 1): frozenset({"d"}), ("other", 1): frozenset({"e"})},
        lanes=16,
    )
    state = EngineState(site)
    state.start()
    work = KernelWork(kernel="k")
    cases = [Case(id=f"d{n}", work=work, timing=None) for n in range(3)]
    cases += [Case(id=f"e{n}", work=work, target="other") for n in range(3)]
    batches = tuple(Batch(id=case.id, cases=(case,)) for case in cases)
    state.step(BatchesPlanned(batches=batches, exhausted=True))
    for case in cases:
        size = 60 if case.target == "cpu" else 0
        state.step(
            CasePrepared(
                case=case.id,
                build=BuildKey(case.id),
                built=True,
                expected_s=0.1,
                output_bytes=size,
            )
        )
    state.step(*[AuthorFreed() for _ in cases])
    assert runs(state.step(Leased(device="e"))) == [("e0",)]
    assert runs(state.step(Leased(device="d"))) == [("d0",)]
    ran = CaseRanWell(case="d0", device="d", seconds=0.1, is_kernel=True, unjudged_bytes=45)
    full = state.step(ran, RunOver(device="d", held=True))
    assert (runs(full), judged(full)) == ([], [])
    commands = state.step(
        CaseFinished(case="e0", device="e", seconds=0.1), RunOver(device="e", held=True)
    )
    assert (runs(commands), judged(commands)) == ([], [("d0",)])
    assert sorted(runs(state.step(CaseFinished(case="d0")))) == [("d1",), ("e1",)]


def test_the_last_outputs_are_judged_once_the_device_is_given_back() -> None:
    """Nothing else is to run on it; then its cores are free."""
    state = make_state("a")
    begin(state, "a")
    commands = run_well(state, "a", is_rival=False)
    assert any(isinstance(command, Release) for command in commands)
    assert judged(commands) == [("a",)]
    state.step(Released(device="d"))
    assert not state.is_idle
    state.step(CaseFinished(case="a"))
    assert not state.cases.stages


def test_the_judge_has_one_question_at_a_time() -> None:
    """What runs meanwhile is in the next one, all together."""
    state = make_state("a", "b", "c", "d", judge=OTHER, timed=False)
    begin(state, "a", "b", "c", "d")
    assert judged(run_well(state, "a", is_rival=False)) == [("a",)]
    assert judged(state.step()) == []


def test_programs_are_judged_at_once() -> None:
    """Their own steps look at their outputs, whatever the judge does."""
    state = make_state("a", "b", timed=False)
    begin(state, "a", "b")
    assert judged(state.step(CaseRanWell(case="a", device="d", seconds=1.0))) == [("a",)]


def test_a_question_has_so_many_cases_and_bytes() -> None:
    """Large outputs are judged by themselves, so that their memory is free again soon."""
    unjudged = Unjudged({"d": 0}.__getitem__)
    for number in range(MAX_JUDGED + 1):
        unjudged.add(f"s{number}", "d", 0, is_rival=False)
    for name in ("x", "y"):
        unjudged.add(name, "d", QUESTION_BYTES, is_rival=False)
    questions = []
    while unjudged.is_waiting:
        questions.append(unjudged.take())
        for case in questions[-1]:
            unjudged.end(case)
    assert [len(question) for question in questions] == [MAX_JUDGED, 2, 1]
    assert not unjudged
