"""What tests of the pytest plugin share: a warm process to run pytest in, and an empty tree."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.pytest_tree import Tree, WarmPytest


@pytest.fixture(scope="session")
def warm_pytest() -> Iterator[WarmPytest]:
    """One for all runs of this process."""
    warm = WarmPytest()
    yield warm
    warm.close()


@pytest.fixture
def tree(tmp_path: Path, warm_pytest: WarmPytest) -> Tree:
    """An empty tree."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return Tree(tmp_path, warm_pytest)
