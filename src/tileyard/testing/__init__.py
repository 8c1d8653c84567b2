"""Contracts that every target, store and strategy must pass, and parts for tests.

Contracts are loaded when first used, because an engine's use of this package needs no pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileyard.testing.stores import StoreContract
    from tileyard.testing.strategies import StrategyContract
    from tileyard.testing.targets import TargetContract

__all__ = ["StoreContract", "StrategyContract", "TargetContract"]

_HOMES = {
    "StoreContract": "tileyard.testing.stores",
    "StrategyContract": "tileyard.testing.strategies",
    "TargetContract": "tileyard.testing.targets",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'tileyard.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
