"""What the driver makes of a slot's word: leases that are over, cases that were lost."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.run_records import remember_run
from tests.simulated_yard import open_simulated_yard

from tileyard.artifacts.objects import measurement_key
from tileyard.base.events import DeviceAsked, DeviceLeased, DeviceReleased, Event
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    Device,
    Elaborated,
    GoldenKey,
    Kernel,
    KernelWork,
    Keys,
    Measurement,
    Outcome,
    RunKey,
    SourceLine,
    TimingPolicy,
    Trial,
)
from tileyard.devices.occupancy import parts_of
from tileyard.engine.borrowing import Borrower
from tileyard.engine.commands import (
    CaseFinished,
    CaseLost,
    Fact,
    Leased,
    LeaseFailed,
    LingerOver,
    RunOver,
)
from tileyard.engine.ledger import Ledger, Progress, RanOn
from tileyard.engine.provider import LeaseLostError, Waiting, Watch
from tileyard.engine.yard import Yard
from tileyard.processes.keeper.deciding import Choice, Wish
from tileyard.processes.keeper.holding import LeaseFacts
from tileyard.processes.keeper.ticket import Ticket
from tileyard.workers.protocol import CaseRan, Golden, RunEntry
from tileyard.workers.run_records import RunRecord

BOARDS = tuple(Device(name=f"board:{n}", kind="board", identity=f"silicon {n}") for n in range(2))


class ToldSlot:
    """A slot that answers as it is told: outcome and lease of each case, or a loss."""

    appetite = 0

    def __init__(self, device: Device, answers: Sequence[tuple[Outcome, int]]) -> None:
        self.device = device
        self._answers = answers
        self.warmed = 0

    async def warm(self) -> None:
        """Count."""
        self.warmed += 1

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Always under lease 7."""
        return 7

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Answer for as many entries as there are answers."""
        if not self._answers:
            raise LeaseLostError("gone before it began")
        for entry, (outcome, lease) in zip(entries, self._answers, strict=False):
            watch.began(entry.case)
            reply = CaseRan(case=entry.case, outcome=outcome, seconds=0.5, message="told so")
            watch.ran(reply, self.device.name, lease)
        return True

    async def release(self) -> None:
        """Nothing is held."""


def judge_nothing(progress: Progress, ran: RanOn) -> None:
    """Kernels are judged by their runner."""
    raise AssertionError(f"case {progress.case.id} was handed to a judge")


def open_cases(ledger: Ledger, count: int) -> list[Progress]:
    """Cases that are ready to run."""
    found = []
    for number in range(count):
        case = Case(id=f"c{number}", work=KernelWork(kernel="k"))
        ledger.open(case, Batch(id=case.id, cases=(case,)))
        progress = ledger.progress(case.id)
        progress.elaborated = Elaborated(kernel=Kernel(name="k"))
        progress.golden = Golden(key=GoldenKey("g"), inputs=(), outputs=())
        progress.keys = Keys(run=RunKey("r"))
        found.append(progress)
    return found


def borrow(yard: Yard, answers: Sequence[tuple[Outcome, int]]) -> tuple[list[Fact], Ledger]:
    """Lease the first board and run one case for each answer; the facts, and the ledger."""
    facts: list[Fact] = []
    ledger = Ledger(yard, "run")
    borrower = Borrower(yard, [ToldSlot(BOARDS[0], answers)], ledger, facts.append, judge_nothing)
    members = open_cases(ledger, max(1, len(answers)))

    async def main() -> None:
        await borrower.acquire("board:0", 0)
        await borrower.run("board:0", members)

    asyncio.run(main())
    return facts, ledger


def test_a_result_under_the_lease_that_is_held_counts(tmp_path: Path) -> None:
    """It ends its case, and the trial has the key of the device on which it ran."""
    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard:
        facts, ledger = borrow(yard, [(Outcome.PASSED, 7)])
        (trial,) = ledger.take()
    expected: list[Fact] = [
        Leased(device="board:0"),
        CaseFinished(case="c0", device="board:0", seconds=0.5),
        RunOver(device="board:0", held=True),
    ]
    assert facts == expected
    assert (trial.lease, trial.outcome, trial.attempts) == (7, Outcome.PASSED, ())
    assert trial.keys.measurement == measurement_key(
        RunKey("r"), "silicon 0", Case(id="", work=KernelWork(kernel="")).timing
    )


def test_what_is_still_held_at_the_end_is_given_back_and_told(tmp_path: Path) -> None:
    """Each lease that a run tells of has its end in the record, however the run ends."""
    events: list[Event] = []
    with open_simulated_yard(tmp_path, BOARDS, (0,), listeners=[events.append]) as yard:
        slots = [ToldSlot(board, []) for board in BOARDS]
        borrower = Borrower(yard, slots, Ledger(yard, "run"), lambda fact: None, judge_nothing)

        async def main() -> None:
            await borrower.acquire("board:0", 0)
            await borrower.close()

        asyncio.run(main())
    told = [type(event) for event in events]
    assert told == [DeviceAsked, DeviceLeased, DeviceReleased]


@pytest.mark.parametrize("lease", [6, 8])
def test_a_result_under_another_lease_is_refused(tmp_path: Path, lease: int) -> None:
    """Whatever it says, the case was lost, and the attempt says under which leases."""
    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard:
        facts, ledger = borrow(yard, [(Outcome.PASSED, lease)])
        attempts = ledger.progress("c0").attempts
        assert ledger.take() == []
    assert CaseLost(case="c0", device="board:0") in facts
    (attempt,) = attempts
    expected = f"its result came under lease {lease} of board:0"
    assert expected in attempt.message
    assert "held under lease 7" in attempt.message


def test_a_case_that_is_given_up_ends_as_its_last_attempt(tmp_path: Path) -> None:
    """The trial is an infra_error with the last message, and tells of the attempts before."""
    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard:
        ledger = Ledger(yard, "run")
        facts: list[Fact] = []
        borrower = Borrower(yard, [ToldSlot(BOARDS[0], [])], ledger, facts.append, judge_nothing)
        (progress,) = open_cases(ledger, 1)
        progress.lost_on = "board:0"
        for number in (1, 2, 3):
            reply = CaseRan(
                case="c0", outcome=Outcome.INFRA_ERROR, seconds=0.0, message=f"loss {number}"
            )
            where = RanOn(device="board:0", identity="silicon 0", lease=number, reply=reply)
            ledger.note_attempt(progress, where)
        borrower.give_up(progress)
        (trial,) = ledger.take()
    expected = ["loss 1", "loss 2"]
    assert [attempt.message for attempt in trial.attempts] == expected
    assert (trial.outcome, trial.message, trial.lease) == (Outcome.INFRA_ERROR, "loss 3", 3)


def test_a_runner_that_is_gone_before_it_began_blames_no_case(tmp_path: Path) -> None:
    """That is the device's failure: no case has an attempt more for it."""
    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard:
        facts, ledger = borrow(yard, [])
        assert ledger.progress("c0").attempts == ()
    expected = LeaseFailed(device="board:0", outcome=Outcome.INFRA_ERROR)
    assert facts[-1] == expected


