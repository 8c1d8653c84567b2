"""Holds the planned cases: the stage of each, and what its batch still waits for.
Stages: waiting, preparing, prepared, building, built, running, judging (kernels), ended.
"""

import enum
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import Batch, BuildKey, Case, KernelWork, Record
from tileyard.engine.commands import (
    BatchesPlanned,
    CasePrepared,
    Command,
    Drop,
    GiveUp,
    Keep,
    LookUp,
    Place,
    Strand,
)
from tileyard.engine.lending import DeviceSite

_Build = tuple[tuple[str, ...], BuildKey]
Ground = tuple[str, int]
"""A target, and the number of devices that a case holds at once."""
PATIENCE = 32
HOT_S = 0.02
"""Seconds; cases of which several run in this time are prepared, planned and handed over in groups."""
MAX_RETRIES = 2
"""Number of further runs of a case that its device or host failed."""
MAX_MOVES = 4
"""Number of times that a batch goes to another kind of CPU."""
SHARES = 2
"""Number of parts per device into which batches are divided if further devices join: the current one and
the next one."""


class BuildQueue:
    """Cases that wait for a compile worker, oldest first. Builds that share a cache are made singly."""

    def __init__(self) -> None:
        self._cases: deque[CasePrepared] = deque()
        self._build_of: dict[str, _Build] = {}
        # The first of them is queued or being built, the others follow it.
        self._members: dict[_Build, list[CasePrepared]] = {}
        self._caches: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def add(self, fact: CasePrepared) -> None:
        """Queue a case, or have it follow a queued one with the same builder and key."""
        build = self._build_of[fact.case] = (fact.builder, fact.build)
        members = self._members.setdefault(build, [])
        members.append(fact)
        if len(members) == 1:
            self._cases.append(fact)

    def take(self, worker: int, workers: int) -> tuple[str, ...]:
        """The cases that one of ``workers`` builds next: cases of one builder, at most its share of them."""
        used = self._caches.values()
        first = next((one for one in self._cases if not one.cache or one.cache not in used), None)
        if first is None:
            return ()
        self._caches[worker] = first.cache
        if first.group == 1:
            self._cases.remove(first)
            return (first.case,)
        share = -(-len(self._cases) // workers)
        taken: list[CasePrepared] = []
        for fact in self._cases:
            if len(taken) == min(first.group, share):
                break
            if fact.builder == first.builder:
                taken.append(fact)
        chosen = {fact.case for fact in taken}
        self._cases = deque(fact for fact in self._cases if fact.case not in chosen)
        return tuple(fact.case for fact in taken)

    def free(self, worker: int) -> None:
        """A worker needs its cache no more."""
        self._caches.pop(worker, None)

    def end(self, case: str) -> list[str]:
        """A case was built: return the cases that are built with it, including itself."""
        members = self._members.pop(self._build_of[case], [])
        return [case, *(fact.case for fact in members if fact.case != case)]

    def end_early(self, builder: tuple[str, ...], build: BuildKey) -> list[str]:
        """A build is ready that was made with another: return the cases that need it."""
        members = self._members.pop((builder, build), [])
        if members and members[0] in self._cases:
            self._cases.remove(members[0])
        return [fact.case for fact in members]

    def fail(self, case: str) -> None:
        """A build failed: the cases with its key are reported one by one, and find the recorded failure."""
        build = self._build_of[case]
        left = [fact for fact in self._members.pop(build, []) if fact.case != case]
        if left:
            self._members[build] = left
            self._cases.appendleft(left[0])

    def discard(self, case: str) -> None:
        """A queued case need not be built any more; if others follow it, they take its place."""
        members = self._members.get(self._build_of[case], []) if case in self._build_of else []
        if members and members[0].case == case and members[0] in self._cases:
            self._cases.remove(members[0])
            self.fail(case)
        elif members and members[0].case != case:
            members[:] = [fact for fact in members if fact.case != case]

    def forget(self, case: str) -> None:
        """Forget a case that has left the engine."""
        self._build_of.pop(case, None)

    def clear(self) -> None:
        """Nothing in the queue need be built any more."""
        self._cases.clear()
        self._members.clear()


class Stage(enum.Enum):
    """The stage of a case."""

    WAITING = "waiting"
    PREPARING = "preparing"
    PREPARED = "prepared"
    BUILDING = "building"
    BUILT = "built"
    RUNNING = "running"
    JUDGING = "judging"
    ENDED = "ended"

    __hash__ = object.__hash__  # that of Enum is written in Python, and called at every move


UNSTARTED = (Stage.WAITING, Stage.PREPARED, Stage.BUILT)
"""The stages of a case on which no process works."""

UNREADY = (Stage.WAITING, Stage.PREPARING, Stage.PREPARED, Stage.BUILDING)
"""The stages of a case before a device can run it."""

LEGAL_MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.WAITING: frozenset({Stage.PREPARING, Stage.ENDED}),
    Stage.PREPARING: frozenset({Stage.PREPARED, Stage.BUILT, Stage.ENDED}),
    Stage.PREPARED: frozenset({Stage.BUILDING, Stage.BUILT, Stage.ENDED}),
    Stage.BUILDING: frozenset({Stage.PREPARED, Stage.BUILT, Stage.ENDED}),
    Stage.BUILT: frozenset({Stage.RUNNING, Stage.ENDED}),
    Stage.RUNNING: frozenset({Stage.BUILT, Stage.JUDGING, Stage.ENDED}),
    Stage.JUDGING: frozenset({Stage.ENDED}),
    Stage.ENDED: frozenset(),
}


