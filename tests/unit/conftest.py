"""What tests of several rooms share: a home and a store of their own."""

from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.settings import Settings, read_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of a home below the test's folder."""
    return read_settings({"TILEYARD_HOME": str(tmp_path / "home")}, tmp_path)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    """A store in which there is nothing yet."""
    return ObjectStore(tmp_path / "objects")
