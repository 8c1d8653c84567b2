"""Finds what is built together with the build of a case: the other targets of its build step."""

from collections.abc import Iterator, Sequence

import msgspec

from tileyard.artifacts.keys import build_key
from tileyard.artifacts.manifest import find_artifact, publish
from tileyard.base.events import TargetsBuilt
from tileyard.base.model import BuildKey, Case, Elaborated, Kernel, KernelWork
from tileyard.engine.ledger import Progress
from tileyard.engine.programs import Programs
from tileyard.engine.yard import Yard
from tileyard.targets.command.target import names_products


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
