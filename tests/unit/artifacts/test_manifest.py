"""Artifacts are found by their build key, and only where all of their files are."""

from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.manifest import MANIFEST_VERSION, Manifest, find_artifact, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError
from tileyard.base.model import BuildKey

KEY = BuildKey("0123abcd")


def make_manifest(objects: ObjectStore) -> Manifest:
    """The manifest of an artifact with one file, which is stored."""
    return Manifest(
        kernel="gemm",
        target="cpu",
        fingerprint="gcc",
        build=KEY,
        binary="",
        files={"kernel.so": objects.put_bytes(b"code")},
        details="{}",
    )


def test_published_artifact_is_found_with_its_files(tmp_path: Path) -> None:
    """An artifact opens by its build key in any process that has the store."""
    objects = ObjectStore(tmp_path)
    expected = make_manifest(objects)
    publish(expected, objects)

    found = find_artifact(KEY, ObjectStore(tmp_path))

    assert found is not None
    assert found.manifest == expected
    assert found.file("kernel.so").read_bytes() == b"code"


def test_artifact_that_was_never_built_is_absent(tmp_path: Path) -> None:
    """An unknown build key finds nothing."""
    assert find_artifact(KEY, ObjectStore(tmp_path)) is None


def test_artifact_without_one_of_its_files_is_absent(tmp_path: Path) -> None:
    """It is built again rather than loaded in part."""
    objects = ObjectStore(tmp_path)
    manifest = make_manifest(objects)
    publish(manifest, objects)
    objects.path(manifest.files["kernel.so"]).unlink()

    assert find_artifact(KEY, objects) is None


def test_artifact_of_another_version_is_absent(tmp_path: Path) -> None:
    """A manifest that this version does not understand is not guessed at."""
    objects = ObjectStore(tmp_path)
    publish(msgspec.structs.replace(make_manifest(objects), version=MANIFEST_VERSION + 1), objects)

    assert find_artifact(KEY, objects) is None


def test_record_that_is_no_manifest_is_absent(tmp_path: Path) -> None:
    """Whatever else lies under a build key counts as nothing."""
    objects = ObjectStore(tmp_path)
    objects.put_record("build", KEY, b'{"kernel": 3}')

    assert find_artifact(KEY, objects) is None


def test_damaged_file_is_refused_and_then_absent(tmp_path: Path) -> None:
    """Once damage was noticed, the next run builds the artifact again."""
    objects = ObjectStore(tmp_path)
    manifest = make_manifest(objects)
    publish(manifest, objects)
    path = objects.path(manifest.files["kernel.so"])
    path.chmod(0o644)
    path.write_bytes(b"evil")
    found = find_artifact(KEY, objects)
    assert found is not None

    with pytest.raises(DamagedError):
        found.file("kernel.so")

    assert find_artifact(KEY, objects) is None
