"""The runner: loads artifacts on its lease's device, runs them, hands their outputs over and times them. It
neither builds nor judges: what is slow to make is in the object store before, and stays loaded.
"""

import contextlib
import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from tileyard.artifacts.arrays import get_array
from tileyard.artifacts.manifest import Artifact, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import (
    HOST_FAULTS,
    ContextLostError,
    DamagedError,
    HomeError,
    TileyardError,
)
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    Device,
    Digest,
    Measurement,
    Mismatch,
    Outcome,
    TimingPolicy,
)
from tileyard.base.modes import make_folder, open_file
from tileyard.devices.classes import find_class
from tileyard.ir.dtypes import name_of
from tileyard.measure.paired import MOST_NS, interleave
from tileyard.measure.sampling import BestSoFar, launches_per_sample, measure
from tileyard.measure.statistics import median_interval
from tileyard.processes.wire import Channel
from tileyard.targets.arguments import PAGE, allocate
from tileyard.targets.base import (
    Array,
    BindsInto,
    KnowsLines,
    Launch,
    Loaded,
    Rounds,
    RunsAgain,
    StartsPrograms,
    TimedByPolicy,
)
from tileyard.targets.registry import make_target
from tileyard.workers.command_runs import CommandRuns, Stores
from tileyard.workers.handing_over import OutputMemory, count_output_bytes
from tileyard.workers.local_builder import wait_for_lease
from tileyard.workers.output_checks import Output, find_unsteady
from tileyard.workers.protocol import (
    BatchRan,
    CaseBegan,
    CaseRan,
    HandedOutput,
    OutputsJudged,
    RunBatch,
    RunEntry,
    RunnerReady,
    RunnerRequest,
    RunnerSpent,
)

OUTPUT = 1
"""Standard output and standard error are the same file, with which this process was started."""
CHUNK = 1 << 20
CACHE_LINE = 64
INPUT_CACHE_BYTES = 1 << 30
SHARE_AGAIN = 1 / 8
"""The share of the limits of time and memory that a launch and its outputs may take to be run again."""
FEW_ELEMENTS = 64
"""Outputs with fewer elements are filled with huge values of either sign in turn."""


class Printed:
    """Moves a case's output from the process's own to its log; the engine moves a dead process's."""

    def __init__(self, home: Path, output: int = OUTPUT) -> None:
        self._home = home
        self._output = output
        self._log = ""
        self._start = 0

    def turn_to(self, log: str) -> None:
        """From now on all output belongs to this log, a path below the home directory."""
        self.settle()
        self._log = log
        self._start = os.fstat(self._output).st_size

    def settle(self) -> None:
        """Move the output so far into its log; what does not fit on a full disk is lost."""
        with contextlib.suppress(OSError):  # a full disk concerns the log, not the case
            sys.stdout.flush()
        if not self._log or os.fstat(self._output).st_size <= self._start:
            return
        with contextlib.suppress(OSError):  # the same
            self._move(self._home / self._log)
        os.ftruncate(self._output, self._start)

    def _move(self, path: Path) -> None:
        make_folder(path.parent)
        with (
            Path(f"/proc/self/fd/{self._output}").open("rb") as output,
            open(path, "ab", opener=open_file) as log,
        ):
            output.seek(self._start)
            while data := output.read(CHUNK):
                log.write(data)


class TimingFailed(Exception):
    """A launch failed while it was timed, after it had passed its check."""

    def __init__(self, case: Case, error: MemoryError | TileyardError) -> None:
        super().__init__(case.key)
        self.case = case
        self.error = error


class TimedLaunch:
    """A launch of an interleaved batch: whatever it raises while it is timed belongs to its own case."""

    def __init__(self, case: Case, launch: Launch) -> None:
        self._case = case
        self._launch = launch
        self.run, self.read, self.reset = launch.run, launch.read, launch.reset

    def prepare(self, policy: TimingPolicy) -> None:
        """Choose how samples are taken, as the policy requires."""
        try:
            prepare_timing(self._launch, policy)
        except (MemoryError, TileyardError) as error:
            raise TimingFailed(self._case, error) from error

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """The launch's own samples."""
        try:
            return self._launch.sample_ns(samples, launches)
        except (MemoryError, TileyardError) as error:
            raise TimingFailed(self._case, error) from error


