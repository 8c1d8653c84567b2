"""Cases on CPUs of several kinds: each is built for one of them, and goes to another if that is lost."""

from collections import Counter

import pytest
from tests.unit.engine.test_state import World, all_cores, batch, of_kind

from tileyard.base.model import Batch, BuildKey, Outcome
from tileyard.engine.cases import MAX_MOVES, Site
from tileyard.engine.commands import (
    Acquire,
    AuthorFreed,
    BatchesPlanned,
    Build,
    BuildLost,
    CaseFinished,
    CasePrepared,
    Command,
    CompilerFreed,
    Drop,
    Fact,
    Joined,
    LeaseFailed,
    LookAfter,
    Place,
    Prepare,
    Readmitted,
    Run,
    Strand,
)
from tileyard.engine.compilers import depends_on_cpu
from tileyard.engine.lending import MAX_STRIKES, DeviceSite
from tileyard.engine.state import EngineState

DEVICES = {"old": ("cpu:0@a", "cpu:0@b"), "new": ("cpu:0@c",)}


def two_kinds(**changes: object) -> Site:
    """Three hosts, two of one kind."""
    changes.setdefault("lanes", 8)
    return all_cores(
        devices={name: DeviceSite() for names in DEVICES.values() for name in names},
        kinds={"cpu": {kind: frozenset(names) for kind, names in DEVICES.items()}},
        **changes,
    )


def batches_of(*names: str) -> tuple[Batch, ...]:
    """Batches of a test, which times nothing."""
    return tuple(batch(name, timed=False) for name in names)


def place_of(commands: list[Command]) -> dict[str, str]:
    """The kind of each case that is placed, the last one if it is placed again."""
    return {case: one.kind for one in commands if isinstance(one, Place) for case in one.cases}


def planned(state: EngineState, *batches: Batch) -> list[Command]:
    """Plan batches; the commands."""
    state.start()
    return state.step(BatchesPlanned(batches=batches, exhausted=True))


def prepared(case: str, *, built: bool = False) -> CasePrepared:
    """A case is prepared."""
    return CasePrepared(case=case, build=BuildKey(case), built=built)


class Kinds(World):
    """A world that loses all hosts of one kind after some builds: no build and no lease succeeds there."""

    def __init__(self, batches: list[Batch], seed: int, builds: int) -> None:
        super().__init__(EngineState(two_kinds(window=8)), batches, seed)
        self.kind_of: dict[str, str] = {}
        self.builds_left = builds

    @property
    def is_lost(self) -> bool:
        """Whether the hosts of the second kind are gone."""
        return self.builds_left <= 0

    def _look(self) -> None:
        self.kind_of |= place_of(self.under_way)  # at once, as the driver does
        self.under_way = [one for one in self.under_way if not isinstance(one, Place | LookAfter)]
        super()._look()

    def _facts(self, command: Command) -> list[Fact]:
        match command:
            case Build(cases=cases, worker=worker):
                facts: list[Fact] = []
                for case in cases:
                    is_there = self.kind_of[case] == "new"
                    self.builds_left -= is_there
                    lost = is_there and self.is_lost
                    facts.append(BuildLost(case=case) if lost else self._build(case))
                return [*facts, CompilerFreed(worker=worker)]
            case Acquire(device=device) if device in DEVICES["new"] and self.is_lost:
                return [LeaseFailed(device=device, outcome=Outcome.INFRA_ERROR)]
            case Run(cases=cases, device=device):
                assert {device in DEVICES[self.kind_of[case]] for case in cases} == {True}
        return super()._facts(command)


@pytest.mark.parametrize("seed", range(6))
def test_every_case_ends_once_whatever_is_lost(seed: int) -> None:
    """On a device of the kind for which it is built; none is given up as long as one kind is there."""
    batches = [batch(f"b{i}", f"b{i}.1", f"b{i}.2", timed=False) for i in range(15)]
    expected = Counter(case.id for one in batches for case in one.cases)
    world = Kinds(batches, seed, builds=seed)
    world.drive()
    assert Counter(world.ended) == expected
    assert world.state.is_idle
    ran = Counter(case for run in world.runs for case in run.cases)
    assert ran == expected


def test_kinds_get_batches_in_proportion_to_their_devices() -> None:
    """Each batch is placed before any of its cases is prepared."""
    state = EngineState(two_kinds())
    commands = planned(state, *batches_of(*"abcdef"))
    expected = {"old": 4, "new": 2}
    assert Counter(place_of(commands).values()) == expected
    first = next(i for i, one in enumerate(commands) if isinstance(one, Prepare))
    assert not of_kind(commands[first:], Place)


def test_a_kind_whose_batches_end_gets_the_next_ones() -> None:
    """Also beyond its share of the devices."""
    state = EngineState(two_kinds())
    placed = place_of(planned(state, *batches_of("a", "b", "c")))
    for case in ("c", "d"):
        assert placed[case] == "new"
        state.step(CaseFinished(case=case), AuthorFreed())
        following = batches_of(chr(ord(case) + 1))
        placed |= place_of(state.step(BatchesPlanned(batches=following, exhausted=True)))
    assert placed["e"] == "new"


