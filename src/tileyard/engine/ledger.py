"""Keeps what is learnt of each case of a run, and ends each one with a trial."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.artifacts.objects import measurement_key, paired_key
from tileyard.base.errors import HomeError
from tileyard.base.events import CaseEnded
from tileyard.base.model import (
    INFRASTRUCTURE,
    WELL,
    Attempt,
    Batch,
    Case,
    Elaborated,
    KernelWork,
    Keys,
    MeasurementKey,
    Outcome,
    Record,
    RunKey,
    Trial,
)
from tileyard.engine.cases import MAX_RETRIES
from tileyard.engine.programs import name_log
from tileyard.engine.yard import Yard
from tileyard.measure.statistics import is_clearly_slower
from tileyard.workers.protocol import CaseRan, CommandRun, Golden
from tileyard.workers.run_records import find_run

UNBUILT = Build(outcome=Outcome.NOT_RUN)
RETRY_S = 5.0
"""Seconds for which a store that could not be written is left alone."""
ANY_RUN = "any"
"""Value of ``proven_by`` for which a pass in any run proves a case."""


CaseT = TypeVar("CaseT")


@dataclass
class Alike(Generic[CaseT]):
    """Groups cases of the same binary and inputs: the first runs, its followers end as it does.

    A case without a binary follows none.
    """

    _firsts: dict[tuple[str, str], str | Trial] = field(default_factory=dict)
    _followers: dict[str, list[CaseT]] = field(default_factory=dict)

    def follow(self, case: str, keys: Keys, follower: CaseT) -> Trial | bool:
        """The trial with which the case must end, or whether it now follows another one that is under way."""
        if not keys.binary:
            return False
        first = self._firsts.setdefault((keys.binary, keys.golden), case)
        if isinstance(first, Trial):
            return first
        if first != case:
            self._followers.setdefault(first, []).append(follower)
        return first != case

    def end(self, case: str, trial: Trial) -> list[CaseT]:
        """Record how a case ended; return the followers that must end with it.

        A case from which nothing was learnt is no longer the first of its group.
        """
        key = (trial.keys.binary, trial.keys.golden)
        if trial.outcome not in INFRASTRUCTURE | {Outcome.NOT_RUN}:
            self._firsts[key] = trial
        elif self._firsts.get(key) == case:
            del self._firsts[key]
        return self._followers.pop(case, [])


@dataclass
class Progress:
    """The state of one case: what has been learnt of it so far. ``kind`` is the kind of CPU for which it is
    built, if the run has several.
    """

    case: Case
    batch: Batch
    started_at: float
    log: str
    kind: str = ""
    elaborated: Elaborated | None = None
    command: CommandRun | None = None
    golden: Golden | None = None
    keys: Keys = field(default_factory=Keys)
    built: Build = UNBUILT
    attempts: tuple[Attempt, ...] = ()
    flags: tuple[str, ...] = ()
    lost_on: str = ""
    insists: tuple[Outcome, ...] = ()
    rivals: tuple[RunKey, ...] = ()


class RanOn(Record):
    """Where a case ran, under which lease, and the reply. ``device`` is the queue's name, ``slot`` ours."""

    device: str
    identity: str
    lease: int
    reply: CaseRan
    slot: str = ""


