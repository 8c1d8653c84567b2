"""Runs some tests of the files given: a plugin for ``tools/quick.py``, ``-p tests.chosen``."""

from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest


class Chosen(msgspec.Struct, frozen=True):
    """What runs: ``whole`` files, the tests of ``files`` that are not slow, and ``tests``, with or without
    parameters."""

    whole: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def has(self, test: str, *, is_slow: bool) -> bool:
        """Whether a test runs, named with its parameters."""
        file, plain = test.partition("::")[0], test.partition("[")[0]
        is_named = test in self.tests or plain in self.tests
        return is_named or file in self.whole or (file in self.files and not is_slow)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option that says which tests run."""
    parser.addoption("--chosen", type=Path, help="a JSON file with the tests that run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all other tests."""
    chosen = msgspec.json.decode(config.getoption("chosen").read_bytes(), type=Chosen)
    kept = [item for item in items if is_chosen(item, chosen)]
    config.hook.pytest_deselected(items=leave_out(items, kept))
    items[:] = kept


def is_chosen(item: pytest.Item, chosen: Chosen) -> bool:
    """Whether a test runs."""
    return chosen.has(item.nodeid, is_slow=item.get_closest_marker("slow") is not None)


def leave_out(items: Collection[pytest.Item], kept: Collection[pytest.Item]) -> list[pytest.Item]:
    """Those that are not kept."""
    left = set(kept)
    return [item for item in items if item not in left]
