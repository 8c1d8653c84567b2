"""Layouts that a kernel annotates, on their way through TVM's JSON to the process that lowers it."""

import importlib
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # imports TileLang


@pytest.mark.parametrize("kind", ["swizzle", "fragment", "copies"])
def test_a_layout_comes_back(kind: str) -> None:
    """TileLang can evaluate it, and it is the same."""
    tilelang: Any = importlib.import_module("tilelang")
    layouts: Any = importlib.import_module("tilelang.layout")
    load = importlib.import_module("tileyard.targets.cuda.lowering").load_function
    tvm = tilelang.tvm
    storage = tvm.tirx.decl_buffer((3, 128, 64), "float16", "s", scope="shared.dyn")
    layout = {
        "swizzle": lambda: layouts.make_full_bank_swizzled_layout(storage),
        "fragment": layouts.make_gemm_fragment_8x8,
        "copies": lambda: layouts.Fragment(
            (16, 16), forward_fn=lambda i, j, copy: (i * 2 + j % 2 + copy * 64, j // 2), replicate=2
        ),
    }[kind]()
    body = tvm.tirx.Evaluate(tvm.tirx.const(0))
    block = tvm.tirx.SBlock(
        [], [], [], "b", body, annotations={"layout_map": {storage.data: layout}}
    )
    whole = tvm.tirx.SBlockRealize([], tvm.tirx.const(True, "bool"), block)
    func = load(tvm.ir.save_json(tvm.tirx.PrimFunc([], whole)))
    (found,) = func.body.block.annotations["layout_map"].values()
    assert tvm.ir.structural_equal(found, layout)
    assert str(found) == str(layout)
