"""``tileyard exec``: scripts that were written for a GPU, run as they are on the CPU."""

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.warm_python import warm

pytestmark = pytest.mark.slow

GEMM = """
import sys
import tilelang
import tilelang.language as T
import torch

@tilelang.jit(out_idx=[-1])
def make(n, block):
    @T.prim_func
    def product(A: T.Tensor((n, n), "float16"), B: T.Tensor((n, n), "float16"), C: T.Tensor((n, n), \
"float16")):
        with T.Kernel(n // block, n // block, threads=128) as (bx, by):
            a = T.alloc_shared((block, block), "float16")
            b = T.alloc_shared((block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            T.clear(c)
            for k in T.Pipelined(n // block, num_stages=2):
                T.copy(A[by * block, k * block], a)
                T.copy(B[k * block, bx * block], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block, bx * block])
    return product
"""


class Scripts:
    """Writes scripts into a folder and runs them in copies of a process that has imported TileLang."""

    def __init__(self, cli: CommandLine) -> None:
        self._cli = cli
        self.folder = cli.cwd

    def write(self, text: str, name: str = "script.py") -> Path:
        """A script, with what all of them share in front."""
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        return path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return warm("tileyard.__main__").run(
            ("exec", *arguments), self.folder, self._cli.environment()
        )

    def run_well(self, *arguments: str) -> Mapping[str, Any]:
        """Run a script that must pass, and return its summary."""
        done = self.run("--tally", "json", *arguments)
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
        return summary


@pytest.fixture
def scripts(cli: CommandLine) -> Scripts:
    """Scripts in a fresh home."""
    return Scripts(cli)


def test_a_script_for_a_gpu_passes_its_own_check(scripts: Scripts) -> None:
    """A kernel on ``cuda`` tensors is built once, checked by the script, and found the next time."""
    script = scripts.write(
        GEMM
        + """
kernel = make(128, 64)
a, b = (torch.randn(128, 128, device="cuda", dtype=torch.float16) for _ in range(2))
assert torch.allclose(kernel(a, b), a @ b, rtol=1e-2, atol=1e-2)
assert "product" in kernel.get_kernel_source()
if sys.argv[1:]:
    torch.testing.assert_close(kernel(a, b), a @ b, rtol=1e-2, atol=1e-2)
    kernel.get_profiler().assert_allclose(lambda x, y: torch.einsum("ij,jk->ik", x, y))

@tilelang.jit(out_idx=[-1])
def make_sum(n):
    @T.prim_func
    def total(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            for i in T.Parallel(n):
                B[i] = B[i] + A[i]
    return total

for _ in range(2):
    make_sum(64)(torch.ones(64, device="cuda"))
"""
    )
    expected = {"built": 2, "cached": 0, "launched": 5, "promoted": {"mm": 2, "bmm": 1}}
    first, second = scripts.run_well(str(script), "more"), scripts.run_well(str(script))
    assert {name: first[name] for name in expected} == expected
    assert (second["built"], second["cached"]) == (0, 2)
    for summary in (first, second):
        (noted,) = summary["unsteady"]
        assert noted.startswith(
            "total: 64 of 64 elements of B depend on what B held before, B[0] first"
        )


def test_eager_kernels_tuners_and_timers_work(scripts: Scripts) -> None:
    """Of configs with the same work one is built and timed, and never again; a wrong one is not timed."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch
        from tilelang.profiler import do_bench

        @tilelang.jit
        def double(A, block: int = 32):
            n = T.const("n")
            A: T.Tensor[[n], "float32"]
            B = T.empty((n,), "float32")
            with T.Kernel(n // block, threads=32) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * 2.0
            return B

        configs = [dict(block=64, threads=threads, factor=factor) for factor in (2, 3) for threads in (32, \
64)]

        @tilelang.autotune(configs=configs, warmup=1, rep=1, ref_prog=lambda A: A * 3)
        @tilelang.jit(out_idx=[1])
        def triple(n, block=32, threads=32, factor=3):
            @T.prim_func
            def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
                with T.Kernel(n // block, threads=threads) as bx:
                    for i in T.Parallel(block):
                        B[bx * block + i] = A[bx * block + i] * factor
            return kernel

        a = torch.arange(128, device="cuda", dtype=torch.float32)
        assert torch.equal(double(a), a * 2)
        tuned = triple(128)
        assert torch.equal(tuned(a), a * 3)
        assert tuned.config == dict(block=64, threads=32, factor=3)
        assert tuned.latency > 0 and tuned.ref_latency > 0
        assert do_bench(lambda: tuned(a), rep=5) > 0
        """
    )
    expected = {"built": 3, "timers": {"autotune": 1, "do_bench": 1}}
    summary = scripts.run_well(str(script))
    assert {name: summary[name] for name in expected} == expected
    assert scripts.run_well(str(script))["timers"] == {"do_bench": 1}