def ground_of(case: Case) -> Ground:
    """The target and number of devices, which decide on which devices a case runs."""
    return case.target, case.work.devices


def name_call(batch: Batch) -> str:
    """What decides how long a single case takes, more or less: kernel, arguments and target; else empty."""
    case = batch.cases[0]
    if len(batch.cases) > 1 or not isinstance(case.work, KernelWork):
        return ""
    return canonical_json((case.work.file, case.work.kernel, case.work.arguments, case.target))


class Site(Record):
    """The machine as the engine may use it: the cores of compile ``workers`` (one each), ``author`` and
    ``judge``. ``lanes`` is the initial number of questions at once; ``grounds`` the devices by target and
    number of devices held at once, ``kinds`` those of each kind of CPU, for targets that are built for one
    of several. ``window`` bounds the batches under way, and grows while cases are short; ``burst`` are ready
    before building pauses for a device that shares its cores.
    """

    workers: tuple[int, ...]
    devices: dict[str, DeviceSite]
    author: frozenset[int]
    judge: frozenset[int] = frozenset()
    grounds: dict[Ground, frozenset[str]] = {}
    kinds: dict[str, dict[str, frozenset[str]]] = {}
    lanes: int = 1
    window: int = 16
    burst: int = 8
    overlap: bool = True


@dataclass
class Ready:
    """A batch that waits for a device, one of ``devices`` and better none of ``avoid``, which failed it. It
    begins if there is room for ``least_bytes``; its outputs to be judged take ``output_bytes``. ``alone``: it
    shares a run with no other; ``asked``: it has waited since a device was asked for. ``rank``: see
    NothingKnown. ``call``: see ``name_call``.
    """

    batch: str
    memory_bytes: int
    devices: frozenset[str]
    expected_s: float | None = None
    output_bytes: int = 0
    least_bytes: int = 0
    interleaved: bool = False
    alone: bool = False
    avoid: frozenset[str] = frozenset()
    asked: bool = False
    overtaken: int = 0
    rank: float | None = None
    call: str = ""


class Grounds:
    """How many batches can run on each set of devices: far fewer sets than batches."""

    def __init__(self) -> None:
        self._batches: dict[frozenset[str], int] = {}

    def __iter__(self) -> Iterator[frozenset[str]]:
        return iter(self._batches)

    def count(self, devices: frozenset[str], more: int) -> None:
        """Count more batches of these devices, or fewer."""
        number = self._batches.get(devices, 0) + more
        if number:
            self._batches[devices] = number
        else:
            del self._batches[devices]

    def count_of(self, device: str) -> int:
        """Number of batches that this device could run."""
        return sum(n for devices, n in self._batches.items() if device in devices)


