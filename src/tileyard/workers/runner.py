"""The runner: loads artifacts on its lease's device, runs them, hands their outputs over and times them. It
neither builds nor judges: what is slow to make is in the object store before, and stays loaded.
"""

import contextlib
import math
import os
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
from tileyard.devices.classes import find_class
from tileyard.ir.dtypes import name_of
from tileyard.measure.paired import MOST_NS, interleave
from tileyard.measure.sampling import BestSoFar, launches_per_sample, measure
from tileyard.processes.wire import Channel
from tileyard.targets.base import (
    Array,
    BindsInto,
    KnowsLines,
    Launch,
    Loaded,
    Rounds,
    RunsAgain,
    StartsPrograms,
)
from tileyard.targets.registry import make_target
from tileyard.workers.case_folders import Stores
from tileyard.workers.command_runs import CommandRuns
from tileyard.workers.handing_over import OutputMemory, count_output_bytes
from tileyard.workers.kernel_checks import Output, find_unsteady
from tileyard.workers.leased import wait_for_lease
from tileyard.workers.printed import Printed
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
from tileyard.workers.timed_launches import (
    Scattered,
    TimedLaunch,
    TimingFailed,
    prepare_timing,
    summarize,
)

INPUT_CACHE_BYTES = 1 << 30
SHARE_AGAIN = 1 / 8
"""The share of the limits of time and memory that a launch and its outputs may take to be run again."""
FEW_ELEMENTS = 64
"""Outputs with fewer elements are filled with huge values of either sign in turn."""


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
