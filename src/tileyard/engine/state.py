"""Decides what happens next: facts in, commands out; no tasks, processes or clock. A device is
asked for only when a batch is ready. ``cases`` and ``lending`` have the state.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import assert_never

import msgspec

from tileyard.base.events import PauseReason
from tileyard.base.model import Outcome
from tileyard.engine.cases import HOT_S, PlannedCases, Ready, Site, Stage
from tileyard.engine.commands import (
    Acquire,
    Ask,
    AuthorAwaited,
    AuthorFreed,
    AuthorStarted,
    BatchesPlanned,
    Build,
    BuildFailed,
    BuildLost,
    CaseBuilt,
    CaseFinished,
    CaseLost,
    CasePrepared,
    CaseRanWell,
    Command,
    CompilerFreed,
    Fact,
    Joined,
    Judge,
    LeaseAwaited,
    Leased,
    LeaseFailed,
    Linger,
    LingerOver,
    LookAfter,
    NothingKnown,
    PartBuilt,
    Prepare,
    Readmitted,
    Release,
    Released,
    Run,
    RunOver,
    StopAsked,
    TrimAsked,
    Withdraw,
)
from tileyard.engine.lending import Borrowing, DeviceSite, Lease, Lending

MAX_JUDGED = 64
"""The most cases in one question to the judge."""
QUESTION_BYTES = 16 << 20
"""Bytes of outputs after which a question takes no further case: all are freed when it is answered."""
RUN_S = 0.25
"""Seconds of work handed over together, at most half of a device's share: hand-overs idle it."""
LEAST_RUN = 8
"""Cases handed over together that a device's share does not limit, if they are expected to run in HOT_S."""
MAX_RUN = 64
"""The most cases that are handed over together."""
MOST_HOT = 16_384
"""The most such cases that are planned ahead on any number of devices: each takes memory."""
MAX_PREPARED = 16
"""Number of cases that are prepared together if several run in HOT_S, so that they are ready together."""


def is_shared(device: DeviceSite, site: Site) -> bool:
    """Whether building, or the author, needs cores that this device owns."""
    cores = device.cores
    return (
        not site.overlap or not cores.isdisjoint(site.workers) or not cores.isdisjoint(site.author)
    )


def is_judged_here(device: Borrowing, entry: Ready, site: Site) -> bool:
    """Whether the judge needs cores that this device owns; if the batch is interleaved, any core counts."""
    return entry.interleaved or not site.overlap or not device.site.cores.isdisjoint(site.judge)


def is_quiet(
    device: Borrowing, entry: Ready, site: Site, building: Iterable[int], *, asking: bool
) -> bool:
    """Whether nothing is built or asked on the device's cores; if the batch is interleaved, on any
    core. ``building`` are the workers that build; ``asking``: the author is answering a question.
    """
    busy = {site.workers[worker] for worker in building}
    if entry.interleaved or not site.overlap:
        return not busy and not asking
    return device.site.cores.isdisjoint(busy | site.author if asking else busy)


class Unjudged:
    """Cases that wait for the judge, in the order in which they ran. ``find_room``: bytes of outputs
    of a device that may wait, 0 for one that hands none over. ``rivals``: cases whose times may
    bound others' once judged.
    """

    def __init__(self, find_room: Callable[[str], int]) -> None:
        self._find_room = find_room
        self._waiting: deque[str] = deque()
        self._asked: set[str] = set()
        self._bytes: dict[str, tuple[str, int]] = {}
        self._used: dict[str, int] = {}
        self._crowded: set[str] = set()
        self.rivals: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._bytes)

    @property
    def is_asked(self) -> bool:
        """Whether the judge has a question and has not answered it."""
        return bool(self._asked)

    @property
    def is_waiting(self) -> bool:
        """Whether there is a further question."""
        return bool(self._waiting)

    @property
    def is_due(self) -> bool:
        """Whether verdicts are needed soon: for times that may bound others, or half of the room is used."""
        return bool(self.rivals or self._crowded)

    def add(self, case: str, device: str, size: int, *, is_rival: bool) -> None:
        """A case ran well on a device; a rival's time bounds those of others once it is judged."""
        self._waiting.append(case)
        self._bytes[case] = (device, size)
        self._use(device, size)
        if is_rival:
            self.rivals.add(case)

    def _use(self, device: str, size: int) -> None:
        used = self._used[device] = self._used.get(device, 0) + size
        if 2 * used > self._find_room(device):
            self._crowded.add(device)
        else:
            self._crowded.discard(device)

    def take(self) -> tuple[str, ...]:
        """The cases of the next question."""
        size = 0
        while self._waiting and len(self._asked) < MAX_JUDGED and size < QUESTION_BYTES:
            case = self._waiting.popleft()
            size += self._bytes[case][1]
            self._asked.add(case)
        return tuple(case for case in self._bytes if case in self._asked)

    def end(self, case: str) -> None:
        """Remove a case that ended, by the judge or otherwise."""
        if case in self._bytes:
            device, size = self._bytes.pop(case)
            self._use(device, -size)
            self._asked.discard(case)
            self.rivals.discard(case)

    def left_bytes(self, device: str) -> int | None:
        """Bytes of outputs that a device may hand over now; None for any number."""
        room, used = self._find_room(device), self._used.get(device, 0)
        return room - used if room and used else None


