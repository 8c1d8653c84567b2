"""Carries out what a case needs before it gets a device: elaboration, inputs, reference, build."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial

import msgspec

from tileyard.artifacts.manifest import TREE_FILE, Build, find_artifact, find_build, publish
from tileyard.artifacts.objects import build_key, canonical_json, digest_parts, run_key
from tileyard.base.errors import (
    HOST_FAULTS,
    DamagedError,
    HostsLostError,
    TileyardError,
    WorkerLostError,
)
from tileyard.base.events import BuildEnded, BuildStarted, TargetsBuilt
from tileyard.base.model import (
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
    RunKey,
)
from tileyard.engine.compilers import Builder, Builders, TellBuilt
from tileyard.engine.ledger import UNBUILT, Ledger, Progress, is_measured_anew
from tileyard.engine.programs import Programs
from tileyard.engine.sync_checks import SyncChecks
from tileyard.engine.yard import Yard
from tileyard.frontend.declare import PIPELINE
from tileyard.targets.command.target import names_products
from tileyard.targets.own_sources import Excess, find_excess, read_reported
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


class JointBuilds:
    """The builds of one run that have several targets; other builds are made alone, and share no cache."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._built = 0

    def list_together(self, progress: Progress) -> tuple[str, ...]:
        """The builds that are made in the same call as that of a case, as programs."""
        program = _program_of(progress)
        together = programs_of(self._yard).builds.list_together(program) if program else ()
        return tuple(one for one in together if one != program)

    def part(self, progress: Progress) -> None:
        """From now on make each of these builds alone."""
        if program := _program_of(progress):
            programs_of(self._yard).builds.part(program)

    def cache_of(self, progress: Progress) -> str:
        """The name of the cache that the build of a case shares with other targets, empty for none."""
        program = _program_of(progress)
        return programs_of(self._yard).builds.cache_of(program) if program else ""

    def count_built(self, progress: Progress, more: int = 1) -> None:
        """Tell the listeners how many targets of build steps are built now, if a case needs one."""
        if self.cache_of(progress):
            self._built += more
            total = programs_of(self._yard).builds.targets
            self._yard.emit(TargetsBuilt(built=self._built, total=total))

    def publish_also(self, progress: Progress, others: Sequence[str]) -> Iterator[BuildKey]:
        """Publish a build without products, which has all targets, as each other one; yield their keys."""
        artifact = find_artifact(progress.keys.build, self._yard.objects) if others else None
        if artifact is not None and not names_products(_program_of(progress)):
            for program in others:
                key = program_key(progress.case, program, artifact.manifest.fingerprint)
                publish(msgspec.structs.replace(artifact.manifest, build=key), self._yard.objects)
                yield key


def _program_of(progress: Progress) -> str:
    is_kernel = isinstance(progress.case.work, KernelWork) or progress.elaborated is None
    return "" if is_kernel else elaborated_of(progress).kernel.program


def elaborated_of(progress: Progress) -> Elaborated:
    """What an author has elaborated for a case."""
    if progress.elaborated is None:
        raise AssertionError(f"case {progress.case.key} is not elaborated yet")
    return progress.elaborated


def programs_of(yard: Yard) -> Programs:
    """The Programs of a run that has cases of programs."""
    if yard.programs is None:
        raise AssertionError("a run without a place for programs was given some")
    return yard.programs


def program_key(case: Case, program: str, fingerprint: str) -> BuildKey:
    """The key of a build of programs that this case needs or takes part in."""
    kernel = Kernel(name=case.testcase, program=program)
    return build_key(kernel, case.target, fingerprint, case.options)


