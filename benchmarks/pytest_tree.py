"""A tree of kernel tests under ``pytest --tileyard``: how much of the time is a device held.

Generates ``--tests`` tests of GEMM and element-wise kernels for the CPU, each with a kernel of its
own, and runs them with nothing built before. Beside it the same tests as they are run today: under a
lease for the whole of pytest, each compiling its kernel itself.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

KERNELS = '''\
"""Kernels of the generated tests."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def gemm(M, N, K, block_M=32, block_N=32, block_K=32):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "float32")
            B_shared = T.alloc_shared((block_K, block_N), "float32")
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[-1])
def scale(N, factor, block=64):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * factor

    return main
'''
TESTS = """\
import numpy as np
import pytest
from tree_kernels import gemm, scale


@pytest.mark.tile_kernel(kernel=gemm, N=96, K=64)
@pytest.mark.parametrize("M", {sizes})
def test_gemm(M, tile_kernel, tile_device):
    rng = np.random.default_rng(M)
    a, b = rng.random((M, 64), "float32"), rng.random((64, 96), "float32")
    with tile_device():
        c = tile_kernel(a, b)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


@pytest.mark.tile_kernel(kernel=scale, factor=3.0)
@pytest.mark.parametrize("N", {sizes})
def test_scale(N, tile_kernel, tile_device):
    x = np.arange(N, dtype="float32")
    with tile_device():
        y = tile_kernel(x)
    np.testing.assert_allclose(y, 3 * x)
"""
TODAY = """\
import numpy as np
import pytest
import tileyard
from tree_kernels import gemm, scale


@pytest.mark.parametrize("M", {sizes})
def test_gemm(M):
    rng = np.random.default_rng(M)
    a, b = rng.random((M, 64), "float32"), rng.random((64, 96), "float32")
    c = tileyard.compile(gemm.get_tir(M=M, N=96, K=64), out_idx=[-1])(a, b)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


@pytest.mark.parametrize("N", {sizes})
def test_scale(N):
    x = np.arange(N, dtype="float32")
    y = tileyard.compile(scale.get_tir(N=N, factor=3.0), out_idx=[-1])(x)
    np.testing.assert_allclose(y, 3 * x)
"""


def make_tree(folder: Path, tests: int, template: str = TESTS) -> None:
    """Write the tree: five files, or fewer."""
    folder.mkdir()
    (folder / "tree_kernels.py").write_text(KERNELS)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:randomly\n")
    sizes = [32 * (number + 1) for number in range(tests // 2)]
    for number in range(5):
        text = template.format(sizes=sizes[number::5])
        (folder / f"test_tree_{number}.py").write_text(text)


def run_tree(folder: Path, state: Path, *options: str) -> dict[str, Any]:
    """Run it and return the report."""
    report = state / "report.json"
    state.mkdir(exist_ok=True)
    command = (sys.executable, "-m", "pytest", "-q", "--tileyard", f"--tileyard-report={report}")
    subprocess.run([*command, *options], cwd=folder, env=environment(state), check=True)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def run_today(folder: Path, state: Path) -> tuple[float, float]:
    """Seconds in all, and seconds under a lease, of pytest under ``tileyard lease``."""
    status = state / "status.json"
    state.mkdir(exist_ok=True)
    lease = ("lease", "--devices", "cpu", "--status-file", str(status), "--")
    pytest = (sys.executable, "-m", "pytest", "-q")
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "tileyard", *lease, *pytest],
        cwd=folder,
        env=environment(state),
        check=True,
    )
    return time.monotonic() - began, float(json.loads(status.read_text())["held_s"])


def environment(state: Path) -> dict[str, str]:
    """A home and locks of its own."""
    own = {"TILEYARD_HOME": str(state / "home"), "TILEYARD_LOCK_DIR": str(state / "locks")}
    return {**os.environ, **own}


def describe(name: str, report: dict[str, Any]) -> str:
    """One line of figures."""
    held_s = sum(device["held_s"] for device in report["devices"])
    built = [step for step in report["steps"] if not step["reused"]]
    return (
        f"{name:28} {report['wall_s']:6.1f} s, device held {held_s:5.2f} s = "
        f"{held_s / report['wall_s']:5.1%} in {len(report['holds'])} leases; "
        f"{len(built)} builds of {sum(step['seconds'] for step in built):.1f} s in "
        f"{report['prepare_s']:.1f} s, up to {report['most_builds_at_once']} at once"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=60)
    tests = parser.parse_args().tests
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "tree"
        make_tree(folder, tests)
        state = Path(scratch) / "alone"
        lines = [
            describe("alone, nothing built", run_tree(folder, state)),
            describe("alone, all built", run_tree(folder, state)),
            describe("2 workers, nothing built",
                     run_tree(folder, Path(scratch) / "w2", "--tileyard-workers=2")),
            describe("xdist -n 2, nothing built", run_tree(folder, Path(scratch) / "x2", "-n2")),
        ]  # fmt: skip
        today = Path(scratch) / "today"
        make_tree(today, tests, TODAY)
        wall_s, held_s = run_today(today, Path(scratch) / "t")
        lines.append(
            f"{'under one lease, as today':28} {wall_s:6.1f} s, device held {held_s:5.2f} s"
        )
        print(*lines, sep="\n")


if __name__ == "__main__":
    main()
