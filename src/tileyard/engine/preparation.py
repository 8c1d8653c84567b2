"""What happens to a case before it needs a device: elaboration, inputs, reference, build."""

import msgspec

from tileyard.artifacts.keys import build_key, canonical_json, run_key
from tileyard.artifacts.manifest import find_artifact
from tileyard.engine.compilers import CompilePool
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.yard import Yard
from tileyard.model import BuildEnded, BuildStarted, Case, Elaborated, Keys, Outcome
from tileyard.workers.protocol import (
    BuildKernel,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Golden,
    MakeGolden,
    RunEntry,
    TargetInfo,
)


class Preparation:
    """The steps of a case up to its artifact. Each returns False where the case ended there."""

    def __init__(self, yard: Yard, ledger: Ledger, pool: CompilePool) -> None:
        self._yard = yard
        self._ledger = ledger
        self._pool = pool
        self._target: TargetInfo | None = None
        self._goldens: dict[str, Golden] = {}

    async def open(self) -> None:
        """Ask the target for its fingerprint. Raises ToolMissingError where it cannot be used."""
        self._target = await self._pool.describe()

    async def prepare(self, progress: Progress) -> bool:
        """Elaborate, make inputs and reference, derive the keys, and look up what is known."""
        return await self._elaborate(progress) and await self._make_golden(progress)

    def is_built(self, progress: Progress) -> bool:
        """Whether the case's artifact is in the store already; says so to the listeners."""
        built = find_artifact(progress.keys.build, self._yard.objects) is not None
        if built:
            at = self._yard.clock.wall_s()
            self._yard.emit(BuildEnded(case=progress.case.id, at=at, ok=True, reused=True))
        return built

    async def build(self, progress: Progress, worker: int) -> bool:
        """Build the artifact on a compile worker."""
        case, yard = progress.case, self._yard
        known = yard.store.find_build_failure(progress.keys.build)
        if self._ledger.recall(progress, known):
            return False
        if self.is_built(progress):
            return True
        yard.emit(BuildStarted(case=case.id, at=yard.clock.wall_s()))
        request = BuildKernel(
            case=case.id,
            build=progress.keys.build,
            elaborated=_elaborated(progress),
            options=yard.options,
        )
        built = await self._pool.build(worker, request, case.limits.build_s)
        progress.build_s = built.seconds
        self._ledger.write_log(progress, built.log)
        ok = built.outcome is Outcome.PASSED
        yard.emit(BuildEnded(case=case.id, at=yard.clock.wall_s(), ok=ok, reused=False))
        if not ok:
            progress.keys = Keys(build=progress.keys.build)
            self._ledger.finish(progress, built.outcome, built.message)
        return ok

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
        kernel, yard = reply.elaborated.kernel, self._yard
        key = build_key(kernel, yard.target, self._target.fingerprint, yard.options)
        progress.keys = Keys(build=key)
        return not self._ledger.recall(progress, yard.store.find_build_failure(key))

    async def _make_golden(self, progress: Progress) -> bool:
        """Make inputs and reference outputs, once for all configs that share them."""
        case, elaborated = progress.case, _elaborated(progress)
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
        progress.golden = golden
        run = run_key(progress.keys.build, golden.key, case.check)
        progress.keys = msgspec.structs.replace(progress.keys, golden=golden.key, run=run)
        if progress.batch.order == "interleaved":
            return True
        self._ledger.derive_measurement_key(progress)
        known = self._yard.store.find_measured(progress.keys.measurement)
        return not self._ledger.recall(progress, known)

    def _golden_request(self, case: Case, elaborated: Elaborated) -> MakeGolden:
        return MakeGolden(
            kernel=case.kernel,
            arguments=case.arguments,
            specs=elaborated.specs,
            scalars=elaborated.scalars,
            threads=len(self._yard.author.cores),
            reference=self._yard.reference,
        )


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
    )


def _elaborated(progress: Progress) -> Elaborated:
    if progress.elaborated is None:
        raise AssertionError(f"case {progress.case.id} is not elaborated yet")
    return progress.elaborated
