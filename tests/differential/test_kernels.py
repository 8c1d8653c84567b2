"""Our kernels, from TileLang to Programs and through the interpreter, against NumPy."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tileyard.base.model import Value
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import Scalar, Tensor
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

Array = NDArray[Any]
Kernels = Callable[[str], ModuleType]
Lower = Callable[..., "Lowered"]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A kernel with small arguments, the arrays it is given, and what they should become."""

    file: str
    kernel: str
    reference: str
    arguments: Mapping[str, Value]
    shapes: Sequence[tuple[int, ...]]
    dtype: str = "float32"
    scalars: Sequence[Value] = ()
    options: Mapping[str, Value] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-5
    has_nan: bool = False


def _gemm(
    m: int, n: int, k: int, dtype: str = "float32", **extra: Value
) -> tuple[dict[str, Value], str]:
    tiles = {"block_M": 16, "block_N": 16, "block_K": 8}
    return {"M": m, "N": n, "K": k, **tiles, "dtype": dtype, **extra}, dtype


EXAMPLES = {
    "gemm": Example(
        file="gemm",
        kernel="gemm",
        reference="reference",
        arguments=_gemm(32, 48, 24)[0],
        shapes=[(32, 24), (24, 48)],
    ),
    "gemm, ragged": Example(
        file="gemm",
        kernel="gemm",
        reference="reference",
        arguments=_gemm(21, 37, 13)[0],
        shapes=[(21, 13), (13, 37)],
    ),
    "gemm, bfloat16": Example(
        file="gemm",
        kernel="gemm",
        reference="reference",
        arguments=_gemm(16, 16, 16, "bfloat16")[0],
        shapes=[(16, 16), (16, 16)],
        dtype="bfloat16",
        rtol=1e-2,
        atol=1e-2,
    ),
    "gemm, float16 sums": Example(
        file="gemm",
        kernel="gemm",
        reference="reference",
        arguments=_gemm(16, 16, 16, "float16", accum_dtype="float16")[0],
        shapes=[(16, 16), (16, 16)],
        dtype="float16",
        rtol=2e-2,
        atol=2e-2,
    ),
    "gemm, eager": Example(
        file="gemm",
        kernel="gemm_eager",
        reference="reference",
        arguments={"M": 20, "N": 18, "K": 12, "block_M": 16, "block_N": 16, "block_K": 8},
        shapes=[(20, 12), (12, 18)],
    ),
    **{
        f"gemm, {'T' if a else 'N'}{'T' if b else 'N'}": Example(
            file="gemm",
            kernel="gemm_transposed",
            reference="reference",
            arguments=_gemm(17, 19, 11, "float16", transpose_A=a, transpose_B=b)[0],
            shapes=[(11, 17) if a else (17, 11), (19, 11) if b else (11, 19)],
            dtype="float16",
            options={"transpose_A": a, "transpose_B": b},
            rtol=2e-3,
            atol=2e-3,
        )
        for a in (False, True)
        for b in (False, True)
    },
    **{
        f"roles, {kernel}": Example(
            file="roles",
            kernel=kernel,
            reference="product",
            arguments={"M": 70, "N": 40, "K": 100, "block_M": 32, "block_N": 32, "block_K": 16},
            shapes=[(70, 100), (100, 40)],
            dtype="float16",
            rtol=2e-2,
            atol=2e-2,
        )
        for kernel in ("gemm_two_stages", "gemm_three_roles")
    },
    "roles that do not wait": Example(
        file="roles",
        kernel="sides",
        reference="sides_reference",
        arguments={"M": 96, "N": 40},
        shapes=[(96, 40)],
    ),
    "elementwise add": Example(
        file="elementwise",
        kernel="add",
        reference="add_reference",
        arguments={"M": 33, "N": 20, "block_M": 16, "block_N": 16},
        shapes=[(33, 20), (33, 20)],
    ),
    "gelu": Example(
        file="elementwise",
        kernel="gelu",
        reference="gelu_reference",
        arguments={"N": 100, "block": 32},
        shapes=[(100,)],
    ),
    "functions": Example(
        file="elementwise",
        kernel="functions",
        reference="functions_reference",
        arguments={"N": 24},
        shapes=[(24,)],
        has_nan=True,
    ),
    "integers": Example(
        file="elementwise",
        kernel="integers",
        reference="integers_reference",
        arguments={"N": 40},
        shapes=[(40,)],
        dtype="int32",
        rtol=0.0,
        atol=0.0,
    ),
    "collatz": Example(
        file="elementwise",
        kernel="collatz",
        reference="collatz_reference",
        arguments={"N": 40},
        shapes=[(40,)],
        dtype="int32",
        rtol=0.0,
        atol=0.0,
    ),
    "scale in place": Example(
        file="elementwise",
        kernel="scale_in_place",
        reference="scale_in_place_reference",
        arguments={"N": 100},
        shapes=[(100,)],
        scalars=[2.5],
    ),
    "softmax": Example(
        file="reductions",
        kernel="softmax",
        reference="softmax_reference",
        arguments={"M": 5, "N": 40, "block_M": 4, "block_N": 16},
        shapes=[(5, 40)],
    ),
    "rms_norm": Example(
        file="reductions",
        kernel="rms_norm",
        reference="rms_norm_reference",
        arguments={"M": 5, "N": 24},
        shapes=[(5, 24), (24,)],
    ),
    "columns": Example(
        file="reductions",
        kernel="columns",
        reference="columns_reference",
        arguments={"M": 6, "N": 8},
        shapes=[(6, 8)],
    ),
    **{
        f"attention, {name}": Example(
            file="attention",
            kernel="attention",
            reference="reference",
            arguments={
                "batch": 1,
                "heads": 2,
                "seq_len": 20,
                "dim": 8,
                "is_causal": causal,
                "groups": groups,
                "block_M": 8,
                "block_N": 8,
                "dtype": "float32",
            },
            shapes=[(1, 20, 2, 8), (1, 20, 2 // groups, 8), (1, 20, 2 // groups, 8)],
            options={"is_causal": causal},
        )
        for name, causal, groups in (("full", False, 1), ("causal", True, 1), ("grouped", True, 2))
    },
    "dynamic linear": Example(
        file="dynamic",
        kernel="linear",
        reference="linear_reference",
        arguments={"N": 20, "K": 12, "block_M": 8, "block_N": 8, "block_K": 8},
        shapes=[(11, 12), (20, 12), (20,)],
    ),
    "neighbours of threads": Example(
        file="threads",
        kernel="neighbours",
        reference="neighbours_reference",
        arguments={"M": 3, "N": 16},
        shapes=[(3, 16)],
    ),
    "dot rows": Example(
        file="threads",
        kernel="dot_rows",
        reference="dot_rows_reference",
        arguments={"M": 8, "K": 64},
        shapes=[(8, 64), (64,)],
    ),
    "places": Example(
        file="threads",
        kernel="places",
        reference="places_reference",
        arguments={"N": 45},
        shapes=[(45,)],
    ),
    "folded": Example(
        file="threads",
        kernel="folded",
        reference="folded_reference",
        arguments={"M": 3, "N": 16},
        shapes=[(3, 16)],
    ),
    "visits": Example(
        file="threads",
        kernel="visits",
        reference="visits_reference",
        arguments={"N": 5},
        shapes=[(5,)],
    ),
}


@pytest.fixture(scope="session")
def lower(kernels: Kernels, lower_prim_func: Lower) -> Callable[[Example], "Lowered"]:
    """Elaborates an example and lowers it."""

    def run(example: Example) -> "Lowered":
        function = getattr(kernels(example.file), example.kernel)
        return lower_prim_func(function.get_tir(**example.arguments), function.out_idx)

    return run


def inputs(example: Example) -> list[Array]:
    """Arrays for an example, the same every time."""
    rng = np.random.default_rng(7)
    if example.dtype == "int32":
        return [rng.integers(-50, 50, shape, dtype=np.int32) for shape in example.shapes]
    values = [rng.standard_normal(shape).astype(np.float32) for shape in example.shapes]
    if example.has_nan:
        values[0].flat[0] = np.nan
    dtype = "float32" if example.dtype == "bfloat16" else example.dtype
    arrays = [value.astype(dtype) for value in values]
    if example.dtype == "bfloat16":
        import ml_dtypes

        return [array.astype(ml_dtypes.bfloat16) for array in arrays]
    return arrays


@pytest.fixture(scope="session", params=list(EXAMPLES))
def example(request: pytest.FixtureRequest) -> Example:
    """Each example in turn."""
    return EXAMPLES[request.param]


@pytest.fixture(scope="session")
def lowered(lower: Callable[[Example], "Lowered"], example: Example) -> "Lowered":
    """The example's Program, lowered once."""
    return lower(example)


@pytest.mark.slow
def test_interpreted_kernel_agrees_with_its_reference(
    kernels: Kernels, example: Example, lowered: "Lowered"
) -> None:
    """Every kernel computes what its NumPy reference does."""
    arrays = inputs(example)
    reference = getattr(kernels(example.file), example.reference)
    expected = reference(*arrays, *example.scalars, **example.options)
    (got,) = interpret_lanes(lowered.program, arrays, example.scalars)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(
        got.astype(np.float64),
        expected.astype(np.float64),
        rtol=example.rtol,
        atol=example.atol,
    )


@pytest.mark.slow
def test_program_of_a_kernel_survives_text(lowered: "Lowered") -> None:
    """The text of every kernel's Program reads back as the same Program and is its own canon."""
    expected = lowered.program
    text = print_program(expected)
    assert read_program(text) == expected
    assert print_program(read_program(text)) == text


@pytest.mark.slow
def test_program_of_a_kernel_is_legal_and_has_lines(lowered: "Lowered") -> None:
    """Every kernel's Program passes the verifier; its statements and the user's tiles have source lines."""
    verify(lowered.program)
    statements = [number for number in lowered.lines if number >= 0]
    expected = len(statements)
    numbers = range(expected)
    assert statements == list(numbers)
    for place, buffer in enumerate(lowered.program.buffers):
        where = lowered.lines.get(-1 - place)
        if where is None:
            assert buffer.scope != "fragment" or buffer.view_of, buffer  # the user allocates those
            continue
        said = Path(where.file).read_text("utf-8").splitlines()[where.line - 1]
        assert re.match(rf"\s*{buffer.name}\b.* = T.alloc_", said), said
    assert all(line.file.endswith(".py") for line in lowered.lines.values())


@pytest.mark.slow
def test_kernel_that_clears_its_sum_keeps_the_last_product(
    kernels: Kernels, lower_prim_func: Lower
) -> None:
    """A gemm with clear_accum ignores what the accumulator held."""
    a, b = (np.random.default_rng(3).standard_normal((16, 16)).astype("f4") for _ in range(2))
    expected = a[:, 8:] @ b[8:, :]
    function = kernels("gemm").gemm_last_tile
    func = function.get_tir(16, 16, 16, block_M=16, block_N=16, block_K=8)
    (got,) = interpret_lanes(lower_prim_func(func, [-1]).program, [a, b])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_dynamic_shape_becomes_a_dimension(lower: Callable[[Example], "Lowered"]) -> None:
    """T.dynamic gives one dim, named as the user named it, that the first array fixes."""
    program = lower(EXAMPLES["dynamic linear"]).program
    expected = ("m",)
    assert tuple(var.name for var in program.dims) == expected


@pytest.mark.slow
def test_roles_follow_from_out_idx_and_from_use(lower: Callable[[Example], "Lowered"]) -> None:
    """Outputs are those of out_idx, or what is written; what is read and written is inout."""
    expected = {
        "gemm": ["in", "in", "out"],
        "gemm, eager": ["in", "in", "out"],
        "scale in place": ["inout", "scalar"],
    }
    got = {
        name: [
            param.role if isinstance(param, Tensor) else "scalar"
            for param in lower(EXAMPLES[name]).program.params
        ]
        for name in expected
    }
    assert got == expected
    scalars = lower(EXAMPLES["scale in place"]).program.params[1]
    assert isinstance(scalars, Scalar)


@pytest.mark.slow
def test_parameters_read_from_tir_are_those_of_the_program(
    kernels: Kernels, lower_prim_func: Lower, example: Example, lowered: "Lowered"
) -> None:
    """What a kernel without a Program would say of its parameters is what its Program says."""
    from tileyard.frontend.tilelang import read_interface

    function = getattr(kernels(example.file), example.kernel)
    func = function.get_tir(**example.arguments)
    expected = (lowered.program.params, lowered.program.dims)
    if function.out_idx is not None:
        marked = read_interface(func.with_attr("tilelang_out_idx", list(function.out_idx)))
        assert (marked.params, marked.dims) == expected
    assert read_interface(func).params == lower_prim_func(func).program.params