def test_tensors_and_queries_of_cuda_are_answered(scripts: Scripts) -> None:
    """Whatever names a GPU means the host, in all threads; host and device never share memory."""
    script = scripts.write(
        """
        import threading
        import numpy
        import torch

        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_device_properties("cuda").multi_processor_count > 0
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(); end.record(); torch.cuda.synchronize()
        assert begin.elapsed_time(end) >= 0

        def use() -> None:
            host = torch.ones(4)
            for moved in (host.cuda(), host.to("cuda:0"), host.to(device=torch.device("cuda")), host.to(0)):
                assert moved.is_cuda
                moved[0] = 5
            back = moved.cpu()
            back[1] = 7
            assert host.tolist() == [1, 1, 1, 1] and moved.tolist() == [5, 1, 1, 1]
            assert host.to("cuda", torch.float16).dtype == host.to(torch.float16).dtype == torch.float16
            shared = numpy.zeros(4)
            for moved in (torch.as_tensor(shared, device="cuda"), torch.from_numpy(shared).cuda()):
                moved += 1
            assert not shared.any()
            there = torch.zeros(4, device="cuda")
            for same in (there, there.cuda(), there.to("cuda:0"), torch.as_tensor(there, \
device=there.device)):
                same += 1
            assert there.tolist() == [4, 4, 4, 4] and (there.clone().cpu() == 4).all()
            for made in (torch.zeros(3, device="cuda"), torch.zeros_like(host, device="cuda"),
                         host.new_ones(3, device="cuda"), torch.tensor([1], device=0),
                         torch.randn(3, device="cuda", generator=torch.Generator(device="cuda"))):
                assert made.is_cuda
            with torch.device("cuda"), torch.cuda.stream(torch.cuda.Stream()):
                torch.nn.Linear(4, 4).cuda()(torch.ones(4))
            passed.append(True)

        passed = []
        thread = threading.Thread(target=use); thread.start(); thread.join(); use()
        assert passed == [True, True]
        torch.cuda.manual_seed(3); a = torch.randn(3, device="cuda")
        torch.manual_seed(3); assert torch.equal(a, torch.randn(3, device="cuda"))

        assert a.device.type == "cuda" and a.device == torch.device("cuda", torch.cuda.current_device())
        assert torch.zeros(2, device=a.device).device == torch.empty_like(a).device == (a + 1).device
        assert torch.empty(2, device="meta").device.type == "meta"
        assert numpy.from_dlpack(a).tolist() == torch.from_dlpack(a).tolist() == a.tolist()
        assert isinstance(a, torch.cuda.FloatTensor) and torch.accelerator.current_accelerator() == a.device
        layer = torch.nn.Linear(3, 3).to(a.device)
        with torch.autocast("cuda", dtype=torch.float16):
            assert layer(a).dtype == torch.float16
            with torch.autocast(a.device.type, enabled=False):
                assert layer(a).dtype == torch.float32
        layer(a).sum().backward()
        torch.optim.AdamW(layer.parameters()).step()
        for graph in (torch.cuda.CUDAGraph, torch.cuda.graphs.CUDAGraph):
            try:
                graph()
            except RuntimeError as error:
                assert "CUDA graphs need a GPU" in str(error)
            else:
                raise AssertionError(graph)

        x = torch.rand(1000, device="cuda")
        inverse = torch.tensor(1 / 448)
        for quotient in (x / 448, x.div(448.0), torch.div(x, 448), x.clone().div_(448)):
            assert torch.equal(quotient, x * inverse)
        assert torch.equal(torch.div(x, 2, rounding_mode="floor"), torch.zeros(1000))
        assert (torch.tensor([1.0, 0.0]) / 0).isnan().tolist() == [False, True]

        from tilelang.backend.target import determine_target
        from tilelang.carver.arch import CUDA
        for name in ("auto", "cuda"):
            assert str(determine_target(name, return_object=True).attrs["arch"]).startswith("sm_90")
        from tilelang import testing, tvm
        def test(): pass
        marks = testing.requires_cuda_compute_version(9, 0)(test).pytestmark
        assert not any(mark.args[0] for mark in marks if mark.name == "skipif")
        assert tvm.device("cuda", 0).exist and tvm.cuda(0).compute_version == "9.0"
        assert CUDA("cuda").compute_max_core == torch.cuda.get_device_properties(0).multi_processor_count
        """
    )
    expected = {"torch.cuda.Event": 1}
    assert scripts.run_well(str(script))["timers"] == expected