def test_what_is_built_for_cpus_depends_on_their_kind() -> None:
    """Also what plugins build, but neither programs nor kernels for GPUs."""
    targets = ("cpu", "cpu:native,shift=16", "plugin", "cuda:sm_90a", "command", "sim")
    assert [*filter(depends_on_cpu, targets)] == ["cpu", "cpu:native,shift=16", "plugin"]


def test_targets_of_one_kind_are_not_placed() -> None:
    """Neither where all CPUs are of one kind, nor what is built for another target."""
    site = two_kinds()
    one = all_cores(devices=site.devices)
    assert not of_kind(planned(EngineState(one), *batches_of("a")), Place)
    elsewhere = all_cores(devices=site.devices, kinds={"other": site.kinds["cpu"]})
    assert not of_kind(planned(EngineState(elsewhere), *batches_of("a")), Place)


def lose_build_of(state: EngineState, case: str) -> list[Command]:
    """Have a case built, for whose kind no host is left."""
    commands = state.step(prepared(case), AuthorFreed())
    (build,) = of_kind(commands, Build)
    assert isinstance(build, Build)
    return state.step(BuildLost(case=case), CompilerFreed(worker=build.worker))


def test_what_no_host_builds_goes_to_another_kind_until_one_is_back() -> None:
    """The devices of the lost kind are looked after; meanwhile it gets no batch."""
    state = EngineState(two_kinds())
    placed = place_of(planned(state, *batches_of("a", "b", "c")))
    (case,) = (one for one, kind in placed.items() if kind == "new")
    commands = lose_build_of(state, case)
    assert place_of(commands) == {case: "old"}
    assert Prepare(cases=(case,)) in commands
    assert LookAfter(devices=DEVICES["new"]) in commands
    more = state.step(BatchesPlanned(batches=batches_of(*"defg"), exhausted=True))
    assert {*place_of(more).values()} == {"old"}
    commands = state.step(Readmitted(device=DEVICES["new"][0]))
    assert LookAfter(devices=()) in commands
    many = state.step(BatchesPlanned(batches=batches_of(*"hijk"), exhausted=True))
    assert {*place_of(many).values()} == {*DEVICES}


def test_a_lost_kind_is_back_with_a_further_host_that_joins() -> None:
    """Its devices need not be those that were lost."""
    state = EngineState(two_kinds())
    placed = place_of(planned(state, *batches_of("a", "b", "c")))
    lose_build_of(state, next(one for one, kind in placed.items() if kind == "new"))
    further = "cpu:0@d"
    devices = {**DEVICES, "new": (*DEVICES["new"], further)}
    joined = Joined(
        devices={further: DeviceSite()},
        grounds={("cpu", 1): frozenset({further})},
        kinds={"cpu": {kind: frozenset(names) for kind, names in devices.items()}},
        workers=state.site.workers,
        window=state.site.window,
    )
    assert LookAfter(devices=()) in state.step(joined)
    many = state.step(BatchesPlanned(batches=batches_of(*"hijk"), exhausted=True))
    assert {*place_of(many).values()} == {*DEVICES}


def test_without_another_kind_a_case_is_given_up() -> None:
    """With a reason that is not a device's."""
    state = EngineState(two_kinds())
    placed = place_of(planned(state, *batches_of("a", "b", "c")))
    (first,) = (case for case, kind in placed.items() if kind == "new")
    assert place_of(lose_build_of(state, first))[first] == "old"
    second = next(case for case, kind in placed.items() if kind == "old")
    commands = lose_build_of(state, second)
    assert of_kind(commands, Strand, Drop) == [Strand(case=second, device="")]
    assert not of_kind(commands, Place)
    assert not of_kind(state.step(CaseFinished(case=second)), Strand, Place)


def test_what_no_kind_builds_does_not_go_back_and_forth_for_ever() -> None:
    """Although the hosts of each kind seem to be back whenever those of the other have failed."""
    state = EngineState(two_kinds())
    kinds = [*place_of(planned(state, *batches_of("a"))).values()]
    commands: list[Command] = []
    while not of_kind(commands, Strand):
        assert len(kinds) <= 1 + MAX_MOVES
        commands = lose_build_of(state, "a")
        kinds += place_of(commands).values()
        for looked_after in of_kind(commands, LookAfter):
            assert isinstance(looked_after, LookAfter)
            state.step(*(Readmitted(device=device) for device in looked_after.devices))
    assert kinds == ["old", "new", "old", "new", "old"]


def test_what_is_built_for_devices_that_are_given_up_is_built_anew() -> None:
    """Cases that wait, also built ones, are placed again; none is stranded."""
    state = EngineState(two_kinds())
    cases = tuple(f"c{number}" for number in range(6))
    placed = place_of(planned(state, *batches_of(*cases)))
    commands = []
    for case in cases:
        commands += state.step(prepared(case, built=True), AuthorFreed())
    failed = DEVICES["new"][0]
    moved: dict[str, str] = {}
    for _ in range(MAX_STRIKES):
        assert Acquire in {type(one) for one in commands if getattr(one, "device", "") == failed}
        commands = state.step(LeaseFailed(device=failed, outcome=Outcome.INFRA_ERROR))
        moved |= place_of(commands)
    assert moved == {case: "old" for case, kind in placed.items() if kind == "new"}
    assert moved
    again = {case for one in commands if isinstance(one, Prepare) for case in one.cases}
    assert again == {*moved}
    assert not of_kind(commands, Strand)