class ReadyQueue:
    """Batches in the order in which they became ready."""

    def __init__(self) -> None:
        self._entries: dict[str, Ready] = {}
        self._grounds = Grounds()
        self._lengths_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Ready]:
        return iter(self._entries.values())

    def add(self, entry: Ready) -> None:
        """Add a batch at the end, as one that has not waited yet."""
        entry.asked, entry.overtaken = False, 0
        if entry.batch not in self._entries:
            self._grounds.count(entry.devices, 1)
        self._entries[entry.batch] = entry

    def put_back(self, entries: list[Ready]) -> None:
        """Put batches that had been taken back at the front."""
        for entry in entries:
            if entry.batch not in self._entries:
                self._grounds.count(entry.devices, 1)
        self._entries = {entry.batch: entry for entry in entries} | self._entries

    def discard(self, batch: str) -> None:
        """Remove a batch, if it is in the queue."""
        if (entry := self._entries.pop(batch, None)) is not None:
            self._grounds.count(entry.devices, -1)

    def widen(self, entry: Ready, devices: frozenset[str]) -> None:
        """Have these devices run a batch, whether it is in the queue or not."""
        if entry.batch in self._entries:
            self._grounds.count(entry.devices, -1)
            self._grounds.count(devices, 1)
        entry.devices = devices

    def clear(self) -> None:
        """Remove all batches."""
        for batch in tuple(self._entries):
            self.discard(batch)

    def count(self, device: str) -> int:
        """Number of batches that this device could run."""
        return self._grounds.count_of(device)

    def peek(self, device: str, usable: frozenset[str]) -> Ready | None:
        """The next batch for this device, or None. Usable devices that did not fail it go first."""
        if not any(device in devices for devices in self._grounds):
            return None
        best: Ready | None = None
        for entry in self._entries.values():
            if device not in entry.devices:
                continue
            if device in entry.avoid and not usable & entry.devices <= entry.avoid:
                continue
            if best is None:
                best = entry
                if entry.interleaved or entry.overtaken >= PATIENCE or _place(entry) == FRONT:
                    return entry
            elif entry.interleaved:
                break
            elif _place(entry) < _place(best):
                best = entry
        return best

    def take(
        self, device: str, usable: frozenset[str], room: int, room_bytes: int = 0, hot: int = 0
    ) -> list[Ready]:
        """Take out the next batch, and others for its run: up to ``room``, or up to ``hot`` that are expected
        to run in HOT_S, and ``room_bytes`` if not 0.
        """
        taken: list[Ready] = []
        run_s = 0.0
        while len(taken) < room or (len(taken) < hot and run_s < HOT_S):
            entry = self.peek(device, usable)
            if entry is None:
                break
            run_s += self._foresee(entry)
            if len(taken) >= room and run_s > HOT_S:
                break
            if taken and (entry.alone or entry.memory_bytes != taken[0].memory_bytes):
                break
            left_bytes = room_bytes - sum(other.output_bytes for other in taken)
            if taken and room_bytes and entry.output_bytes > left_bytes:
                break
            self._overtake(entry)
            taken.append(entry)
            if entry.alone:
                break
        return taken

    def note_length(self, call: str, seconds: float) -> None:
        """Note how long a case ran; a long one counts at once, and shorter ones bring that down slowly."""
        if call:
            before_s = self._lengths_s.get(call, 0.0)
            self._lengths_s[call] = max(seconds, before_s + (seconds - before_s) / 4)

    def _foresee(self, entry: Ready) -> float:
        """Seconds that a batch may take: those of its earlier trials, else of the last with its call."""
        if entry.expected_s is not None:
            return entry.expected_s
        return self._lengths_s.get(entry.call, inf)

    def _overtake(self, entry: Ready) -> None:
        for other in self._entries.values():
            if other is entry:
                break
            other.overtaken += 1
        self.discard(entry.batch)


FRONT = (-inf, -inf)


def _place(entry: Ready) -> tuple[float, float]:
    """The least goes first: by rank, if there is one, and then the longest."""
    length_s = inf if entry.expected_s is None else entry.expected_s
    return -inf if entry.rank is None else entry.rank, -length_s


@dataclass
class _BatchState:
    """A batch: how often it went to another ``kind`` of CPU, and if it is divided, the ``most`` cases of a
    part.
    """

    batch: Batch
    entry: Ready
    timed: bool
    is_run: bool
    kind: str = ""
    moves: int = 0
    most: int = 0
    looked_up: bool = False
    output_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def is_divisible(self) -> bool:
        """Whether its cases may run apart from each other."""
        return self.batch.order == "any" and not self.batch.alike

    def narrow(self, name: str, cases: tuple[Case, ...]) -> "_BatchState":
        """The part with these cases, as a batch of this name."""
        own = {case.key for case in cases}
        sizes = {case: size for case, size in self.output_bytes.items() if case in own}
        expected_s, share = self.entry.expected_s, len(cases) / len(self.batch.cases)
        entry = replace(
            self.entry,
            batch=name,
            expected_s=None if expected_s is None else expected_s * share,
            output_bytes=sum(sizes.values()),
        )
        batch = msgspec.structs.replace(self.batch, id=name, cases=cases)
        return replace(self, batch=batch, entry=entry, output_bytes=sizes)


