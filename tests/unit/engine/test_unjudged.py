"""When kernels' outputs are judged: beside a device, in its pauses, and never on cores that are timed."""

from collections.abc import Iterable

import pytest

from tileyard.base.model import Batch, BuildKey, Case, KernelWork, TimingPolicy
from tileyard.engine.commands import (
    Acquire,
    AuthorFreed,
    BatchesPlanned,
    Build,
    CaseBuilt,
    CaseFinished,
    CasePrepared,
    CaseRanWell,
    Command,
    CompilerFreed,
    Judge,
    Leased,
    Linger,
    LingerOver,
    NothingKnown,
    Release,
    Released,
    Run,
    RunOver,
)
from tileyard.engine.lending import DeviceSite
from tileyard.engine.stages import Site
from tileyard.engine.state import EngineState
from tileyard.engine.unjudged import MAX_JUDGED, QUESTION_BYTES, Unjudged

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
    assert runs(state.step(CaseFinished(case="a"))) == [("b",)]


def test_a_device_that_paused_waits_for_a_burst_if_building_went_on() -> None:
    """On its cores, else each build would wait and run alone; the device is held unless waited for."""
    state = make_state("a", "b", "c", exhausted=False, burst=4)
    assert runs(begin(state, "a", "b", "c")) == [("a",)]
    assert judged(run_well(state, "a")) == [("a",)]
    later = [Case(id=name, work=KernelWork(kernel="k"), timing=TimingPolicy()) for name in "de"]
    batches = tuple(Batch(id=case.id, cases=(case,)) for case in later)
    unbuilt = [CasePrepared(case=name, build=BuildKey(name), built=False) for name in "de"]
    state.step(BatchesPlanned(batches=batches, exhausted=True))
    assert Build(cases=("d",), worker=0) in state.step(*unbuilt, AuthorFreed(), AuthorFreed())
    assert runs(state.step(CaseFinished(case="a"))) == []
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
    unjudged = Unjudged({"d": 0})
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