def test_a_case_is_looked_up_under_every_device_of_the_run(tmp_path: Path) -> None:
    """What was measured on one kind of device answers, and is recorded under that kind."""
    with open_simulated_yard(tmp_path, BOARDS[1:], (0,), target="cpu") as yard:
        before = Ledger(yard, "first")
        (progress,) = open_cases(before, 1)
        reply = CaseRan(case="c0", outcome=Outcome.PASSED, seconds=0.5)
        where = RanOn(device="board:1", identity="silicon 1", lease=1, reply=reply)
        before.finish(progress, Outcome.PASSED, "", where)
        (expected,) = before.take()
        yard.grounds = {"cpu": BOARDS}
        after = Ledger(yard, "second")
        (again,) = open_cases(after, 1)
        assert after.recall_measured(again)
        (trial,) = after.take()
    assert trial.reused
    assert (trial.id, trial.device, trial.keys) == (expected.id, "board:1", expected.keys)


@pytest.mark.parametrize(
    ("devices", "run", "expected"),
    [
        (("board:0",), "run", False),
        (("board:0", "board:1"), "run", True),
        ((), "run", True),
        (("board:0",), "before", True),
    ],
)
def test_a_time_of_this_run_counts_where_its_device_may_run_the_case(
    devices: tuple[str, ...], run: str, expected: bool, tmp_path: Path
) -> None:
    """Those of earlier runs count for all devices of a kind."""
    boards = tuple(msgspec.structs.replace(board, identity="silicon") for board in BOARDS)
    with open_simulated_yard(tmp_path, boards, (0,), target="cpu") as yard:
        first = Ledger(yard, run)
        (progress,) = open_cases(first, 1)
        reply = CaseRan(case="c0", outcome=Outcome.PASSED, seconds=0.5)
        where = RanOn(device="board:1", identity="silicon", lease=1, reply=reply)
        first.finish(progress, Outcome.PASSED, "", where)
        first.take()
        ledger = Ledger(yard, "run")
        (again,) = open_cases(ledger, 1)
        again.batch = msgspec.structs.replace(again.batch, devices=devices)
        assert ledger.recall_measured(again) is expected


