"""What tests of the pytest plugin share, those that build for NVIDIA's GPUs, and those that need one core."""

import os
from pathlib import Path

import pytest
from tests.conftest import shared_folder
from tests.e2e.pytest_tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty tree."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return Tree(tmp_path)


@pytest.fixture
def one_core() -> None:
    """One core for a test and what it starts: there, one process of each kind is enough. ``all_cores`` gives
    the others back.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.fixture(scope="session")
def gpu_caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where precompiled headers lie, which take seconds to make: one folder for all test processes."""
    return shared_folder(tmp_path_factory.getbasetemp())
