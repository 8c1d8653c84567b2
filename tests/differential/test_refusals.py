"""What the frontend does not cover is refused by name and line, and lines follow the source."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tileyard.base.errors import UnsupportedError
from tileyard.ir.nodes import Const
from tileyard.ir.printer import print_program

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

Lower = Callable[..., "Lowered"]

HEAD = """\
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1])
def kernel():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            t = T.alloc_shared((32,), "float32")
            T.copy(X[bx * 32], t)
"""
TAIL = """\
            T.copy(t, Y[bx * 32])

    return main
"""
PARAM = 'T.Tensor((64,), "float32")'
INDENT = " " * 12
FIRST = HEAD.count("\n") + 1


@pytest.fixture
def elaborate(tmp_path: Path, lower_prim_func: Lower) -> Callable[..., Any]:
    """Writes a kernel with these lines in its middle to a file, and lowers it."""

    def run(middle: str, param: str = PARAM) -> Any:  # noqa: ANN401 (a Lowered, imported late)
        text = HEAD + "".join(f"{INDENT}{line}\n" for line in middle.splitlines()) + TAIL
        text = text.replace(PARAM, param, 1)
        path = tmp_path / "user_kernel.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"user_{abs(hash(text))}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
            return lower_prim_func(module.kernel.get_tir(), [1])
        finally:
            del sys.modules[spec.name]

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("middle", "line", "operation"),
    [
        ("tx = T.get_thread_binding()\nt[tx] = T.tvm_warp_shuffle(-1, X[tx], 0, 32, 32)", 1,
         "tirx.tvm_warp_shuffle"),
        ("tx = T.get_thread_binding()\nt[tx] = T.shfl_xor(X[tx], 1)", 1, "tl.shfl_xor_sync"),
        ("tx = T.get_thread_binding()\nt[tx] = T.syncthreads_count(X[tx] > 0)", 1, "tl.syncthreads_count"),
        ("tx = T.get_thread_binding()\nfor i in T.Parallel(32):\n    t[i] = X[tx]", 1,
         "parallel loop over i"),
        ("tx = T.get_thread_binding()\nif X[tx] > 0:\n    T.clear(t)", 2, "fill"),
        ("tx = T.get_thread_binding()\nfor i in T.serial(4):\n    if X[tx] > i:\n        break\n"
         "    t[tx] = t[31 - tx]", 3, "break_loop"),
        ("tx = T.get_thread_binding()\nfor i in T.serial(tx):\n    t[tx] = 1.0\n    t[tx] = t[31 - tx]", 1,
         "for loop"),
        ('u = T.alloc_fragment((32,), "float32")\nT.copy(t, u)\ntx = T.get_thread_binding()\nt[tx] = u[tx]',
         3, "fragment u"),
        ('T.call_extern("handle", "cuda_text", t.data)', 0, "call_extern cuda_text"),
        ('T.attr(None, "unheard_of", 1)', None, "attribute unheard_of"),
        ('t[0] = T.ieee_add(t[0], t[1], "rz")', 0, "tl.ieee_add with rounding rz"),
        ("t[0] = T.infinity(T.int8)", 0, "infinity"),
        ('t[0] = T.cast(T.cast(t[1], "float8_e4m3fn", sat=False), "float32")', 0,
         "cast to float8_e4m3fn with sat"),
        ("T.annotate_safe_value({X: 1.0})", None, "annotation safe_value_map"),
        ("\n\nt[0] = T.if_then_else(bx > 0, T.atomic_add(Y[0], 1.0, return_prev=True), 0.0)", 2,
         "atomic add"),
        ("while T.atomic_load(Y[0]) < 1.0:\n    t[0] = 1.0", 0, "atomic_load"),
        ("v = T.view(t, (8, 4), strides=(1, 8))\nv[0, 0] = 1.0", 1, "view v of t"),
        ('u = T.alloc_fragment((32,), "float8_e8m0fnu")\nT.clear(u)', 0, "float8_e8m0fnu (u)"),
        ('T.reduce_max(t, t[0:1], dim=0, annotations={"order": True})', 0, "reduce with order"),
        ("T.copy(t, Y[bx * 32], annotations={\"dst_block\": 1})", 0, "copy with dst_block"),
    ],
)  # fmt: skip
def test_refusal_names_the_operation_and_its_line(
    elaborate: Callable[..., Any], middle: str, line: int | None, operation: str
) -> None:
    """An operation that is not covered raises UnsupportedError with its name and source line."""
    expected = operation
    with pytest.raises(UnsupportedError) as caught:
        elaborate(middle)
    assert (caught.value.operation, type(caught.value.operation)) == (expected, str)
    assert (Path(caught.value.file).name, type(caught.value.file)) == ("user_kernel.py", str)
    if line is not None:
        assert caught.value.line == FIRST + line
        assert f"user_kernel.py:{FIRST + line}" in caught.value.message


@pytest.mark.slow
def test_comment_changes_lines_and_nothing_else(elaborate: Callable[..., Any]) -> None:
    """A comment in the source moves the source lines; the Program and its text stay the same."""
    plain = elaborate("for i in T.Parallel(32):\n    t[i] += 1.0")
    moved = elaborate("# one more line\nfor i in T.Parallel(32):\n    t[i] += 1.0")
    expected = [line.line for number, line in plain.lines.items() if number >= 0]
    assert moved.program == plain.program
    assert print_program(moved.program) == print_program(plain.program)
    shifted = [line.line for number, line in moved.lines.items() if number >= 0]
    assert shifted == [expected[0], *(number + 1 for number in expected[1:])]


@pytest.mark.slow
def test_loop_bound_to_threads_is_the_index_of_the_thread(elaborate: Callable[..., Any]) -> None:
    """Both ways to ask for the thread's index give the same Program, but for the names of variables."""
    asked = elaborate("tx = T.get_thread_binding()\nt[tx] = X[31 - tx]")
    bound = elaborate("tx = T.thread_binding(0, 32, thread='threadIdx.x')\nt[tx] = X[31 - tx]")
    expected = print_program(asked.program)
    assert print_program(bound.program) == expected
    assert "for tx in serial(32):\n        t[tx] = X[31 - tx]" in expected