@pytest.mark.parametrize(("low_ns", "expected"), [(3000.0, True), (103.0, False)])
def test_an_abandoned_time_answers_if_it_is_clear(
    low_ns: float, expected: bool, tmp_path: Path
) -> None:
    """One between 103 and 3889 ns says nothing, and is measured again."""
    measured = Measurement(
        median_ns=3766.0,
        low_ns=low_ns,
        high_ns=3889.0,
        confidence=0.95,
        samples_ns=(3766.0,),
        abandoned=True,
    )
    with open_simulated_yard(tmp_path, BOARDS[:1], (0,), target="cpu") as yard:
        first = Ledger(yard, "first")
        (progress,) = open_cases(first, 1)
        reply = CaseRan(case="c0", outcome=Outcome.PASSED, seconds=0.5, measurement=measured)
        where = RanOn(device="board:0", identity="silicon 0", lease=1, reply=reply)
        first.finish(progress, Outcome.PASSED, "", where)
        first.take()
        ledger = Ledger(yard, "second")
        (again,) = open_cases(ledger, 1)
        assert ledger.recall_measured(again) is expected


def test_a_time_abandons_cases_on_its_own_device(tmp_path: Path) -> None:
    """On another one only as far as the source says so."""
    measured = Measurement(
        median_ns=9.0, low_ns=8.0, high_ns=10.0, confidence=0.95, samples_ns=(9.0,)
    )
    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard:
        ledger = Ledger(yard, "run")
        first, second = open_cases(ledger, 2)
        for progress in (first, second):
            timing = TimingPolicy(group="study")
            progress.case = msgspec.structs.replace(progress.case, timing=timing)
        reply = CaseRan(case="c0", outcome=Outcome.PASSED, seconds=0.5, measurement=measured)
        where = RanOn(slot="board:0", device="board:0", identity="x", lease=1, reply=reply)
        ledger.finish(first, Outcome.PASSED, "", where)
        told = msgspec.structs.replace(second.case, abandon_above_ns=20.0)
        expected = [10.0, 0.0, 20.0]
        found = [ledger.bound_ns(second.case, slot) for slot in ("board:0", "board:1")]
        assert [*found, ledger.bound_ns(told, "board:1")] == expected


def test_what_compares_devices_answers_for_no_config(tmp_path: Path) -> None:
    """Its key is another one than that of the config."""
    with open_simulated_yard(tmp_path, BOARDS[:1], (0,), target="cpu") as yard:
        ledger = Ledger(yard, "first")
        (progress,) = open_cases(ledger, 1)
        progress.case = msgspec.structs.replace(progress.case, control=True)
        reply = CaseRan(case="c0", outcome=Outcome.PASSED, seconds=0.5)
        where = RanOn(device="board:0", identity="silicon 0", lease=1, reply=reply)
        ledger.finish(progress, Outcome.PASSED, "", where)
        ledger.take()
        after = Ledger(yard, "second")
        (config,) = open_cases(after, 1)
        assert not after.recall_measured(config)


