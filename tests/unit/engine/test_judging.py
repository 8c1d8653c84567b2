"""Cases that somebody judges after they ran: the device goes on meanwhile, and nothing is lost."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.simulated_yard import FixedSource, open_simulated_yard

from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import run_key
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    CommandWork,
    Device,
    Digest,
    GoldenKey,
    Mismatch,
    Outcome,
    Step,
    Trial,
)
from tileyard.engine.cases import Site, Stage
from tileyard.engine.commands import (
    Acquire,
    BatchesPlanned,
    CaseFinished,
    CasePrepared,
    CaseRanWell,
    Leased,
    Run,
    RunOver,
    StopAsked,
)
from tileyard.engine.driver import Driver
from tileyard.engine.judge import conclude
from tileyard.engine.lending import DeviceSite
from tileyard.engine.provider import Slot, Waiting, Watch
from tileyard.engine.state import EngineState
from tileyard.engine.yard import Yard
from tileyard.workers.protocol import CaseRan, CommandRun, Failed, Golden, Judged, RunEntry

BUILD, GOLDEN = BuildKey("b" * 40), GoldenKey("a" * 40)
WORK = CommandWork(run=Step(argv=("x",)))
DEVICE = Device(name="slot:0", kind="slot", identity="anonymous slot")


class World:
    """Programs that are judged, and one slot that runs them; both note what they do, and may wait."""

    lanes = 2
    cores: tuple[int, ...] = (0,)
    appetite = 0
    device = DEVICE

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.noted = asyncio.Event()
        self.outcomes: dict[str, list[Outcome]] = {}
        self.verdicts: dict[str, Judged | Failed] = {}
        self.before_judging: Callable[[str], str] = lambda case: ""
        self.slots: Sequence[Slot] = (self,)

    def note(self, text: str) -> None:
        """Something happened."""
        self.notes.append(text)
        self.noted.set()

    async def wait_for(self, text: str) -> None:
        """Wait until it has."""
        while text not in self.notes:
            self.noted.clear()
            await self.noted.wait()

    async def judge(self, case: Case, work: CommandWork, build: BuildKey) -> Judged | Failed:
        """Judge a case, once what it waits for has happened."""
        self.note(f"judge {case.id}")
        if waits_for := self.before_judging(case.id):
            await self.wait_for(waits_for)
        return self.verdicts.get(case.id, Judged(outcome=Outcome.PASSED))

    async def make_golden(self, case: Case, work: CommandWork, known: Digest) -> Golden:
        """What its late steps rest on, here."""
        return Golden(key=GOLDEN, inputs=(), outputs=(), tree=known)

    async def open(self) -> None:
        """The provider has nothing to open."""

    def withdraw(self) -> None:
        """A stop was asked for."""
        self.note("withdraw")

    async def close(self) -> None:
        """Author and provider hold nothing."""

    async def warm(self) -> None:
        """The slot needs nothing."""

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Always free."""
        return 0

    async def release(self) -> None:
        """Nothing is held."""

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Say that each ran, or what else it came to."""
        for entry in entries:
            watch.began(entry.case)
            self.note(f"run {entry.case}")
            await asyncio.sleep(0)
            left = self.outcomes.get(entry.case, [])
            outcome = left.pop(0) if left else Outcome.UNCHECKED
            watch.ran(
                CaseRan(case=entry.case, outcome=outcome, seconds=0.5, message="ran"),
                DEVICE.name,
                0,
            )
        return True


def find_entry(case: Case) -> RunEntry:
    """What was packed for a case."""
    command = CommandRun(
        name=case.id, run=Step(argv=("x",)), folder=case.id, is_judged=True, own_build="own"
    )
    golden = Golden(key=GOLDEN, inputs=(), outputs=())
    return RunEntry(
        case=case.id,
        build=BUILD,
        golden=golden,
        specs=(),
        scalars=(),
        log=f"logs/{case.id}.log",
        command=command,
    )


def batches(*names: str) -> list[Batch]:
    """One for each case."""
    cases = [Case(id=n, work=WORK, target="simulated", testcase="t", timing=None) for n in names]
    return [Batch(id=case.id, cases=(case,)) for case in cases]


@contextmanager
def open_yard(folder: Path, world: World, **changes: object) -> Iterator[Yard]:
    """A yard whose cases were built elsewhere, and are judged by this author."""
    fields: dict[str, object] = {"reuse": False, "packed": find_entry, **changes}
    with open_simulated_yard(folder, [DEVICE], (0,), **fields) as yard:
        yard.programs = cast(Any, world)
        manifest = Manifest(
            kernel="t",
            target="simulated",
            fingerprint="f",
            build=BUILD,
            binary="",
            files={},
            details="",
        )
        publish(manifest, yard.objects)
        yield yard


def drive(
    folder: Path,
    world: World,
    *names: str,
    stop_at: str = "",
    run: str = "r",
    **changes: object,
) -> dict[str, Trial]:
    """The trials of a run; it is stopped once something has been noted."""

    async def follow(yard: Yard) -> None:
        driver = Driver(source, yard, run, world)

        async def stop() -> None:
            await world.wait_for(stop_at)
            driver.stop()

        await driver.open()
        stopping = asyncio.create_task(stop()) if stop_at else None
        try:
            async with asyncio.timeout(10):
                async for _ in driver.trials():
                    pass
        finally:
            await driver.close()
            if stopping is not None:
                await stopping

    source = FixedSource(iter(batches(*names)))
    with open_yard(folder, world, **changes) as yard:
        asyncio.run(follow(yard))
    return {trial.case: trial for trial in source.trials}


def test_the_device_runs_the_next_case_while_one_is_judged(tmp_path: Path) -> None:
    """The verdict on the first case waits for the second one to run, and comes all the same."""
    world = World()
    world.before_judging = {"a": "run b"}.get  # type: ignore[assignment]  # None is as good as ""
    trials = drive(tmp_path, world, "a", "b")
    assert {trial.outcome for trial in trials.values()} == {Outcome.PASSED}
    assert (trials["a"].device, trials["a"].run_s) == ("slot:0", 0.5)
    assert trials["a"].message == "ran"


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (Judged(outcome=Outcome.MISMATCH, message="o[1] is 2"), "o[1] is 2"),
        (Failed(message="check step: no", outcome=Outcome.RUNTIME_ERROR), "check step: no"),
        (Judged(outcome=Outcome.PASSED, message="wrote 1 line"), "ran; wrote 1 line"),
    ],
)
def test_the_verdict_ends_the_case(verdict: Judged | Failed, message: str, tmp_path: Path) -> None:
    """With what was said of it, and of the run where that was well."""
    world = World()
    world.verdicts["a"] = verdict
    trial = drive(tmp_path, world, "a")["a"]
    assert (trial.outcome, trial.message) == (verdict.outcome, message)


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT])
def test_what_did_not_run_well_is_not_judged(outcome: Outcome, tmp_path: Path) -> None:
    """Its outputs prove nothing."""
    world = World()
    world.outcomes["a"] = [outcome]
    trial = drive(tmp_path, world, "a")["a"]
    assert trial.outcome is outcome
    assert world.notes == ["run a"]


def test_a_case_that_its_device_failed_is_judged_once_it_ran(tmp_path: Path) -> None:
    """Each failed attempt is kept, and only the last run is judged."""
    world = World()
    world.outcomes["a"] = [Outcome.INFRA_ERROR, Outcome.INFRA_ERROR]
    trial = drive(tmp_path, world, "a")["a"]
    assert trial.outcome is Outcome.PASSED
    assert [attempt.message for attempt in trial.attempts] == ["ran", "ran"]
    assert world.notes == ["run a", "run a", "run a", "judge a"]


def test_a_case_that_is_judged_is_finished_when_the_run_is_stopped(tmp_path: Path) -> None:
    """It ran, so its verdict counts; what was not begun is not run."""
    world = World()
    world.before_judging = lambda case: "withdraw"
    names = [f"c{number:02}" for number in range(40)]
    trials = drive(tmp_path, world, *names, stop_at="judge c00")
    outcomes = [trials[name].outcome for name in names if name in trials]
    assert outcomes[0] is Outcome.PASSED
    assert set(outcomes) == {Outcome.PASSED, Outcome.NOT_RUN}


def test_keys_of_what_was_packed_follow_its_own_build(tmp_path: Path) -> None:
    """A case that passed is proven by what was packed, whatever its name; nothing is elaborated or built."""
    world = World()
    expected = run_key(BuildKey(""), GOLDEN, Case(id="a", work=WORK).check)
    first = drive(tmp_path, world, "t/a", run="first")["t/a"]
    second = drive(tmp_path, world, "t/b", run="second", proven_by="any")["t/b"]
    assert (first.keys.build, first.keys.golden, first.keys.run) == (BUILD, GOLDEN, expected)
    assert (second.outcome, second.message) == (Outcome.SKIPPED, "proven by run first")
    assert world.notes == ["run t/a", "judge t/a"]


# ---- decisions ---------------------------------------------------------------------------------


def running_state() -> EngineState:
    """A device that runs case ``a`` while ``b`` is ready."""
    site = Site(
        workers=(),
        devices={"d": DeviceSite()},
        author=frozenset(),
        grounds={("simulated", 1): frozenset({"d"})},
        lanes=2,
    )
    state = EngineState(site)
    state.start()
    plan = BatchesPlanned(batches=tuple(batches("a", "b")), exhausted=True)
    facts = [CasePrepared(case=c, build=BUILD, built=True, expected_s=1.0) for c in ("a", "b")]
    first = state.step(plan)
    asked = state.step(*facts)
    assert any(isinstance(command, Acquire) for command in (*first, *asked))
    (run,) = (c for c in state.step(Leased(device="d")) if isinstance(c, Run))
    assert run.cases == ("a",)
    return state


def test_a_device_is_free_for_others_once_its_case_ran_well() -> None:
    """The case is being judged, and the run is not over before that is."""
    state = running_state()
    state.step(CaseRanWell(case="a", device="d", seconds=1.0))
    commands = state.step(RunOver(device="d", held=True))
    assert state.cases.stages["a"] is Stage.JUDGING
    assert [c.cases for c in commands if isinstance(c, Run)] == [("b",)]
    state.step(CaseFinished(case="b", device="d", seconds=1.0), RunOver(device="d", held=False))
    seen = [state.is_idle]
    state.step(CaseFinished(case="a"))
    seen.append(state.is_idle or bool(state.cases.stages))
    assert seen == [False, False]


def test_a_case_that_is_judged_is_neither_run_again_nor_dropped() -> None:
    """Not when its device is lost, and not when the run is stopped."""
    state = running_state()
    state.step(CaseRanWell(case="a", device="d", seconds=1.0))
    commands = [*state.step(RunOver(device="d", held=False)), *state.step(StopAsked())]
    named = {getattr(command, "case", None) for command in commands}
    assert state.cases.stages["a"] is Stage.JUDGING
    assert "a" not in named
    assert "b" in named


def test_right_outputs_that_a_further_run_changed_are_a_mismatch() -> None:
    """With the run's message and no time; a wrong result and a failure to judge are what they are."""
    changed = Mismatch(output="Y", index=(1,), got="2", want="1", wrong=1, total=4)
    ran = CaseRan(
        case="a",
        outcome=Outcome.UNCHECKED,
        seconds=1.0,
        message="1 of 4 elements of Y depend",
        mismatch=changed,
    )
    ended = conclude(ran, Judged(outcome=Outcome.PASSED))
    expected = (Outcome.MISMATCH, ran.message, changed)
    assert (ended.outcome, ended.message, ended.mismatch) == expected
    wrong = conclude(ran, Judged(outcome=Outcome.MISMATCH, message="Y[0] is 3"))
    assert (wrong.outcome, wrong.message, wrong.mismatch) == (Outcome.MISMATCH, "Y[0] is 3", None)
    lost = conclude(ran, Failed(message="gone", outcome=Outcome.INFRA_ERROR))
    assert (lost.outcome, lost.message, lost.mismatch) == (Outcome.INFRA_ERROR, "gone", None)
