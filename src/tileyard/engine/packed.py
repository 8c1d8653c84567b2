"""Prepares cases that were built elsewhere: they are neither elaborated nor built, and need no compiler."""

import msgspec

from tileyard.artifacts.keys import run_key
from tileyard.artifacts.manifest import TREE_FILE, find_artifact
from tileyard.base.model import Case, CommandWork, Elaborated, Kernel, Keys
from tileyard.engine.compilers import Builder, CompilePool
from tileyard.engine.joint_builds import programs_of
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.preparation import Preparation, own_build, require_host
from tileyard.engine.yard import FindEntry, Yard
from tileyard.workers.protocol import CommandRun, Failed, Golden, RunEntry, TargetInfo


class PackedPreparation(Preparation):
    """Takes what runners need for cases of stored sides from packed artifacts; prepares others as usual."""

    def __init__(self, yard: Yard, ledger: Ledger, pool: CompilePool, find: FindEntry) -> None:
        super().__init__(yard, ledger, pool)
        self._find = find

    async def describe(self, builder: Builder) -> TargetInfo:
        """The target's information. That of a stored side need not be able to build here."""
        if self._yard.authors.sides[builder[0]].stored:
            return TargetInfo(fingerprint="", needs_tir=False)
        return await super().describe(builder)

    async def prepare(self, progress: Progress) -> bool:
        """Complete a case's keys; False if it is proven already. Raises HOST_FAULTS."""
        case = progress.case
        entry = self._find(case)
        if entry is None:
            return await super().prepare(progress)
        command, golden = entry.command, entry.golden
        is_proven_here = command is None or case.timing is None
        if is_proven_here and isinstance(case.work, CommandWork):
            described = await self._describe_steps(case, case.work, entry)
            if isinstance(described, Failed):
                require_host(described)
                self._ledger.write_log(progress, described.log)
                self._ledger.finish(progress, described.outcome, described.message)
                return False
            command, golden = described
        progress.elaborated = Elaborated(
            kernel=Kernel(name=case.testcase),
            specs=entry.specs,
            scalars=entry.scalars,
            lines=entry.lines,
            rule=entry.rule,
        )
        progress.golden, progress.command = golden, command
        progress.keys = Keys(build=entry.build, golden=golden.key)
        run = run_key(own_build(progress), golden.key, case.check)
        progress.keys = msgspec.structs.replace(progress.keys, run=run)
        if golden.is_partial and case.timing is None:
            await self.look_at_built(progress)
        if self.is_known(progress):
            return False
        self.keep(progress)
        return True

    async def _describe_steps(
        self, case: Case, work: CommandWork, entry: RunEntry
    ) -> tuple[CommandRun, Golden] | Failed:
        """The late steps of a case on its side: what they use is looked at here."""
        programs = programs_of(self._yard)
        late = msgspec.structs.replace(work, build=None, golden=None)
        golden = await programs.make_golden(case, late, entry.golden.tree)
        if isinstance(golden, Failed):
            return golden
        if (
            entry.command is not None
        ):  # the packed content decides, not what it was made from elsewhere
            artifact = find_artifact(entry.build, self._yard.objects)
            built = "" if artifact is None else artifact.manifest.files.get(TREE_FILE, "")
            return msgspec.structs.replace(entry.command, own_build=built), golden
        described = await programs.elaborate(case, late)
        if isinstance(described, Failed):
            return described
        if described.command is None:
            raise AssertionError(f"{case.key} is a case of programs and runs none")
        return msgspec.structs.replace(described.command, own_build=entry.build), golden


def prepare_for(yard: Yard, ledger: Ledger, pool: CompilePool) -> Preparation:
    """The Preparation for the cases of this yard."""
    if yard.packed is not None:
        return PackedPreparation(yard, ledger, pool, yard.packed)
    return Preparation(yard, ledger, pool)
