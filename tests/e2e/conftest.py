"""What tests of the pytest plugin share."""

from pathlib import Path

import pytest
from tests.e2e.pytest_tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty tree."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return Tree(tmp_path)
