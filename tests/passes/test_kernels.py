"""Kernels of tests/kernels with pipelined loops: after every pass same results, and a silent checker."""

import importlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from tests.differential.conftest import KERNELS, kernels, load_module
from tests.differential.cuda_examples import EXAMPLES
from tests.passes.cases import faults_of, is_pipelined, reasons_of
from tests.samples import IS_WHOLE, sampled

from tileyard.base.model import Value
from tileyard.ir.nodes import Const, For, Program, Stmt
from tileyard.ir.rewrite import rewrite
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.ir.walk import walk
from tileyard.measure.inputs import make_inputs
from tileyard.passes.pipeline import Step, run_pipeline
from tileyard.workers.pass_steps import StepChecker

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

__all__ = ["kernels"]

pytestmark = pytest.mark.slow

Modules = Callable[[str], ModuleType]

SYNC = KERNELS.parent / "sync"
SAMPLE = (
    *(("gemm", 0, "sm_80"), ("gemm", 3, "sm_80"), ("gemm", 3, "sm_90a")),
    *(("gemm, ragged", 4, "sm_90a"), ("backward", 2, "sm_80"), ("paged decode", 3, "sm_90a")),
    *(("grouped gemm", 2, "sm_80"), ("chunked", 2, "sm_90a"), ("int4 gemm", 3, "sm_80")),
    *(("persistent", 1, "sm_90a"), ("varlen", 2, "sm_80")),
)

PIPELINES = ("sm_80", "sm_90a")

SMALL = {
    "attention": {"seq_len": 64, "dim": 32, "block_M": 32, "block_N": 32},
    "dynamic linear": {"N": 64},
    "convolution": {"N": 1, "C": 32, "H": 6, "W": 6, "K": 2},
    "conv2d": {"h": 4, "w": 4, "c": 32, "kernel": 2, "padding": 0},
}
"""Sizes of kernels that take the interpreter long."""

WITHOUT_COPIES = ("varlen",)
"""Kernels whose loops fill their tiles element by element."""


def cases() -> list[tuple[str, int, str]]:
    """A sample, or every kernel that has a pipelined loop with each number of stages, for each pipeline."""
    if not IS_WHOLE:
        return list(SAMPLE)
    names = [n for n, example in EXAMPLES.items() if has_loop(example.file, example.kernel)]
    return [(name, stages, one) for name in names for stages in range(6) for one in PIPELINES]


def has_loop(file: str, kernel: str) -> bool:
    """Whether the text of a kernel has a pipelined loop."""
    text = (KERNELS / f"{file}.py").read_text(encoding="utf-8")
    found = re.search(rf"^def {kernel}\(.*?(?=^def |\Z)", text, re.MULTILINE | re.DOTALL)
    return found is not None and "T.Pipelined" in found[0]


def lower_kernel(kernel: Any, arguments: Mapping[str, Any]) -> "Lowered":  # noqa: ANN401 (TileLang's)
    """A kernel as it is written."""
    function = getattr(kernel, "jit_impl", kernel)
    lower = importlib.import_module("tileyard.frontend.tilelang").lower_prim_func
    lowered: Lowered = lower(function.get_tir(**arguments), function.out_idx)
    return lowered


def with_loops(program: Program, stages: int, trips: int | None = None) -> Program:
    """``program`` with loops of so many stages; with ``trips`` of so many iterations, in one block."""
    fields: dict[str, Any] = {"stages": stages}
    if trips is not None:
        fields["extent"] = Const(trips, "int32")
        axes = [msgspec.structs.replace(axis, extent=Const(1, "int32")) for axis in program.grid]
        program = msgspec.structs.replace(program, grid=tuple(axes))

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        is_one = isinstance(stmt, For) and stmt.kind == "pipelined"
        return (msgspec.structs.replace(stmt, **fields) if is_one else stmt,)

    return rewrite(program, change).program


def inputs_of(program: Program, known: Mapping[str, Any]) -> tuple[list[np.ndarray], list[Any]]:
    """Arrays and scalars for a kernel with these arguments and numbers."""
    sizes = {key: value for key, value in known.items() if type(value) is int}
    scalars = [known[var.name] for var in scalar_params(program)]
    return make_inputs(tensor_specs(program, sizes)), scalars


def run_kernel(
    kernel: Any,  # noqa: ANN401 (TileLang's)
    arguments: Mapping[str, Any],
    numbers: Mapping[str, Value],
    stages: int,
    pipeline: str,
) -> tuple[tuple[Step, ...], list[str]]:
    """The steps of a pipeline for a kernel with loops of so many stages, and what is wrong with them."""
    lowered = lower_kernel(kernel, arguments)
    program = with_loops(lowered.written, stages)
    steps = run_pipeline(program, pipeline, lowered.written_lines)
    return steps, faults_of(steps, *inputs_of(program, {**arguments, **numbers}))


