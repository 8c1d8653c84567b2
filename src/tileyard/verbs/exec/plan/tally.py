"""Counts the work done for a script while it runs, and reports it in one line at the end."""

import threading
from collections import Counter
from collections.abc import Iterable

import msgspec

from tileyard.base.events import describe_note
from tileyard.base.model import Diagnostic, Record, SourceLine
from tileyard.base.wording import count_of


class Refusal(Record):
    """A kernel that has no CPU version: the operation that is not covered, and its source line."""

    kernel: str
    message: str
    operation: str = ""
    file: str = ""
    line: int = 0


class Summary(Record, omit_defaults=True):
    """The work done for a script. ``promoted`` counts torch's half-precision operations computed in f32;
    ``timers`` counts uses of timers, all of which timed a CPU. ``notes`` say what TileLang makes of lines of
    kernels; ``unsteady`` has a line per kernel that reads its outputs before it writes them.
    """

    built: int
    cached: int
    launched: int
    cores: int
    refused: tuple[Refusal, ...]
    promoted: dict[str, int]
    timers: dict[str, int]
    notes: tuple[str, ...] = ()
    unsteady: tuple[str, ...] = ()


class Tally:
    """Counts, from any thread."""

    def __init__(self, cores: int) -> None:
        self._lock = threading.Lock()
        self._cores = cores
        self._kernels: dict[str, bool] = {}
        self._launched = 0
        self._refused: dict[Refusal, None] = {}
        self._promoted: Counter[str] = Counter()
        self._timers: Counter[str] = Counter()
        self._notes: dict[tuple[str, SourceLine | None], str] = {}
        self._repeated: set[str] = set()
        self._unsteady: dict[str, None] = {}

    def note_kernel(self, build: str, *, is_built: bool) -> None:
        """Count a kernel by its build key: built now, or built before. One kernel counts once."""
        with self._lock:
            self._kernels.setdefault(build, is_built)

    def note_launch(self) -> None:
        """Count one launch."""
        with self._lock:
            self._launched += 1

    def note_refusal(self, refusal: Refusal) -> None:
        """Record a kernel that could not be built; the same one counts once."""
        with self._lock:
            self._refused[refusal] = None

    def note_lines(self, kernel: str, notes: Iterable[Diagnostic]) -> None:
        """Record notes about a kernel, one for each line."""
        with self._lock:
            for note in notes:
                self._notes.setdefault((kernel, note.where), describe_note(note))

    def note_promotion(self, operation: str) -> None:
        """Count one operation of torch that was computed in f32 in place of half precision."""
        with self._lock:
            self._promoted[operation] += 1

    def begin_repeating(self, work: str) -> bool:
        """Whether a kernel with this work is to be launched again with other content in its outputs: once."""
        with self._lock:
            is_new = work not in self._repeated
            self._repeated.add(work)
        return is_new

    def note_unsteady(self, message: str) -> None:
        """Record a kernel that reads its outputs before it writes them."""
        with self._lock:
            self._unsteady[message] = None

    def note_timer(self, timer: str) -> None:
        """Count a use of a timer."""
        with self._lock:
            self._timers[timer] += 1

    def summary(self) -> Summary:
        """The counts so far."""
        with self._lock:
            return Summary(
                built=sum(self._kernels.values()),
                cached=sum(not is_built for is_built in self._kernels.values()),
                launched=self._launched,
                cores=self._cores,
                refused=tuple(self._refused),
                promoted=dict(self._promoted),
                timers=dict(self._timers),
                notes=tuple(dict.fromkeys(self._notes.values())),
                unsteady=tuple(self._unsteady),
            )


def summary_json(summary: Summary) -> str:
    """One line of JSON."""
    return msgspec.json.encode(summary).decode()


def summary_line(summary: Summary) -> str:
    """One line for people."""
    kernels = count_of(summary.built, "kernel")
    parts = [
        f"{kernels} built, {summary.cached} built before,"
        f" {count_of(summary.launched, 'launch')}"
        f" on {count_of(summary.cores, 'CPU core')}"
    ]
    if summary.refused:
        names = ", ".join(dict.fromkeys(refusal.kernel for refusal in summary.refused))
        parts.append(f"refused: {names}")
    if summary.promoted:
        number = sum(summary.promoted.values())
        parts.append(f"{count_of(number, 'half-precision operation')} of torch computed in f32")
    if summary.timers:
        parts.append(f"times are those of this CPU ({', '.join(sorted(summary.timers))})")
    return "; ".join(parts)
