"""The fences that TileLang puts into a role are known where they are, and only there."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.differential.conftest import load_module, lower_prim_func

from tileyard.ir.fences import find_fences
from tileyard.ir.nodes import Issue
from tileyard.ir.walk import walk
from tileyard.sync.blocks import check_program

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

__all__ = ["lower_prim_func"]

pytestmark = pytest.mark.slow

ROUNDS = 4
OF_CONSUMER = re.compile(
    r"\n  if \(\(\(int\)threadIdx\.x\) < 128\) \{\n(.*?)\n  \} else \{", re.DOTALL
)
FENCED = re.compile(r"full\[[^\n]*\.wait\((?:(?!wgmma_ss).)*fence_proxy_async\(\)", re.DOTALL)
"""From a wait for a tile to a fence before the first product."""


@pytest.fixture(scope="session")
def fences() -> ModuleType:
    """The kernel."""
    return load_module(Path(__file__).parent / "fences.py")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("first", ["stored", "loaded"])
@pytest.mark.parametrize("then", ["nothing", "store", "store and multiply"])
def test_fences_are_known_where_tilelang_puts_them(
    fences: ModuleType,
    lower_prim_func: Callable[..., "Lowered"],
    first: str,
    then: str,
) -> None:
    """As the generated CUDA has them; a product without one is a mistake, as a role wrote its operand."""
    tilelang = importlib.import_module("tilelang")
    func = fences.multiplied.get_tir(N=ROUNDS, first=first, then=then)
    target = tilelang.tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    with target:
        made = tilelang.lower(func, target=target, enable_device_compile=False)
    (role,) = OF_CONSUMER.findall(made.kernel_source)
    is_fenced = FENCED.search(role) is not None
    program = (lowered := lower_prim_func(func)).written
    (product,) = (
        one for one in walk(program.body) if isinstance(one, Issue) and one.unit == "wgmma"
    )
    given = find_fences(program)
    assert (id(product) in given) == is_fenced
    arrays = [
        np.ones(shape, kind)
        for shape, kind in (((64, 64), "f2"), ((ROUNDS, 64, 64), "f2"), ((64, 64), "f4"))
    ]
    kinds = {one.kind for one in check_program(program, lowered.written_lines, arrays).findings}
    assert kinds == (set() if is_fenced else {"missing fence"})
