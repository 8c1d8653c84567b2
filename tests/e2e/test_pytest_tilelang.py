"""``pytest --tileyard`` on tests in TileLang's own style, which compile by TileLang itself."""

import pytest
from tests.e2e.pytest_tree import KERNELS, Tree

pytestmark = pytest.mark.slow

BROKEN = """
    @tilelang.jit(out_idx=[-1], target="c")
    def broken(N):
        @T.prim_func
        def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
            with T.Kernel(1) as bx:
                for i in T.serial(N):
                    Y[i] = T.call_extern("float32", "no_such_function", X[i])
        return main
"""
OWN_STYLE = """
    import pytest, torch
    from tl_kernels import broken, scale

    @pytest.fixture(params=[2.0, 3.0])
    def factor(request):
        return request.param

    def test_style(factor, tile_device):
        M, N = 64, 128
        kernel = scale(N, factor=factor)
        x = torch.ones(N)
        with tile_device():
            y = kernel(x)
        assert y.tolist() == [factor] * N

    def test_broken():
        broken(64)

    def test_unfound():
        for n in (256,):
            scale(n)
"""


def test_what_tilelang_compiles_itself_is_compiled_before_the_tests(tree: Tree) -> None:
    """Such tests find their kernels in TileLang's cache; what it cannot compile, the test itself tells."""
    kernels = KERNELS.replace("[-1])", '[-1], target="c")').replace("T.Parallel", "T.serial")
    tree.write(tl_kernels=kernels + BROKEN, test_style=OWN_STYLE)
    ran = tree.run(env={"TILELANG_CACHE_DIR": str(tree.folder / "cache")})
    expected = {"test_broken": "runtime_error", "test_unfound": "compile_error"}
    outcomes = {e["test"].rpartition("::")[2]: e["outcome"] for e in ran.report["tests"]}
    steps = [(step["outcome"], step["reused"]) for step in ran.report["steps"]]
    assert {n: o for n, o in outcomes.items() if o != "passed"} == expected, ran.text
    assert sorted(steps) == [("compile_error", False), ("passed", False), ("passed", False)]
    assert "undefined symbol: no_such_function" in ran.text
    assert "test_unfound compiles main while it runs, at test_style.py:" in ran.text
    assert [hold["dynamic"] for hold in ran.report["holds"]] == [False] * 2


LEASED = """
    import contextlib, os, torch
    from tl_kernels import scale

    def holds():
        return "TILEYARD_LEASE" in os.environ

    def make():
        for n in (256,):
            kernel = scale(n)
        assert not holds()
        return kernel

    def test_launches():
        assert make()(torch.ones(256)).tolist() == [2.0] * 256
        assert holds()

    def test_profiles():
        make().get_profiler()
        assert holds()

    def test_touches():
        make()
        with contextlib.suppress(AssertionError, RuntimeError):  # there may be no GPU
            torch.cuda.init()
        assert holds()
"""


def test_what_tilelang_runs_outside_of_a_block_leases_from_then_on(tree: Tree) -> None:
    """With ``--tileyard-dynamic=lease``, be the kernel cached or not; torch's first touch of a GPU, too."""
    tree.write(
        tl_kernels=KERNELS.replace("[-1])", '[-1], target="c")').replace("T.Parallel", "T.serial"),
        test_leased=LEASED,
    )
    cache = {"TILELANG_CACHE_DIR": str(tree.folder / "cache")}
    ran = tree.run("--tileyard-dynamic=lease", env=cache)
    assert ran.code == 0, ran.text
    expected = [True] * 3
    assert [hold["dynamic"] for hold in ran.report["holds"]] == expected
    assert len([entry for entry in ran.report["tests"] if entry["compiled"]]) == 1
