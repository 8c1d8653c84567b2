"""Elaborates the kernels of tests/kernels with TileLang, once for the session."""

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tileyard.frontend.no_device import adjust_tilelang

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

TARGET = '{"kind":"cuda","arch":"sm_90a"}'
KERNELS = Path(__file__).parent.parent / "kernels"


def load_module(path: Path) -> ModuleType:
    """Import a file; TileLang looks for a kernel's source in it."""
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", TARGET)
    adjust_tilelang()
    spec = importlib.util.spec_from_file_location(f"kernels_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TileLang and torch warn while they are imported
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def lower_prim_func() -> Callable[..., "Lowered"]:
    """The frontend's entry; importing it imports TileLang, which is kept out of collection."""
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tileyard.frontend.tilelang").lower_prim_func


@pytest.fixture(scope="session")
def kernels() -> Callable[[str], ModuleType]:
    """Imports ``tests/kernels/<name>.py`` on first use."""
    loaded: dict[str, ModuleType] = {}

    def get(name: str) -> ModuleType:
        if name not in loaded:
            loaded[name] = load_module(KERNELS / f"{name}.py")
        return loaded[name]

    return get