class PlannedCases:
    """Moves cases from stage to stage; the direct consequences are put into ``due``. ``stages`` is
    by case; ``grounds`` are the devices of each target and number of devices at once, ``kinds`` those of each
    kind of CPU. A batch is placed on one kind, and what is left of it on another if that is lost.
    """

    def __init__(
        self,
        due: list[Command],
        grounds: Mapping[Ground, frozenset[str]],
        kinds: Mapping[str, Mapping[str, frozenset[str]]],
    ) -> None:
        self._grounds = grounds
        self._kinds = kinds
        self._placed: Counter[str] = Counter()
        self._parted = 0
        self.lost_kinds: set[str] = set()
        """The kinds of CPU for which no host is left that builds."""
        self.waiting: deque[str] = deque()
        self.to_build = BuildQueue()
        self.ready = ReadyQueue()
        self.looked_up_now: set[str] = set()
        self._due = due
        self.stages: dict[str, Stage] = {}
        self._batches: dict[str, _BatchState] = {}
        self._needed = Grounds()
        self._sets: dict[tuple[frozenset[Ground], tuple[str, ...], str], frozenset[str]] = {}
        self._batch_of: dict[str, str] = {}
        self._lost: dict[str, int] = {}
        self._dropped: set[str] = set()
        self._trimmed: set[str] = set()

    @property
    def batches(self) -> int:
        """Number of batches that have not ended."""
        return len(self._batches)

    def plan(self, fact: BatchesPlanned, usable: frozenset[str]) -> None:
        """Add the batches that the source has planned."""
        for batch in fact.batches:
            self._add(batch, usable)

    def _add(self, batch: Batch, usable: frozenset[str]) -> None:
        timed = any(case.timing is not None for case in batch.cases)
        kind = self._choose_kind(batch, usable)
        if kind:
            self._due.append(Place(cases=tuple(case.key for case in batch.cases), kind=kind))
        entry = Ready(
            batch=batch.id,
            memory_bytes=batch.cases[0].runner_bytes,
            devices=self._find_devices(batch, kind),
            expected_s=0.0,
            interleaved=batch.order == "interleaved",
            alone=batch.order != "any" or batch.process == "fresh",
            call=name_call(batch),
        )
        is_run = batch.cases[0].until == "judged"
        self._enter(_BatchState(batch, entry, timed, is_run, kind))
        for case in batch.cases:
            self.stages[case.key] = Stage.WAITING
            self.waiting.append(case.key)

    def _enter(self, state: _BatchState) -> None:
        self._batches[state.batch.id] = state
        self._placed[state.kind] += 1
        if state.is_run:
            self._needed.count(state.entry.devices, 1)
        for case in state.batch.cases:
            self._batch_of[case.key] = state.batch.id

    def _choose_kind(self, batch: Batch, usable: frozenset[str]) -> str:
        """The kind of CPU with the fewest batches per usable device, empty if there is only one: so kinds get
        batches in proportion to their devices, and faster ones more.
        """
        kinds = self._kinds.get(batch.cases[0].target, {})
        usable_of = {
            kind: len(devices & usable)
            for kind, devices in kinds.items()
            if kind not in self.lost_kinds
        }
        return min(
            (kind for kind, count in usable_of.items() if count),
            key=lambda kind: (self._placed[kind] + 1) / usable_of[kind],
            default=next(iter(kinds), ""),
        )

    def lose_build(self, case: str, usable: frozenset[str]) -> None:
        """No host is left that builds for a case's kind of CPU: it goes to another kind, or is given up."""
        if self.stages.get(case) is not Stage.BUILDING:
            return
        state = self._batches[self._batch_of[case]]
        self.to_build.fail(case)
        self.move(case, Stage.PREPARED)
        if case in self._dropped:
            return
        self.lost_kinds.add(state.kind)
        if self._has_other_kind(state, usable):
            self._leave_kind(state, usable)
        else:
            self._dropped.add(case)
            self._due.append(Strand(case=case, device=""))

    @property
    def lost_devices(self) -> frozenset[str]:
        """The devices of the kinds of CPU for which no host is left that builds."""
        return frozenset(
            device
            for kinds in self._kinds.values()
            for kind in self.lost_kinds & kinds.keys()
            for device in kinds[kind]
        )

    def find_kind_again(self, device: str) -> None:
        """A host is back, or has joined: cases may be built for its kind of CPU again."""
        if self.lost_kinds:
            each = (pair for kinds in self._kinds.values() for pair in kinds.items())
            self.lost_kinds -= {kind for kind, devices in each if device in devices}

    def _has_other_kind(self, state: _BatchState, usable: frozenset[str]) -> bool:
        """Whether a batch can go to another kind of CPU."""
        if not state.kind or not state.is_divisible or state.moves == MAX_MOVES:
            return False
        return any(
            devices & usable and kind not in self.lost_kinds
            for kind, devices in self._kinds[state.batch.cases[0].target].items()
            if kind != state.kind
        )

    def _leave_kind(self, state: _BatchState, usable: frozenset[str]) -> None:
        """Plan the cases of a batch on which no process works anew, for another kind of CPU."""
        batch = state.batch
        left = tuple(
            case
            for case in batch.cases
            if self.stages[case.key] in UNSTARTED and case.key not in self._dropped
        )
        if not left:
            return
        for case in left:
            if self.stages[case.key] is Stage.WAITING:
                self.waiting.remove(case.key)
            self.to_build.discard(case.key)
            self._forget_case(case.key)
        self.ready.discard(batch.id)
        leaving = {case.key for case in left}
        stay = tuple(case for case in batch.cases if case.key not in leaving)
        state.batch = msgspec.structs.replace(batch, cases=stay)
        if all(self.stages[case.key] is Stage.ENDED for case in stay):
            self._forget(batch.id)
        moved = msgspec.structs.replace(batch, id=self._name_part(batch), cases=left)
        self._add(moved, usable)
        self._batches[moved.id].moves = state.moves + 1

    def _name_part(self, batch: Batch) -> str:
        self._parted += 1
        return f"{batch.id}/{self._parted}"

    def widen(
        self,
        grounds: Mapping[Ground, frozenset[str]],
        kinds: Mapping[str, Mapping[str, frozenset[str]]],
    ) -> None:
        """Have further devices run what is planned, too."""
        self._grounds, self._kinds = grounds, kinds
        self._sets.clear()
        for state in self._batches.values():
            devices = self._find_devices(state.batch, state.kind)
            if state.is_run:
                self._needed.count(state.entry.devices, -1)
                self._needed.count(devices, 1)
            self.ready.widen(state.entry, devices)

    def divide(self, usable: frozenset[str], joined: Collection[str]) -> bool:
        """Divide the cases that have not begun, and that devices which have ``joined`` may run, among all of
        their devices; return whether some of those that a device has got are needed for that.
        """
        left: Counter[frozenset[str]] = Counter()
        states = [
            state
            for state in self._batches.values()
            if state.is_run and state.is_divisible and not state.entry.devices.isdisjoint(joined)
        ]
        for state in states:
            left[state.entry.devices] += sum(map(self._is_left, state.batch.cases))
        is_short = False
        for state in states:
            devices = state.entry.devices
            state.most = max(1, ceil(left[devices] / (SHARES * len(devices & usable) or 1)))
            running = sum(self.is_running(case.key) for case in state.batch.cases)
            is_short = is_short or running > state.most
            self._divide(state)
        return is_short

    def _is_left(self, case: Case) -> bool:
        return self.stages[case.key] not in (Stage.JUDGING, Stage.ENDED)

    def _divide(self, state: _BatchState) -> None:
        """Have no more cases than that in a batch which no device has got; the others are further batches."""
        batch, most = state.batch, state.most
        free = [one for one in batch.cases if self._is_left(one) and not self.is_running(one.key)]
        if not 0 < most < len(free):
            return
        others = {case.key for case in batch.cases} - {case.key for case in free}
        # What still runs or is judged would hold up the others of its part.
        is_held_up = any(self.stages[key] is not Stage.ENDED for key in others)
        first = 0 if is_held_up else most
        parted = {case.key for case in free[first:]}
        parts = {batch.id: tuple(case for case in batch.cases if case.key not in parted)}
        for begin in range(first, len(free), most):
            parts[self._name_part(batch)] = tuple(free[begin : begin + most])
        self._forget_batch(state)
        for name, cases in parts.items():
            self._enter(state.narrow(name, cases))
        for name in parts:
            self._settle(name)

    def _find_devices(self, batch: Batch, kind: str) -> frozenset[str]:
        """The devices that can run a batch: one set for all alike, as it may name thousands."""
        asked = frozenset(ground_of(case) for case in batch.cases)
        key = asked, batch.devices, kind
        if key not in self._sets:
            found = [self._grounds.get(ground, frozenset()) for ground in asked]
            found += [frozenset(batch.devices)] if batch.devices else []
            found += [self._kinds[batch.cases[0].target][kind]] if kind else []
            self._sets[key] = frozenset.intersection(*found)
        return self._sets[key]

    def prepare(self, fact: CasePrepared) -> None:
        """A case is prepared: it is built already, or is queued for its build."""
        state = self._batches[self._batch_of[fact.case]]
        entry, state.output_bytes[fact.case] = state.entry, fact.output_bytes
        known = fact.expected_s is not None and entry.expected_s is not None
        entry.expected_s = (entry.expected_s or 0.0) + (fact.expected_s or 0.0) if known else None
        entry.output_bytes += fact.output_bytes
        is_divisible = state.batch.order == "any"
        entry.least_bytes = (
            max(entry.least_bytes, fact.output_bytes) if is_divisible else entry.output_bytes
        )
        if fact.built:
            self.move(fact.case, Stage.BUILT)
            return
        self.move(fact.case, Stage.PREPARED)
        if fact.case not in self._dropped:
            self.to_build.add(fact)

    def fail_build(self, case: str) -> None:
        """A case could not be built; the cases that share its build are reported by builds of their own."""
        self.to_build.fail(case)
        self.move(case, Stage.ENDED)

    def end_build(self, case: str) -> None:
        """A case was built, and those that share its build; it may have been ready before that."""
        if self.stages.get(case) is Stage.BUILDING:
            for name in self.to_build.end(case):
                self.move(name, Stage.BUILT)

    def lose(self, case: str, device: str, *, may_retry: bool) -> None:
        """Have a case run again, on another device if there is one, or give it up."""
        self._lost[case] = self._lost.get(case, 0) + 1
        self._batches[self._batch_of[case]].entry.avoid |= {device}
        if self._lost[case] > MAX_RETRIES or not may_retry or case in self._trimmed:
            self._dropped.add(case)
            self._due.append(GiveUp(case=case))

    def look_up(self, batch: str, rank: float | None) -> None:
        """Nothing is known of this batch from earlier runs."""
        self._batches[batch].looked_up = True
        self._batches[batch].entry.rank = rank
        self.looked_up_now.discard(batch)
        self._settle(batch)

    def are_pairs_coming(self, devices: frozenset[str]) -> bool:
        """Whether an interleaved batch for some of these devices is prepared, built or looked up."""
        return any(
            state.entry.interleaved
            and not devices.isdisjoint(state.entry.devices)
            and (
                name in self.looked_up_now
                or any(self.stages[case.key] in UNREADY for case in state.batch.cases)
            )
            for name, state in self._batches.items()
        )

    def is_running(self, case: str) -> bool:
        """Whether a case was given to a device and has not ended."""
        return self.stages.get(case) is Stage.RUNNING

    def is_timed(self, batch: str) -> bool:
        """Whether any case of a batch is timed."""
        return self._batches[batch].timed

    def runnable(self, batch: str) -> list[Case]:
        """The cases of a batch that can be run."""
        return [
            case
            for case in self._batches[batch].batch.cases
            if self.stages[case.key] is Stage.BUILT and case.key not in self._dropped
        ]

    def start(self, entry: Ready, room_bytes: int) -> list[str]:
        """Start a batch from the queue; return the cases that run: up to ``room_bytes`` of outputs, if
        any.
        """
        state = self._batches[entry.batch]
        started: list[str] = []
        used_bytes = 0
        for case in self.runnable(entry.batch):
            used_bytes += state.output_bytes[case.key]
            if started and 0 < room_bytes < used_bytes and state.batch.order == "any":
                self.ready.put_back([entry])
                break
            self.move(case.key, Stage.RUNNING)
            started.append(case.key)
        return started

    def note_length(self, case: str, seconds: float) -> None:
        """Note how long a case ran, for those with the same call of which nothing else is known."""
        self.ready.note_length(self._batches[self._batch_of[case]].entry.call, seconds)

    def take_back(self, cases: Iterable[str]) -> None:
        """Put cases that were given to a device and did not end back at the front of the queue."""
        left = [case for case in cases if self.is_running(case)]
        if not left:
            return
        behind = {entry.batch for entry in self.ready}
        for case in left:
            self.move(case, Stage.BUILT)
        for batch in {self._batch_of[case]: case for case in left}:
            self._divide(self._batches[batch])
        self.ready.put_back([entry for entry in self.ready if entry.batch not in behind])

    def move(self, case: str, stage: Stage) -> None:
        """Change the stage of a case; its batch may become ready or end by that."""
        if stage not in LEGAL_MOVES[self.stages[case]]:
            raise AssertionError(f"case {case} cannot go from {self.stages[case]} to {stage}")
        self.stages[case] = stage
        if case in self._trimmed and case not in self._dropped and stage in UNSTARTED:
            self._dropped.add(case)
            self._due.append(Drop(case=case))
        if stage in (Stage.BUILT, Stage.ENDED):
            self._settle(self._batch_of[case])

    def trim(self) -> None:
        """Drop the cases on which no process works, and the others as soon as none does."""
        self.give_up_unstarted()
        self._trimmed = self.stages.keys() - self._dropped

    def give_up_unstarted(self) -> None:
        """Give up every case that no process works on."""
        for case in [case for case, stage in self.stages.items() if stage in UNSTARTED]:
            if case not in self._dropped:
                self._dropped.add(case)
                self._due.append(Drop(case=case))
        self.waiting.clear()
        self.to_build.clear()
        self.ready.clear()

    def strand_without(self, usable: frozenset[str], device: str) -> None:
        """Give up the cases that no usable device can run and none works on: ``device`` was the last. Those
        that can be built for another kind of CPU go there instead.
        """
        if not self.lost_kinds and not any(one.isdisjoint(usable) for one in self._needed):
            return
        for state in list(self._batches.values()):
            is_unusable = state.entry.devices.isdisjoint(usable)
            if not state.is_run or not (is_unusable or state.kind in self.lost_kinds):
                continue
            if self._has_other_kind(state, usable):
                self._leave_kind(state, usable)
                continue
            if not is_unusable:
                continue
            self.ready.discard(state.batch.id)
            for case in state.batch.cases:
                stage = self.stages[case.key]
                if stage in UNSTARTED and case.key not in self._dropped:
                    self._dropped.add(case.key)
                    if stage is Stage.WAITING:
                        self.waiting.remove(case.key)
                    self.to_build.discard(case.key)
                    self._due.append(Strand(case=case.key, device=device))

    def strand(self, batch: str, device: str) -> None:
        """Give up a batch that is ready, for lack of a device."""
        self.ready.discard(batch)
        for case in self.runnable(batch):
            self._dropped.add(case.key)
            self._due.append(Strand(case=case.key, device=device))

    def _settle(self, batch: str) -> None:
        """Make a batch ready if none of its cases is still being prepared, built or run."""
        state = self._batches[batch]
        stages = {self.stages[case.key] for case in state.batch.cases}
        if not stages <= {Stage.BUILT, Stage.ENDED}:
            return
        if Stage.BUILT not in stages:
            self._forget(batch)
        elif not (runnable := self.runnable(batch)):
            return
        elif not state.is_run:
            self._dropped.update(case.key for case in runnable)
            self._due.extend(Keep(case=case.key) for case in runnable)
        elif state.looked_up or not (state.entry.interleaved or state.batch.alike):
            self.ready.add(state.entry)
        elif batch not in self.looked_up_now:
            self.looked_up_now.add(batch)
            self._due.append(LookUp(batch=batch))

    def _forget_batch(self, state: _BatchState) -> None:
        del self._batches[state.batch.id]
        if state.is_run:
            self._needed.count(state.entry.devices, -1)
        self.ready.discard(state.batch.id)
        self._placed[state.kind] -= 1

    def _forget(self, batch: str) -> None:
        state = self._batches[batch]
        self._forget_batch(state)
        self.looked_up_now.discard(batch)
        for case in state.batch.cases:
            self._forget_case(case.key)
            self._lost.pop(case.key, None)
            self._dropped.discard(case.key)
            self._trimmed.discard(case.key)

    def _forget_case(self, case: str) -> None:
        del self.stages[case], self._batch_of[case]
        self.to_build.forget(case)
