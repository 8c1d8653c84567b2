"""Outputs are judged by a process of its own, whatever happens to it, to runners and to the engine."""

import asyncio
import fcntl
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.simulated_yard import (
    FixedSource,
    drive,
    open_simulated_yard,
    plan_cases,
    simulated_devices,
)

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.events import CaseEnded, Event
from tileyard.base.model import (
    Batch,
    Case,
    CheckPolicy,
    KernelWork,
    Limits,
    Outcome,
    TimingPolicy,
    Trial,
    Value,
)
from tileyard.engine.driver import Driver
from tileyard.engine.judge import ATTEMPTS, HandedOver, JudgeProcess
from tileyard.workers import handing_over as outputs
from tileyard.workers.handing_over import OutputMemory, get_output
from tileyard.workers.protocol import CaseToJudge, Extent, Judged

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
MB = 1 << 18
"""Elements of a float32 output of one megabyte."""
TIMING = TimingPolicy(warmup_ns=0, min_sample_ns=1, group="g")


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Gives judges a fault; returns where they note what they are asked."""
    note = tmp_path / "asked"
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("TILEYARD_ODD_NOTE", str(note))

    def choose(fault: str) -> Path:
        monkeypatch.setenv("TILEYARD_ODD_JUDGE", fault)
        return note

    return choose


def ask(tmp_path: Path, count: int, limit_s: float, program: str = "odd_judge") -> list[Judged]:
    """What a judge says of so many cases, in one question: every second one is wrong."""
    objects = ObjectStore(tmp_path / "objects")
    golden = put_array(objects, np.ones(MB, np.float32))
    handed_over = HandedOver()
    memory = OutputMemory(handed_over.open("d"))
    cases = [
        CaseToJudge(
            outputs=(memory.put("out", np.full(MB, 1.0 + number % 2, np.float32)),),
            golden=(golden,),
            check=CheckPolicy(),
        )
        for number in range(count)
    ]

    async def talk() -> list[Judged]:
        judge = JudgeProcess(tmp_path, (), handed_over, program)
        try:
            return list(await judge.ask(cases, limit_s))
        finally:
            await judge.close()

    try:
        return asyncio.run(talk())
    finally:
        handed_over.close()


def run_cases(
    folder: Path,
    batches: Iterable[Batch],
    *,
    heard: Callable[[Driver, Event], None] = lambda driver, event: None,
    **changes: object,
) -> dict[str, Trial]:
    """The trials of a run on one simulated device."""
    source = FixedSource(iter(batches))

    async def follow() -> None:
        with open_simulated_yard(
            folder, simulated_devices(1, folder / "locks"), (0,), **changes
        ) as yard:
            driver = Driver(source, yard, "r")
            yard.listeners.append(lambda event: heard(driver, event))
            await drive(driver)

    asyncio.run(follow())
    return {trial.case: trial for trial in source.trials}


def configs(count: int, **fields: Value) -> Iterable[Mapping[str, Value]]:
    """So many that differ in nothing that matters."""
    return ({"n": number, **fields} for number in range(count))


def test_outputs_of_several_megabytes_are_compared_in_a_process_without_the_device(
    tmp_path: Path,
) -> None:
    """A wrong one is told with its worst element, and has no time although it was timed."""
    faults = ("", "wrong", "", "wrong")
    cases = plan_cases(
        ({"n": n, "size": 5 * MB, "fault": fault} for n, fault in enumerate(faults)),
        timing=TIMING,
    )
    trials = run_cases(tmp_path, cases)
    outcomes = [trial.outcome for _, trial in sorted(trials.items())]
    right, wrong = Outcome.PASSED, Outcome.MISMATCH
    assert outcomes == [right, wrong, right, wrong]
    for trial in trials.values():
        assert (trial.measurement is None) == (trial.outcome is wrong)
        assert (trial.mismatch is None) == (trial.outcome is right)


def test_members_of_finals_are_judged_after_all_were_timed(tmp_path: Path) -> None:
    """The wrong one is a mismatch, and the others keep their times."""
    cases = tuple(
        Case(
            id=f"f{n}",
            work=KernelWork(kernel="simulated", config={"n": n, "size": MB, "fault": fault}),
            target="simulated",
            limits=Limits(memory_bytes=0),
            timing=TIMING,
        )
        for n, fault in enumerate(("", "wrong", ""))
    )
    trials = run_cases(tmp_path, [Batch(id="finals", cases=cases, order="interleaved", rounds=4)])
    assert {name: trial.measurement is not None for name, trial in trials.items()} == {
        "f0": True,
        "f1": False,
        "f2": True,
    }
    assert trials["f1"].outcome is Outcome.MISMATCH


def test_a_judge_that_is_killed_is_replaced(odd: Callable[[str], Path], tmp_path: Path) -> None:
    """Its question is asked again, and nobody is blamed."""
    note = odd("die once")
    verdicts = ask(tmp_path, 4, 60.0)
    assert [verdict.outcome for verdict in verdicts] == 2 * [Outcome.PASSED, Outcome.MISMATCH]
    assert len(note.read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("fault", "limit_s", "message"),
    [("die", 60.0, "SIGKILL"), ("hang", 1.0, "limit of 1 s")],
)
def test_a_judge_that_gives_no_verdict_is_the_hosts_fault(
    fault: str, limit_s: float, message: str, odd: Callable[[str], Path], tmp_path: Path
) -> None:
    """It is asked twice more, and then that is said."""
    note = odd(fault)
    (verdict,) = ask(tmp_path, 1, limit_s)
    assert verdict.outcome is Outcome.INFRA_ERROR
    assert message in verdict.message
    assert len(note.read_text().splitlines()) == ATTEMPTS


def test_a_slow_judge_slows_the_device_down_and_fills_no_memory(
    odd: Callable[[str], Path], tmp_path: Path
) -> None:
    """No more is handed over than there is room for, and every case is judged."""
    odd("slow")
    handed_over = HandedOver(room_bytes=4 << 20)
    trials = run_cases(
        tmp_path,
        plan_cases(configs(40, size=MB)),
        judge="odd_judge",
        handed_over=handed_over,
    )
    assert {trial.outcome for trial in trials.values()} == {Outcome.PASSED}
    assert len(trials) == 40
    assert 0 < handed_over.peak_bytes <= 4 << 20


def follow_size(
    handed_over: HandedOver, folder: Path
) -> tuple[list[int], Callable[[Driver, Event], None]]:
    """The sizes of one device's memory whenever a case has ended, and the listener that takes them."""
    sizes: list[int] = []
    (memory,) = (handed_over.open(device.name) for device in simulated_devices(1, folder))

    def look(_: Driver, event: Event) -> None:
        if isinstance(event, CaseEnded):
            sizes.append(os.fstat(memory).st_size)

    return sizes, look


