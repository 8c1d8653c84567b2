"""What tests of builds for GPUs need of TileLang, whose import is kept out of collection."""

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType

import pytest

from tileyard.base.model import Elaborated


def import_quietly(name: str) -> ModuleType:
    """A module that imports TileLang, which warns meanwhile, as torch does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@pytest.fixture(scope="session")
def gelu() -> Callable[[int, int], Elaborated]:
    """Elaborates one kernel for so many elements, in blocks of this many."""
    kernels = import_quietly("tests.kernels.elementwise")
    make_kernel = import_quietly("tileyard.frontend.tilelang").make_kernel

    def elaborate(elements: int, block: int) -> Elaborated:
        made = make_kernel(
            kernels.gelu.get_tir(N=elements, block=block), [-1], "gelu", with_tir=True
        )
        return Elaborated(kernel=made.kernel, tir=made.tir)

    return elaborate


@pytest.fixture(scope="session")
def lowering() -> ModuleType:
    """The module under test of that name."""
    return import_quietly("tileyard.targets.cuda.lowering")


@pytest.fixture(scope="session")
def gpu_faults() -> ModuleType:
    """Sources with faults in them."""
    return import_quietly("tests.kernels.gpu_faults")