class Ledger:
    """The cases of one run, each opened and ended once; ``fresh`` are the trials since ``take``."""

    def __init__(self, yard: Yard, run: str) -> None:
        self._yard = yard
        self._run = run
        self._open: dict[str, Progress] = {}
        self.fresh: list[Trial] = []
        self.unrecorded: list[Trial] = []
        self._passing: set[str] = set()
        """Trials of cases that were only checked, and are well: these are no results."""
        self._retry_at_s = 0.0
        # By the devices of their batches.
        self._alike: defaultdict[tuple[str, ...], Alike[Progress]] = defaultdict(Alike)
        self._followed: set[str] = set()
        self._count = 0
        # By group and slot; the slot is empty for times of earlier runs.
        self._identities: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self._bounds_ns: dict[tuple[str, str], float] = {}

    def open(self, case: Case, batch: Batch) -> None:
        """Start the record of a case."""
        self._open[case.key] = Progress(
            case=case,
            batch=batch,
            started_at=self._yard.clock.wall_s(),
            log=name_log(self._run, case),
        )

    def progress(self, case: str) -> Progress:
        """The record of an open case, by its key."""
        return self._open[case]

    @property
    def open_cases(self) -> int:
        """Number of cases that have not ended."""
        return len(self._open)

    def count_unprepared(self, side: str, file: str) -> int:
        """Number of open cases of a side and a file of kernels that are not elaborated yet."""
        return sum(
            progress.elaborated is None
            and progress.case.side == side
            and isinstance(progress.case.work, KernelWork)
            and progress.case.work.file == file
            for progress in self._open.values()
        )

    def is_open(self, case: str) -> bool:
        """Whether a case has not ended."""
        return case in self._open

    def members(self, batch: str) -> list[Progress]:
        """The open cases of a batch."""
        return [p for p in self._open.values() if p.batch.id == batch]

    def bound_ns(self, case: Case, slot: str) -> float:
        """The lowest upper bound in ns of a time in its group that ended well; 0 for none. A case
        above need not be measured further on this slot. Other devices count once the source passes
        them in ``abandon_above_ns``.
        """
        if case.timing is None or not case.timing.group:
            return 0.0
        found = (
            self._bounds_ns.get((case.timing.group, place), 0.0) for place in ("", _place_of(slot))
        )
        return min(filter(None, (case.abandon_above_ns, *found)), default=0.0)

    def take(self) -> list[Trial]:
        """The trials that ended since the last call, oldest first: to be recorded, then reported."""
        fresh, self.fresh = self.fresh, []
        self.unrecorded += [t for t in fresh if not (t.reused or t.id in self._passing)]
        if self._yard.clock.monotonic_s() >= self._retry_at_s:
            self.record()
        at = self._yard.clock.wall_s()
        for trial in fresh:
            self._yard.emit(CaseEnded(trial=trial, at=at))
        self._yard.flush()
        return fresh

    def record(self) -> None:
        """Record the ended trials; if the disk is full they stay ``unrecorded`` and are tried again later."""
        try:
            if self.unrecorded:
                self._yard.store.record_all(self.unrecorded)
        except HomeError as error:
            self._yard.warn_of("trials", error)
            self._retry_at_s = self._yard.clock.monotonic_s() + RETRY_S
        else:
            self.unrecorded.clear()

    def note_attempt(self, progress: Progress, ran: RanOn) -> None:
        """Record an attempt that the device or the host failed."""
        attempt = Attempt(device=ran.device, lease=ran.lease, message=ran.reply.message)
        progress.attempts = (*progress.attempts, attempt)
        progress.insists = (*progress.insists, ran.reply.insists)

    def may_retry(self, progress: Progress, message: str) -> bool:
        """Whether to repeat a step that the host failed, no device held; if so, record the attempt."""
        if sum(not attempt.device for attempt in progress.attempts) >= MAX_RETRIES:
            return False
        attempt = Attempt(device="", lease=0, message=message)
        progress.attempts = (*progress.attempts, attempt)
        return True

    def write_log(self, progress: Progress, text: str) -> None:
        """Append to a case's log."""
        self._yard.append_log(progress.log, text)

    def finish(
        self, progress: Progress, outcome: Outcome, message: str, ran: RanOn | None = None
    ) -> None:
        """End a case with a new trial, which ``take`` records. One that ran well also reports its flags."""
        case, work = progress.case, progress.case.work
        if outcome in (Outcome.PASSED, Outcome.UNCHECKED):
            message = "; ".join((*dict.fromkeys(progress.flags), *([message] if message else [])))
        if ran is not None and (progress.rivals or not progress.keys.measurement):
            self._key_measurement(progress, ran.identity)
        self._count += 1
        side = self._yard.authors.sides.get(case.side)
        trial = Trial(
            id=f"{self._run}.{self._count}",
            run=self._run,
            case=case.id,
            attempt=case.attempt,
            batch=progress.batch.id,
            side=case.side,
            revision=side.revision if side else "",
            suite=case.suite,
            testcase=case.testcase,
            target=case.target,
            outcome=outcome,
            control=case.control,
            message=message,
            keys=progress.keys,
            limits=case.limits,
            started_at=progress.started_at,
            build_s=progress.built.build_s,
            log=progress.log if (self._yard.home / progress.log).is_file() else "",
            attempts=progress.attempts,
            exceeds=progress.built.exceeds,
        )
        if isinstance(work, KernelWork):
            trial = msgspec.structs.replace(
                trial,
                kernel=work.kernel,
                arguments=work.arguments,
                config=work.config,
                shape=work.shape,
            )
        if ran is not None:
            trial = msgspec.structs.replace(
                trial,
                device=ran.device,
                silicon=ran.identity if ran.reply.measurement else "",
                lease=ran.lease,
                run_s=ran.reply.seconds,
                measurement=ran.reply.measurement,
                mismatch=ran.reply.mismatch,
            )
        self._end(progress, trial, "" if ran is None else ran.slot)

    def abandon(self, message: str) -> None:
        """End every open case as not run."""
        for case in tuple(self._open):
            if self.is_open(case):  # a follower ends with the case that it follows
                self.finish(self._open[case], Outcome.NOT_RUN, message)

    def recall(self, progress: Progress, known: Trial | None) -> bool:
        """End a case with a recorded trial; False if there is none to use."""
        if known is None or not self._yard.reuse or not _says_enough(known, progress):
            return False
        devices = progress.batch.devices
        if known.run == self._run and devices and known.device not in devices:
            return False
        if self._names_old_lines(known, progress):
            return False
        self._end(progress, _as_case(known, progress, control=progress.case.control, reused=True))
        return True

    def follow(self, progress: Progress) -> bool:
        """End a case as the first one with the same binary and inputs ends; False for the first one."""
        alike = self._alike[progress.batch.devices]
        first = alike.follow(progress.case.key, progress.keys, progress)
        if isinstance(first, Trial):
            self._end_alike(progress, first)
        return first is not False

    def has_followed(self, trial: Trial) -> bool:
        """Whether a case that ``take`` returned ended as another one did; asked once for each."""
        has_followed = trial.key in self._followed
        self._followed.discard(trial.key)
        return has_followed

    def skip_proven(self, progress: Progress, others: Sequence[RunKey] = ()) -> bool:
        """End a case that has passed before with the same run key, or one of the others, if this run skips
        such cases.
        """
        golden = progress.golden
        if not self._yard.proven_by or (golden and (golden.footprint.doubts or golden.is_partial)):
            return False
        by = "" if self._yard.proven_by == ANY_RUN else self._yard.proven_by
        keys = (progress.keys.run, *others)
        found = (self._yard.store.find_passed(key, by) for key in keys)
        known = next(filter(None, found), None)
        if known is None:
            return False
        self.finish(progress, Outcome.SKIPPED, f"proven by run {known.run}")
        return True

    def recall_measured(self, progress: Progress) -> bool:
        """End a case with its recorded result on any of this run's devices, if there is one."""
        identities = self._find_identities(progress)
        for identity in identities:
            self._key_measurement(progress, identity)
            if self.recall(progress, self._find_measured(progress)):
                return True
        if len(identities) > 1:  # the device on which it runs will decide
            progress.keys = msgspec.structs.replace(progress.keys, measurement=MeasurementKey(""))
        return False

    def recall_paired(self, members: Sequence[Progress]) -> bool:
        """End each member of an interleaved batch with recorded results, and key it by the others too."""
        rivals = tuple(sorted(member.keys.run for member in members))
        for member in members:
            member.rivals = rivals
        may_recall = self._yard.reuse and members[0].batch.known != "ignored"
        for identity in self._find_identities(members[0]) if may_recall else ():
            for member in members:
                self._key_measurement(member, identity)
            known = [self._find_measured(member) for member in members]
            if all(
                trial is not None and _says_enough(trial, member)
                for member, trial in zip(members, known, strict=True)
            ):
                return all(self.recall(m, trial) for m, trial in zip(members, known, strict=True))
        return False

    def _find_measured(self, progress: Progress) -> Trial | None:
        return self._yard.store.find_measured(progress.keys.measurement, progress.case.config)

    def _key_measurement(self, progress: Progress, identity: str) -> None:
        """Complete the keys of a case for the device that is, or would be, timed."""
        case, run = progress.case, progress.keys.run
        if progress.batch.order == "interleaved":
            # The control runs the same binary as the leader: its role distinguishes the two.
            role = f"{'control' if case.control else 'member'} {progress.batch.rounds}"
            if progress.batch.repetition:
                role += f" {progress.batch.repetition}"
            key = paired_key(run, progress.rivals, identity, role)
        elif is_measured_anew(case):  # its result does not depend on the config
            key = paired_key(run, (), identity, "device")
        else:
            key = measurement_key(run, identity, case.timing)
        progress.keys = msgspec.structs.replace(progress.keys, measurement=key)

    def forget_identities(self) -> None:
        """The yard has further devices: results of their kinds count, too."""
        self._identities.clear()

    def _find_identities(self, progress: Progress) -> tuple[str, ...]:
        asked = progress.case.target, progress.batch.devices
        if asked not in self._identities:
            target, wanted = asked
            devices = self._yard.grounds.get(target, ())
            found = (one.identity for one in devices if not wanted or one.name in wanted)
            self._identities[asked] = tuple(dict.fromkeys(found))
        return self._identities[asked]

    def _names_old_lines(self, known: Trial, progress: Progress) -> bool:
        """Whether a failure was reported with lines of the user's file that have changed since."""
        elaborated = progress.elaborated
        if elaborated is None or not elaborated.lines:
            return False
        if known.outcome is Outcome.COMPILE_ERROR:
            # A GPU compiler's error is expensive to reproduce, and names no line of the user's.
            return not elaborated.tir
        if known.outcome is not Outcome.RUNTIME_ERROR:
            return False
        record = find_run(self._yard.objects, known.keys.run)
        return record is None or record.entry.lines != elaborated.lines

    def _end(self, progress: Progress, trial: Trial, slot: str = "") -> None:
        del self._open[progress.case.key]
        self.fresh.append(trial)
        if progress.case.until == "checked" and trial.outcome in WELL:
            self._passing.add(trial.id)
        elif progress.case.until != "judged":
            self._yard.builds[progress.case.key] = _build_of(progress.built, trial)
        timing, measured = progress.case.timing, trial.measurement
        is_bound = bool(slot) or trial.reused  # a follower's end gives no new bound
        if timing is not None and measured is not None and trial.outcome in WELL and is_bound:
            key = (timing.group, _place_of(slot))
            self._bounds_ns[key] = min(self._bounds_ns.get(key, measured.high_ns), measured.high_ns)
        if not progress.batch.alike:
            return
        for follower in self._alike[progress.batch.devices].end(trial.key, trial):
            if self.is_open(follower.case.key):
                self._end_alike(follower, trial)

    def _end_alike(self, progress: Progress, first: Trial) -> None:
        by_name = {device.name: device.identity for device in self._yard.devices}
        usual = self._find_identities(progress)[0]
        self._key_measurement(progress, by_name.get(first.device, usual))
        self._count += 1
        trial = _as_case(
            first,
            progress,
            id=f"{self._run}.{self._count}",
            run=self._run,
            keys=progress.keys,
            started_at=progress.started_at,
            build_s=progress.built.build_s,
            reused=False,
        )
        self._followed.add(trial.key)
        self._end(progress, trial)


