"""Kernels that travel as TIR: their digest, and those that have no Program."""

import importlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tileyard.base.errors import BindError, UnsupportedError, UsageError
from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import Tensor

SHUFFLE = """
import tilelang
import tilelang.language as T
{comment}

def reverse(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "{dtype}"), B: T.Tensor((N,), "{dtype}"), S: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32) as bx:
            tx = T.get_thread_binding()
            B[tx] = T.tvm_warp_shuffle(-1, A[{index}], 0, 32, 32)
            T.atomic_add(S[0], 1)

    return main
"""

ROLES = """
import tilelang
import tilelang.language as T

def make():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            tx = T.get_thread_binding()
            {operation}

    return main
"""

COUNTED = """
import tilelang
import tilelang.language as T

def make():
    @tilelang.jit(out_idx=[0], target="c")
    def counted():
        @T.prim_func
        def main(S: T.Tensor((1,), "float32")):
            T.annotate_pass_configs({"tl.some_option": ["a", 1]})
            with T.Kernel(1, threads=32):
                S[0] = 0.0
                T.atomic_add(S[0], 1.0)

        return main

    return counted
"""

MULTIPLES = """
import tilelang
import tilelang.language as T

def make():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n * 2,), "float32"), B: T.Tensor((n + 3, 4), "float32")):
        with T.Kernel(n, threads=32) as bx:
            tx = T.get_thread_binding()
            B[bx, 0] = A[2 * bx] + A[2 * bx + 1]

    return main
"""


def _load(folder: Path, text: str) -> Any:  # noqa: ANN401 (a PrimFunc)
    file = folder / "roles.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("roles", file)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make()


@pytest.fixture(scope="module")
def make_kernel() -> Callable[..., Any]:
    """The function under test; importing it imports TileLang."""
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", '{"kind":"cuda","arch":"sm_90a"}')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(  # type: ignore[no-any-return]
            "tileyard.frontend.tilelang"
        ).make_kernel


def _reverse(
    folder: Path, name: str, index: str = "31 - tx", comment: str = "", dtype: str = "float32"
) -> Any:  # noqa: ANN401 (a PrimFunc)
    file = folder / f"{name}.py"
    file.write_text(SHUFFLE.format(index=index, comment=comment, dtype=dtype))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reverse(32)


@pytest.mark.slow
def test_digest_of_tir_knows_no_lines(make_kernel: Callable[..., Any], tmp_path: Path) -> None:
    """The same kernel further down in another file has the same identity; another one has not."""
    expected = make_kernel(_reverse(tmp_path, "one"), with_tir=True)
    moved = make_kernel(_reverse(tmp_path, "two", comment="# a line more"), with_tir=True)
    other = make_kernel(_reverse(tmp_path, "three", index="tx"), with_tir=True)
    assert moved.kernel.tir == expected.kernel.tir
    assert moved.tir != expected.tir
    assert other.kernel.tir != expected.kernel.tir


@pytest.mark.slow
def test_kernel_without_a_program_has_parameters_and_a_refusal(
    make_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """What threads tell each other the tile IR refuses; who takes TIR gets it with parameters' roles."""
    made = make_kernel(_reverse(tmp_path, "threads"), with_tir=True)
    expected = [("A", "in"), ("B", "out"), ("S", "inout")]
    assert made.kernel.program == ""
    assert "tvm_warp_shuffle" in made.kernel.refusal.message
    params = [param for param in made.signature.params if isinstance(param, Tensor)]
    assert [(param.buffer.name, param.role) for param in params] == expected


@pytest.mark.slow
def test_types_that_the_tile_ir_lacks_pass_as_they_are(
    make_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """A parameter may have a dtype that only the device knows."""
    made = make_kernel(_reverse(tmp_path, "fp4", dtype="float4_e2m1fn"), with_tir=True)
    expected = "float4_e2m1fn"
    assert made.signature.params[0].buffer.dtype == expected


@pytest.mark.slow
def test_who_wants_a_program_gets_the_error(
    make_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """Without TIR there is nothing else to build from."""
    expected = "tvm_warp_shuffle"
    with pytest.raises(UnsupportedError, match=expected):
        make_kernel(_reverse(tmp_path, "alone"))


@pytest.mark.slow
def test_dims_that_only_a_product_has_are_found(
    make_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """A size of which only a multiple is an extent is a dimension, and a call's arrays give it."""
    from tileyard.ir.specs import bind_dims

    signature = make_kernel(_load(tmp_path, MULTIPLES), with_tir=True).signature
    expected = ["n"]
    assert [var.name for var in signature.dims] == expected
    assert bind_dims(signature, [(26,)]) == {"n": 13}
    assert bind_dims(signature, [(26,), (16, 4)]) == {"n": 13}
    for wrong in ([(27,)], [(26,), (15, 4)]):
        with pytest.raises((BindError, UsageError)):
            bind_dims(signature, wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("T.atomic_add(B[tx], A[tx])", "inout"),
        ("T.atomic_max(B[tx], A[tx])", "inout"),
        ("B[tx] = A[tx]", "out"),
        ("B[tx] = B[tx] + A[tx]", "inout"),
        ("T.copy(A, B)", "out"),
        ('T.evaluate(T.call_extern("handle", "f", A[tx], T.address_of(B[tx])))', "inout"),
    ],
)
def test_roles_follow_from_what_tir_does(
    make_kernel: Callable[..., Any], tmp_path: Path, operation: str, expected: str
) -> None:
    """What is only written is an output; what an atomic operation touches is read, too."""
    made = make_kernel(_load(tmp_path, ROLES.format(operation=operation)), with_tir=True)
    roles = [param.role for param in made.signature.params if isinstance(param, Tensor)]
    assert roles == ["in", expected]


@pytest.mark.slow
@pytest.mark.usefixtures("make_kernel")
def test_a_kernel_that_names_a_cpu_as_its_target_has_no_threads(tmp_path: Path) -> None:
    """A kernel of ``jit(target="c")`` counts once a block; on a target that lowers TIR, once a thread."""
    lower_config = importlib.import_module("tileyard.frontend.found").lower_config
    found = importlib.import_module("tileyard.frontend.discover").find_declared(
        _load(tmp_path, COUNTED)
    )
    (count,) = interpret(lower_config(found, {}, {}).signature, [])
    (with_tir,) = interpret(lower_config(found, {}, {}, with_tir=True).signature, [])
    assert (count.tolist(), with_tir.tolist()) == ([1.0], [32.0])


@pytest.mark.slow
@pytest.mark.usefixtures("make_kernel")
def test_a_list_among_a_kernels_own_options_is_plain(tmp_path: Path) -> None:
    """What ``annotate_pass_configs`` is given comes back from TVM as values that can be stored."""
    discover = importlib.import_module("tileyard.frontend.discover")
    elaboration = discover.find_declared(_load(tmp_path, COUNTED)).elaborate({}, {})
    expected = {"tl.some_option": '["a",1]'}
    assert elaboration.pass_options == expected