def test_a_batch_with_more_outputs_than_room_runs_in_parts(
    odd: Callable[[str], Path], tmp_path: Path
) -> None:
    """The memory grows no further than the room, and its pages are used again."""
    odd("slow")
    handed_over = HandedOver(room_bytes=4 << 20)
    sizes, look = follow_size(handed_over, tmp_path)
    cases = tuple(batch.cases[0] for batch in plan_cases(configs(20, size=MB)))
    whole = Batch(id="whole", cases=cases)
    trials = run_cases(tmp_path, [whole], heard=look, judge="odd_judge", handed_over=handed_over)
    assert {trial.outcome for trial in trials.values()} == {Outcome.PASSED}
    assert len(trials) == 20
    assert 0 < handed_over.peak_bytes <= 4 << 20
    assert max(sizes) == 4 << 20


def test_a_runner_hears_within_a_batch_what_was_judged(tmp_path: Path) -> None:
    """While it is at long cases the first ones are judged: not each that follows grows the memory."""
    handed_over = HandedOver()
    sizes, look = follow_size(handed_over, tmp_path)
    fields = [{"run_s": 0.5 if number >= 10 else 0.0} for number in range(20)]
    planned = plan_cases({"n": number, "size": MB, **each} for number, each in enumerate(fields))
    whole = Batch(id="whole", cases=tuple(batch.cases[0] for batch in planned))
    trials = run_cases(tmp_path, [whole], heard=look, handed_over=handed_over)
    assert {trial.outcome for trial in trials.values()} == {Outcome.PASSED}
    assert max(sizes) < 20 << 20


def test_what_ran_is_judged_when_the_run_is_stopped(
    odd: Callable[[str], Path], tmp_path: Path
) -> None:
    """Ctrl-C while outputs wait: they get their verdicts, and nothing else is begun. There is room for four:
    not all have run before the judge has begun.
    """
    odd("slow")
    room = HandedOver(room_bytes=4 << 20)

    def stop(driver: Driver, event: Event) -> None:
        if isinstance(event, CaseEnded) and event.trial.outcome is Outcome.PASSED:
            driver.stop()

    planned = plan_cases(configs(200, size=MB))
    trials = run_cases(tmp_path, planned, heard=stop, judge="odd_judge", handed_over=room)
    assert {trial.outcome for trial in trials.values()} == {Outcome.PASSED, Outcome.NOT_RUN}


def test_nothing_is_left_of_an_engine_that_is_killed(tmp_path: Path) -> None:
    """Runner and judge end with it, and with the last of them the memory of outputs, which has no name."""
    script = [sys.executable, "-m", "tests.faults.judged_engine", str(tmp_path)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, cwd=HERE.parents[1]) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"judged\n"
        tree = psutil.Process(engine.pid).children(recursive=True)
        engine.kill()
    assert tree
    _, alive = psutil.wait_procs(tree, timeout=20)
    assert alive == []