def _place_of(slot: str) -> str:
    """The device of a slot; the slots of a queue share all of its devices."""
    return slot.partition("/")[0]


def is_measured_anew(case: Case) -> bool:
    """Whether a case compares devices: earlier results do not tell how these devices are today."""
    return case.control and case.timing is not None


def _as_case(trial: Trial, progress: Progress, **changes: object) -> Trial:
    case = progress.case
    return msgspec.structs.replace(
        trial,
        case=case.id,
        attempt=case.attempt,
        side=case.side,
        suite=case.suite,
        testcase=case.testcase,
        batch=progress.batch.id,
        config=case.config,
        **changes,
    )


def _build_of(built: Build, trial: Trial) -> Build:
    """How the build of a case ended that is not run here: as its trial did, unless that was skipped."""
    if trial.outcome is not Outcome.SKIPPED:
        built = Build(
            outcome=trial.outcome,
            message=trial.message,
            diagnostic=built.diagnostic,
            build=trial.keys.build,
            build_s=trial.build_s,
            reused=trial.reused,
            exceeds=trial.exceeds,
        )
    return msgspec.structs.replace(built, case=trial.key, log=trial.log)


def _says_enough(known: Trial, progress: Progress) -> bool:
    """Whether a recorded trial still answers: no limit that ended it is wider now, and abandoned
    times tell something. What may not be tried again is taken as it is.
    """
    if progress.batch.known == "required":
        return True
    had, limits, measured = known.limits, progress.case.limits, known.measurement
    if measured is not None and measured.abandoned:
        return is_clearly_slower(measured)
    if known.outcome is Outcome.TIMEOUT:
        return limits.run_s <= had.run_s and limits.build_s <= had.build_s
    if known.outcome is Outcome.OUT_OF_MEMORY:
        return limits.memory_bytes <= had.memory_bytes
    return True