@pytest.mark.parametrize(("line", "expected"), [(41, True), (42, False)])
def test_a_failure_is_told_again_where_its_lines_are_the_same(
    line: int, expected: bool, tmp_path: Path
) -> None:
    """A kernel that failed before is run again once its statements stand elsewhere in the file."""
    lines = {0: SourceLine(file="kernels.py", line=41)}
    entry = RunEntry(
        case="c0",
        build=BuildKey("b"),
        golden=Golden(key=GoldenKey("g"), inputs=(), outputs=()),
        specs=(),
        scalars=(),
        log="",
        lines=lines,
    )
    with open_simulated_yard(tmp_path, BOARDS[1:], (0,), target="cpu") as yard:
        ledger = Ledger(yard, "run")
        (progress,) = open_cases(ledger, 1)
        remember_run(yard.objects, RunKey("r"), RunRecord(case=progress.case, entry=entry))
        moved = {0: SourceLine(file="kernels.py", line=line)}
        progress.elaborated = Elaborated(kernel=Kernel(name="k", program="p"), lines=moved)
        known = Trial(
            id="t",
            run="before",
            case="c0",
            batch="b0",
            kernel="k",
            arguments={},
            config={},
            target="cpu",
            outcome=Outcome.RUNTIME_ERROR,
            message="kernels.py:41: an index is outside",
            keys=Keys(run=RunKey("r")),
            limits=progress.case.limits,
        )
        assert ledger.recall(progress, known) is expected


def test_a_case_that_is_unknown_gets_its_key_where_it_runs(tmp_path: Path) -> None:
    """With devices of two kinds, no key is chosen before one of them has run it."""
    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard:
        ledger = Ledger(yard, "run")
        (progress,) = open_cases(ledger, 1)
        assert not ledger.recall_measured(progress)
        expected = ""
        assert progress.keys.measurement == expected


def test_cold_slots_are_warmed_once_for_each_lease(tmp_path: Path) -> None:
    """As many as are wanted, none that is asked for or held, and again after it was given up."""
    slots = [ToldSlot(device, [(Outcome.PASSED, 7)]) for device in BOARDS]
    counts: list[list[int]] = []

    async def main(borrower: Borrower) -> None:
        await borrower.acquire(BOARDS[0].name, 0)
        for count in (1, 1):
            await borrower.warm(count)
            counts.append([slot.warmed for slot in slots])
        await borrower.release(BOARDS[0].name)
        await borrower.warm(5)
        counts.append([slot.warmed for slot in slots])

    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard:
        ledger = Ledger(yard, "r")
        asyncio.run(main(Borrower(yard, slots, ledger, [].append, judge_nothing)))
    expected = [[0, 1], [0, 1], [1, 1]]
    assert [found[:2] for found in counts] == expected


@pytest.mark.parametrize("state", ["held", "wanted", "unreadable"])
def test_a_lingering_device_is_known_to_be_wanted(tmp_path: Path, state: str) -> None:
    """If another's request waits in the host's lock directory; an unreadable one costs nobody a device."""
    facts: list[Fact] = []
    with open_simulated_yard(tmp_path, BOARDS, (0,)) as yard, ExitStack() as stack:
        locks = yard.settings.lock_dir
        locks.mkdir(mode=0o700)
        board = msgspec.structs.replace(BOARDS[0], locks=(f"{locks}/board-0.lock",))
        wish = Wish((Choice("board:0", parts_of(board)),), 1)
        for user in ("holder", "waiting") if state == "wanted" else ("holder",):
            ticket = Ticket(str(locks), wish, LeaseFacts(user, user), 0)
            stack.callback(ticket.close)
            assert (ticket.try_take() is not None) == (user == "holder")
        if state == "unreadable":
            locks.chmod(0o777)  # no lease in it is safe
        told = asyncio.Event()

        def tell(fact: Fact) -> None:
            facts.append(fact)
            if isinstance(fact, LingerOver):
                told.set()

        slots = [ToldSlot(board, [])]
        borrower = Borrower(yard, slots, Ledger(yard, "run"), tell, judge_nothing)

        async def main() -> None:
            await borrower.acquire("board:0", 0)
            borrower.linger("board:0")
            await told.wait()

        asyncio.run(main())
    assert facts[-1] == LingerOver(device="board:0", is_wanted=state == "wanted")
