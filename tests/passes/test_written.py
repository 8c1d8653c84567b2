"""Programs written as TileLang and read back: they are the same, or refused by name."""

import importlib
import os
from collections.abc import Callable
from itertools import cycle, product
from types import ModuleType
from typing import Any

import msgspec
import pytest
from tests.differential.conftest import kernels, lower_prim_func
from tests.differential.cuda_examples import EXAMPLES
from tests.samples import IS_WHOLE

from tileyard.base.errors import UnsupportedError
from tileyard.frontend.to_tilelang import write_program
from tileyard.frontend.writable import make_writable
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import Gemm, Program
from tileyard.ir.reader import read_program
from tileyard.ir.rewrite import rewrite
from tileyard.ir.specs import tensor_specs
from tileyard.ir.verify import verify
from tileyard.measure.inputs import make_inputs

__all__ = ["kernels", "lower_prim_func"]

pytestmark = pytest.mark.slow

Modules = Callable[[str], ModuleType]

SAMPLE = (
    *("gemm", "attention", "backward", "int4 gemm", "dynamic linear", "three roles"),
    *("cummax", "reverse warp"),
)
UNSAID = {
    "compact": "an atomic update whose old content is used",
    "cumsum of columns": "cumsum",
    "cummax": "cummax",
    "conv2d": "im2col",
    "convolution": "im2col",
    "column sums": "atomic_addx2_elem_op",
    "decayed": "cumsum",
    "dot rows": "what single threads do",
    "folded": "what single threads do",
    "neighbours": "annotation cluster_dims",
    "neighbours of threads": "what single threads do",
    "places": "what single threads do",
    "reducers": "reducer_init",
    "reverse warp": "what single threads do",
    "through memory": "a Program without a grid",
    "transpose": "transpose",
    "tuned gemm": 'gemm with policy "FullRow"',
    "two launches": "a Program without a grid",
    "two steps": "a Program without a grid",
    "visits": "what single threads do",
    "with source": "call_extern softened",
}
"""What of a kernel nothing can write, by its name."""

STATEMENTS = """\
def f(A: float16[64, 32], B: inout.float16[64, 32], S: inout.float32[64], scale: float32, n: int32):
    bx: grid[2]
    threads(256)
    a: shared.float16[2, 64, 32]
    c: fragment.float32[64, 64]
    r: fragment.float32[64]
    number: local.int32[1]
    full: barrier[1, 128]
    v: shared.int32[2048] = a

    init_barrier(full)
    with roles:
        with role(0, 128, registers=24):
            wait_barrier(full[1], bx % 2 ^ 1)
            arrive(full[0], count=0, bytes=4096)
            with issue("tma", full[0]):
                copy(A, a[bx, :, :])
            arrive(full[0])
        with role(128, 256, registers=240):
            wait_barrier(full[0], 0)
            fill(c, 0.0)
            gemm(a[0, :, :], a[1, :, :], c, transpose_b=True, policy="full_col")
            with issue("wgmma"):
                gemm(a[0, :, :], a[1, :, :], c, transpose_b=True, clear=True)
            commit_group(unit="wgmma")
            wait_group(0, unit="wgmma")
            reduce(c, r, kind="absmax", axis=1)
            for i in parallel(64):
                r[i] = max(r[i] * scale, -inf) if i < n and not r[i] == 0.5 else r[i] / 2.0
            for k in serial(n, start=1):
                if 3 <= k:
                    number[0] = k << 2
                elif k == 2:
                    number[0] = 0 - k
                else:
                    while number[0] < 3:
                        number[0] = number[0] + 1
                        if number[0] > 2:
                            break
            for m in parallel(64):
                atomic_add(S[m], r[m])
            for p, q in parallel(64, 32):
                B[p, q] = float16(float32(a[0, p, q]) + exp2(float32(int64(2) + int64(v[p]))))
            arrive(full[1], count=128)
"""


def again() -> ModuleType:
    """The module under test, whose import imports TileLang."""
    return importlib.import_module("tileyard.frontend.written_again")


def back(program: Program, lower: Callable[..., Any]) -> Program:
    """A Program behind its source."""
    ready = make_writable(program).program
    func = again().elaborate(write_program(ready))
    found: Program = lower(func, [], program.name).written
    again().require_same(ready, found)
    return found


def test_every_statement_comes_back(lower_prim_func: Callable[..., Any]) -> None:
    """Roles, barriers, asynchronous copies and products, loops, branches, expressions of several types."""
    program = read_program(STATEMENTS)
    verify(program)
    assert list(map(type, back(program, lower_prim_func).body)) == list(map(type, program.body))


