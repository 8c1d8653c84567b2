"""Contracts that every target, store and sampler must pass, loaded when first used, and parts for tests."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileyard.testing.stores import StoreContract
    from tileyard.testing.targets import TargetContract

__all__ = ["StoreContract", "TargetContract"]

_HOMES = {"StoreContract": "tileyard.testing.stores", "TargetContract": "tileyard.testing.targets"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'tileyard.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
