"""Defines the manifest of an artifact, how it was built, and an artifact opened from the store."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.model import BuildKey, Diagnostic, Digest, Outcome, Record, Value

MANIFEST_VERSION = 1
TREE_FILE = "tree.json"
"""The file of an artifact that is the listing of a whole directory; see ``trees``."""


class Build(Record):
    """How one kernel was built for a target: ``passed``, or how the build failed.
    The target fills in the artifact's ``files`` (with a slash at the end: whole directories), ``details`` as
    JSON text, ``binary`` (device source, compiler and flags), the compiler's ``printed`` output, and a
    ``diagnostic``: the failure or a warning. ``exceeds``: the limit of devices for which it is too large.
    The worker adds ``case``, the key ``build``, the kernel's share ``build_s`` of the seconds, and
    ``message`` in one line. The engine moves output to ``log``, below the data directory; ``reused``: nothing
    was built. A case that ended earlier has its outcome here; results add ``config``.
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
    exceeds: str = ""


class Manifest(Record):
    """An artifact's files with digests, and their origin. ``binary`` identifies device source, compiler and
    flags; ``details`` is the target's part as JSON text (ABI, resources, requirements).
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
    manifest = objects.decode_record("build", build, Manifest)
    if manifest is None or manifest.version != MANIFEST_VERSION:
        return None
    if not all(map(objects.has, manifest.files.values())):
        return None
    tree = manifest.files.get(TREE_FILE)
    if tree is not None and not Trees(objects).has(tree):
        return None
    return Artifact(manifest, objects)


def find_build(build: BuildKey, objects: ObjectStore) -> Build | None:
    """How the artifact with this key was built, as its manifest states it; None as in ``find_artifact``."""
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
