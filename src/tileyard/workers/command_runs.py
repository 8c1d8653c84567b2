"""Runs a batch's programs, one process each, or one for several hot ones: others go on after a failure."""

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.manifest import TREE_FILE, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import HOST_FAULTS, TileyardError, UsageError
from tileyard.base.model import (
    WHOLE,
    BuildKey,
    Device,
    Digest,
    GoldenPart,
    HotRun,
    Outcome,
    Step,
    TimingPolicy,
)
from tileyard.base.modes import make_folder, write_file
from tileyard.devices.base import index_of, number_of
from tileyard.processes.records import SUSPECT, tells_of_memory
from tileyard.processes.steps import (
    Heard,
    StepEnd,
    StepOrder,
    describe_complaints,
    describe_end,
    describe_kind,
    describe_start,
    note_in,
    run_step,
)
from tileyard.targets.command.given import Places, fill, fill_argv, find_site, give
from tileyard.workers.protocol import CaseBegan, CaseRan, CommandRun, Golden, RunBatch, RunEntry
from tileyard.workers.timed_programs import HotOutput, Member, Ran, Runs, draw_orders, is_enough

UNFIT: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOEXEC,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ELIBBAD,
        errno.ETXTBSY,
    }
)
"""Errors at the start of a program that its file causes."""
UNFIT_ARGUMENTS: Final = frozenset({0, errno.E2BIG, errno.EINVAL})
"""Errors that its arguments cause; 0 is for arguments that no system call takes."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
Tell = Callable[[CaseBegan | CaseRan], None]


def judge_run(end: StepEnd, order: StepOrder, own: Sequence[Path]) -> tuple[Outcome, str]:
    """The outcome of a case from the end of its run step; judging may still change ``passed``. A program that
    cannot be started is the case's failure only if in ``own`` folders, else the host's.
    """
    if end.ok:
        return Outcome.PASSED, describe_complaints(end, "")
    message = describe_end(end, order)
    if end.refusal:
        is_own = _is_own_refusal(end, order, own)
        return (Outcome.RUNTIME_ERROR if is_own else Outcome.INFRA_ERROR), message
    if end.survivors or end.lost:
        return Outcome.INFRA_ERROR, message
    if end.timed_out:
        return Outcome.TIMEOUT, message
    if tells_of_memory(end.tail):
        return Outcome.OUT_OF_MEMORY, message
    return Outcome.CRASHED if end.signal is not None else Outcome.RUNTIME_ERROR, message


def _is_own_refusal(end: StepEnd, order: StepOrder, own: Sequence[Path]) -> bool:
    if not end.refused:  # nothing could be started at all
        return False
    if end.errno in UNFIT_ARGUMENTS:
        return True
    if end.errno not in UNFIT or os.sep not in end.refused:  # looked for along PATH
        return False
    path = Path(os.path.normpath(Path(order.cwd, end.refused)))
    return any(path.is_relative_to(folder) for folder in own)


DATA, TEMPORARY, USED = "data", "tmp", "used"
"""In a case's folder: the data of its steps, their temporary files, and a mark that it has run."""


def make_case_folder(folder: Path, golden: Digest, trees: Trees, part: GoldenPart = WHOLE) -> None:
    """Make a case's folder from its part of the golden step's result. Raises UsageError if there is none."""
    if folder.exists():
        remove_folder(folder)
    for name in (DATA, TEMPORARY):
        make_folder(folder / name)
    if not golden:
        return
    put = trees.link if part.is_linked else trees.copy
    try:
        put(golden, folder / DATA, part.path)
    except UsageError as error:
        raise UsageError(f"golden step made nothing for this case: {error.message}") from error


def begin_case_folder(folder: Path, golden: Golden, trees: Trees) -> None:
    """Mark a case's folder as used; recreate it if an earlier attempt used it."""
    if (folder / USED).exists() or not (folder / DATA).exists():
        make_case_folder(folder, golden.tree, trees, golden.part)
    write_file(folder / USED, b"")


