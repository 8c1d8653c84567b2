"""Programs as TileLang's source: how each statement is spelled, and what is refused."""

import pytest

from tileyard.base.errors import UnsupportedError
from tileyard.base.model import SourceLine
from tileyard.frontend.to_tilelang import write_program
from tileyard.ir.nodes import Program
from tileyard.ir.reader import read_program

HEAD = """\
def f(A: float16[64, 32], B: out.float16[64, 32], scale: float32):
    bx: grid[2]
    threads({threads})
    a: shared.float16[2, 64, 32]
    b: shared.float16[2, 64, 32]
    e: shared.uint8[64, 4]
    c: fragment.float32[64, 64]
    r: fragment.float32[64]
    full: barrier[1, 128]

"""


def program_of(body: str, threads: int = 128) -> Program:
    """A Program with a standard head and these statements."""
    lines = [f"    {line}\n" for line in body.strip("\n").splitlines()]
    return read_program(HEAD.format(threads=threads) + "".join(lines))


def written(body: str, threads: int = 128) -> list[str]:
    """The lines of its kernel behind the declarations."""
    lines = write_program(program_of(body, threads)).source.splitlines()
    start = next(n for n, line in enumerate(lines) if "alloc_barrier" in line) + 1
    end = next(n for n, line in enumerate(lines) if line.startswith("@tilelang.jit")) - 2
    return [line.removeprefix("        ") for line in lines[start:end]]


MARK = 'annotations={"no_implicit_async_commit_wait": 1}'


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("fill(c, 0.0)", ["T.fill(c, 0.0)"]),
        ("copy(A[bx * 32 : +32, :], a[0, 0 : +32, :])",
         ["T.copy(A[bx * 32:bx * 32 + 32, 0:32], a[0, 0:32, 0:32])"]),
        ("copy(A[3, 4], a[0, 1, 2])", ["T.copy(A[3:4, 4:5], a[0:1, 1:2, 2:3])"]),
        (
            'gemm(a[0, :, :], b[0, :, :], c, transpose_b=True, policy="full_row")',
            ["T.gemm(a[0, 0:64, 0:32], b[0, 0:64, 0:32], c, transpose_B=True, "
             "policy=T.GemmWarpPolicy.FullRow)"],
        ),
        ('reduce(c, r, kind="max", axis=1, clear=False)', ['T.reduce(c, r, "max", dim=1, clear=False)']),
        (
            'with issue("cp_async"):\n    copy(A, a[0, :, :])\ncommit_group(unit="cp_async")\n'
            'wait_group(1, unit="cp_async")',
            [f"T.copy(A, a[0, 0:64, 0:32], {MARK})", "T.ptx_commit_group()", "T.ptx_wait_group(1)"],
        ),
        (
            'with issue("cp_async"):\n    for i, j in parallel(64, 32):\n        a[1, i, j] = A[i, j]',
            [
                'for i, j in T.Parallel(64, 32, annotations={"parallel_async_without_async_commit_wait": '
                '1}):',
                "    a[1, i, j] = A[i, j]",
            ],
        ),
        (
            'arrive(full[0], count=0, bytes=4096)\nwith issue("tma", full[0]):\n    copy(A, a[0, :, :])\n'
            'arrive(full[0])',
            ['T.tma_copy(A, a[0, 0:64, 0:32], barrier=full[0], annotations={"emit_arrive": 1})'],
        ),
        (
            'with issue("tma_store"):\n    copy(a[0, :, :], B)\ncommit_group(unit="tma_store")\n'
            'wait_group(0, unit="tma_store", reads_only=True)',
            ["T.tma_copy(a[0, 0:64, 0:32], B)", "T.tma_store_wait(0, read=True)"],
        ),
        (
            'with issue("wgmma"):\n    gemm(a[0, :, :], b[0, :, :], c, transpose_b=True)\n'
            'commit_group(unit="wgmma")\nwait_group(0, unit="wgmma")',
            ["T.wgmma_gemm(a[0, 0:64, 0:32], b[0, 0:64, 0:32], c, transpose_B=True)", "T.wait_wgmma(0)"],
        ),
        ("arrive(full[1], count=128)", ["T.barrier_arrive(full[1])"]),
        ('arrive(full[1], count=128, after="cp_async")', ["T.cp_async_barrier_noinc(full[1])"]),
        ("arrive(full[0], bytes=64)", ["if tx == 0:", "    T.mbarrier_arrive_expect_tx(full[0], 64)"]),
        ("wait_barrier(full[0], bx ^ 1)", ["T.mbarrier_wait_parity(full[0], bx ^ 1)"]),
        ("sync(threads=128, count=128)", ["T.sync_threads()"]),
        ("sync(threads=128, count=256, barrier=3, waits=False)", ["T.named_barrier_arrive(3, 256)"]),
        ("fence_proxy_async(threads=128)", ["T.fence_proxy_async()"]),
        ("for k in unroll(4, start=2):\n    fill(c, 0.0)",
         ["for k in T.unroll(2, 6):", "    T.fill(c, 0.0)"]),
        (
            "for k in pipelined(4, stages=2, order=(1, 0), stage=(0, 1)):\n    fill(c, 0.0)\n"
            "    fill(r, 0.0)",
            ["for k in T.Pipelined(4, num_stages=2, order=[1, 0], stage=[0, 1]):", "    T.fill(c, 0.0)",
             "    T.fill(r, 0.0)"],
        ),
        ("if 2 < bx and bx != 3:\n    fill(r, 0.0)",
         ["if T.int32(2) < bx and bx != 3:", "    T.fill(r, 0.0)"]),
        ("x = bx * 2\nr[x] = exp(r[x]) if r[x] < 1.0 else inf",
         ["x = bx * 2", 'r[x] = T.if_then_else(r[x] < 1.0, T.exp(r[x]), T.infinity("float32"))']),
        ("for i in parallel(64):\n    B[i, 0] = float16(0.5) * A[i, 0]",
         ["for i in T.Parallel(64):", "    B[i, 0] = T.float16(0.5) * A[i, 0]"]),
        ("for i in parallel(64):\n    atomic_max(B[i, 0], A[i, 0])",
         ["for i in T.Parallel(64):", "    T.atomic_max(B[i, 0], A[i, 0])"]),
    ],
)  # fmt: skip
def test_a_statement_is_spelled(body: str, lines: list[str]) -> None:
    """As TileLang's own operation, with what it needs and no more."""
    found = written(body)
    assert [line for line in found if "get_thread_binding" not in line] == lines


