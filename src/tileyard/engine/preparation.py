"""What happens to a case before it needs a device: elaboration, inputs, reference, build."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from tileyard.artifacts.keys import build_key, canonical_json, digest_parts, run_key
from tileyard.artifacts.manifest import find_artifact
from tileyard.engine.compilers import CompilePool
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.yard import Yard
from tileyard.events import BuildEnded, BuildStarted
from tileyard.model import INFRASTRUCTURE, BuildKey, Case, Elaborated, GoldenKey, Keys, Outcome
from tileyard.workers.protocol import (
    BuildKernel,
    Built,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Golden,
    MakeGolden,
    RunEntry,
    TargetInfo,
)
from tileyard.workers.run_records import RunRecord, RunRecords


class Preparation:
    """The steps of a case up to its artifact. Each returns False where the case ended there."""

    def __init__(self, yard: Yard, ledger: Ledger, pool: CompilePool) -> None:
        self._yard = yard
        self._ledger = ledger
        self._pool = pool
        self._target: TargetInfo | None = None
        self._goldens: dict[str, Golden] = {}
        self._artifacts: set[BuildKey] = set()
        self._failed: dict[BuildKey, tuple[Built, Progress]] = {}
        self._durations: dict[str, dict[str, float]] = {}
        self._records = RunRecords(yard.objects)
        yard.flushes.append(self._records.flush)

    async def open(self) -> TargetInfo:
        """Ask the target what it is. Raises ToolMissingError where it cannot be used."""
        self._target = await self._pool.describe()
        return self._target

    async def prepare(self, progress: Progress) -> bool:
        """Elaborate, make inputs and reference, derive the keys, and look up what is known."""
        if not (await self._elaborate(progress) and await self._make_golden(progress)):
            return False
        self._remember(progress)
        return True

    def expected_s(self, progress: Progress) -> float | None:
        """How long the case ran when it was last run for this target; None if that is not known."""
        case = progress.case
        if case.expected_s is not None:
            return case.expected_s
        if case.kernel not in self._durations:
            known = self._yard.store.find_durations(case.kernel, self._yard.target)
            self._durations[case.kernel] = known
        return self._durations[case.kernel].get(canonical_json((case.arguments, case.config)))

    def is_built(self, progress: Progress) -> bool:
        """Whether the case's artifact is in the store already; says so to the listeners."""
        key = progress.keys.build
        built = key in self._artifacts or find_artifact(key, self._yard.objects) is not None
        if built:
            self._artifacts.add(key)
            at = self._yard.clock.wall_s()
            self._yard.emit(BuildEnded(case=progress.case.id, at=at, ok=True, reused=True))
        return built

    def identify(self, progress: Progress) -> None:
        """Complete the keys of a case that is built by what its artifact does, whatever it was built from."""
        artifact = find_artifact(progress.keys.build, self._yard.objects)
        if artifact is not None and artifact.manifest.binary:
            binary = digest_parts(artifact.manifest.binary, artifact.manifest.details)
            progress.keys = msgspec.structs.replace(progress.keys, binary=binary)

    async def build(
        self, members: Sequence[Progress], worker: int
    ) -> AsyncIterator[tuple[Progress, bool]]:
        """Build artifacts on a compile worker, together; say of each whether there is one now."""
        yard = self._yard
        requests: dict[str, BuildKernel] = {}
        for progress in members:
            key = progress.keys.build
            if self._ledger.recall(progress, yard.store.find_build_failure(key)):
                yield progress, False
            elif key in self._failed:
                self._fail_alike(progress, *self._failed[key])
                yield progress, False
            elif self.is_built(progress):
                yield progress, True
            else:
                yard.emit(BuildStarted(case=progress.case.id, at=yard.clock.wall_s()))
                requests[progress.case.id] = BuildKernel(
                    case=progress.case.id,
                    build=key,
                    elaborated=_elaborated(progress),
                    options=yard.options,
                )
        if not requests:
            return
        by_case = {progress.case.id: progress for progress in members}
        limits_s = [by_case[case].case.limits.build_s for case in requests]
        async for built in self._pool.build(worker, tuple(requests.values()), limits_s):
            yield by_case[built.case], self._take_verdict(by_case[built.case], built)

    def _take_verdict(self, progress: Progress, built: Built) -> bool:
        progress.build_s = built.seconds
        self._ledger.write_log(progress, built.log)
        ok = built.outcome is Outcome.PASSED
        at = self._yard.clock.wall_s()
        self._yard.emit(BuildEnded(case=progress.case.id, at=at, ok=ok, reused=False))
        if ok:
            progress.flags += (built.message,) if built.message else ()
        else:
            if built.outcome not in INFRASTRUCTURE:
                self._failed.setdefault(progress.keys.build, (built, progress))
            progress.keys = Keys(build=progress.keys.build)
            self._ledger.finish(progress, built.outcome, built.message)
        return ok

    def _fail_alike(self, progress: Progress, built: Built, first: Progress) -> None:
        """End a case whose build has failed in this run, for another case that shares it."""
        self._ledger.write_log(progress, f"built for {first.case.id}: see {first.log}")
        self._ledger.finish(progress, built.outcome, built.message)

    async def _elaborate(self, progress: Progress) -> bool:
        case = progress.case
        if self._target is None:
            raise AssertionError("a case was prepared before the target was opened")
        request = ElaborateConfig(
            kernel=case.kernel,
            arguments=case.arguments,
            config=case.config,
            with_tir=self._target.needs_tir,
        )
        reply = await self._yard.author.ask(request, case.limits.elaborate_s)
        if isinstance(reply, Failed):
            self._ledger.write_log(progress, reply.log)
            self._ledger.finish(progress, reply.outcome, reply.message)
            return False
        if not isinstance(reply, ElaboratedConfig):
            raise AssertionError(f"an author answered an elaboration with {reply}")
        self._ledger.write_log(progress, reply.log)
        progress.elaborated = reply.elaborated
        progress.command = reply.command
        kernel, yard = reply.elaborated.kernel, self._yard
        key = build_key(kernel, yard.target, self._target.fingerprint, yard.options)
        progress.keys = Keys(build=key)
        return not self._ledger.recall(progress, yard.store.find_build_failure(key))

    async def _make_golden(self, progress: Progress) -> bool:
        """Make inputs and reference outputs, once for all configs that share them."""
        case, elaborated = progress.case, _elaborated(progress)
        if not self._yard.golden:
            progress.golden = Golden(key=GoldenKey(""), inputs=(), outputs=())
            return True
        shared = canonical_json((case.kernel, case.arguments, elaborated.specs, elaborated.scalars))
        golden = self._goldens.get(shared)
        if golden is None:
            reply = await self._yard.author.ask(
                self._golden_request(case, elaborated), case.limits.golden_s
            )
            if isinstance(reply, Failed):
                self._ledger.write_log(progress, reply.log)
                self._ledger.finish(progress, reply.outcome, reply.message)
                return False
            if not isinstance(reply, Golden):
                raise AssertionError(f"an author answered a request for inputs with {reply}")
            self._goldens[shared] = golden = reply
            progress.flags += (reply.flag,) if reply.flag else ()
        progress.golden = golden
        run = run_key(own_build(progress), golden.key, case.check)
        progress.keys = msgspec.structs.replace(progress.keys, golden=golden.key, run=run)
        if self._ledger.skip_proven(progress):
            return False
        return progress.batch.order == "interleaved" or not self._ledger.recall_measured(progress)

    def _remember(self, progress: Progress) -> None:
        """Keep what the case is made of, so that it can be run again by hand."""
        record = RunRecord(case=progress.case, entry=run_entry(progress), target=self._yard.target)
        self._records.add(progress.keys.run, record)

    def _golden_request(self, case: Case, elaborated: Elaborated) -> MakeGolden:
        return MakeGolden(
            kernel=case.kernel,
            arguments=case.arguments,
            specs=elaborated.specs,
            scalars=elaborated.scalars,
            threads=len(self._yard.author.cores),
            reference=self._yard.reference,
        )


def own_build(progress: Progress) -> BuildKey:
    """What identifies the part of the build on which the result of a case depends."""
    command = progress.command
    return progress.keys.build if command is None else BuildKey(command.own_build)


def run_entry(progress: Progress) -> RunEntry:
    """What a runner needs for a prepared and built case."""
    elaborated = _elaborated(progress)
    if progress.golden is None:
        raise AssertionError(f"case {progress.case.id} has no inputs yet")
    return RunEntry(
        case=progress.case.id,
        build=progress.keys.build,
        golden=progress.golden,
        specs=elaborated.specs,
        scalars=elaborated.scalars,
        log=progress.log,
        command=progress.command,
        lines=elaborated.lines,
    )


def _elaborated(progress: Progress) -> Elaborated:
    if progress.elaborated is None:
        raise AssertionError(f"case {progress.case.id} is not elaborated yet")
    return progress.elaborated
