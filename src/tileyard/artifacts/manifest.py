"""Defines the manifest of an artifact, how it was built, and an artifact opened from the store."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.decoding import decode_json
from tileyard.base.model import BuildKey, Diagnostic, Digest, Outcome, Record, Value

MANIFEST_VERSION = 1
TREE_FILE = "tree.json"
"""The file of an artifact that is the listing of a whole directory; see ``trees``."""


class Build(Record):
    """How one kernel was built for a target, passed from worker to engine, result and reports.

    ``outcome`` is ``passed``, or how the build failed.

    A target fills in what it knows. ``files`` are the artifact's files, in the directory given to the
    target; a name with a slash at its end is a directory that is kept as a whole. ``details`` is the
    target's own part of the manifest as JSON text, ``binary`` identifies the device source with its
    compiler and flags, and ``printed`` is the compiler's output. ``diagnostic`` is why a build
    failed, or a warning for people although it passed. It is ``too_large`` if it was refused because no
    device of the target has room for it.

    The compile worker adds ``case``, the build key ``build``, the kernel's share ``build_s`` of the
    seconds spent, and ``message``: the diagnostic in one line.

    The engine moves the output to ``log``, a path below the data directory, and sets ``reused``
    if there was nothing to build. A case that ended before its build has its outcome and message here.
    The result of a run adds the ``config``.
    """

    outcome: Outcome
    case: str = ""
    config: dict[str, Value] = {}
    message: str = ""
    build: BuildKey = BuildKey("")
    build_s: float = 0.0
    reused: bool = False
    details: str = ""
    log: str = ""
    diagnostic: Diagnostic | None = None
    binary: str = ""
    files: tuple[str, ...] = ()
    printed: str = ""
    too_large: bool = False


class Manifest(Record):
    """An artifact's files by name, each with its digest, and their origin.

    ``binary`` identifies device source, compiler and flags; ``details`` is the target's own part
    as JSON text (its ABI, resources, requirements).
    """

    kernel: str
    target: str
    fingerprint: str
    build: BuildKey
    binary: str
    files: dict[str, Digest]
    details: str
    version: int = MANIFEST_VERSION


@dataclass(frozen=True)
class Artifact:
    """A manifest together with the store that contains its files."""

    manifest: Manifest
    objects: ObjectStore

    def file(self, name: str) -> Path:
        """The path of one file, its content verified. Raises DamagedError, or KeyError."""
        return self.objects.path(self.manifest.files[name])


def publish(manifest: Manifest, objects: ObjectStore) -> None:
    """Publish an artifact under its build key. Its files must already be in ``objects``."""
    objects.put_record("build", manifest.build, msgspec.json.encode(manifest))


def find_artifact(build: BuildKey, objects: ObjectStore) -> Artifact | None:
    """The artifact with this build key; None if it was never built, is damaged or incomplete."""
    data = objects.get_record("build", build)
    if data is None:
        return None
    try:
        manifest = decode_json(data, Manifest)
    except msgspec.DecodeError:
        return None
    if manifest.version != MANIFEST_VERSION or not all(map(objects.has, manifest.files.values())):
        return None
    tree = manifest.files.get(TREE_FILE)
    if tree is not None and not Trees(objects).has(tree):
        return None
    return Artifact(manifest, objects)


def find_build(build: BuildKey, objects: ObjectStore) -> Build | None:
    """How the artifact with this build key was built, as far as its manifest states it; None as in ``find_artifact``."""
    artifact = find_artifact(build, objects)
    if artifact is None:
        return None
    manifest = artifact.manifest
    return Build(
        build=build,
        outcome=Outcome.PASSED,
        files=tuple(manifest.files),
        binary=manifest.binary,
        details=manifest.details,
    )