def test_kernels_take_arguments_as_on_a_gpu(scripts: Scripts) -> None:
    """All arguments without ``out_idx``, in place too; strided inputs; a clear error for misfits."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch

        @T.prim_func
        def add(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
            with T.Kernel(2, threads=32) as bx:
                for i in T.Parallel(32):
                    C[bx * 32 + i] = A[bx * 32 + i] + B[bx * 32 + i]

        kernel = tilelang.compile(add, target="cuda")
        a, b = torch.arange(64.0, device="cuda"), torch.ones(64, 2, device="cuda")[:, 0]
        wanted = a + b
        assert kernel(a, b, a) == [] and torch.equal(a, wanted)
        for wrong in ((a, b), (a, b.half(), a), (a, b[:8], a)):
            try:
                kernel(*wrong)
            except Exception as error:
                print(type(error).__name__)

        @tilelang.jit
        def count(n: int = 32):
            B = T.empty((n,), "bfloat16")
            C = T.empty((n,), "int32")
            with T.Kernel(1, threads=32):
                for i in T.Parallel(n):
                    B[i] = i
                    C[i] = i
            return C, B

        c, b = count()
        assert c.dtype == torch.int32 and b.dtype == torch.bfloat16
        assert torch.equal(c, torch.arange(32, dtype=torch.int32)) and torch.equal(b.int(), c)
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as profiled:
            a + a
        """
    )
    expected = ["ValueError", "BindError", "BindError"]
    done = scripts.run(str(script))
    printed = [line for line in done.stdout.splitlines() if "TileLang" not in line]
    assert (done.returncode, printed) == (0, expected), done.stderr
    assert "Failed to record CUDA event" not in done.stderr


def test_a_kernel_for_a_cpu_has_no_threads(scripts: Scripts) -> None:
    """With TileLang's CPU as target, however given, a block runs once and no thread has an index."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch
        from tilelang import tvm

        def make(threads, is_indexed=False):
            @T.prim_func
            def count(X: T.Tensor((2,), "float32"), Y: T.Tensor((2,), "float32")):
                with T.Kernel(2, threads=threads) as bx:
                    Y[bx] = X[bx]
                    T.atomic_add(Y[bx], 1.5)
                    if is_indexed:
                        Y[T.get_thread_binding()] = 0.0
            return count

        @tilelang.jit(out_idx=[1], target="c")
        def decorated():
            return make(64)

        @tilelang.autotune(configs=[{"threads": 32}, {"threads": 64}], warmup=1, rep=1)
        @tilelang.jit(out_idx=[1], target="c")
        def tuned(threads=32):
            return make(threads)

        with tvm.target.Target("c"):
            inside = tilelang.compile(make(None), out_idx=[1])
        kernels = [
            decorated(),
            tuned(),
            inside,
            tilelang.compile(make(32), out_idx=[1], target="llvm"),
            tilelang.compile(make(None), out_idx=[1], target={"kind": "c"}),
        ]
        x = torch.tensor([3.0, 4.0])
        for kernel in kernels:
            print(kernel(x).tolist())
        print(tilelang.compile(make(32), out_idx=[1])(x).tolist())
        try:
            tilelang.compile(make(32, is_indexed=True), out_idx=[1], target="c")
        except Exception as error:
            print(error)
        """
    )
    done = scripts.run(str(script))
    printed = [line for line in done.stdout.splitlines() if line.startswith(("[", "compile"))]
    refused = (
        "compile_error: kernel count cannot run on the CPU: "
        f"thread index tx is used, but the target is a CPU and has no threads at {script}:14"
    )
    assert printed == [*["[4.5, 5.5]"] * 5, "[51.0, 52.0]", refused], done.stderr


