"""What tests of the pytest plugin share, and what those that build for NVIDIA's GPUs do."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.pytest_tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty tree."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return Tree(tmp_path)


@pytest.fixture(scope="session")
def gpu_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where precompiled headers lie, which take seconds to make and hundreds of megabytes."""
    folder = tmp_path_factory.mktemp("caches")
    yield folder
    shutil.rmtree(folder)
