"""Builds one kernel in this process, or finds it built, for callers that need it as a function."""

import fcntl
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tileyard.artifacts.copying import writing_to
from tileyard.artifacts.manifest import Artifact, Build, find_artifact
from tileyard.artifacts.objects import ObjectStore, build_key
from tileyard.base.errors import UnsupportedError
from tileyard.base.model import BuildKey, Elaborated, Limits
from tileyard.base.modes import make_folder, open_file
from tileyard.base.settings import Settings
from tileyard.processes.programs import programs_limit_s
from tileyard.workers.compiler import Compiler
from tileyard.workers.protocol import BuildKernel, DescribeTarget

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import MadeKernel

LOCKS = "building"
"""Folder below the data directory for files that are locked while a kernel is built, by several keys each."""
NUMBER_VARIABLE = "TILEYARD_LEASE"
PIPE_VARIABLE = "TILEYARD_LEASE_PIPE"


class LocalBuilder:
    """Builds for one target; each program, as a compiler, has ``limit_s``. Raises ToolMissingError."""

    def __init__(self, target: str, settings: Settings, limit_s: float = Limits().build_s) -> None:
        self._target = target
        self._limit_s = limit_s
        self._home = settings.make_home()
        self._objects = ObjectStore(settings.home / "objects")
        self._compiler = Compiler(self._home)
        request = DescribeTarget(target=target, plugins=settings.plugins)
        info = request.check(self._compiler.answer(request))
        self.needs_tir = info.needs_tir
        self._fingerprint = info.fingerprint

    def key_of(self, made: "MadeKernel") -> BuildKey:
        """The key under which a kernel is built."""
        return build_key(made.kernel, self._target, self._fingerprint, {})

    def build(self, made: "MadeKernel") -> tuple[Artifact, bool]:
        """An elaborated kernel's artifact, and whether this call built it: one caller builds,
        others wait. Raises UnsupportedError with the line of an operation that is not covered.
        """
        kernel, key = made.kernel, self.key_of(made)
        artifact = find_artifact(key, self._objects)
        if artifact is not None:
            return artifact, False
        with _alone(self._home, key):
            artifact = find_artifact(key, self._objects)
            if artifact is not None:
                return artifact, False
            elaborated = Elaborated(
                kernel=kernel, tir=made.tir, lines=made.lines, source=made.source
            )
            wanted = BuildKernel(case=kernel.name, build=key, elaborated=elaborated, options={})
            limited = programs_limit_s.set(self._limit_s)
            try:
                built = self._compiler.build_alone(wanted)
            finally:
                programs_limit_s.reset(limited)
        if isinstance(built, Build):
            raise _describe(built, f"{kernel.name} could not be built for {self._target}")
        return built, True


def _describe(failed: Build, usual: str) -> UnsupportedError:
    found = failed.diagnostic
    where = None if found is None else found.where
    return UnsupportedError(
        failed.message or usual,
        operation="" if found is None else found.operation,
        file="" if where is None else where.file,
        line=0 if where is None else where.line,
    )


@contextmanager
def _alone(home: Path, key: BuildKey) -> Iterator[None]:
    """Wait until no other process of this home builds this key; a dying process gives up the lock."""
    path = home / LOCKS / f"{key[:2]}.lock"
    with writing_to(path):
        make_folder(path.parent)
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def wait_for_lease(environ: MutableMapping[str, str]) -> int:
    """Wait for this process's first lease; leave its number, else 0, in ``environ``. Raises SystemExit."""
    pipe = environ.pop(PIPE_VARIABLE, "")
    if pipe:
        with os.fdopen(int(pipe), "rb") as numbers:
            line = numbers.readline().decode()
        if not line.endswith("\n"):
            raise SystemExit("the keeper is gone: there will be no lease")
        environ[NUMBER_VARIABLE] = line.rstrip()
    return int(environ.get(NUMBER_VARIABLE, "").partition(",")[0] or 0)