@pytest.mark.parametrize(("name", "stages", "pipeline"), cases())
def test_a_pipelined_kernel_does_the_same(
    kernels: Modules, name: str, stages: int, pipeline: str
) -> None:
    """Bit by bit, after each pass; all its loops are pipelined where they have stages."""
    example = EXAMPLES[name]
    arguments = {**example.arguments, **SMALL.get(name, {})}
    kernel = getattr(kernels(example.file), example.kernel)
    steps, faults = run_kernel(kernel, arguments, example.numbers, stages, pipeline)
    assert is_pipelined(steps[-1]) == (stages > 0 and name not in WITHOUT_COPIES)
    assert bool(reasons_of(steps)) != is_pipelined(steps[-1])
    assert faults == []


@cache
def load_sync(file: str) -> ModuleType:
    """A file of ``tests/sync``, whose import takes a second."""
    return load_module(SYNC / f"{file}.py")


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize(
    "name", dict.fromkeys(case[0] for case in cases()) if IS_WHOLE else ["chunked"]
)
def test_any_number_of_iterations_does_the_same(kernels: Modules, name: str, pipeline: str) -> None:
    """Behind the last pass, for 0 to 9 iterations and each number of stages, in the first block."""
    example = EXAMPLES[name]
    arguments = {**example.arguments, **SMALL.get(name, {})}
    lowered = lower_kernel(getattr(kernels(example.file), example.kernel), arguments)
    faults = {}
    for trips in range(10) if IS_WHOLE else (0, 2):
        program = with_loops(lowered.written, 0, trips)
        inputs = inputs_of(program, {**arguments, **example.numbers})
        checker = StepChecker(run_pipeline(program, "none", lowered.written_lines)[0], *inputs)
        for stages in range(6) if IS_WHOLE else (3,):
            program = with_loops(lowered.written, stages, trips)
            last = run_pipeline(program, pipeline, lowered.written_lines)[-1]
            faults[trips, stages] = checker.find_fault(last)
    assert {key: fault for key, fault in faults.items() if fault} == {}


@pytest.mark.parametrize(
    ("pipeline", "stages"),
    sampled(
        [("sm_80", 1), ("sm_80", 3), ("sm_80", 4), ("sm_90a", 1), ("sm_90a", 3)],
        [("sm_80", 3), ("sm_90a", 3)],
    ),
)
@pytest.mark.parametrize(
    ("place", "arguments", "is_fit"),
    [
        ("public::atomic_then_read", {"steps": 4}, False),
        ("public::store_then_read", {"steps": 4}, False),
        ("public::read_then_refill", {"steps": 4}, False),
        ("plans::triangle", {"N": 4, "stages": 2}, True),
        ("plans::reread", {"N": 4, "stages": 2}, False),
        ("plans::seeded", {"N": 4, "stages": 2}, True),
        ("plans::cleared", {"N": 4, "stages": 2}, True),
        ("plans::converted", {"N": 4, "stages": 2}, False),
    ],
)
def test_what_tilelang_plans_wrong_is_right(
    place: str,
    arguments: dict[str, Value],
    stages: int,
    pipeline: str,
    *,
    is_fit: bool,
) -> None:
    """Kernels whose dependences, waits or versions a plan of TileLang 0.1.15 gets wrong, and their like."""
    file, name = place.split("::")
    steps, faults = run_kernel(getattr(load_sync(file), name), arguments, {}, stages, pipeline)
    assert is_pipelined(steps[-1]) == is_fit
    assert faults == []


def test_statements_keep_their_lines(kernels: Modules) -> None:
    """Every statement behind a pass has the line of the one from which it comes."""
    lower = importlib.import_module("tileyard.frontend.tilelang").lower_prim_func
    gemm = kernels("gemm").gemm
    lowered = lower(gemm.get_tir(M=64, N=64, K=128, num_stages=3), gemm.out_idx)
    text = (KERNELS / "gemm.py").read_text(encoding="utf-8").splitlines()
    words = {
        "issue": ("T.copy(A", "T.copy(B"),
        "copy": ("T.copy(",),
        "gemm": ("T.gemm(",),
        "for": ("T.Pipelined(",),
        "commit_group": ("T.Pipelined(",),
        "wait_group": ("T.Pipelined(",),
    }
    last = run_pipeline(lowered.written, "sm_80", lowered.written_lines)[-1]
    tags = [str(stmt.__struct_config__.tag) for stmt in walk(last.program.body)]
    assert set(words) <= set(tags)
    for number, tag in enumerate(tags):
        line = text[last.lines[number].line - 1]
        assert any(word in line for word in words.get(tag, ("T.clear(",)))