@pytest.mark.slow
def test_hints_are_dropped(elaborate: Callable[..., Any]) -> None:
    """Layouts, widths, rasterization and assumptions change no Program."""
    plain = elaborate("for i in T.Parallel(32):\n    t[i] += 1.0")
    hinted = elaborate(
        "T.use_swizzle(4)\n"
        "T.annotate_layout({t: tilelang.layout.make_linear_layout(t)})\n"
        "T.assume(bx < 2)\n"
        "T.sync_threads()\n"
        "T.no_set_max_nreg()\n"
        "for i in T.Parallel(32, coalesced_width=2):\n"
        "    t[i] += 1.0"
    )
    expected = plain.program
    assert hinted.program == expected


@pytest.mark.slow
def test_macro_of_tilelang_is_placed_where_it_is_called(elaborate: Callable[..., Any]) -> None:
    """A reduction, which TileLang expands from its own source, has the line of the user's call."""
    lowered = elaborate(
        'u = T.alloc_fragment((32,), "float32")\n'
        'm = T.alloc_fragment((1,), "float32")\n'
        "T.copy(t, u)\n"
        "# the next one\n"
        "T.reduce_max(u, m, dim=0)\n"
        "T.reduce_min(u, m, dim=0)\n"
        "T.reduce_max(t, m, dim=0)\n"
        "T.reduce_sum(u, m, dim=0)"
    )
    expected = [FIRST + 2, FIRST + 4, FIRST + 5, FIRST + 6, FIRST + 6, FIRST + 7]
    assert [lowered.lines[number].line for number in range(1, 7)] == expected
    assert {Path(line.file).name for line in lowered.lines.values()} == {"user_kernel.py"}


@pytest.mark.slow
def test_strides_are_kept_unless_they_follow_from_the_shape(elaborate: Callable[..., Any]) -> None:
    """A row-major parameter has no strides in the Program; any other keeps its own."""
    plain = elaborate("")
    assert [param.buffer.strides for param in plain.program.params] == [(), ()]
    strided = elaborate("", 'T.StridedTensor((64,), (2,), "float32")')
    expected = (Const(2, "int32"),)
    assert strided.program.params[0].buffer.strides == expected
    dynamic = elaborate("", 'T.StridedTensor((64,), (T.dynamic("s"),), "float32")')
    expected = (Const(0, "int32"),)
    assert dynamic.program.params[0].buffer.strides == expected