class Stores:
    """A home directory with its objects and trees, opened once per process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.objects = ObjectStore(home / "objects")
        self.trees = Trees(self.objects)

    def find_made(
        self, golden: Digest, build: BuildKey, part: GoldenPart = WHOLE
    ) -> dict[str, str]:
        """The directories that golden (only its ``part`` unchanged) and build steps made, by placeholder."""
        places: dict[str, str] = {}
        if golden:
            places["golden"] = str(self.trees.path(golden, part.path))
        artifact = find_artifact(build, self.objects) if build else None
        if artifact is not None and TREE_FILE in artifact.manifest.files:
            places["build"] = str(self.trees.path(artifact.manifest.files[TREE_FILE]))
        return places


def worker_environment(threads: int) -> dict[str, str]:
    """A complete environment in which numeric libraries start at most ``threads`` threads."""
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}


def host_memory_bytes() -> int:
    """The memory in bytes of this host, or of the container of this process if that is less."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # none, or "max"
        return host
    return min(host, limit)


class CommandRuns:
    """Runs batches under the lease with this number. ``limited``: each case is ended at its limit
    here, not by the caller. No case is begun once ``is_stopped`` is True, or ``is_suspect``: one
    crashed or hung on a device with a probe.
    """

    _title = "run"
    _is_always_hot = False
    _threads = 1

    def __init__(
        self,
        stores: Stores,
        tell: Tell,
        is_stopped: Callable[[], bool],
        *,
        lease: int = 0,
        limited: bool = True,
    ) -> None:
        self.is_suspect = False
        self._is_stopped = is_stopped
        self._is_probed = False
        self._home = stores.home
        self._stores = stores
        self._tell = tell
        self._lease = lease
        self._limited = limited

    def run(self, request: RunBatch) -> None:
        """Run every entry; each is reported by its own CaseRan."""
        self._is_probed = any(one.probe for one in (request.device, *request.device.members))
        cases = {case.key: case for case in request.batch.cases}
        left = [
            Member(case=cases[e.case], entry=e, command=_command(e), log=self._home / e.log)
            for e in request.entries
        ]
        if request.batch.order == "interleaved":
            self._run_in_turn(left, request)
            return
        while left and not self.is_stopped():
            members = _take_group(left)
            hot = members[0].command.hot
            if hot is not None and (len(members) > 1 or self._is_always_hot):
                self._run_hot(members, hot, request.device)
            else:
                self._run_alone(members[0], request.device)

    def is_stopped(self) -> bool:
        """Whether no further case is begun."""
        return self.is_suspect or self._is_stopped()

    def _run_alone(self, member: Member, device: Device) -> None:
        started_s = time.monotonic()
        ran = self._run_once(member, device, started_s)
        if ran is not None:
            self._answer(member, _ended_well(member), ran.message, started_s)

    def _run_in_turn(self, members: Sequence[Member], request: RunBatch) -> None:
        """Run programs in turn, each run in a new folder; the outputs of the last run are judged."""
        started_s = time.monotonic()
        runs = [Runs(member=one) for one in members]
        for order in draw_orders(len(runs), request.batch.rounds, request.batch.id):
            for one in (runs[index] for index in order):
                if self.is_stopped():
                    return
                if not one.answered:
                    self._time(one, request.device, started_s)
            if is_enough(runs, time.monotonic() - started_s):
                break
        for one in runs:
            if not one.answered:
                measured = one.summarize(one.member.case.timing or TimingPolicy())
                outcome = _ended_well(one.member)
                ran = self._report(one.member, outcome, one.message, started_s)
                self._tell(msgspec.structs.replace(ran, measurement=measured))

    def _time(self, runs: Runs, device: Device, started_s: float) -> None:
        """Run a program once more, and report the case if that failed."""
        heard = runs.hear()
        ran = self._run_once(runs.member, device, started_s, heard)
        runs.answered = ran is None
        if ran is not None:
            try:
                runs.take(ran, heard)
            except UsageError as error:
                runs.answered = True
                self._answer(runs.member, Outcome.RUNTIME_ERROR, str(error), started_s)

    def _run_once(
        self, member: Member, device: Device, started_s: float, heard: Heard | None = None
    ) -> Ran | None:
        self._tell_began(member)
        try:
            order = self._order(member, member.command.run, device, [member])
            end = run_step(msgspec.structs.replace(order, title="run"), heard)
        except (TileyardError, OSError) as error:
            self._refuse(member, error, started_s)
            return None
        outcome, message = judge_run(end, order, self._own_folders(member, end))
        if outcome is Outcome.PASSED:
            return Ran(end, message)
        self._answer(member, outcome, message, started_s, insists=_insists(end))
        return None

    def _run_hot(self, members: Sequence[Member], hot: HotRun, device: Device) -> None:
        """Run all of them in one process; if it ends too early, run the rest in another one."""
        left = list(members)
        while left and not self.is_stopped():
            started_s = time.monotonic()
            limit_s = hot.step.limit_s or left[0].case.limits.run_s
            try:
                order = self._order(left[0], hot.step, device, left)
            except (TileyardError, OSError) as error:
                for member in left:
                    self._refuse(member, error, started_s)
                return
            heard = HotOutput(
                hot=hot,
                members={m.command.name: m for m in left},
                tell_began=self._tell_began,
                tell_ended=self._answer,
                is_stopped=self.is_stopped,
                heading=describe_start(msgspec.structs.replace(order, title=self._title)),
                limit_s=limit_s,
                limits_cases=self._limited,
            )
            try:
                end = run_step(order, heard)
            except (TileyardError, OSError) as error:
                for member in left:
                    if member.case.key not in heard.answered:
                        self._refuse(member, error, started_s)
                return
            order = msgspec.structs.replace(order, limit_s=heard.due_s)
            left = [member for member in left if member.case.key not in heard.answered]
            how = describe_kind(end, order)
            if not left or (self.is_stopped() and heard.current is None):
                if not (end.ok or self.is_stopped()):
                    heard.note_end(how)
                return
            if heard.current is None and heard.answered and not (end.ok or end.survivors):
                heard.note_end(how)  # another process begins the next case
                continue
            culprit = heard.current or left[0]
            if culprit is not heard.current:
                self._tell_began(culprit)
            outcome, message = judge_run(end, order, self._own_folders(culprit, end))
            if outcome is Outcome.PASSED:
                outcome = Outcome.INFRA_ERROR
                message = (
                    "its process ended with exit code 0 and said nothing of it;"
                    f" argv {list(order.argv)}"
                )
            elif heard.current is None and not end.refusal:
                message = f"before it turned to any case, {message}"
            heard.head(culprit)
            note_in(culprit.log, end.refusal or f"{how} after {end.seconds:.2f} s")
            since_s = heard.since_s or started_s
            self._answer(culprit, outcome, message, since_s, insists=_insists(end))
            left.remove(culprit)

    def _tell_began(self, member: Member) -> None:
        self._tell(CaseBegan(case=member.case.key))

    def _refuse(self, member: Member, error: TileyardError | OSError, started_s: float) -> None:
        is_ours = isinstance(error, HOST_FAULTS)
        outcome = Outcome.INFRA_ERROR if is_ours else Outcome.RUNTIME_ERROR
        self._answer(member, outcome, str(error), started_s)

    def _answer(
        self,
        member: Member,
        outcome: Outcome,
        message: str,
        started_s: float,
        *,
        insists: Outcome = Outcome.INFRA_ERROR,
    ) -> None:
        if outcome in (Outcome.PASSED, Outcome.UNCHECKED) and self._has_spoilt_golden(member):
            outcome = Outcome.RUNTIME_ERROR
            message = "wrote to golden data, which are links: `link = false` gives it a copy"
        self.is_suspect |= self._is_probed and outcome in SUSPECT
        ran = self._report(member, outcome, message, started_s)
        self._tell(msgspec.structs.replace(ran, insists=insists))

    def _report(self, member: Member, outcome: Outcome, message: str, started_s: float) -> CaseRan:
        return CaseRan(
            case=member.case.key,
            outcome=outcome,
            seconds=time.monotonic() - started_s,
            message=message,
            lease=self._lease,
        )

    def _order(
        self, member: Member, step: Step, device: Device, members: Sequence[Member]
    ) -> StepOrder:
        """The step with all placeholders filled in; its folders are prepared."""
        for other in members:
            self._begin(other)
        command = member.command
        folder = self._home / command.folder
        places: dict[str, str | tuple[str, ...]] = {
            **find_site().places,
            "work": str(folder / DATA),
            "device": number_of(device),
            "device_physical": index_of(device.name),
            "threads": str(self._threads),
            "cases": tuple(other.command.name for other in members),
            "works": tuple(str(self._home / other.command.folder / DATA) for other in members),
            **self._find_made(member),
        }
        own = {"suite": command.suite, "toolchain": command.toolchain}
        places |= {name: place for name, place in own.items() if place}
        environ = {**os.environ, **command.inherited}
        shared = {**command.env, **device.env}
        return StepOrder(
            argv=fill_argv(step.argv, places),
            env=step_environment(step, shared, places, folder / TEMPORARY, environ),
            cwd=fill(step.cwd, places) or str(folder / DATA),
            log=str(member.log),
            limit_s=(step.limit_s or member.case.limits.run_s) if self._limited else 0.0,
            memory_bytes=command.memory_bytes,
        )

    def _own_folders(self, member: Member, end: StepEnd) -> list[Path]:
        """The folders of what a case brings, if its program could not be started; all else is the host's."""
        if not end.refusal:
            return []
        command = member.command
        made = self._find_made(member)
        places = (*made.values(), command.suite, command.toolchain or find_site().toolchain)
        shared = (Path(place) for place in places if place)
        return [self._home / member.command.folder, *shared]

    def _find_made(self, member: Member) -> dict[str, str]:
        golden = member.entry.golden
        return self._stores.find_made(golden.tree, member.entry.build, golden.part)

    def _has_spoilt_golden(self, member: Member) -> bool:
        golden = member.entry.golden
        trees, part = self._stores.trees, golden.part
        return part.is_linked and not trees.is_as_verified(golden.tree, part.path)

    def _begin(self, member: Member) -> None:
        folder = self._home / member.command.folder
        begin_case_folder(folder, member.entry.golden, self._stores.trees)