def test_roles_are_one_chain_of_branches() -> None:
    """With the registers that they ask for: the role with the fewest gives some up."""
    body = """
with roles:
    with role(0, 128, registers=24):
        arrive(full[1], count=128)
    with role(128, 256):
        wait_barrier(full[1], 0)
    with role(256, 384, registers=240):
        wait_barrier(full[1], 0)
        fill(c, 0.0)
"""
    assert written(body, threads=384) == [
        "if tx < 128:",
        "    T.set_max_nreg(24, 0)",
        "    T.barrier_arrive(full[1])",
        "elif tx < 256:",
        "    T.mbarrier_wait_parity(full[1], 0)",
        "else:",
        "    T.set_max_nreg(240, 1)",
        "    T.mbarrier_wait_parity(full[1], 0)",
        "    T.fill(c, 0.0)",
    ]


def test_what_is_declared_comes_first() -> None:
    """Parameters, numbers of shapes, buffers, views, layouts, the order of blocks, and how it is compiled."""
    program = read_program("""\
def scaled(A: float32[m, 8] @ (16, 1), x: float16, B: out.float32[m, 8]):
    m: dim
    bx: grid[(m + 7) // 8]
    by: grid[2]
    threads(64, 2)
    s: shared.float32[8, 8] = layout(i0, i1 ^ i0)
    f: fragment.float32[8, 8] = layout(i1, thread=i0 + copy, copies=2)
    v: shared.int32[64] = s

    copy(A[bx * 8 : +8, :], s)
""")
    written = write_program(program, {"tl.some": 1}, swizzle=("rasterization2DColumn", 4))
    assert written.name == "scaled"
    assert (
        written.source
        == """\
import tilelang
import tilelang.language as T

m = T.dynamic("m", "int32")


@T.prim_func
def main(
    A: T.StridedTensor((m, 8), (16, 1), "float32"),
    x: T.float16,
    B: T.Tensor((m, 8), "float32"),
):
    with T.Kernel((m + 7) // 8, 2, threads=(64, 2)) as (bx, by):
        s = T.alloc_shared((8, 8), "float32")
        f = T.alloc_fragment((8, 8), "float32")
        v = T.view(s, (64,), "int32")
        T.use_swizzle(4, order="column")
        T.annotate_layout(
            {
                s: T.Layout((8, 8), lambda i0, i1: [i0, i1 ^ i0]),
                f: T.Fragment((8, 8), forward_fn=lambda i0, i1, copy: (i0 + copy, [i1]), replicate=2),
            }
        )
        T.copy(A[bx * 8:bx * 8 + 8, 0:8], s)


@tilelang.jit(out_idx=[2], pass_configs={'tl.some': 1})
def scaled():
    return main
"""
    )
    (line,) = (n for n, number in written.statements.items() if number == 0)
    assert "T.copy" in written.source.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("for t in threads(128):\n    B[t, 0] = A[t, 0]", "what single threads do"),
        ('print("x", bx)', "print"),
        ("wait(bx == 0)", "await"),
        ("x = atomic_add(B[0, 0], A[0, 0])", "an atomic update whose old content is used"),
        ("arrive(full[1], count=32)", "32 arrivals by 128 threads"),
        ("r[0] = fma(r[1], r[2], r[3])", "fma"),
        ('with issue("tma", full[0]):\n    copy(A, a[0, :, :])', "this operation of tma"),
        ("for i in parallel(4, start=1):\n    r[i] = 0.0", "a parallel loop that does not begin at 0"),
        ("with roles:\n    with role(0, 32, 64, 96):\n        fill(c, 0.0)",
         "roles whose threads are not one range after the other"),
    ],
)  # fmt: skip
def test_what_tilelang_cannot_say_is_refused(body: str, what: str) -> None:
    """By its name, with the line of the statement in the user's file."""
    program = program_of(body)
    lines = {number: SourceLine(file="k.py", line=10 + number) for number in range(9)}
    with pytest.raises(UnsupportedError) as raised:
        write_program(program, lines=lines)
    assert raised.value.operation == what
    assert raised.value.message.startswith(f"{what} cannot be written as TileLang at k.py:1")
    assert (raised.value.file, raised.value.line // 10) == ("k.py", 1)
