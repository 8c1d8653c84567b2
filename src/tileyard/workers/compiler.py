"""The compile worker: builds kernels into the object store. Never touches a device."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import assert_never

import msgspec
from msgspec.structs import replace

from tileyard.artifacts.copying import scratch_folder
from tileyard.artifacts.manifest import TREE_FILE, Artifact, Build, Manifest, find_artifact, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import HOST_FAULTS, DamagedError, TileyardError, UsageError
from tileyard.base.model import Diagnostic, Digest, Outcome
from tileyard.base.modes import make_folder
from tileyard.base.wording import name_line
from tileyard.processes.wire import Channel
from tileyard.targets.base import (
    NO_BINARIES,
    Binaries,
    Groups,
    HandsOver,
    KeepsCaches,
    MakesShared,
    Source,
    Target,
    WarmsUp,
)
from tileyard.targets.registry import PROGRAM_FILE, make_target
from tileyard.workers.protocol import (
    BuildKernel,
    BuildKernels,
    BuildRefused,
    BuiltKernels,
    CompilerNotice,
    CompilerReply,
    CompilerRequest,
    DescribeTarget,
    PartBuilt,
    SharedBegan,
    SharedEnded,
    TargetInfo,
)

BINARY = "binary"
"""The kind of record that lists the files of a binary."""
CACHES = "caches"
"""The directory below the home in which build tools keep what they need not do twice."""


class StoredBinaries:
    """The binaries in an object store: configs that give the same source are compiled once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def fetch(self, binary: str, folder: Path) -> bool:
        """Put the binary's files into ``folder``; False if any is missing."""
        files = self._objects.decode_record(BINARY, binary, dict[str, Digest])
        with contextlib.suppress(DamagedError):
            for name, digest in (files or {}).items():
                (folder / name).write_bytes(self._objects.get_bytes(digest))
            return files is not None
        return False