def test_a_tensor_may_be_none_where_the_kernel_has_no_use_for_it(scripts: Scripts) -> None:
    """Uses under conditions that never hold are none, a size of its own is 0; a real use names its line."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch

        @tilelang.jit
        def make(save):
            Q = T.dynamic("Q")
            @T.prim_func
            def main(X: T.Tensor((64,), "float32"), S: T.Tensor((64,), "float32"),
                     Z: T.Tensor((Q, 4), "float32"), Y: T.Tensor((64,), "float32")):
                with T.Kernel(1, threads=32):
                    for t in T.serial(4):
                        if t == 3 and save:
                            T.copy(X, S)
                        elif save and t == 2:
                            for i in T.Parallel(64):
                                Z[i % Q, 0] += X[i]
                        for i in T.Parallel(16):
                            known = T.if_then_else(T.And(t == 1, save), S[i], 0.0)
                            Y[t * 16 + i] = X[t * 16 + i] + known
            return main

        x, y = torch.rand(64, device="cuda"), torch.empty(64, device="cuda")
        make(False)(x, None, None, y)
        assert torch.equal(x, y)
        for given in ((None, torch.empty(3, 4)), (torch.empty(64), None)):
            try:
                make(True)(x, *given, y)
            except Exception as error:
                print(error)
        """
    )
    done = scripts.run(str(script))
    printed = [line for line in done.stdout.splitlines() if line.startswith("main:")]
    expected = [
        "main: S is None, and is used at script.py:15",
        "main: Z is None, and is used at script.py:18",
    ]
    assert (done.returncode, printed) == (0, expected), done.stderr


def test_what_lies_beyond_an_edge_is_no_division_by_zero(scripts: Scripts) -> None:
    """A tile's tail is filled with zeros and may be divided by; an array's zero is a fault at its line."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch

        def make(divide, is_dynamic):
            N = T.dynamic("N") if is_dynamic else 50
            @T.prim_func
            def main(X: T.Tensor((N,), "int32"), D: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
                with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
                    shared = T.alloc_shared((32,), "int32")
                    d = T.alloc_fragment((32,), "int32")
                    q = T.alloc_fragment((32,), "int32")
                    T.copy(D[bx * 32], shared)
                    T.copy(shared, d)
                    for i in T.Parallel(32):
                        q[i] = divide(X[bx * 32 + i], d[i])
                    T.copy(q, Y[bx * 32])
            return main

        x, d = torch.arange(50, dtype=torch.int32) * 7, torch.arange(50, dtype=torch.int32) % 5 + 1
        wrong = d.clone()
        wrong[40] = 0
        for is_dynamic in (False, True):
            for divide in (lambda a, b: a // b, lambda a, b: a % b, T.truncmod):
                kernel = tilelang.compile(make(divide, is_dynamic), out_idx=[2])
                assert torch.equal(kernel(x.cuda(), d.cuda()), divide(x, \
d) if divide is not T.truncmod else x % d)
                try:
                    kernel(x.cuda(), wrong.cuda())
                except Exception as error:
                    print(error)
        """
    )
    done = scripts.run(str(script))
    printed = [line for line in done.stdout.splitlines() if line.startswith("script.py")]
    expected = ["script.py:17: an integer is divided by zero"] * 6
    assert (done.returncode, printed) == (0, expected), done.stderr


