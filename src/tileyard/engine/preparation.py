"""Carries out what a case needs before it gets a device: elaboration, inputs, reference, build.

One module because each step continues with what the previous one has learnt.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec

from tileyard.artifacts.keys import build_key, canonical_json, digest_parts, run_key
from tileyard.artifacts.manifest import TREE_FILE, Build, find_artifact, find_build, publish
from tileyard.engine.compilers import Builder, CompilePool
from tileyard.engine.ledger import Ledger, Progress, is_measured_anew
from tileyard.engine.programs import Programs
from tileyard.engine.sync_checks import SyncChecks
from tileyard.engine.yard import Yard
from tileyard.errors import HOST_FAULTS, DamagedError, TileyardError, WorkerLostError
from tileyard.events import BuildEnded, BuildStarted
from tileyard.frontend.declare import PIPELINE
from tileyard.model import (
    INFRASTRUCTURE,
    BuildKey,
    Case,
    CommandWork,
    Digest,
    Elaborated,
    GoldenKey,
    Kernel,
    KernelWork,
    Keys,
    Outcome,
)
from tileyard.workers.handing_over import count_output_bytes
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
from tileyard.workers.run_records import RunRecord, RunRecords


class Preparation:
    """The steps of a case up to its artifact. Each returns False if the case ended there."""

    def __init__(self, yard: Yard, ledger: Ledger, pool: CompilePool) -> None:
        self._yard = yard
        self._ledger = ledger
        self._pool = pool
        self._sync = SyncChecks(yard, ledger)
        self._goldens: dict[str, Golden] = {}
        # The first of the cases that share one has it made.
        self._making: dict[str, asyncio.Lock] = {}
        # By side and file: number of cases that needed a golden result, and number that needed one of their own.
        self._needed: Counter[tuple[str, str]] = Counter()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._artifacts: set[BuildKey] = set()
        # Builds that have failed in this run, each with the case for which it was made.
        self._failed: dict[BuildKey, tuple[Build, Progress]] = {}
        self._partial: dict[BuildKey, list[Progress]] = {}
        self._durations: dict[tuple[str, str], dict[str, float]] = {}
        self._records = RunRecords(yard.objects)
        yard.flushes.append(self._records.flush)
        yard.authors.lanes.count_left = self._count_goldens

    async def open(self) -> None:
        """Get the information of each target of each side. Raises ToolMissingError if one cannot be used."""
        for side in self._yard.authors.sides:
            for target in self._yard.grounds:
                await self.describe((side, target))

    async def describe(self, builder: Builder) -> TargetInfo:
        """A target's information about itself. Raises ToolMissingError if it cannot be used."""
        return await self._pool.describe(builder)

    async def prepare(self, progress: Progress) -> bool:
        """Elaborate, make inputs and reference, derive the keys, and look up recorded results.

        Raises HOST_FAULTS; then it can be called again.
        """
        if not (await self._elaborate(progress) and await self._make_golden(progress)):
            return False
        if _is_partial(progress) and find_artifact(progress.keys.build, self._yard.objects):
            await self.look_at_built(progress)
        if not await self._sync.passes(progress) or self.is_known(progress):
            return False
        self.keep(progress)
        return True

    def keep(self, progress: Progress) -> None:
        """Record how to run a case, so that it can be run again by hand and compared with later runs."""
        record = RunRecord(case=progress.case, entry=run_entry(progress))
        self._records.add(progress.keys.run, record)
        if _is_partial(progress):
            self._partial.setdefault(progress.keys.build, []).append(progress)

    async def look_at_built(self, progress: Progress) -> None:
        """Add to the keys of a suite's case the built programs that it uses. Raises TileyardError."""
        case, golden = progress.case, progress.golden
        if golden is not None and isinstance(case.work, CommandWork):
            programs, build = programs_of(self._yard), progress.keys.build
            golden = await programs.look_at_built(case, case.work, golden, build)
            run = run_key(own_build(progress), golden.key, case.check)
            progress.keys = msgspec.structs.replace(progress.keys, golden=golden.key, run=run)
            progress.golden = golden

    def expected_s(self, progress: Progress) -> float | None:
        """Seconds that the case took when it last ran for this target; None if that is not known."""
        case, work = progress.case, progress.case.work
        if case.expected_s is not None or not isinstance(work, KernelWork):
            return case.expected_s
        asked = (work.kernel, case.target)
        if asked not in self._durations:
            self._durations[asked] = self._yard.store.find_durations(*asked)
        return self._durations[asked].get(canonical_json((work.arguments, work.config)))

    def output_bytes(self, progress: Progress) -> int:
        """Bytes of this case's outputs that the judge will look at."""
        if progress.golden is None or not (progress.golden.outputs and progress.case.check.enabled):
            return 0
        return count_output_bytes(_elaborated(progress).specs)

    def is_built(self, progress: Progress) -> bool:
        """Whether the case's artifact is in the store already; if so, tells the listeners."""
        key = progress.keys.build
        if self._yard.rebuild:
            return False
        if key not in self._artifacts and find_artifact(key, self._yard.objects) is None:
            return False
        self._artifacts.add(key)
        progress.built = Build(outcome=Outcome.PASSED, build=key, reused=True)
        at = self._yard.clock.wall_s()
        self._yard.emit(BuildEnded(case=progress.case.key, at=at, ok=True, reused=True))
        return True

    def find_built(self, progress: Progress) -> Build:
        """How the build of a case with an artifact ended; an artifact from the store describes itself."""
        if not progress.built.files:
            known = find_build(progress.keys.build, self._yard.objects)
            if known is not None:
                progress.built = msgspec.structs.replace(known, reused=progress.built.reused)
        return progress.built

    def identify(self, progress: Progress) -> None:
        """Complete the keys of a built case with what its artifact does, independent of what it was built from.

        Raises DamagedError if that of programs is gone.
        """
        if progress.command is not None and progress.golden is not None:
            binary = digest_parts("program", self._find_tree(progress), progress.golden.used)
        elif (built := self.find_built(progress)).binary:
            binary = digest_parts(built.binary, built.details)
        else:
            return
        progress.keys = msgspec.structs.replace(progress.keys, binary=binary)

    def _find_tree(self, progress: Progress) -> Digest:
        """The tree that the build step of a case made, empty if there is none."""
        artifact = find_artifact(progress.keys.build, self._yard.objects)
        if artifact is None:
            raise DamagedError(f"what was built for {progress.case.key} is gone or damaged")
        return artifact.manifest.files.get(TREE_FILE, Digest(""))

    async def build(
        self, members: Sequence[Progress], worker: int
    ) -> AsyncIterator[tuple[Progress, bool | None]]:
        """Build artifacts of one builder on a compile worker, together; yield for each whether it exists now.

        That is None if a build for several targets failed: the case needs the build of its own target.
        """
        yard = self._yard
        left: dict[str, Progress] = {}
        for progress in members:
            if progress.keys.build in self._failed and await self._turn_to_own(progress):
                yield progress, None
                continue
            is_built: bool | None = None
            with contextlib.suppress(*HOST_FAULTS):  # what cannot be looked up is built
                is_built = self._find_built(progress)
            if is_built is None:
                yard.emit(BuildStarted(case=progress.case.key, at=yard.clock.wall_s()))
                left[progress.case.key] = progress
            else:
                await self.complete(progress, is_built=is_built)
                yield progress, is_built
        while left:
            async for built in self._build(tuple(left.values()), worker):
                progress = left[built.case]
                is_lost = built.outcome is Outcome.INFRA_ERROR
                if built.outcome not in (Outcome.PASSED, *INFRASTRUCTURE):
                    self._failed.setdefault(progress.keys.build, (built, progress))
                    if await self._turn_to_own(progress):
                        del left[built.case]
                        yield progress, None
                        continue
                if not (is_lost and self._ledger.may_retry(progress, built.message)):
                    del left[built.case]
                    is_built = self._take_verdict(progress, built)
                    await self.complete(progress, is_built=is_built)
                    yield progress, is_built

    async def _turn_to_own(self, progress: Progress) -> bool:
        """Switch a case from a build for several targets to the build of its own; False if it had that already."""
        command, elaborated = progress.command, _elaborated(progress)
        if command is None:
            return False
        parts = self._list_parts(progress)
        own = [one for one in parts if digest_parts("own build", one) == command.own_build]
        if not own:
            return False
        kernel = msgspec.structs.replace(elaborated.kernel, program=own[0])
        progress.elaborated = msgspec.structs.replace(elaborated, kernel=kernel)
        fingerprint = (await self.describe(builder_of(progress.case))).fingerprint
        key = program_key(progress.case, own[0], fingerprint)
        progress.keys = msgspec.structs.replace(progress.keys, build=key)
        self.keep(progress)
        return True

    async def complete(self, progress: Progress, *, is_built: bool) -> None:
        """Complete the keys of all cases of a finished build; a case that cannot be looked at is not proven by this run."""
        if not is_built:
            return
        others = self._partial.pop(progress.keys.build, [])
        # A case that another call has taken is looked at here, too: it continues with complete keys.
        for one in (progress, *(other for other in others if other is not progress)):
            if self._ledger.is_open(one.case.key) and _is_partial(one):
                with contextlib.suppress(TileyardError):
                    await self.look_at_built(one)
                    self.keep(one)

    def _find_built(self, progress: Progress) -> bool | None:
        """Whether a case is built already; False if its build is known to fail, None if neither is known."""
        key = progress.keys.build
        if self._ledger.recall(progress, self._yard.store.find_build_failure(key)):
            return False
        if key in self._failed:
            built, first = self._failed[key]
            self._ledger.write_log(progress, f"built for {first.case.key}: see {first.log}")
            self._ledger.finish(progress, built.outcome, built.message)
            return False
        return True if self.is_built(progress) else None

    async def _build(self, members: Sequence[Progress], worker: int) -> AsyncIterator[Build]:
        """A verdict for each member, in order, even if no worker could be started for them."""
        requests = [
            BuildKernel(
                case=progress.case.key,
                build=progress.keys.build,
                elaborated=_elaborated(progress),
                options=progress.case.options,
            )
            for progress in members
        ]
        limits_s = [
            progress.case.limits.build_s * max(1, len(self._list_parts(progress)))
            for progress in members
        ]
        process, done = (builder_of(members[0].case), worker), 0
        try:
            async for built in self._pool.build(
                process, requests, limits_s, anew=self._yard.rebuild
            ):
                done += 1
                yield built
        except HOST_FAULTS as error:
            for lost in requests[done:]:
                yield Build(
                    case=lost.case,
                    build=lost.build,
                    outcome=Outcome.INFRA_ERROR,
                    message=str(error),
                )

    def _take_verdict(self, progress: Progress, built: Build) -> bool:
        self._ledger.write_log(progress, built.printed)
        progress.built = built = msgspec.structs.replace(built, printed="")
        ok = built.outcome is Outcome.PASSED
        at = self._yard.clock.wall_s()
        self._yard.emit(BuildEnded(case=progress.case.key, at=at, ok=ok, reused=False))
        if ok:
            self._publish_parts(progress)
            progress.flags += (built.message,) if built.message else ()
        else:
            progress.keys = Keys(build=progress.keys.build)
            self._ledger.finish(progress, built.outcome, built.message)
        return ok

    def _list_parts(self, progress: Progress) -> tuple[str, ...]:
        """The own builds that the build of a case makes together, if it is one for several targets."""
        if isinstance(progress.case.work, KernelWork):
            return ()
        return programs_of(self._yard).builds.parts_of(_elaborated(progress).kernel.program)

    def _publish_parts(self, progress: Progress) -> None:
        """Publish a build for several targets as the own build of each."""
        case, objects = progress.case, self._yard.objects
        parts = self._list_parts(progress)
        artifact = find_artifact(progress.keys.build, objects) if parts else None
        if artifact is not None:
            for program in parts:
                key = program_key(case, program, artifact.manifest.fingerprint)
                publish(msgspec.structs.replace(artifact.manifest, build=key), objects)

    def _is_program_built(self, case: Case, fingerprint: str, program: str) -> bool:
        key = program_key(case, program, fingerprint)
        return not self._yard.rebuild and find_artifact(key, self._yard.objects) is not None

    async def _elaborate(self, progress: Progress) -> bool:
        case, yard = progress.case, self._yard
        info = await self.describe(builder_of(case))
        reply = await self._ask_elaborated(
            case, with_tir=info.needs_tir, fingerprint=info.fingerprint
        )
        self._ledger.write_log(progress, reply.log)
        if isinstance(reply, Failed):
            require_host(reply)
            progress.built = Build(outcome=reply.outcome, diagnostic=reply.diagnostic)
            self._ledger.finish(progress, reply.outcome, reply.message)
            return False
        progress.elaborated, progress.command = reply.elaborated, reply.command
        yard.tell_notes(reply.elaborated)
        key = build_key(reply.elaborated.kernel, case.target, info.fingerprint, case.options)
        progress.keys = Keys(build=key)
        return not self._ledger.recall(progress, yard.store.find_build_failure(key))

    async def _ask_elaborated(
        self, case: Case, *, with_tir: bool, fingerprint: str
    ) -> ElaboratedConfig | Failed:
        if not isinstance(case.work, KernelWork):
            is_built = partial(self._is_program_built, case, fingerprint)
            return await programs_of(self._yard).elaborate(case, case.work, is_built)
        side = self._yard.authors.sides[case.side]
        options = side.pass_options
        asked = [*options, *(["the pipeline"] if side.pipeline else [])]
        if asked and not with_tir:
            message = f"this target takes no pass options, so it cannot heed {', '.join(asked)}"
            return Failed(message=message, outcome=Outcome.COMPILE_ERROR)
        work = case.work
        request = ElaborateConfig(
            kernel=work.kernel,
            arguments=work.arguments,
            config=work.config,
            with_tir=with_tir,
            pipeline=side.pipeline,
            target=case.target if side.pipeline or PIPELINE in work.config else "",
        )
        limit_s = case.limits.elaborate_s
        reply = await self._yard.authors.elaborate(case.side, work.file, request, limit_s)
        if isinstance(reply, Failed) or not options:
            return reply
        kernel = reply.elaborated.kernel
        kernel = msgspec.structs.replace(kernel, pass_options={**kernel.pass_options, **options})
        return msgspec.structs.replace(
            reply, elaborated=msgspec.structs.replace(reply.elaborated, kernel=kernel)
        )

    async def _make_golden(self, progress: Progress) -> bool:
        """Make inputs and reference outputs, once for all configs that share them."""
        case, elaborated = progress.case, _elaborated(progress)
        if case.until in ("checked", "built"):
            progress.golden = Golden(key=GoldenKey(""), inputs=(), outputs=())
            return True
        if isinstance(case.work, KernelWork):
            self._needed[case.side, case.work.file] += 1
        shared = _shared_golden(case, elaborated)
        async with self._making.setdefault(shared, asyncio.Lock()):
            golden = self._goldens.get(shared)
            if golden is None:
                reply = await self._ask_golden(case, elaborated)
                if isinstance(reply, Failed):
                    self._ledger.write_log(progress, reply.log)
                    require_host(reply)
                    self._ledger.finish(progress, reply.outcome, reply.message)
                    return False
                self._goldens[shared] = golden = reply
                progress.flags += (reply.flag,) if reply.flag else ()
        progress.golden = golden
        run = run_key(own_build(progress), golden.key, case.check)
        progress.keys = msgspec.structs.replace(progress.keys, golden=golden.key, run=run)
        return True

    def is_known(self, progress: Progress) -> bool:
        """Whether a case ended with the result of an earlier run."""
        if progress.case.until != "judged":
            return False
        if self._ledger.skip_proven(progress):
            return True
        batch = progress.batch
        is_anew = batch.known == "ignored" or is_measured_anew(progress.case)
        if batch.order == "interleaved" or is_anew:
            return False
        if self._ledger.recall_measured(progress):
            return True
        if batch.known == "required":
            reason = "it is not recorded here, and only finals were asked for"
            self._ledger.finish(progress, Outcome.NOT_RUN, reason)
        return batch.known == "required"

    async def _ask_golden(self, case: Case, elaborated: Elaborated) -> Golden | Failed:
        work = case.work
        if not isinstance(work, KernelWork):
            return await programs_of(self._yard).make_golden(case, work)
        request = MakeGolden(
            kernel=work.kernel,
            arguments=work.arguments,
            specs=elaborated.specs,
            scalars=elaborated.scalars,
            threads=len(self._yard.authors.cores),
            reference=work.reference,
            make_inputs=work.inputs,
            draw=work.draw,
            anew=self._yard.fresh,
        )
        self._asked[case.side, work.file] += 1
        author = self._yard.authors.of(case.side, work.file)
        return await author.ask(request, case.limits.golden_s)

    def _count_goldens(self, side: str, file: str) -> int:
        """Number of golden results of a file that are still to be made, if as many cases share one as so far."""
        unprepared = self._ledger.count_unprepared(side, file)
        asked, needed = self._asked[side, file], self._needed[side, file]
        return unprepared * asked // needed if needed else 0