class Preparation:
    """The steps of a case up to its artifact. Each returns False if the case ended there."""

    def __init__(self, yard: Yard, ledger: Ledger, pool: Builders) -> None:
        self._yard = yard
        self._ledger = ledger
        self._pool = pool
        self.joint = JointBuilds(yard)
        self._sync = SyncChecks(yard, ledger)
        self._goldens: dict[str, Golden] = {}
        # The first of the cases that share one has it made.
        self._making: dict[str, asyncio.Lock] = {}
        # By side and file: number of cases that needed a golden result, and number that needed their own.
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
                for kind in self._yard.find_kinds(target) or ("",):
                    await self.describe(Builder(side, target, kind))

    async def describe(self, builder: Builder) -> TargetInfo:
        """A target's information about itself. Raises ToolMissingError if it cannot be used."""
        return await self._pool.describe(builder)

    async def prepare(self, progress: Progress) -> bool:
        """Elaborate, make inputs and reference, derive keys, recall results. Repeatable after HOST_FAULTS."""
        if not (await self._elaborate(progress) and await self._make_golden(progress)):
            return False
        if _is_partial(progress) and find_artifact(progress.keys.build, self._yard.objects):
            await self.look_at_built(progress)
        others = await self._key_other_kinds(progress)
        if not await self._sync.passes(progress) or self.is_known(progress, others):
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
        return count_output_bytes(elaborated_of(progress).specs)

    def is_built(self, progress: Progress) -> bool:
        """Whether the case's artifact is in the store already; if so, tells the listeners."""
        key = progress.keys.build
        if key not in self._artifacts and (
            self._yard.rebuild or find_artifact(key, self._yard.objects) is None
        ):
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
        """Complete a built case's keys with what its artifact does. Raises DamagedError if that is gone."""
        if progress.command is not None and progress.golden is not None:
            binary = digest_parts("program", self._find_tree(progress), progress.golden.used)
        elif (built := self.find_built(progress)).binary:
            binary = digest_parts(built.binary, built.details)
        else:
            return
        progress.keys = msgspec.structs.replace(progress.keys, binary=binary)

    def find_excess(self, progress: Progress) -> Excess | None:
        """The first of a built case's bounds that its binary exceeds."""
        bounds = progress.case.bounds
        facts = read_reported(self.find_built(progress).details).facts if bounds else {}
        return find_excess(facts, bounds)

    def _find_tree(self, progress: Progress) -> Digest:
        artifact = find_artifact(progress.keys.build, self._yard.objects)
        if artifact is None:
            raise DamagedError(f"what was built for {progress.case.key} is gone or damaged")
        return artifact.manifest.files.get(TREE_FILE, Digest(""))

    async def build(
        self, members: Sequence[Progress], worker: int, tell: TellBuilt
    ) -> AsyncIterator[tuple[Progress, bool | None]]:
        """Build artifacts of one builder; yield whether each exists now, None if no host is left that builds
        for its kind of CPU. ``tell`` gets further builds.
        """
        yard = self._yard
        left: dict[str, Progress] = {}
        for progress in members:
            is_built: bool | None = None
            with contextlib.suppress(*HOST_FAULTS):  # what cannot be looked up is built
                is_built = self._find_built(progress)
            if is_built is None:
                left[progress.case.key] = progress
            else:
                if is_built:
                    await self.complete(progress.keys.build)
                yield progress, is_built
        if left:
            host = await self._pool.find_host((builder_of(members[0]), worker))
            for key, progress in left.items():
                at = yard.clock.wall_s()
                yard.emit(BuildStarted(case=key, at=at, host=host, worker=worker))
                self.joint.count_built(progress, 0)
        ready: list[asyncio.Task[None]] = []

        def take(build: BuildKey) -> None:
            ready.append(asyncio.create_task(self._take_ready(members[0], build, tell)))

        try:
            while left:
                async for built in self._build(tuple(left.values()), worker, take):
                    progress = left[built.case]
                    await asyncio.gather(*ready)
                    if (is_built := await self._settle(progress, built, tell)) is not None:
                        del left[built.case]
                        yield progress, is_built
        except HostsLostError:
            for progress in left.values():
                yield progress, None
        finally:
            for task in ready:
                task.cancel()

    async def _take_ready(self, progress: Progress, build: BuildKey, tell: TellBuilt) -> None:
        self._artifacts.add(build)
        await self.complete(build)
        self.joint.count_built(progress)
        tell(build)

    async def _settle(self, progress: Progress, built: Build, tell: TellBuilt) -> bool | None:
        """Whether a case is built, after the verdict of a worker; None if it is to be built again."""
        is_ready = progress.keys.build in self._artifacts  # whatever has become of the others
        is_lost = built.outcome is Outcome.INFRA_ERROR and not is_ready
        if is_lost and self._ledger.may_retry(progress, built.message):
            return None
        others = self.joint.list_together(progress)
        self.joint.part(progress)  # which of them fails, a build of each alone shows
        if others and not is_ready and built.outcome not in (Outcome.PASSED, *INFRASTRUCTURE):
            return None
        if is_ready:
            built = msgspec.structs.replace(built, outcome=Outcome.PASSED)
        is_built = self._take_verdict(progress, built)
        if is_built and not is_ready:
            await self.complete(progress.keys.build)
            self.joint.count_built(progress)
            for key in self.joint.publish_also(progress, others):
                await self._take_ready(progress, key, tell)
        return is_built

    async def complete(self, build: BuildKey) -> None:
        """Complete the keys of all cases of a finished build; one that cannot be looked at proves nothing."""
        for one in self._partial.pop(build, []):
            if self._ledger.is_open(one.case.key) and _is_partial(one):
                with contextlib.suppress(TileyardError):
                    await self.look_at_built(one)
                    self.keep(one)

    def _find_built(self, progress: Progress) -> bool | None:
        """Whether a case is built; False if its build is known to fail, None if neither is known."""
        key = progress.keys.build
        if self._ledger.recall(progress, self._yard.store.find_build_failure(key)):
            return False
        if key in self._failed:
            built, first = self._failed[key]
            self._ledger.write_log(progress, f"built for {first.case.key}: see {first.log}")
            self._ledger.finish(progress, built.outcome, built.message)
            return False
        return True if self.is_built(progress) else None

    async def _build(
        self, members: Sequence[Progress], worker: int, tell: TellBuilt
    ) -> AsyncIterator[Build]:
        """A verdict for each member, in order, even if no worker could be started for them."""
        fingerprint = (await self.describe(builder_of(members[0]))).fingerprint
        requests = [
            BuildKernel(
                case=progress.case.key,
                build=progress.keys.build,
                elaborated=elaborated_of(progress),
                options=progress.case.options,
                together={
                    program: program_key(progress.case, program, fingerprint)
                    for program in self.joint.list_together(progress)
                },
            )
            for progress in members
        ]
        limits_s = [
            progress.case.limits.build_s * (1 + len(request.together))
            for progress, request in zip(members, requests, strict=True)
        ]
        process, answered = (builder_of(members[0]), worker), set[str]()
        try:
            async for built in self._pool.build(
                process, requests, limits_s, tell=tell, anew=self._yard.rebuild
            ):
                answered.add(built.case)
                yield built
        except HostsLostError:
            raise
        except HOST_FAULTS as error:
            for lost in (one for one in requests if one.case not in answered):
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
            progress.flags += (built.message,) if built.message else ()
        else:
            if built.outcome not in INFRASTRUCTURE:
                self._failed[progress.keys.build] = (built, progress)
            progress.keys = Keys(build=progress.keys.build)
            self._ledger.finish(progress, built.outcome, built.message)
        return ok

    def _is_program_built(self, case: Case, fingerprint: str, program: str) -> bool:
        key = program_key(case, program, fingerprint)
        return not self._yard.rebuild and find_artifact(key, self._yard.objects) is not None

    async def _elaborate(self, progress: Progress) -> bool:
        case, yard = progress.case, self._yard
        info = await self.describe(builder_of(progress))
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
        """Once for all configs that share them."""
        case, elaborated = progress.case, elaborated_of(progress)
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

    async def _key_other_kinds(self, progress: Progress) -> tuple[RunKey, ...]:
        """The keys that a case would have if it were built for another kind of CPU of the run."""
        case, golden, found = progress.case, progress.golden, list[RunKey]()
        if golden is None or not (progress.kind and self._yard.proven_by):
            return ()
        for kind in self._yard.find_kinds(case.target):
            info = await self.describe(builder_of(progress)._replace(kind=kind))
            kernel = elaborated_of(progress).kernel
            build = build_key(kernel, case.target, info.fingerprint, case.options)
            found.append(run_key(build, golden.key, case.check))
        return tuple(found)

    def is_known(self, progress: Progress, others: Sequence[RunKey] = ()) -> bool:
        """Whether a case ended with the result of an earlier run; ``others`` would prove it, too."""
        if progress.case.until != "judged":
            return False
        if self._ledger.skip_proven(progress, others):
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
        """Golden results of a file that are still to be made, if as many cases share one as so far."""
        unprepared = self._ledger.count_unprepared(side, file)
        asked, needed = self._asked[side, file], self._needed[side, file]
        return unprepared * asked // needed if needed else 0


def require_host(failed: Failed) -> None:
    """Raise WorkerLostError if the host is the cause and may be well the next time."""
    if failed.outcome is Outcome.INFRA_ERROR and not failed.is_final:
        raise WorkerLostError(failed.message)


def builder_of(progress: Progress) -> Builder:
    """The builder of a case: its side and its target, for a kind of CPU if there are several."""
    return Builder(progress.case.side, progress.case.target, progress.kind)


def place(progress: Progress, kind: str) -> None:
    """Have a case prepared and built, from now on, for this kind of CPU."""
    progress.kind, progress.keys, progress.built = kind, Keys(), UNBUILT


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
    elaborated = elaborated_of(progress)
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