@dataclass
class EngineState:
    """The whole state of a run; ``step`` is the only way it changes."""

    site: Site
    _asking: int = 0
    _starting: int = 0
    """Number of author processes that are being started."""
    _building: set[int] = field(default_factory=set)
    _due: list[Command] = field(default_factory=list)
    _pace_s: float = RUN_S
    _exhausted: bool = False
    """The source has no more batches until a case ends."""
    _is_outdated: bool = False
    """A case has ended since the source was asked: its answer may not reflect that."""
    _stopping: bool = False
    _asked: bool = False
    _looked_after: tuple[str, ...] = ()
    _judging: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._devices = Lending(self.site.devices, lambda one: is_shared(one, self.site))
        self.cases = PlannedCases(self._due, self.site.grounds, self.site.kinds)
        self._unjudged = Unjudged(lambda device: self._devices[device].site.room_bytes)
        self._pauses: dict[str, PauseReason] = {}
        self._last_failed = ""
        self._lanes = self.site.lanes

    @property
    def is_idle(self) -> bool:
        """Whether nothing is planned, prepared, built or run; a run that stops asks for no more."""
        is_asked = self._asked and not self._stopping
        return not self.cases.batches and not self._asking and not is_asked

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stopping

    def start(self) -> list[Command]:
        """The first commands."""
        return self._decide()

    def step(self, *facts: Fact) -> list[Command]:
        """Take in facts, in order; return what to do next."""
        for fact in facts:
            self._take_in(fact)
        return self._decide()

    def take_pauses(self) -> dict[str, PauseReason]:
        """The held devices that have begun since the last call to wait with a batch, and why."""
        pauses, self._pauses = self._pauses, {}
        return pauses

    def _take_in(self, fact: Fact) -> None:
        match fact:
            case BatchesPlanned():
                self._asked = False
                self._exhausted = fact.exhausted and not self._is_outdated
                self.cases.plan(fact, self._devices.usable)
            case CasePrepared():
                self.cases.prepare(fact)
            case CaseBuilt() | BuildFailed() | BuildLost() | PartBuilt() | CompilerFreed():
                self._build_step(fact)
            case CaseFinished():
                self._expect_more()
                self._ran(fact)
                self._unjudged.end(fact.case)
                self._judging.discard(fact.case)
                self.cases.move(fact.case, Stage.ENDED)
            case CaseRanWell():
                self._ran(fact)
                self.cases.move(fact.case, Stage.JUDGING)
                self._judge_later(fact)
            case CaseLost(case=case, device=device):
                self.cases.lose(case, device, may_retry=not self._stopping)
            case AuthorFreed() | AuthorAwaited() | AuthorStarted():
                self._author_step(fact)
            case NothingKnown(batch=batch, rank=rank):
                self.cases.look_up(batch, rank)
            case Leased() | LeaseAwaited() | LeaseFailed() | RunOver() | LingerOver() | Released():
                self._device_step(fact)
            case Readmitted(device=device):
                self._devices[device].take_back()
                self.cases.find_kind_again(device)
            case Joined():
                self._join(fact)
            case StopAsked():
                self._stopping = True
            case TrimAsked():
                self.cases.trim()
            case _:
                assert_never(fact)

    def _join(self, fact: Joined) -> None:
        self.site = msgspec.structs.replace(
            self.site,
            workers=fact.workers,
            devices=self.site.devices | fact.devices,
            grounds=self.site.grounds
            | {
                ground: self.site.grounds.get(ground, frozenset()) | names
                for ground, names in fact.grounds.items()
            },
            kinds=fact.kinds,
            window=fact.window,
        )
        self.cases.widen(self.site.grounds, self.site.kinds)
        self._devices.add(fact.devices)
        for name in fact.devices:
            self.cases.find_kind_again(name)
        if self.cases.divide(self._devices.usable, fact.devices):
            self._due.append(Withdraw())

    def _build_step(
        self, fact: CaseBuilt | BuildFailed | BuildLost | PartBuilt | CompilerFreed
    ) -> None:
        match fact:
            case CaseBuilt(case=case):
                self.cases.end_build(case)
            case BuildFailed(case=case):
                self._expect_more()
                self.cases.fail_build(case)
            case BuildLost(case=case):
                self.cases.lose_build(case, self._devices.usable)
            case PartBuilt(builder=builder, build=build):
                for name in self.cases.to_build.end_early(builder, build):
                    self.cases.move(name, Stage.BUILT)
            case CompilerFreed(worker=worker):
                self._building.remove(worker)
                self.cases.to_build.free(worker)

    def _author_step(self, fact: AuthorFreed | AuthorAwaited | AuthorStarted) -> None:
        match fact:
            case AuthorFreed():
                self._asking -= 1
            case AuthorAwaited():
                self._starting += 1
            case AuthorStarted(lanes=lanes):
                self._starting -= 1
                self._lanes = max(self._lanes, lanes)

    def _ran(self, fact: CaseFinished | CaseRanWell) -> None:
        if fact.device:
            self._devices[fact.device].clear_strikes()
            self._pace_s += (fact.seconds - self._pace_s) / 4
            self.cases.note_length(fact.case, fact.seconds)

    def _expect_more(self) -> None:
        """Note that a case has ended, for which the source may have waited."""
        self._exhausted, self._is_outdated = False, True

    def _judge_later(self, fact: CaseRanWell) -> None:
        """Programs are judged at once, by their own steps; kernels once the judge may run."""
        if not fact.is_kernel:
            self._judging.add(fact.case)
            self._due.append(Judge(cases=(fact.case,)))
            return
        self._unjudged.add(fact.case, fact.device, fact.unjudged_bytes, is_rival=fact.is_rival)

    # ---- facts about devices ---------------------------------------------------------------------

    def _device_step(
        self, fact: Leased | LeaseAwaited | LeaseFailed | RunOver | LingerOver | Released
    ) -> None:
        device = self._devices[fact.device]
        match fact:
            case Leased():
                # A release may have crossed with it; then Released is under way.
                if device.lease is Lease.ASKED:
                    device.move(Lease.HELD)
                self.cases.find_kind_again(device.name)
            case LeaseAwaited():
                device.wait_for_others()
            case LeaseFailed(outcome=outcome):
                self._lease_failed(device, outcome)
            case RunOver(held=held):
                self._take_back(device)
                if not held:
                    device.move(Lease.FREE)
            case LingerOver(is_wanted=is_wanted):
                if device.lingering and not is_wanted and self._is_built_on(device):
                    self._due.append(Linger(device=device.name))
                elif device.lingering:
                    self._release(device)
            case Released():
                device.move(Lease.FREE)
            case _:
                assert_never(fact)

    def _take_back(self, device: Borrowing) -> None:
        self.cases.take_back(device.end())

    def _lease_failed(self, device: Borrowing, outcome: Outcome) -> None:
        self._take_back(device)
        if device.lease is Lease.RELEASING:
            return
        if outcome is not Outcome.QUEUE_TIMEOUT:
            device.strike()
            self._last_failed = device.name
            return
        device.move(Lease.FREE)
        if not self._devices.count("held"):
            waited = [e for e in self.cases.ready if e.asked and device.name in e.devices]
            for entry in waited:
                self.cases.strand(entry.batch, device.name)

    def _release(self, device: Borrowing) -> None:
        device.move(Lease.RELEASING)
        self._due.append(Release(device=device.name))

    # ---- decisions -----------------------------------------------------------------------------

    def _decide(self) -> list[Command]:
        if self._stopping:
            self.cases.give_up_unstarted()
        elif self._devices.given_up or self.cases.lost_kinds:
            self.cases.strand_without(self._devices.usable, self._last_failed)
        self._start_runs()
        self._ask_for_devices()
        self._start_builds()
        self._start_preparing()
        self._start_judging()
        self._look_after_sick()
        if (room := self._room) > 0:
            self._asked, self._is_outdated = True, False
            self._due.append(Ask(limit=room))
        commands = self._due.copy()
        self._due.clear()
        return commands

    @property
    def _room(self) -> int:
        """The most batches for which the source is to be asked now."""
        if self._stopping or self._exhausted or self._asked:
            return 0
        hot = min(4 * self._hot * len(self._devices), MOST_HOT)
        window = max(self.site.window, hot)
        return window - self.cases.batches

    @property
    def _hot(self) -> int:
        """Number of the current cases that run in about HOT_S."""
        return self._fit_into(HOT_S)

    def _fit_into(self, span_s: float) -> int:
        return max(1, min(MAX_RUN, int(span_s / max(self._pace_s, 1e-6))))

    @property
    def _is_more_to_come(self) -> bool:
        return bool(self.cases.waiting or self.cases.to_build or self._building or self._asking)

    def _start_runs(self) -> None:
        if not self._devices.count("idle"):
            return
        usable = self._devices.usable
        reserved = self._devices.reserve(self.cases.ready.count)
        last = -1
        for device in self._devices.list_of("idle"):
            if not self.cases.ready:
                break
            last = device.number
            entry = self.cases.ready.peek(device.name, usable)
            if not reserved.isdisjoint(device.site.parts):
                self._release(device)
            elif entry is None:
                self._idle(device)
            elif entry.memory_bytes != device.memory_bytes:
                self._release(device)  # for a runner with another limit
            else:
                self._start_run(device, entry)
        # Nothing is ready for the others, which changes nothing for those that linger.
        for device in self._devices.list_of("unsettled" if self._is_keeping else "idle", last):
            self._idle(device)

    def _start_run(self, device: Borrowing, entry: Ready) -> None:
        reason = self._find_pause(device, entry)
        pausing, waits = reason == "judge", reason not in ("quiet", None)
        lingering = device.lingering and waits
        device.wait(lingering=lingering, pausing=pausing, exclusive=entry.interleaved)
        if waits:
            self._linger(device)
        if reason is None:
            self._run(device)
        elif device.pause(reason):
            self._pauses[device.name] = reason

    def _find_pause(self, device: Borrowing, entry: Ready) -> PauseReason | None:
        """Why a device waits before it runs a batch; None if it does not."""
        if self._waits_for_judge(device, entry):
            return "judge"
        if self._waits_for_pairs(entry):
            return "pairs"
        if device.lingering and self._is_built_on(device) and not self._is_burst():
            return "burst"
        asking = self._is_asking(entry)
        is_free = is_quiet(device, entry, self.site, self._building, asking=asking)
        return None if is_free else "quiet"

    def _is_asking(self, entry: Ready) -> bool:
        """Whether the author works or starts, or a step judges a program while others are interleaved."""
        return self._asking + self._starting > 0 or (entry.interleaved and bool(self._judging))

    def _waits_for_judge(self, device: Borrowing, entry: Ready) -> bool:
        """Whether a device has to pause: no room, or the judge needs its cores or owes a verdict. A
        judge is asked once every device that owns one of its cores has paused.
        """
        unjudged = self._unjudged
        left_bytes = unjudged.left_bytes(device.name)
        if left_bytes is not None and entry.least_bytes > left_bytes:
            return True
        if not self.cases.is_timed(entry.batch) or not is_judged_here(device, entry, self.site):
            return False
        is_due = unjudged.is_due or self._devices.count("pausing", but=device) > 0
        return unjudged.is_asked or (unjudged.is_waiting and is_due)

    def _waits_for_pairs(self, entry: Ready) -> bool:
        """Whether to wait for more batches, to begin as many as devices; not while one is interleaved."""
        if not entry.interleaved or self._devices.count("alone"):
            return False
        idle = self._devices.count_unoccupied(entry.devices & self._devices.usable)
        found = sum(not entry.devices.isdisjoint(other.devices) for other in self.cases.ready)
        return found < idle and self.cases.are_pairs_coming(entry.devices)

    def _idle(self, device: Borrowing) -> None:
        """Keep an idle device if more cases may come that do not need its cores first, as finals."""
        rivals = [one.name for one in self._devices.rivals(device)]
        is_wanted = any(map(self.cases.ready.count, rivals))
        if is_wanted or self._is_built_on(device) or not self._is_keeping:
            self._release(device)
        else:
            self._linger(device)

    @property
    def _is_keeping(self) -> bool:
        """Whether devices for which nothing is ready are kept, because more cases may come."""
        is_asked_soon = self._room > 0 or bool(self._unjudged.rivals)
        is_more_to_come = self._is_more_to_come or self._asked or is_asked_soon
        # A batch that is looked up may also wait for one that runs like it: no device is asked for it.
        return is_more_to_come or bool(self.cases.looked_up_now)

    def _linger(self, device: Borrowing) -> None:
        if not device.lingering:
            device.linger()
            self._due.append(Linger(device=device.name))

    def _run(self, device: Borrowing) -> None:
        usable = self._devices.usable
        share = ceil(len(self.cases.ready) / (2 * len(usable)))
        room = max(min(self._fit_into(RUN_S), share), device.site.appetite)
        left_bytes = self._unjudged.left_bytes(device.name)
        # A batch that hands nothing over runs even if there is no room left, and alone: 0 would be no limit.
        room_bytes = device.site.room_bytes if left_bytes is None else max(left_bytes, 1)
        taken = self.cases.ready.take(
            device.name, usable, room, room_bytes, min(self._hot, LEAST_RUN)
        )
        cases = tuple(case for entry in taken for case in self.cases.start(entry, room_bytes))
        device.begin(cases, timed=any(self.cases.is_timed(entry.batch) for entry in taken))
        self._due.append(Run(device=device.name, cases=cases))

    def _ask_for_devices(self) -> None:
        is_done = self._stopping or not (self.cases.ready or self._is_more_to_come)
        if is_done and not self._asked:
            for device in self._devices.list_of("asked"):
                self._release(device)
        missing = ceil(len(self.cases.ready) / self._hot) - self._devices.count("coming")
        if missing <= 0:
            return
        reserved = self._devices.reserve(self.cases.ready.count)
        for device in self._devices.list_of("free"):
            if device.site.count > 1 or reserved.isdisjoint(device.site.parts):
                missing -= self._ask_for(device)
            if not missing:
                return

    def _ask_for(self, device: Borrowing) -> bool:
        """Ask for a free device if something is ready that may begin on it now."""
        rivals = self._devices.rivals(device)
        if any(one.lease not in (Lease.FREE, Lease.UNUSABLE) for one in rivals):
            return False
        if device.is_shared and not self._is_burst():
            return False
        entry = self.cases.ready.peek(device.name, self._devices.usable)
        if entry is None or self._waits_for_judge(device, entry) or self._waits_for_pairs(entry):
            return False
        for waiting in self.cases.ready:
            waiting.asked = waiting.asked or device.name in waiting.devices
        device.ask(entry.memory_bytes)
        case = self.cases.runnable(entry.batch)[0]
        self._due.append(Acquire(device=device.name, case=case.key))
        return True

    def _look_after_sick(self) -> None:
        is_any_lost = self._devices.count("unusable") or self.cases.lost_kinds
        if not (is_any_lost or self._looked_after):
            return
        is_wanted = not self._stopping and (self.cases.ready or self._is_more_to_come)
        given_up = self._devices.given_up if is_wanted else ()
        if is_wanted and self.cases.lost_kinds:
            given_up += tuple(sorted(self.cases.lost_devices.difference(given_up)))
        if given_up != self._looked_after:
            self._looked_after = given_up
            self._due.append(LookAfter(devices=given_up))

    def _is_built_on(self, device: Borrowing) -> bool:
        """Whether something is built, or can be, that may use the cores of a device."""
        return bool(self._building or self.cases.to_build) and device.is_shared

    def _is_burst(self) -> bool:
        """Whether enough is ready to pause building, or nothing is left that could be built."""
        enough = self.site.overlap and len(self.cases.ready) >= self.site.burst
        return enough or not self._is_more_to_come

    def _start_builds(self) -> None:
        for worker, core in enumerate(self.site.workers):
            if not self.cases.to_build:
                return
            if worker in self._building or self._are_held({core}):
                continue
            cases = self.cases.to_build.take(worker, len(self.site.workers))
            if not cases:
                return
            for case in cases:
                self.cases.move(case, Stage.BUILDING)
            self._building.add(worker)
            self._due.append(Build(cases=cases, worker=worker))

    def _are_held(self, cores: Collection[int], *, for_judge: bool = False) -> bool:
        """Whether nothing may start on one of these cores."""
        return self._devices.has_held(cores, overlap=self.site.overlap, for_judge=for_judge)

    def _start_judging(self) -> None:
        if self._unjudged.is_asked or not self._unjudged.is_waiting:
            return
        if not self._are_held(self.site.judge, for_judge=True):
            self._due.append(Judge(cases=self._unjudged.take()))

    def _start_preparing(self) -> None:
        if self._asking >= self._lanes or not self.cases.waiting:
            return
        if self._are_held(self.site.author):
            return
        while self._asking < self._lanes and self.cases.waiting:
            count = min(self._hot, MAX_PREPARED, ceil(len(self.cases.waiting) / self._lanes))
            cases = tuple(self.cases.waiting.popleft() for _ in range(count))
            for case in cases:
                self.cases.move(case, Stage.PREPARING)
            self._asking += 1
            self._due.append(Prepare(cases=cases))