def require_host(failed: Failed) -> None:
    """Raise WorkerLostError if the host is the cause and may be well the next time: the case is prepared again."""
    if failed.outcome is Outcome.INFRA_ERROR and not failed.is_final:
        raise WorkerLostError(failed.message)


def builder_of(case: Case) -> Builder:
    """The builder of a case: its side and its target."""
    return case.side, case.target


def programs_of(yard: Yard) -> Programs:
    """The Programs of a run that has cases of programs."""
    if yard.programs is None:
        raise AssertionError("a run without a place for programs was given some")
    return yard.programs


def program_key(case: Case, program: str, fingerprint: str) -> BuildKey:
    """The key of a build of programs that this case needs or takes part in."""
    kernel = Kernel(name=case.testcase, program=program)
    return build_key(kernel, case.target, fingerprint, case.options)


def _shared_golden(case: Case, elaborated: Elaborated) -> str:
    """The key that cases with the same inputs and reference share; programs share them by their key alone."""
    work = case.work
    if not isinstance(work, KernelWork):
        return case.key
    own = (work.reference, work.inputs, work.draw)
    asked = (case.side, work.file, work.kernel, work.arguments, *own)
    return canonical_json((asked, elaborated.specs, elaborated.scalars))


def _is_partial(progress: Progress) -> bool:
    """Whether the built programs are to be looked at; for timed cases only what was built is compared."""
    golden = progress.golden
    return golden is not None and golden.is_partial and progress.case.timing is None


def own_build(progress: Progress) -> BuildKey:
    """The key of the part of the build on which the result of a case depends."""
    command = progress.command
    return progress.keys.build if command is None else BuildKey(command.own_build)


def run_entry(progress: Progress) -> RunEntry:
    """The entry with which a runner runs a prepared and built case."""
    elaborated = _elaborated(progress)
    if progress.golden is None:
        raise AssertionError(f"case {progress.case.key} has no inputs yet")
    return RunEntry(
        case=progress.case.key,
        build=progress.keys.build,
        golden=progress.golden,
        specs=elaborated.specs,
        scalars=elaborated.scalars,
        log=progress.log,
        command=progress.command,
        lines=elaborated.lines,
        rule=elaborated.rule,
    )


def _elaborated(progress: Progress) -> Elaborated:
    if progress.elaborated is None:
        raise AssertionError(f"case {progress.case.key} is not elaborated yet")
    return progress.elaborated