class CheckRuns(CommandRuns):
    """Checks batches of cases that ran, in the folders they left, always by their entries' hot process."""

    _title = "check"
    _is_always_hot = True

    def __init__(self, stores: Stores, tell: Tell, threads: int) -> None:
        """A process may use ``threads`` threads."""
        super().__init__(stores, tell, lambda: False)
        self._threads = threads

    def _begin(self, member: Member) -> None:
        pass


def _ended_well(member: Member) -> Outcome:
    return Outcome.UNCHECKED if member.command.is_judged else Outcome.PASSED


def _insists(end: StepEnd) -> Outcome:
    """The outcome if this happens each time: a program that kills its parent then crashes the case itself."""
    return Outcome.CRASHED if end.lost else Outcome.INFRA_ERROR


def step_environment(
    step: Step,
    shared: Mapping[str, str],
    places: Places,
    temporary: Path,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """A step's environment: its share of ``environ``, additions, temporary directory, limit of threads."""
    added = {name: fill(text, places) for name, text in step.env.items()}
    threads = dict.fromkeys(THREAD_VARIABLES, str(places["threads"]))
    given = {**give(environ, step), **threads, **find_site().env, **shared}
    return {**given, "TMPDIR": str(temporary), **added}


def _take_group(left: list[Member]) -> list[Member]:
    """The members at the front that one hot process can run, or the first alone."""
    first = left[0].command
    count = 1
    if first.hot is not None:
        while count < len(left) and left[count].command.hot == first.hot:
            count += 1
    group, left[:] = left[:count], left[count:]
    return group


def _command(entry: RunEntry) -> CommandRun:
    if entry.command is None:
        raise AssertionError(f"case {entry.case} is not a case of programs")
    return entry.command
