"""Kernels with asynchronous copies, as they are and with planted mistakes."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.differential.conftest import load_module, lower_prim_func

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

__all__ = ["lower_prim_func"]

PIPELINES = Path(__file__).parents[2] / "examples" / "pipelines.py"

Lower = Callable[..., "Lowered"]


@pytest.fixture
def lower(lower_prim_func: Lower, tmp_path: Path) -> Callable[..., "Lowered"]:
    """Lowers a kernel of a file with this text."""

    def run(text: str, kernel: str, **arguments: int) -> "Lowered":
        path = tmp_path / "mutant.py"
        path.write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        function = getattr(load_module(path), kernel)
        return lower_prim_func(function.get_tir(**arguments), function.out_idx)

    return run
