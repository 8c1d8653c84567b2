"""Simulates when a run ends if golden and check steps share lanes, and memory, beside the slots of cases."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from tileyard.artifacts.objects import digest_parts
from tileyard.base.decoding import decode_json, draft_of
from tileyard.base.errors import HomeError
from tileyard.base.events import StepKind
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, mode_in
from tileyard.verbs.test.plan.durations import KnownSteps
from tileyard.verbs.test.plan.pieces import Costs
from tileyard.verbs.test.result.achieved import Startup
from tileyard.verbs.test.result.result import CaseVerdict

FOLDER = "suites"


class Timed(NamedTuple):
    """Times of golden (0 if made), run and check step; ``golden`` is the case to wait for, -1 for none."""

    golden_s: float
    run_s: float
    check_s: float
    golden: int


class Room(NamedTuple):
    """The most pieces that run at once, the most golden and check steps, and the most of both together."""

    slots: int
    lanes: int
    places: int


class _Task(NamedTuple):
    """A step of a case, or the run of the first case of a piece: ``rest`` are those of it that follow."""

    kind: StepKind | None
    case: int
    rest: deque[int]


class _Simulation:
    """Pieces on slots; golden steps in the pieces' order, and checks before them, on lanes. Who has a slot or
    a lane waits for a place, first come, first served.
    """

    def __init__(self, cases: Sequence[Timed], pieces: Sequence[range], room: Room) -> None:
        self._cases = cases
        self._pieces = deque(deque(piece) for piece in pieces)
        order = (case for piece in pieces for case in piece)
        self._goldens = deque(case for case in order if cases[case].golden_s)
        self._checks: deque[int] = deque()
        self._room = room
        self._lanes = room.lanes
        self._places = room.places
        self._queue: deque[_Task] = deque()
        self._made = {-1}
        self._waiting: dict[int, list[deque[int]]] = {}
        self._events: list[tuple[float, int, _Task]] = []
        self._count = 0

    def run(self) -> float:
        """The end of the last step, in seconds from the start."""
        now_s = 0.0
        self._fill_lanes()
        for _ in range(min(self._room.slots, len(self._pieces))):
            self._go_on(deque())
        self._fill_places(now_s)
        while self._events:
            now_s, _, task = heappop(self._events)
            self._places += 1
            self._end(task, now_s)
            self._fill_places(now_s)
        return now_s

    def _end(self, task: _Task, now_s: float) -> None:
        if task.kind is not None:
            self._lanes += 1
        elif self._cases[task.case].check_s:
            self._checks.append(task.case)
        self._fill_lanes()
        if task.kind is None:
            if task.rest and self._is_ready(task.rest):
                self._begin(_take(task.rest), now_s)  # in the same place
            else:
                self._go_on(task.rest)
        elif task.kind == "golden":
            self._made.add(task.case)
            for piece in self._waiting.pop(task.case, ()):
                self._go_on(piece)

    def _fill_lanes(self) -> None:
        while self._lanes and (self._checks or self._goldens):
            self._lanes -= 1
            if self._checks:
                self._queue.append(_Task("check", self._checks.popleft(), deque()))
            else:
                self._queue.append(_Task("golden", self._goldens.popleft(), deque()))

    def _fill_places(self, now_s: float) -> None:
        while self._places and self._queue:
            self._begin(self._queue.popleft(), now_s)

    def _begin(self, task: _Task, now_s: float) -> None:
        timed = self._cases[task.case]
        seconds = {None: timed.run_s, "golden": timed.golden_s, "check": timed.check_s}[task.kind]
        self._places -= 1
        self._count += 1
        heappush(self._events, (now_s + seconds, self._count, task))

    def _go_on(self, piece: deque[int]) -> None:
        """A slot takes its piece's next case, or the next piece, or waits for golden data."""
        if not piece:
            if not self._pieces:
                return
            piece = self._pieces.popleft()
        if self._is_ready(piece):
            self._queue.append(_take(piece))
        else:
            self._waiting.setdefault(self._cases[piece[0]].golden, []).append(piece)

    def _is_ready(self, piece: deque[int]) -> bool:
        return self._cases[piece[0]].golden in self._made


def _take(piece: deque[int]) -> _Task:
    return _Task(None, piece.popleft(), piece)


def simulate_steps(cases: Sequence[Timed], pieces: Sequence[range], room: Room) -> float:
    """The end of the last step, in seconds; ``pieces`` are ranges of cases in the order of their starts."""
    return _Simulation(cases, pieces, room).run()


class Memory(Record):
    """The ids of cases that ended badly in their last run, and the cost of starting, in seconds:
    ``startup_s`` of a piece, during whose part ``launch_s`` no other can start, and ``lead_s`` before the
    first case. ``steps`` is what is known of golden and check steps. ``knows_mask``: its owner knows that
    masks renumber devices.
    """

    failing: tuple[str, ...] = ()
    startup_s: float = 0.0
    launch_s: float = 0.0
    lead_s: float = 0.0
    steps: KnownSteps = KnownSteps()
    knows_mask: bool = False

    def costs(self, lanes: int, *, has_devices: bool) -> Costs:
        """The cost of starting by earlier runs of the suite, with so many lanes for steps; these share the
        cores with slots, and not with devices.
        """
        return Costs(
            startup_s=self.startup_s,
            launch_s=self.launch_s,
            lead_s=self.lead_s,
            lanes=lanes,
            shares_cores=not has_devices,
        )


def read_memory(home: Path, suite: str) -> Memory:
    """The memory of this suite; empty if it never ran or the file is damaged. Raises HomeError."""
    path = _path(home, suite)
    try:
        return decode_json(path.read_bytes(), Memory)
    except (FileNotFoundError, msgspec.DecodeError):
        return Memory()
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}") from error


def update_memory(
    home: Path,
    suite: str,
    verdicts: Iterable[CaseVerdict],
    started: Startup | None,
    learn: Callable[[Memory], Memory],
) -> None:
    """Add a run's results, leaving cases that did not run; ``learn`` adds the rest. Raises HomeError."""
    known = read_memory(home, suite)
    is_bad = {verdict.case: verdict.is_bad for verdict in verdicts}
    still = (case for case in known.failing if case not in is_bad)
    costs = {} if started is None else asdict(started)
    told = {name: seconds for name, seconds in costs.items() if seconds is not None}
    memory = replace(known, failing=(*still, *(case for case in is_bad if is_bad[case])), **told)
    memory = learn(memory)
    path = _path(home, suite)
    try:
        make_folder(path.parent)
        with draft_of(path) as file:
            file.write(msgspec.json.encode(memory))
            os.fchmod(file.fileno(), mode_in(path.parent, 0o666))
    except OSError as error:
        raise HomeError(f"cannot write to {path.parent}: {error.strerror}") from error


def _path(home: Path, suite: str) -> Path:
    return home / FOLDER / f"{digest_parts('suite', suite)[:20]}.json"
