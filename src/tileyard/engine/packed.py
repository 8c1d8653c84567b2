"""Cases that were built elsewhere: nothing is elaborated or built, and no compiler is asked for."""

import msgspec

from tileyard.artifacts.keys import run_key
from tileyard.engine.compilers import Builder, CompilePool
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.preparation import Preparation, own_build
from tileyard.engine.yard import FindEntry, Yard
from tileyard.model import Elaborated, Kernel, Keys
from tileyard.workers.protocol import TargetInfo


class PackedPreparation(Preparation):
    """Takes what a runner needs from what was packed."""

    def __init__(self, yard: Yard, ledger: Ledger, pool: CompilePool, find: FindEntry) -> None:
        super().__init__(yard, ledger, pool)
        self._find = find

    async def open(self) -> None:
        """The one that built the cases knew their target; here it need not be able to build."""

    async def describe(self, builder: Builder) -> TargetInfo:
        """Nothing is built."""
        return TargetInfo(fingerprint="", needs_tir=False)

    async def prepare(self, progress: Progress) -> bool:
        """Complete a case's keys; False where it is proven already."""
        entry = self._find(progress.case)
        progress.elaborated = Elaborated(
            kernel=Kernel(name=progress.case.testcase), specs=entry.specs, scalars=entry.scalars
        )
        progress.golden, progress.command = entry.golden, entry.command
        progress.keys = Keys(build=entry.build, golden=entry.golden.key)
        run = run_key(own_build(progress), entry.golden.key, progress.case.check)
        progress.keys = msgspec.structs.replace(progress.keys, run=run)
        return not self._ledger.skip_proven(progress)


def prepare_for(yard: Yard, ledger: Ledger, pool: CompilePool) -> Preparation:
    """How the cases of this yard are prepared."""
    if yard.packed is not None:
        return PackedPreparation(yard, ledger, pool, yard.packed)
    return Preparation(yard, ledger, pool)