@pytest.mark.slow
def test_clashing_names_are_numbered(elaborate: Callable[..., Any]) -> None:
    """Loops that share a name get names of their own; the first keeps the user's."""
    lowered = elaborate(
        "for i in T.serial(4):\n    t[i] = 1.0\nfor i in T.serial(4):\n    t[i] = 2.0"
    )
    expected = ["i", "i_1"]
    text = print_program(lowered.program)
    assert [f"for {name} in serial(4):" in text for name in expected] == [True, True]


@pytest.mark.slow
def test_what_a_kernel_says_is_said_once(elaborate: Callable[..., Any]) -> None:
    """A print that TileLang gives to one thread, and an assertion, need no thread's index."""
    lowered = elaborate(
        'assert bx < 3, "too far"\nT.print(t, msg="t is")\nT.print(bx, msg="block")'
    )
    block = lowered.program.grid[0].var.name
    expected = [
        f'assert {block} < 3, "too far"',
        f"print(\"msg='t is' BlockIdx=({{}}, {{}}, {{}}): buffer=t, index={{}}, dtype=float32 value={{}}\", "
        f"{block}, 0, 0, i, t[i % 32])",
        f"print(\"msg='block' BlockIdx=({{}}, {{}}, {{}}): dtype=int32 value={{}}\", {block}, 0, 0, {block})",
    ]
    lines = [line.strip() for line in print_program(lowered.program).splitlines()]
    assert [line for line in lines if line.startswith(("assert", "print"))] == expected


@pytest.mark.slow
def test_what_threads_share_out_is_not_done_by_each(elaborate: Callable[..., Any]) -> None:
    """An update in a parallel loop is done once for each iteration, and gives the old content there."""
    shared = elaborate(
        "for i in T.Parallel(32):\n"
        "    old = T.atomic_add(Y[0], 1.0, return_prev=True)\n"
        "    t[i] = old + T.cast(i, 'float32')"
    )
    expected = "for i in parallel(32):\n        old"
    assert expected in print_program(shared.program)


@pytest.mark.slow
def test_a_register_is_read_by_those_who_write_it(elaborate: Callable[..., Any]) -> None:
    """A role may count in a register that all set to zero; another role's condition may not ask for it."""
    kernel = (
        "full = T.alloc_barrier(arrive_count=16)\n"
        "turn = T.alloc_var('int32', init=0)\n"
        "other = T.alloc_var('int32', init=0)\n"
        "tx = T.get_thread_binding()\n"
        "if tx < 16:\n"
        "    for k in T.serial(4):\n"
        "        T.copy(X[bx * 32], t)\n"
        "        T.barrier_arrive(full)\n"
        "        turn = turn + 1\n"
        "else:\n"
        "    for k in T.serial(4):\n"
        "        T.barrier_wait(full, {} % 2)\n"
        "        T.copy(t, Y[bx * 32])\n"
        "        other = other + 1"
    )
    expected = "turn[0] = turn[0] + 1"
    assert expected in print_program(elaborate(kernel.format("other")).program)
    with pytest.raises(UnsupportedError) as caught:
        elaborate(kernel.format("turn"))
    assert (caught.value.operation, caught.value.line) == ("register turn", FIRST + 11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        ("T.copy(X[bx * 32 : bx * 32 + 20], t)", "copy(X[bx * 32 : +32], t)"),
        ("T.copy(X[0:20], Y[0:30])", "copy(X[0 : +20], Y[0 : +20])"),
        ("T.copy(t, Y[bx * 32 : bx * 32 + 20])", "copy(t, Y[bx * 32 : +32])"),
    ],
)
def test_a_copy_goes_over_the_whole_tile(
    elaborate: Callable[..., Any], copy: str, expected: str
) -> None:
    """An array's box of another size is as large as the tile, as TileLang's own loops are."""
    assert expected in print_program(elaborate(copy).program)


@pytest.mark.slow
def test_a_copy_into_a_tile_that_is_too_small_is_refused(elaborate: Callable[..., Any]) -> None:
    """Nothing of what is read is left out without a word."""
    expected = "copy"
    with pytest.raises(UnsupportedError) as caught:
        elaborate("T.copy(X[bx * 32 : bx * 32 + 40], t)")
    assert caught.value.operation == expected