def test_only_what_reaches_no_array_may_be_divided_by_zero(scripts: Scripts) -> None:
    """A tail that is masked out in any way may be divided by; one within the array is a fault."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch

        N = 50

        @T.prim_func
        def masked_store(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
            with T.Kernel(1, threads=32):
                d, q = T.alloc_fragment((32,), "int32"), T.alloc_fragment((32,), "int32")
                for k in T.Pipelined(T.ceildiv(N, 32), num_stages=2):
                    T.copy(X[k * 32], d)
                    for i in T.Parallel(32):
                        quotient = 1000 // d[i]
                        q[i] = quotient + 1
                    for i in T.Parallel(32):
                        at = k * 32 + i
                        if at < N:
                            Y[at] = q[i] - 1

        @T.prim_func
        def masked_sum(X: T.Tensor((N,), "int32"), Y: T.Tensor((2,), "int32")):
            with T.Kernel(2, threads=32) as bx:
                d, q = T.alloc_fragment((32,), "int32"), T.alloc_fragment((32,), "int32")
                total = T.alloc_fragment((1,), "int32")
                T.copy(X[bx * 32], d)
                for i in T.Parallel(32):
                    q[i] = 1000 // d[i]
                for i in T.Parallel(32):
                    d[i] = T.if_then_else(bx * 32 + i < N, q[i], 0)
                T.reduce_sum(d, total)
                T.copy(total, Y[bx])

        @T.prim_func
        def kept(X: T.Tensor((N,), "int32"), Y: T.Tensor((64,), "int32")):
            with T.Kernel(2, threads=32) as bx:
                d, q = T.alloc_fragment((32,), "int32"), T.alloc_fragment((32,), "int32")
                T.copy(X[bx * 32], d)
                for i in T.Parallel(32):
                    q[i] = 1000 // d[i]
                T.copy(q, Y[bx * 32])

        @T.prim_func
        def kept_later(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
            with T.Kernel(1, threads=32):
                d, q = T.alloc_fragment((32,), "int32"), T.alloc_fragment((32,), "int32")
                for k in T.serial(2):
                    T.copy(X[32 - k * 32], d)
                    if k == 0:
                        for i in T.Parallel(32):
                            q[i] = 1000 // d[i]
                    T.copy(q, Y[32 - k * 32])

        x = torch.arange(N, dtype=torch.int32).cuda() + 1
        right = 1000 // x
        assert torch.equal(tilelang.compile(masked_store, out_idx=[1])(x), right)
        sums = torch.stack([right[:32].sum(), right[32:].sum()])
        assert torch.equal(tilelang.compile(masked_sum, out_idx=[1])(x), sums.int())
        for func in (kept, kept_later):
            try:
                tilelang.compile(func, out_idx=[1])(x)
            except Exception as error:
                print(error)
        """
    )
    done = scripts.run(str(script))
    printed = [line for line in done.stdout.splitlines() if line.startswith("script.py")]
    expected = [f"script.py:{line}: an integer is divided by zero" for line in (41, 52)]
    assert (done.returncode, printed) == (0, expected), done.stderr


def test_a_whole_buffer_is_updated_once_by_each_block(scripts: Scripts) -> None:
    """``T.atomic_add`` of a buffer and a number adds to each element, of which there may be one."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch

        def make(shape):
            @T.prim_func
            def main(B: T.Tensor(shape, "int32")):
                with T.Kernel(3, threads=32):
                    T.atomic_add(B, 2)
            return main

        for shape in ((40, 8), (1,), (1, 1)):
            counts = torch.zeros(shape, dtype=torch.int32, device="cuda")
            tilelang.compile(make(shape))(counts)
            assert bool((counts == 6).all()), (shape, counts)
        """
    )
    expected = 3
    assert scripts.run_well(str(script))["launched"] == expected