def test_another_program_is_noticed(lower_prim_func: Callable[..., Any]) -> None:
    """With the statement that differs, and what TileLang made of it."""
    program = make_writable(read_program(STATEMENTS)).program
    found = back(program, lower_prim_func)
    changed = rewrite(
        found,
        lambda s: (msgspec.structs.replace(s, policy="square") if isinstance(s, Gemm) else s,),
    )
    with pytest.raises(UnsupportedError, match=r"policy=\"full_col\"\)` comes back .* as `gemm\("):
        again().require_same(program, changed.program)
    fewer = msgspec.structs.replace(found, body=found.body[:-1])
    with pytest.raises(UnsupportedError, match="`with roles:` comes back from TileLang as the end"):
        again().require_same(program, fewer)
    others = msgspec.structs.replace(found, threads=(128,))
    message = r"`threads\(256\)` comes back from TileLang as `threads\(128\)`"
    with pytest.raises(UnsupportedError, match=message):
        again().require_same(program, others)


def pairs(*pipelines: str) -> list[tuple[str, str]]:
    """Every kernel with each pipeline; by default kernels of the sample, and pipelines in turns."""
    if IS_WHOLE:
        return [*product(EXAMPLES, pipelines)]
    return [*zip(SAMPLE, cycle(pipelines), strict=False)]


@pytest.mark.parametrize(("name", "pipeline"), pairs("none", "sm_80", "sm_90a"))
def test_a_kernel_comes_back(kernels: Modules, name: str, pipeline: str) -> None:
    """Behind a pipeline of ours; with the lines of its file, unless it says what no Program does."""
    example = EXAMPLES[name]
    kernel = getattr(kernels(example.file), example.kernel)
    function = getattr(kernel, "jit_impl", kernel)
    func = function.get_tir(**example.arguments)
    if name in UNSAID:
        with pytest.raises(UnsupportedError) as raised:
            again().write_again(func, pipeline, function.out_idx, example.kernel, {})
        assert raised.value.operation == UNSAID[name]
        return
    made = again().write_again(func, pipeline, function.out_idx, example.kernel, {})
    lowered = importlib.import_module("tileyard.frontend.tilelang").lower_prim_func(
        made.func, function.out_idx
    )
    files = {os.path.basename(where.file) for where in lowered.written_lines.values()}  # noqa: PTH119
    assert f"{example.file}.py" in files


@pytest.mark.parametrize(("name", "architecture"), pairs("sm_80", "sm_90a"))
def test_a_plan_of_tilelangs_comes_back(kernels: Modules, name: str, architecture: str) -> None:
    """What TileLang plans for a kernel, written by us, is the same plan."""
    if name in UNSAID:
        pytest.skip("nothing can write it")
    example = EXAMPLES[name]
    kernel = getattr(kernels(example.file), example.kernel)
    function = getattr(kernel, "jit_impl", kernel)
    func = function.get_tir(**example.arguments)
    planned = importlib.import_module("tileyard.frontend.pipelined").plan(func, architecture, {})
    made = again().write_again(planned, "none", function.out_idx, example.kernel, {})
    assert "num_stages" not in made.written.source


WAITS = """\
def f(A: float32[128], B: out.float32[128]):
    bx: grid[1]
    threads(32)
    a: shared.float32[4, 32]

    n = 2
    for k in unroll(3):
        with issue("cp_async"):
            if k < n + 1:
                copy(A[k * 32 : +32], a[k % 4, :])
        commit_group(unit="cp_async")
    for last in unroll(3):
        wait_group(n - last, unit="cp_async")
        copy(a[last, :], B[last * 32 : +32])
    for j in pipelined(4, stages=3):
        copy(a[j % 3, :], B[96 : +32])
"""


def test_a_program_is_made_writable_without_a_change() -> None:
    """Waits have numbers, copies are issued alone, no loop asks for stages, and the results are the same."""
    program = read_program(WAITS)
    ready = make_writable(program)
    verify(ready.program)
    expected = read_program(
        """\
def f(A: float32[128], B: out.float32[128]):
    bx: grid[1]
    threads(32)
    a: shared.float32[4, 32]

    for k in unroll(3):
        if k < 3:
            with issue("cp_async"):
                copy(A[k * 32 : +32], a[k % 4, :])
        commit_group(unit="cp_async")
    wait_group(2, unit="cp_async")
    copy(a[0, :], B[0 : +32])
    wait_group(1, unit="cp_async")
    copy(a[1, :], B[32 : +32])
    wait_group(0, unit="cp_async")
    copy(a[2, :], B[64 : +32])
    for j in serial(4):
        copy(a[j % 3, :], B[96 : +32])
"""
    )
    assert ready.program == expected
    arrays = make_inputs(tensor_specs(program, {}))
    (result,), (want,) = interpret_lanes(ready.program, arrays), interpret_lanes(program, arrays)
    assert result.tobytes() == want.tobytes()
    assert ready.origins[-1] == 10


def test_tilelang_splits_nothing_again(kernels: Modules) -> None:
    """Whatever the kernel's own options say of roles."""
    gemm = kernels("gemm").gemm
    func = gemm.get_tir(M=64, N=64, K=128, num_stages=2)
    asked = {again().NO_ROLES: False}
    assert again().write_again(func, "sm_90a", gemm.out_idx, "gemm", asked).options == {
        again().NO_ROLES: True
    }
