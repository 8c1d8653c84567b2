"""The open handle on everything that a run uses: store, objects, devices, target, author, listeners."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tileyard.artifacts.copying import writing_to
from tileyard.artifacts.manifest import Build
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HomeError
from tileyard.base.events import Event, Note, describe_note
from tileyard.base.model import QUEUE_LIMIT_S, BuildKey, Case, Device, Elaborated, SourceLine, Trial
from tileyard.base.modes import make_folder, open_file
from tileyard.devices.classes import find_cpu_kinds
from tileyard.devices.reprobing import INTERVAL_S
from tileyard.engine.authors import Authors
from tileyard.engine.compilers import Builders, depends_on_cpu
from tileyard.engine.judge import JUDGE
from tileyard.engine.programs import Programs
from tileyard.engine.runners import RunnerSite
from tileyard.workers.protocol import RunEntry

if TYPE_CHECKING:  # code that runs on a device has no store, and need not import it
    from tileyard.store.base import Store

Listener = Callable[[Event], None]
FindEntry = Callable[[Case], RunEntry | None]
"""Returns what a runner needs for a case that was built elsewhere; None for one that is built here."""
Rank = Callable[[Case, BuildKey], float | None]
"""The place of a case, once it is built, among those that are ready: the least runs first, and before it what
has none.
"""

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Workplace:
    """How a run uses the machine.
    ``reuse``: recorded trials may answer; ``rebuild``: build even what exists; ``fresh``: make golden results
    again; no ``overlap``: build everything first. ``queue_limit_s`` bounds the wait for a device.
    ``compile_workers``: None for one per core without a device; ``group_size``: kernels per build request,
    None for what suits the target. ``proven_by``: the run, or ``any``, whose passed cases with the same run
    keys are skipped, empty for none. ``check_sync``: check every kernel before it is built; None: first
    configs and finalists, if quick. ``halts`` returns why a trial ends the run, empty to continue.
    """

    reuse: bool = True
    rebuild: bool = False
    fresh: bool = False
    overlap: bool = True
    queue_limit_s: float = QUEUE_LIMIT_S
    compile_workers: int | None = None
    group_size: int | None = None
    proven_by: str = ""
    check_sync: bool | None = False
    halts: Callable[[Trial], str] | None = None


@dataclass(kw_only=True)
class Yard(Workplace, RunnerSite):
    """What the engine and its runners work with.
    ``programs`` answers for cases of programs; ``compilers`` were begun before the run; None for
    none. ``listeners`` get every event, and may keep it until ``flushes`` are called; ``unwritten``
    are those warned about as not writable. ``sync_unchecked``: works not checked for undefined
    behaviour as asked, with reasons; ``noted``: kernels and lines already noted. ``packed`` finds
    what was built elsewhere, for stored sides; ``rank`` orders what is built; ``shelf`` gets what a
    runner would need for each case not run here, and ``builds`` how its build ended. ``reprobe_s``:
    seconds between probes of a device in quarantine; ``judge``: the module that compares outputs.
    """

    store: "Store"
    objects: ObjectStore
    authors: Authors
    programs: Programs | None = None
    compilers: Builders | None = None
    listeners: list[Listener] = field(default_factory=list)
    flushes: list[Callable[[], None]] = field(default_factory=list)
    packed: FindEntry | None = None
    rank: Rank | None = None
    shelf: dict[str, RunEntry] = field(default_factory=dict)
    builds: dict[str, Build] = field(default_factory=dict)
    unwritten: set[str] = field(default_factory=set)
    sync_unchecked: dict[str, str] = field(default_factory=dict)
    noted: set[tuple[str, SourceLine | None]] = field(default_factory=set)
    reprobe_s: float = INTERVAL_S
    judge: str = JUDGE

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices of the run, each once."""
        each = {device.name: device for found in self.grounds.values() for device in found}
        return tuple(each.values())

    def find_kinds(self, target: str) -> dict[str, tuple[Device, ...]]:
        """The devices of a target by the kind of CPU for which it is built; empty if there is only one."""
        kinds = find_cpu_kinds(self.grounds.get(target, ())) if depends_on_cpu(target) else {}
        return kinds if len(kinds) > 1 else {}

    def append_log(self, log: str, text: str) -> None:
        """Append whole lines, if any, to a log, named below the home; a full disk loses some."""
        if not text:
            return
        path = self.home / log
        try:
            with writing_to(path):
                make_folder(path.parent)
                with open(path, "a", encoding="utf-8", errors="replace", opener=open_file) as file:
                    file.write(text if text.endswith("\n") else text + "\n")
        except HomeError as error:
            self.warn_of("logs", error)

    def warn_of(self, what: str, error: HomeError) -> None:
        """Tell listeners, once per run, what cannot be written. The run continues."""
        if what not in self.unwritten:
            self.unwritten.add(what)
            text = f"{error}; the run continues, but some of its {what} may be lost"
            self.emit(Note(text=text, level="warning"))

    def tell_notes(self, elaborated: Elaborated) -> None:
        """Tell listeners what TileLang makes of a kernel, once per run for each of its lines."""
        for note in elaborated.notes:
            about = (elaborated.kernel.name, note.where)
            if about not in self.noted:
                self.noted.add(about)
                self.emit(Note(text=describe_note(note)))

    def emit(self, event: Event) -> None:
        """Send an event to every listener. A listener that fails is dropped, and the run continues."""
        for listener in tuple(self.listeners):
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s and was dropped", type(event).__name__)
                self.listeners.remove(listener)

    def flush(self) -> None:
        """Let listeners write kept events, or keep them if a disk is full; drop one that fails otherwise."""
        for flush in tuple(self.flushes):
            try:
                flush()
            except HomeError as error:
                self.warn_of("events", error)
            except Exception:
                log.exception("a listener could not write what it had kept and was dropped")
                self.flushes.remove(flush)