def test_single_threads_read_the_one_element_of_a_fragment(scripts: Scripts) -> None:
    """What a block has reduced to one number is every thread's; of more numbers a thread may ask for none."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch

        def make(is_whole):
            @T.prim_func
            def main(X: T.Tensor((32,), "int32"), Y: T.Tensor((32,), "int32")):
                with T.Kernel(1, threads=32):
                    u = T.alloc_fragment((32,), "int32")
                    s = T.alloc_fragment((1,), "int32")
                    T.copy(X, u)
                    T.reduce_sum(u, s, dim=0)
                    tx = T.get_thread_binding()
                    if is_whole:
                        Y[tx] = u[tx]
                    else:
                        Y[tx] = s[0] + tx
            return main

        x = torch.arange(32, dtype=torch.int32, device="cuda")
        assert torch.equal(tilelang.compile(make(False), out_idx=[1])(x), x.sum() + x)
        tilelang.compile(make(True), out_idx=[1])
        """
    )
    done = scripts.run(str(script))
    refused = f"fragment u used by single threads is not covered at {script}:16"
    assert (done.returncode, refused in done.stderr) == (1, True), done.stderr


def test_products_in_half_precision_are_those_of_f32_rounded_once(scripts: Scripts) -> None:
    """All of torch's forms of a product, in parts too, and their gradients, are computed in f32."""
    script = scripts.write(
        """
        import tileyard.verbs.exec.plan.torch_tensors
        import torch
        import torch.nn.functional as F

        tileyard.verbs.exec.plan.torch_tensors._PART = 1000

        def compute(kind):
            torch.manual_seed(0)
            a, b = torch.randn(2, 32, 48).to(kind), torch.randn(2, 48, 16).to(kind)
            x, w = torch.randn(1, 2, 9, 9).to(kind), torch.randn(3, 2, 3, 3).to(kind)
            a, b, x, w = (t.to(wanted).requires_grad_() for t in (a, b, x, w))
            q = a[None]
            results = [a @ b, a[0] @ b[0], F.linear(a[0], b[0].T, b[0, 0]), F.conv2d(x, w),
                       F.scaled_dot_product_attention(q, q, q, is_causal=True)]
            sum(r.float().sum() for r in results).backward()
            return [*results, a.grad, b.grad, w.grad]

        for kind, digits in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
            wanted = torch.float32
            exact = compute(kind)
            wanted = kind
            for one, other in zip(compute(kind), exact, strict=True):
                assert one.dtype == kind
                assert one.shape == other.shape
                assert torch.allclose(one.float(), other, rtol=digits, atol=20 * digits)
        """
    )
    expected = {
        *("mm", "bmm", "addmm", "convolution", "convolution_backward"),
        "scaled_dot_product_attention",
    }
    assert set(scripts.run_well(str(script))["promoted"]) == expected


def test_a_kernel_that_is_not_covered_is_refused_by_name(scripts: Scripts) -> None:
    """The operation and its line are in the script's own traceback and in the summary."""
    text = textwrap.dedent("""\
        import tilelang
        import tilelang.language as T

        @tilelang.jit
        def make():
            @T.prim_func
            def foreign(A: T.Tensor((32,), "float32")):
                with T.Kernel(1, threads=32) as bx:
                    T.call_extern("handle", "my_cuda_function", T.address_of(A[0]))
            return foreign

        make()
        """)
    script = scripts.write(text)
    line = 1 + text.splitlines().index(next(x for x in text.splitlines() if "call_extern" in x))
    expected = 1
    done = scripts.run("--tally=json", str(script))
    (refused,) = json.loads(done.stderr.splitlines()[-1])["refused"]
    assert done.returncode == expected
    assert (refused["kernel"], refused["line"]) == ("foreign", line)
    assert "call_extern" in refused["operation"]
    assert f'File "{script}", line 12, in <module>' in done.stderr
    assert "compile_error: kernel foreign" in done.stderr
    assert str(Path("tileyard", "scripts")) not in done.stderr


def test_prints_arguments_and_exit_status_are_the_scripts_own(scripts: Scripts) -> None:
    """It sees what it would see if Python ran it, and ends as it says."""
    script = scripts.write(
        """
        import sys
        print(__name__, __file__, sys.argv[1:], sys.path[0], sys.modules["__main__"].value)
        sys.exit(7)
        """.replace("import sys", "import sys\n        value = 3", 1)
    )
    done = scripts.run("--tally=none", "script.py", "--summary", "x", "--", "-m")
    expected = f"__main__ {script} ['--summary', 'x', '--', '-m'] {scripts.folder} 3\n"
    assert (done.returncode, done.stdout, done.stderr) == (7, expected, "")