def study(number: int) -> list[Batch]:
    """Four configs of one group, in an order of its own: the fastest is wrong, and the last two lose."""
    chance = random.Random(number)
    timing = TimingPolicy(warmup_ns=0, min_sample_ns=1, group=f"g{number}")
    fields: list[dict[str, Value]] = [
        {"sample_ns": 100.0, "fault": "wrong"},
        {"sample_ns": 1000.0},
        {"sample_ns": 1500.0},
        {"sample_ns": 3000.0},
    ]
    names = [f"s{number:03}-{place}" for place in range(4)]
    batches = [
        Batch(
            id=name,
            cases=(
                Case(
                    id=name,
                    work=KernelWork(kernel="simulated", config={"n": number, **each}),
                    target="simulated",
                    limits=Limits(memory_bytes=0),
                    timing=timing,
                ),
            ),
        )
        for name, each in zip(names, fields, strict=True)
    ]
    chance.shuffle(batches)
    return batches


def test_a_wrong_config_that_is_fast_pushes_out_no_right_one(tmp_path: Path) -> None:
    """In each of 100 studies the fastest config is wrong: the best right one is fully measured, and wins."""
    trials = run_cases(tmp_path, [batch for number in range(100) for batch in study(number)])
    for number in range(100):
        wrong, best, *others = (trials[f"s{number:03}-{place}"] for place in range(4))
        assert wrong.outcome is Outcome.MISMATCH
        assert best.measurement is not None
        assert not best.measurement.abandoned
        for other in others:
            assert other.measurement is not None
            assert other.measurement.median_ns > best.measurement.median_ns


def test_memory_is_used_again(tmp_path: Path) -> None:
    """Where outputs were judged others are put; what is taken is left alone, and judged as it was."""
    handed_over = HandedOver()
    try:
        memory = OutputMemory(handed_over.open("d"))
        first, second = (memory.put(name, np.ones(MB, np.float32)) for name in "ab")
        assert first.extent == Extent(start=0, size=1 << 20)
        assert second.extent is not None
        memory.begin([second.extent])
        third, fourth = (memory.put(name, np.ones(MB, np.float32)) for name in "cd")
        assert third.extent == first.extent
        assert fourth.extent == Extent(start=2 << 20, size=1 << 20)
    finally:
        handed_over.close()


def test_outputs_that_were_made_in_the_memory_are_not_copied(tmp_path: Path) -> None:
    """What a kernel wrote there the judge reads; what was not handed over takes no room."""
    handed_over = HandedOver()
    try:
        memory = OutputMemory(handed_over.open("d"))
        _, made = (memory.allocate((MB,), np.dtype(np.float32)) for _ in range(2))
        made[:] = 3.0
        handed = memory.put("out", made)
        assert handed.extent == Extent(start=1 << 20, size=1 << 20)
        assert (get_output(handed) == np.float32(3.0)).all()
        memory.turn_to("")
        assert memory.put("next", np.ones(MB, np.float32)).extent == Extent(start=0, size=1 << 20)
    finally:
        handed_over.close()


def test_an_output_that_is_not_mapped_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others are mapped already the system writes it, and may take less than it is given."""
    write, memory = os.pwrite, HandedOver()
    monkeypatch.setattr(outputs, "MAPPED_BYTES", 0)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:100_000], at))
    try:
        array = np.arange(MB, dtype=np.float32)
        handed = OutputMemory(memory.open("d")).put("out", array)
        assert (get_output(handed) == array).all()
    finally:
        memory.close()


def test_nothing_writes_to_what_was_handed_over() -> None:
    """Neither the kernel that made it nor a later one: it dies."""
    script = """if True:
        import os
        import numpy as np
        from tileyard.workers.handing_over import OutputMemory
        memory = OutputMemory(os.memfd_create("outputs"))
        made = memory.allocate((1 << 18,), np.dtype(np.float32))
        made[:] = 3.0
        memory.put("out", made)
        print("handed over", flush=True)
        made[0] = 4.0
        print("written")
    """
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "handed over\n")


def test_what_is_judged_within_a_batch_is_used_again(tmp_path: Path) -> None:
    """Only that: the others of the batch keep their room, whatever is mapped."""
    handed_over = HandedOver()
    try:
        memory = OutputMemory(handed_over.open("d"))
        memory.begin([])
        put = {}
        for name in "abc":
            memory.turn_to(name)
            put[name] = memory.put("out", np.full(MB, ord(name), np.float32))
        memory.free(("b", "not of this batch"))
        assert memory.unmap()
        memory.turn_to("d")
        put["d"] = memory.put("out", np.full(MB, ord("d"), np.float32))
        assert put["d"].extent == put["b"].extent
        for name in "acd":
            assert (get_output(put[name]) == np.float32(ord(name))).all()
    finally:
        handed_over.close()


def test_memory_that_is_not_to_be_had_is_the_cases_lack_of_memory(tmp_path: Path) -> None:
    """A file of no size that may not grow stands for a host without memory."""
    descriptor = os.memfd_create("full", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    try:
        with pytest.raises(MemoryError, match="no memory to keep outputs in"):
            OutputMemory(descriptor).put("out", np.ones(MB, np.float32))
    finally:
        os.close(descriptor)
