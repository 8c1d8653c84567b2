"""What has been learnt of each case of a run, and the trial in which each one ends."""

from dataclasses import dataclass, field

import msgspec

from tileyard.artifacts.keys import measurement_key, paired_key
from tileyard.engine.yard import Yard
from tileyard.model import (
    Batch,
    Case,
    CaseEnded,
    Elaborated,
    Keys,
    Limits,
    Outcome,
    Record,
    Trial,
)
from tileyard.workers.protocol import CaseRan, Golden


@dataclass
class Progress:
    """What has been learnt of one case on its way."""

    case: Case
    batch: Batch
    started_at: float
    log: str
    elaborated: Elaborated | None = None
    golden: Golden | None = None
    keys: Keys = field(default_factory=Keys)
    build_s: float = 0.0


class RanOn(Record):
    """Where a case ran, under which lease, and what the runner said of it."""

    device: str
    lease: int
    reply: CaseRan


class Ledger:
    """The cases of one run. Each is opened once and ends once."""

    def __init__(self, yard: Yard, run: str) -> None:
        self._yard = yard
        self._run = run
        self._open: dict[str, Progress] = {}
        self._fresh: list[Trial] = []
        self._count = 0

    def open(self, case: Case, batch: Batch) -> None:
        """Begin to keep account of a case."""
        self._open[case.id] = Progress(
            case=case,
            batch=batch,
            started_at=self._yard.clock.wall_s(),
            log=f"logs/{self._run}/{case.id}.log",
        )

    def progress(self, case: str) -> Progress:
        """What is known of an open case."""
        return self._open[case]

    def take(self) -> list[Trial]:
        """The trials that ended since the last call, oldest first."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def write_log(self, progress: Progress, text: str) -> None:
        """Append to a case's log."""
        if not text:
            return
        path = self._yard.home / progress.log
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text if text.endswith("\n") else text + "\n")

    def finish(
        self, progress: Progress, outcome: Outcome, message: str, ran: RanOn | None = None
    ) -> None:
        """End a case with a new trial: recorded first, then told to everyone."""
        case = progress.case
        self._count += 1
        trial = Trial(
            id=f"{self._run}.{self._count}",
            run=self._run,
            case=case.id,
            batch=progress.batch.id,
            kernel=case.kernel,
            arguments=case.arguments,
            config=case.config,
            target=self._yard.target,
            outcome=outcome,
            control=case.control,
            message=message,
            keys=progress.keys,
            limits=case.limits,
            started_at=progress.started_at,
            build_s=progress.build_s,
            log=progress.log if (self._yard.home / progress.log).exists() else "",
        )
        if ran is not None:
            trial = msgspec.structs.replace(
                trial,
                device=ran.device,
                lease=ran.lease,
                run_s=ran.reply.seconds,
                measurement=ran.reply.measurement,
                mismatch=ran.reply.mismatch,
            )
        self._yard.store.record(trial)
        self._end(progress, trial)

    def abandon(self, message: str) -> None:
        """End every case that is still open as not run."""
        for progress in tuple(self._open.values()):
            self.finish(progress, Outcome.NOT_RUN, message)

    def recall(self, progress: Progress, known: Trial | None) -> bool:
        """End a case with a trial that was recorded before; False where there is none to use."""
        if known is None or not self._yard.reuse or not _says_enough(known, progress.case.limits):
            return False
        trial = msgspec.structs.replace(
            known,
            case=progress.case.id,
            batch=progress.batch.id,
            control=progress.case.control,
            config=progress.case.config,
            reused=True,
        )
        self._end(progress, trial)
        return True

    def recall_paired(self, members: list[Progress]) -> bool:
        """End every member of an interleaved batch with what the same batch gave before.

        Also derives the members' measurement keys, which depend on who else takes part.
        """
        rounds = members[0].batch.rounds
        others = sorted(member.keys.run for member in members)
        for member in members:
            # The control runs the same binary as the leader: its role tells the two apart.
            role = "control" if member.case.control else "member"
            key = paired_key(member.keys.run, others, self.identity, f"{role} {rounds}")
            member.keys = msgspec.structs.replace(member.keys, measurement=key)
        known = [self._yard.store.find_measured(member.keys.measurement) for member in members]
        if not self._yard.reuse or None in known:
            return False
        return all(self.recall(m, trial) for m, trial in zip(members, known, strict=True))

    def derive_measurement_key(self, progress: Progress) -> None:
        """Complete the keys of a case that is timed on its own."""
        key = measurement_key(progress.keys.run, self.identity, progress.case.timing)
        progress.keys = msgspec.structs.replace(progress.keys, measurement=key)

    @property
    def identity(self) -> str:
        """What makes times on this run's devices comparable."""
        return self._yard.devices[0].identity

    def _end(self, progress: Progress, trial: Trial) -> None:
        del self._open[progress.case.id]
        self._fresh.append(trial)
        self._yard.emit(CaseEnded(trial=trial))


def _says_enough(known: Trial, limits: Limits) -> bool:
    """A case that ran into a limit is tried again where the limit is now wider."""
    had = known.limits
    if known.outcome is Outcome.TIMEOUT:
        return limits.run_s <= had.run_s and limits.build_s <= had.build_s
    if known.outcome is Outcome.OUT_OF_MEMORY:
        return limits.memory_bytes <= had.memory_bytes
    return True