class Scattered:
    """Makes arrays at random places of a page, the same for a ``seed``. The effect of addresses on
    a kernel's time then shows up as noise between processes.
    """

    def __init__(self, seed: str) -> None:
        self._draw = random.Random(seed)

    def __call__(self, shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> Array:
        """An array that begins at a cache line."""
        return allocate(shape, dtype, self._draw.randrange(0, PAGE, CACHE_LINE))


def prepare_timing(launch: Launch, policy: TimingPolicy) -> None:
    """Choose how samples are taken, if the launch knows several ways. Raises MemoryError."""
    if isinstance(launch, TimedByPolicy):
        launch.time_by(policy)


def summarize(samples: Sequence[float], case: Case, state: dict[str, str]) -> Measurement:
    """The measurement from the samples of a case that was timed in turn with others."""
    confidence = (case.timing or TimingPolicy()).confidence
    interval = median_interval(samples, confidence)
    return Measurement(
        median_ns=interval.median,
        low_ns=interval.low,
        high_ns=interval.high,
        confidence=confidence,
        samples_ns=tuple(samples),
        device_state=state,
    )


class Ran(NamedTuple):
    """A case that ran and can be timed; ``outputs`` are for the judge. ``changed`` is as in a CaseRan."""

    launch: Launch
    outputs: tuple[HandedOutput, ...]
    changed: Mismatch | None
    message: str


class Runner:
    """Runs batches under a lease. ``home`` has the object store, ``memory`` takes outputs to be judged."""

    def __init__(self, home: Path, channel: Channel, lease: int, memory: OutputMemory) -> None:
        self._memory = memory
        self._objects = ObjectStore(home / "objects")
        self._channel = channel
        self._lease = lease
        self._artifacts: dict[BuildKey, Artifact] = {}
        self._arrays: dict[Digest, Array] = {}
        self._repeated: set[BuildKey] = set()
        self._is_spent = False
        self._stopped = False
        self._ask_state: Callable[[], dict[str, str]] | None = None
        self._printed = Printed(home)
        self._commands = CommandRuns(
            Stores(home), channel.send, self._is_stopped, lease=self._lease, limited=False
        )

    def run(self, request: RunBatch) -> None:
        """Run every entry of a batch; each is answered by its own CaseRan."""
        self._stopped = False
        self._memory.begin(request.taken)
        if all(entry.command is not None for entry in request.entries):
            # The reader of the answers ends this process, and with it the device's use, at a case's limit.
            self._commands.run(request)
        elif request.batch.order == "interleaved":
            self._run_interleaved(request)
        else:
            for entry in request.entries:
                if self._is_spent or self._is_stopped():
                    break
                self._run_alone(request, entry)
        over = RunnerSpent if self._is_spent or self._commands.is_suspect else BatchRan
        self._channel.send(over(batch=request.batch.id))

    def _is_stopped(self) -> bool:
        while not self._stopped and self._channel.has_news():
            news = self._channel.receive(RunnerRequest)
            if isinstance(news, OutputsJudged):
                self._memory.free(news.cases)
            else:
                self._stopped = True
        return self._stopped

    def _run_alone(self, request: RunBatch, entry: RunEntry) -> None:
        case = _case(request, entry)
        started = time.monotonic()
        ran = self._run_once(request, entry)
        if isinstance(ran, CaseRan):
            self._tell(ran)
            return
        measurement: Measurement | None = None
        if case.timing is not None and not (ran.changed and ran.outputs):
            best = BestSoFar()
            best.lower(case.abandon_above_ns)
            try:
                prepare_timing(ran.launch, case.timing)
                measurement = msgspec.structs.replace(
                    measure(ran.launch, case.timing, best), device_state=self._state(request.device)
                )
            except (MemoryError, TileyardError) as error:
                self._tell(self._fail(case, error, started))
                return
        self._tell(self._end_well(case, ran, started, measurement))

    def _run_interleaved(self, request: RunBatch) -> None:
        """Run every member once, then time in turn those that ran well."""
        started = time.monotonic()
        members: list[tuple[Case, Ran, TimedLaunch]] = []
        for entry in request.entries:
            ran = self._run_once(request, entry)
            if isinstance(ran, CaseRan):
                self._tell(ran)
                if self._is_spent:
                    return
            else:
                case = _case(request, entry)
                members.append((case, ran, TimedLaunch(case, ran.launch)))
        samples = self._time_in_turn(request, members)
        for (case, ran, _), times in zip(members, samples, strict=True):
            measurement = summarize(times, case, self._state(request.device))
            self._tell(self._end_well(case, ran, started, measurement))

    def _time_in_turn(
        self, request: RunBatch, members: list[tuple[Case, "Ran", TimedLaunch]]
    ) -> Sequence[Sequence[float]]:
        """Samples of all members; one that fails is reported and left out. None if the runner is spent."""
        while members:
            policy = members[0][0].timing or TimingPolicy()
            launches = [launch for _, _, launch in members]
            try:
                for launch in launches:
                    launch.prepare(policy)
                each = [launches_per_sample(launch, policy) for launch in launches]
                batch = request.batch
                return interleave(launches, batch.rounds, each, max_ns=MOST_NS, calm=batch.calm)
            except TimingFailed as failure:
                self._tell(self._fail(failure.case, failure.error))
                left = [one for one in members if one[0].key != failure.case.key]
                members[:] = [] if self._is_spent else left
        return []

    def _run_once(self, request: RunBatch, entry: RunEntry) -> "CaseRan | Ran":
        """Load, run once and hand the outputs over: the launch ready to be timed, or how the case ended."""
        started = time.monotonic()
        case = _case(request, entry)
        self._printed.turn_to(entry.log)
        self._channel.send(CaseBegan(case=case.key))
        self._memory.turn_to(case.key)
        try:
            launch = self._bind(request, entry)
            began = time.monotonic()
            launch.run()
            is_alone = request.batch.order != "interleaved"
            if is_alone and time.monotonic() - began <= case.limits.run_s * SHARE_AGAIN:
                return self._run_again(case, entry, launch)
            return Ran(launch, self._hand_over(launch, case, entry), None, "")
        except (MemoryError, TileyardError) as error:
            return self._fail(case, error, started)

    def _run_again(self, case: Case, entry: RunEntry, launch: Launch) -> Ran:
        """Run it with other content in its outputs, once per build checked here, and hand these over."""
        outs = [spec for spec in entry.specs if spec.role == "out"]
        fits = count_output_bytes(entry.specs) <= case.limits.memory_bytes * SHARE_AGAIN
        is_due = outs and fits and case.check.enabled and entry.build not in self._repeated
        if not (is_due and isinstance(launch, RunsAgain)):
            return Ran(launch, self._hand_over(launch, case, entry), None, "")
        self._repeated.add(entry.build)
        before = [array.copy() for array in launch.read()]
        # A minimum or a maximum of few elements may leave out huge values of one sign.
        few = any(math.prod(spec.shape) < FEW_ELEMENTS for spec in outs)
        for inverted in (False, True)[: 1 + few]:
            launch.run_again(inverted=inverted)
            again = _name(launch, entry, launch.read())
            pairs = [one._replace(want=want) for one, want in zip(again, before, strict=True)]
            changed, message = find_unsteady(pairs, case.check)
            if changed is not None:
                return Ran(launch, self._hand_over(launch, case, entry, before), changed, message)
        return Ran(launch, self._hand_over(launch, case, entry), None, "")

    def _hand_over(
        self, launch: Launch, case: Case, entry: RunEntry, outputs: Sequence[Array] = ()
    ) -> tuple[HandedOutput, ...]:
        """Hand these outputs over, by default what the launch wrote last, if they are compared."""
        if not _is_checked(case, entry):
            return ()
        named = _name(launch, entry, outputs or launch.read())
        return tuple(
            replace(self._memory.put(one.name, one.got), precision=one.precision) for one in named
        )

    def _end_well(
        self, case: Case, ran: Ran, started: float, measurement: Measurement | None
    ) -> CaseRan:
        return CaseRan(
            case=case.key,
            outcome=Outcome.UNCHECKED,
            seconds=time.monotonic() - started,
            measurement=measurement,
            lease=self._lease,
            message=ran.message,
            mismatch=ran.changed if ran.outputs else None,
            outputs=ran.outputs,
        )

    def _fail(
        self, case: Case, error: MemoryError | TileyardError, started: float | None = None
    ) -> CaseRan:
        """The result of a case that ended with an error; ``started`` is None if its time is not reported."""
        outcome, message = self._explain(error)
        return CaseRan(
            case=case.key,
            outcome=outcome,
            seconds=0.0 if started is None else time.monotonic() - started,
            message=message,
            lease=self._lease,
        )

    def _explain(self, error: MemoryError | TileyardError) -> tuple[Outcome, str]:
        """The outcome and message of an error; notes whether another case can still run here."""
        self._is_spent = self._is_spent or isinstance(error, ContextLostError)
        if isinstance(error, MemoryError):
            return Outcome.OUT_OF_MEMORY, str(error) or "memory limit reached"
        is_ours = isinstance(error, HOST_FAULTS)
        return Outcome.INFRA_ERROR if is_ours else Outcome.RUNTIME_ERROR, str(error)

    def _bind(self, request: RunBatch, entry: RunEntry) -> Launch:
        try:
            return self._load(request, entry)
        except MemoryError:
            if not self._memory.unmap():
                raise
            return self._load(request, entry)
        except OSError as error:
            raise HomeError(f"cannot load {entry.build}: {error}") from error

    def _load(self, request: RunBatch, entry: RunEntry) -> Launch:
        artifact = self._artifacts.get(entry.build) or find_artifact(entry.build, self._objects)
        if artifact is None:
            raise DamagedError(f"artifact {entry.build} is missing or damaged")
        self._artifacts[entry.build] = artifact
        case = _case(request, entry)
        target = make_target(case.target, request.plugins)
        loaded: Loaded = target.load(artifact, request.device)
        if isinstance(loaded, KnowsLines):
            loaded.know_lines(entry.lines)
        batch = request.batch
        arrays = [self._array(digest, batch) for digest in entry.golden.inputs]
        if isinstance(loaded, BindsInto):
            if case.timing is None and _is_checked(case, entry):
                return loaded.bind_into(arrays, entry.scalars, self._memory.allocate)
            if batch.process == "fresh":  # all members have their outputs at equal offsets
                return loaded.bind_into(arrays, entry.scalars, Scattered(batch.id))
        return loaded.bind(arrays, entry.scalars)

    def _state(self, device: Device) -> dict[str, str]:
        if self._ask_state is None:
            self._ask_state = find_class(device.kind).state(device)
        return self._ask_state()

    def _array(self, digest: Digest, batch: Batch) -> Array:
        if digest not in self._arrays:
            if sum(array.nbytes for array in self._arrays.values()) > INPUT_CACHE_BYTES:
                self._arrays.clear()
            # A copy of its own: NumPy puts it on huge pages, as it does a caller's arrays, while the
            # stored file's small pages would favour small tiles.
            stored = get_array(self._objects, digest)
            is_fresh = batch.process == "fresh"
            make = Scattered(f"{batch.id}/{digest}") if is_fresh else np.empty
            array: Array = make(stored.shape, stored.dtype)
            np.copyto(array, stored)
            # A device may keep a copy of an array that cannot be written.
            array.setflags(write=False)
            self._arrays[digest] = array
        return self._arrays[digest]

    def _tell(self, ran: CaseRan) -> None:
        self._printed.settle()
        self._channel.send(ran)


def _name(launch: Launch, entry: RunEntry, outputs: Sequence[Array]) -> list[Output]:
    """Outputs with their names and precisions; nothing is known yet of what is expected."""
    rounded = launch.precisions if isinstance(launch, Rounds) else {}
    names = [spec.name for spec in entry.specs if spec.role != "in"]
    return [
        Output(name, array, array, rounded.get(name_of(array.dtype), ""))
        for name, array in zip(names, outputs, strict=True)
    ]


def _case(request: RunBatch, entry: RunEntry) -> Case:
    return next(case for case in request.batch.cases if case.key == entry.case)


def _is_checked(case: Case, entry: RunEntry) -> bool:
    return case.check.enabled and bool(entry.golden.outputs)


def main(home: str, memory: str, *targets: str) -> None:
    """Serve batches until the engine closes the channel; touch nothing before the lease is held.
    ``memory`` is the descriptor of the memory for outputs; ``targets`` to import ahead are
    ``name=plug-in``, empty for our own.
    """
    with Channel.serving() as channel:
        for described in targets:
            name, _, plugin = described.partition("=")
            with contextlib.suppress(Exception):  # the first case that needs it reports the error
                target = make_target(name, {name: plugin} if plugin else {})
                if isinstance(target, StartsPrograms):
                    target.get_ready()
        channel.send(RunnerReady())
        lease = wait_for_lease(os.environ)
        runner = Runner(Path(home), channel, lease, OutputMemory(int(memory)))
        while (request := channel.receive(RunnerRequest)) is not None:
            if isinstance(request, RunBatch):  # others came after their batch, and need no answer
                runner.run(request)


if __name__ == "__main__":
    main(*sys.argv[1:])
