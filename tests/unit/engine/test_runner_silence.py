"""A runner followed by its slot: who is blamed for its silence, and which batches share it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec
import pytest

from tileyard.base.clock import Clock
from tileyard.base.errors import WorkerLostError
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    Device,
    GoldenKey,
    HotRun,
    KernelWork,
    Limits,
    Outcome,
    Step,
)
from tileyard.base.settings import Settings
from tileyard.engine import runners
from tileyard.engine.judge import HandedOver
from tileyard.engine.provider import LeaseLostError
from tileyard.engine.runners import RunnerSlot
from tileyard.processes.supervise import Ended, Worker
from tileyard.workers.command_runs import CommandRuns, Stores
from tileyard.workers.protocol import (
    BatchRan,
    CaseBegan,
    CaseRan,
    CommandRun,
    Golden,
    RunBatch,
    RunEntry,
)

DEVICE = Device(name="sim:0", kind="sim", identity="x")


class SilentWorker:
    """Says what it is told to say, and then nothing, or ends."""

    lease = 7

    def __init__(self, says: Sequence[object], *, dies: bool) -> None:
        self._says = list(says)
        self._dies = dies
        self.killed = ""

    async def send(self, message: object) -> None:
        """Take an order."""

    async def receive(self, kind: object) -> object:
        """The next reply, or none ever."""
        if self._says:
            return self._says.pop(0)
        if self._dies:
            raise WorkerLostError("gone")
        return await asyncio.Event().wait()

    async def kill(self, reason: str, *, is_suspect: bool = False) -> Ended:
        """It ends for that reason."""
        self.killed = reason
        return Ended(signal=15, confirmed=True, reason=reason)

    async def ended(self) -> Ended:
        """It crashed."""
        return Ended(signal=11, confirmed=True)

    judge_silence = Worker.judge_silence


class Heard:
    """Keeps what is told of cases."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}

    def began(self, case: str) -> None:
        """A case began."""

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """A case was answered for."""
        self.outcomes[reply.case] = reply.outcome


def entry(case: str, command: CommandRun | None = None, build: str = "b") -> RunEntry:
    """What a runner is given for a case."""
    return RunEntry(
        case=case,
        build=BuildKey(build * 40),
        golden=Golden(key=GoldenKey(""), inputs=(), outputs=()),
        specs=(),
        scalars=(),
        log=f"logs/{case}.log",
        command=command,
    )


def ran(case: str) -> CaseRan:
    """A case passed."""
    return CaseRan(case=case, outcome=Outcome.PASSED, seconds=0.1, lease=7)


def slot_of(home: Path, worker: SilentWorker) -> RunnerSlot:
    """One whose runner is this worker."""
    site = SimpleNamespace(
        settings=Settings(home=home, lock_dir=home, cores=(0,)),
        home=home,
        target="command",
        queue_limit_s=1.0,
        clock=Clock(),
        handed_over=HandedOver(),
    )
    slot = RunnerSlot(cast(Any, site), DEVICE)
    slot._worker = cast(Any, worker)
    return slot


def follow(home: Path, worker: SilentWorker, run_s: float = 60.0) -> tuple[bool, Heard]:
    """Run two cases by this worker: whether the device is still held, and what was told."""
    slot = slot_of(home, worker)
    cases = tuple(
        Case(id=n, work=KernelWork(kernel="k"), limits=Limits(run_s=run_s)) for n in ("a", "b")
    )
    heard = Heard()
    batch = Batch(id="x", cases=cases)
    held = asyncio.run(slot.run(batch, [entry("a"), entry("b")], cast(Any, heard)))
    return held, heard


@pytest.mark.parametrize("dies", [False, True])
def test_nobody_is_blamed_once_all_are_answered(
    dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that hangs or dies then costs its device, and no verdict."""
    monkeypatch.setattr(runners, "START_LIMIT_S", 0.01)
    says = [CaseBegan(case="a"), ran("a"), CaseBegan(case="b"), ran("b")]
    held, heard = follow(tmp_path, SilentWorker(says, dies=dies))
    assert heard.outcomes == {"a": Outcome.PASSED, "b": Outcome.PASSED}
    assert not held


def test_a_hang_between_two_cases_is_the_devices_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case that would have come next has done nothing."""
    monkeypatch.setattr(runners, "START_LIMIT_S", 0.01)
    worker = SilentWorker([CaseBegan(case="a"), ran("a")], dies=False)
    with pytest.raises(LeaseLostError, match=r"was silent for 0\.01 s"):
        follow(tmp_path, worker)
    assert worker.killed == "time limit"


def test_a_hang_within_a_case_is_its_own(tmp_path: Path) -> None:
    """At its run limit."""
    says = [CaseBegan(case="a"), ran("a"), CaseBegan(case="b")]
    _, heard = follow(tmp_path, SilentWorker(says, dies=False), run_s=0.01)
    assert heard.outcomes == {"a": Outcome.PASSED, "b": Outcome.TIMEOUT}


@pytest.mark.parametrize(
    ("order", "builds", "held"),
    [
        ("interleaved", "pqr", [True, True, True]),
        ("interleaved", "pqp", [True, True, False]),
        ("any", "p", [False]),
    ],
)
def test_a_fresh_process_has_run_nothing_of_the_batch(
    order: Literal["any", "interleaved"], builds: str, held: list[bool], tmp_path: Path
) -> None:
    """Kernels that are timed for the first time share a process; what is only run has one of its own."""
    says = [one for name in builds for one in (CaseBegan(case="a"), ran("a"), BatchRan(batch=name))]
    worker = SilentWorker(says, dies=False)
    slot, case = slot_of(tmp_path, worker), Case(id="a", work=KernelWork(kernel="k"))
    batches = {name: Batch(id=name, cases=(case,), order=order, process="fresh") for name in builds}
    found = [
        asyncio.run(slot.run(batches[name], [entry("a", build=name)], cast(Any, Heard())))
        for name in builds
    ]
    assert found == held
    assert worker.killed == ("" if all(held) else "lease over")


@pytest.mark.slow
def test_under_a_lease_a_hot_process_has_its_own_limit_between_cases(tmp_path: Path) -> None:
    """Whoever listens ends a case at its limit; what lies between cases is ended here."""
    script = 'for c in "$@"; do echo "b $c"; echo "e $c ok"; [ $c = a ] && sleep 600; done; true'
    hot = HotRun(
        step=Step(argv=("sh", "-c", script, "hot", "{cases}"), limit_s=1.5),
        began=r"^b (?P<case>\w+)$",
        ended=r"^e (?P<case>\w+) (?P<verdict>\w+)$",
        verdicts={"ok": Outcome.PASSED},
    )
    plain = CommandRun(name="", run=Step(argv=("true",)), folder="", hot=hot)
    commands = {n: msgspec.structs.replace(plain, name=n, folder=f"work/{n}") for n in ("a", "b")}
    told: list[CaseBegan | CaseRan] = []
    stores = Stores(tmp_path)
    request = RunBatch(
        batch=Batch(id="x", cases=tuple(Case(id=n, work=KernelWork(kernel="k")) for n in commands)),
        entries=tuple(entry(n, one) for n, one in commands.items()),
        plugins={},
        device=DEVICE,
    )
    CommandRuns(stores, told.append, lambda: False, limited=False).run(request)
    ended = {one.case: one.outcome for one in told if isinstance(one, CaseRan)}
    assert ended == {"a": Outcome.PASSED, "b": Outcome.PASSED}