class Compiler:
    """Answers requests about one target; ``home`` has the object store. ``tell`` is called when
    work that many kernels share begins and ends, and with each of the builds made together.
    """

    def __init__(
        self, home: Path, tell: Callable[[CompilerNotice], None] = lambda notice: None
    ) -> None:
        self._home = home
        self._objects = ObjectStore(home / "objects")
        self._scratch = home / "tmp"
        self._target: Target | None = None
        self._is_cold = False
        self._name = self._fingerprint = ""
        self._tell = tell
        self._aside_s = 0.0
        self._building: Sequence[BuildKernel] = ()

    def answer(self, request: CompilerRequest) -> CompilerReply:
        """Carry out one request; every error of the user's kernel becomes an outcome."""
        match request:
            case DescribeTarget(target=name, plugins=plugins):
                try:
                    self._target = make_target(name, plugins)
                    self._name = self._target.name
                    if isinstance(self._target, KeepsCaches):
                        self._target.caches = self._home / CACHES / request.caches
                    if isinstance(self._target, Groups):
                        self._target.group_size = request.group_size
                    if isinstance(self._target, MakesShared):
                        self._target.aside = self._aside
                    if isinstance(self._target, HandsOver):
                        self._target.hand_over = self._hand_over
                    self._fingerprint = self._target.fingerprint()
                    self._is_cold = isinstance(self._target, WarmsUp)
                except TileyardError as error:
                    return BuildRefused(message=error.message, hint=error.hint)
                return TargetInfo(
                    fingerprint=self._fingerprint,
                    needs_tir=self._target.needs_tir,
                    groups=isinstance(self._target, Groups),
                )
            case BuildKernels(kernels=kernels, anew=anew):
                self.warm_up()
                known = NO_BINARIES if anew else StoredBinaries(self._objects)
                try:
                    return BuiltKernels(verdicts=tuple(self._build(kernels, known)))
                except HOST_FAULTS as error:
                    lost = Build(outcome=Outcome.INFRA_ERROR, message=f"cannot build: {error}")
                    each = ((kernel.case, kernel.build) for kernel in kernels)
                    verdicts = (replace(lost, case=case, build=build) for case, build in each)
                    return BuiltKernels(verdicts=tuple(verdicts))
            case _:
                assert_never(request)

    def build_alone(self, wanted: BuildKernel) -> Artifact | Build:
        """Build one kernel here: its artifact, or how it failed. Raises DamagedError if it does not stay."""
        request = BuildKernels(kernels=(wanted,))
        (built,) = request.check(self.answer(request)).verdicts
        if built.outcome is not Outcome.PASSED:
            return built
        artifact = find_artifact(wanted.build, self._objects)
        if artifact is None:
            raise DamagedError(f"the artifact of {wanted.case} is gone right after it was built")
        return artifact

    def warm_up(self) -> None:
        """Do once what every build of the target needs, if possible before the first request arrives."""
        target: object = self._target
        if self._is_cold and isinstance(target, WarmsUp):
            self._is_cold = False
            with self._aside():
                target.warm_up()

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        started = time.monotonic()
        self._tell(SharedBegan())
        try:
            yield
        finally:
            self._tell(SharedEnded())
            self._aside_s += time.monotonic() - started

    def _build(self, kernels: Sequence[BuildKernel], known: Binaries) -> Iterator[Build]:
        if self._target is None:
            raise AssertionError("a build was asked for before its target was named")
        started, aside_s, self._building = time.monotonic(), self._aside_s, kernels
        make_folder(self._scratch)
        with scratch_folder(self._scratch) as out:
            sources = [
                Source(elaborated=k.elaborated, options=k.options, together=tuple(k.together))
                for k in kernels
            ]
            builds = list(self._target.build(sources, out, known))
            for number, (kernel, build) in enumerate(zip(kernels, builds, strict=True)):
                if build.outcome is Outcome.PASSED:
                    builds[number] = self._publish(kernel, build, out / str(number))
            # The time of what was done together is divided equally.
            spent_s = time.monotonic() - started - (self._aside_s - aside_s)
        for kernel, build in zip(kernels, builds, strict=True):
            yield replace(
                build,
                case=kernel.case,
                build=kernel.build,
                build_s=spent_s / len(kernels),
                message=_describe(build.diagnostic),
            )

    def _publish(self, request: BuildKernel, build: Build, folder: Path) -> Build:
        """Store a build; return the build itself, or a failed one if it cannot be stored."""
        kernel = request.elaborated.kernel
        files: dict[str, Digest] = {}
        for name in build.files:
            if not name.endswith("/"):
                files[name] = self._objects.put_file(folder / name)
                continue
            try:
                files[TREE_FILE] = Trees(self._objects).put(folder / name)
            except UsageError as error:
                reason = Diagnostic(message=f"build step: left what cannot be kept: {error}")
                return Build(
                    outcome=Outcome.COMPILE_ERROR, printed=build.printed, diagnostic=reason
                )
        if build.binary:
            self._objects.put_record(BINARY, build.binary, msgspec.json.encode(files))
        if kernel.program:
            files[PROGRAM_FILE] = self._objects.put_bytes(kernel.program.encode())
        manifest = Manifest(
            kernel=kernel.name,
            target=self._name,
            fingerprint=self._fingerprint,
            build=request.build,
            binary=build.binary,
            files=files,
            details=build.details,
        )
        publish(manifest, self._objects)
        return replace(build, files=tuple(files))

    def _hand_over(self, program: str, folder: Path) -> None:
        """Publish one of the builds that are made together. Raises TileyardError."""
        (request,) = self._building
        kernel = replace(request.elaborated.kernel, program=program)
        part = BuildKernel(
            case=request.case,
            build=request.together.get(program, request.build),
            elaborated=replace(request.elaborated, kernel=kernel),
            options=request.options,
        )
        build = Build(outcome=Outcome.PASSED, files=(f"{folder.name}/",))
        if self._publish(part, build, folder.parent).outcome is Outcome.PASSED:
            self._tell(PartBuilt(build=part.build))


def _describe(found: Diagnostic | None) -> str:
    if found is None:
        return ""
    place = f"{name_line(found.where.file, found.where.line)}: " if found.where else ""
    return f"{place}{found.message}"


def main(home: str, _target: str) -> None:
    """Serve requests until the engine closes the channel. ``_target`` only shows in lists of processes."""
    with Channel.serving() as channel:
        compiler = Compiler(Path(home), channel.send)
        while (request := channel.receive(CompilerRequest)) is not None:
            channel.send(compiler.answer(request))
            if isinstance(request, DescribeTarget) and request.warms_up:
                compiler.warm_up()


if __name__ == "__main__":
    main(*sys.argv[1:])
