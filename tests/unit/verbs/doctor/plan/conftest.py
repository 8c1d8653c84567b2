"""A host of one's own: nothing of the machine's own configuration is seen."""

import os
from pathlib import Path

import pytest

from tileyard.base.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Home, locks and declarations below one folder."""
    return Settings(
        home=tmp_path / "home",
        lock_dir=tmp_path / "locks",
        cores=tuple(sorted(os.sched_getaffinity(0))),
        host_config=tmp_path / "etc",
    )
