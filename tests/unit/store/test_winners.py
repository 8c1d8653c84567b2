"""Bundles of binaries that won."""

from pathlib import Path

import msgspec
import pytest
from tests.unit.store.test_choices import FIRST

from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import BuildKey
from tileyard.store.choices import Choice
from tileyard.store.winners import open_winners, pack_winners

KEY = BuildKey("ab" * 20)
WON = msgspec.structs.replace(FIRST, build=KEY)


def test_binaries_travel_with_their_choices(tmp_path: Path) -> None:
    """Equal choices come out, and what they run is there."""
    here, there = (ObjectStore(tmp_path / name / "objects") for name in ("here", "there"))
    binary = here.put_bytes(b"binary")
    manifest = Manifest(
        kernel="gemm",
        target="cpu",
        fingerprint="",
        build=KEY,
        binary="",
        files={"a.so": binary},
        details="{}",
    )
    publish(manifest, here)
    pack_winners([WON], tmp_path / "here", tmp_path / "w.tyb")
    assert open_winners(tmp_path / "w.tyb", tmp_path / "there") == (WON,)
    assert there.get_bytes(binary) == b"binary"
    assert there.has_record("build", KEY)


@pytest.mark.parametrize("choice", [FIRST, WON])
def test_a_binary_that_is_gone_is_named(tmp_path: Path, choice: Choice) -> None:
    """Also of a choice that was recorded when no binary was."""
    with pytest.raises(UsageError, match="the binary of gemm that won on one is not in"):
        pack_winners([choice], tmp_path, tmp_path / "w.tyb")
    assert not (tmp_path / "w.tyb").exists()