@pytest.mark.parametrize(
    "raised",
    [
        "raise ValueError('wrong') from KeyError('cause')",
        "f = lambda: 1 / 0; f()",
        "import json; json.loads('{')",
        "raise SystemExit('the end')",
        "x = = 3",
    ],
)
def test_tracebacks_are_those_of_python(scripts: Scripts, raised: str) -> None:
    """What goes to stderr is what it would be without us, and so is the status."""
    script = scripts.write(raised)
    plain = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    expected = (plain.returncode, plain.stderr)
    done = scripts.run("--tally=none", str(script))
    assert (done.returncode, done.stderr) == expected


def test_an_interrupted_script_ends_by_the_signal(scripts: Scripts) -> None:
    """It shows its traceback, the summary comes last, and a shell sees that it was interrupted."""
    script = scripts.write("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    expected = -signal.SIGINT
    done = scripts.run(str(script))
    assert done.returncode == expected
    assert done.stderr.splitlines()[-2] == "KeyboardInterrupt"
    assert done.stderr.splitlines()[-1].startswith("tileyard: 0 kernels built")


def test_a_module_is_run_as_python_runs_it(scripts: Scripts) -> None:
    """``-m`` finds a module from the working directory and gives it its arguments."""
    scripts.write("import sys\nprint(__name__, __package__, sys.argv[1:])\n", "part.py")
    expected = "__main__  ['-x']\n"
    done = scripts.run("-m", "part", "-x")
    assert (done.returncode, done.stdout) == (0, expected)


def test_a_script_that_is_not_there_is_bad_usage(scripts: Scripts) -> None:
    """It is named, before anything is imported."""
    expected = (2, "tileyard: there is no script nowhere.py\n")
    done = scripts.run("nowhere.py")
    assert (done.returncode, done.stderr) == expected


def test_kernels_say_their_lines(scripts: Scripts) -> None:
    """What a kernel prints and asserts names the script's line and values, and so does its source."""
    script = scripts.write(
        """
        import tilelang
        import tilelang.language as T
        import torch

        @tilelang.jit(out_idx=[1])
        def twice(n, limit):
            @T.prim_func
            def main(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
                with T.Kernel(1, threads=32) as block:
                    tile = T.alloc_shared((n,), "int32")
                    T.copy(A, tile)
                    T.print(block, msg="here")
                    T.device_assert(tile[1] < limit, "too large")
                    for i in T.Parallel(n):
                        B[i] = tile[i] * 2
            return main

        kernel = twice(32, 7)
        a = torch.arange(32, dtype=torch.int32, device="cuda")
        assert torch.equal(kernel(a), a * 2)
        assert "script.py:12: copy(A, tile)" in kernel.get_kernel_source()
        kernel(a * 9)
        """
    )
    done = scripts.run(str(script))
    expected = (
        "script.py:13: msg='here' BlockIdx=(0, 0, 0): dtype=int32 value=0\n" * 2,
        "script.py:14: assertion failed: too large (tile[1] = 9)",
    )
    assert (done.returncode, done.stdout[-len(expected[0]) :]) == (1, expected[0]), done.stderr
    assert expected[1] in done.stderr


def test_a_compiler_that_hangs_is_ended(scripts: Scripts, cli: CommandLine) -> None:
    """With all that it has started: nobody else limits what a script waits for."""
    compiler = cli.cwd / "hangs"
    compiler.write_text("""#!/bin/sh
        case "$*" in *-shared*) sleep 600 & echo $! > "$(dirname "$0")/started"; wait;; esac
        exec cc "$@"
    """)
    compiler.chmod(0o755)
    cli.env.update(CC=str(compiler), TILELANG_COMPILE_TIMEOUT_SECONDS="0.5")
    done = scripts.run(str(scripts.write(GEMM + "make(128, 64)")))
    assert done.returncode == 1
    assert "the C compiler took longer than 0.5 s, and was ended" in done.stderr
    started = Path("/proc", (cli.cwd / "started").read_text().strip(), "comm")
    assert not started.exists() or started.with_name("stat").read_text().split()[2] == "Z"
