"""Kernels that tests build; importing them imports TileLang, which is kept out of collection."""

import importlib
import warnings
from types import ModuleType

import pytest


def import_kernels(name: str) -> ModuleType:
    """A module of ``tests/kernels``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TileLang and torch warn while they are imported
        return importlib.import_module(f"tests.kernels.{name}")


@pytest.fixture(scope="session")
def elementwise() -> ModuleType:
    """Kernels without a loop."""
    return import_kernels("elementwise")


@pytest.fixture(scope="session")
def gpu_faults() -> ModuleType:
    """Sources with faults in them."""
    return import_kernels("gpu_faults")
