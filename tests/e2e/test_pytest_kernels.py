"""``pytest --tileyard`` on trees whose tests need kernels and other things that are built."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest
from tests.conftest import ROOT
from tests.e2e.pytest_tree import KERNELS, OPTIONS, Ran, Tree, make_tree, wait_for
from tests.samples import IS_WHOLE

pytestmark = pytest.mark.slow


def test_kernels_are_built_ahead_once_for_all_tests_and_all_runs(tree: Tree) -> None:
    """Tests get kernels of their parameters, built before; equal ones and a second run build nothing."""
    tree.write(
        some_kernels=KERNELS,
        test_scale="""
            import numpy as np, pytest, tileyard
            import tilelang.language as T
            from some_kernels import scale

            @pytest.mark.tile_kernel(kernel=scale)
            @pytest.mark.parametrize("N", [64, 100])
            @pytest.mark.parametrize("seed", [1, 2])
            def test_twice(N, seed, tile_kernel, tile_device):
                x = np.random.default_rng(seed).random(N, "float32")
                with tile_device() as device:
                    assert device.name == "cpu:0"
                    y = tile_kernel(x)
                np.testing.assert_allclose(y, 2 * x)

            @pytest.mark.tile_kernel(kernel=scale, name="a", N=64)
            @pytest.mark.tile_kernel(kernel=scale, name="b", arguments=lambda: {"N": 64, "factor": 3.0})
            def test_two(tile_kernels, tile_device):
                x = np.ones(64, "float32")
                a, b = tile_device.run(lambda: (tile_kernels["a"](x), tile_kernels["b"](x)))
                assert (a[0], b[0]) == (2.0, 3.0)

            @pytest.mark.parametrize("which", [scale])
            @pytest.mark.tile_kernel("which", N=64)
            def test_by_name(which, tile_kernel, tile_device):
                with tile_device():
                    assert tile_kernel(np.ones(64, "float32"))[0] == 2.0

            @tileyard.kernel(where=lambda M, block: M % block == 0)
            def ruled(block=32):
                M = T.dynamic("M")

                @T.prim_func
                def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
                    with T.Kernel(T.ceildiv(M, block), threads=32) as bx:
                        for i in T.Parallel(block):
                            B[bx * block + i] = A[bx * block + i] * 2

                return main

            @pytest.mark.tile_kernel(kernel=ruled, M=64)
            def test_rule(tile_kernel, tile_device):
                with tile_device():
                    assert tile_kernel(np.ones(96, "float32"))[0] == 2.0
                    with pytest.raises(tileyard.TileyardError, match="where of ruled rejects block=32 M=80"):
                        tile_kernel(np.ones(80, "float32"))

            def test_prepared_elsewhere():
                for n in (64,):
                    tileyard.compile(scale.get_tir(N=n), out_idx=[-1])

            @pytest.mark.tile_kernel(kernel=scale.get_tir(N=64), out_idx=[-1])
            def test_prim_func(tile_kernel, tile_device):
                with tile_device():
                    assert tile_kernel(np.ones(64, "float32"))[0] == 2.0
        """,
    )
    first = tree.run()
    expected = {"passed": 9, "steps": 5, "holds": 8}
    counts = [entry["outcome"] for entry in first.report["tests"]]
    assert first.code == 0, first.text
    assert counts.count("passed") == expected["passed"]
    assert len(first.report["steps"]) == expected["steps"]
    assert len(first.report["holds"]) == expected["holds"]
    assert not any(step["reused"] for step in first.report["steps"])
    second = tree.run()
    assert second.code == 0, second.text
    assert all(step["reused"] for step in second.report["steps"])
    assert {s["build"] for s in second.report["steps"]} == {
        s["build"] for s in first.report["steps"]
    }


def test_an_interrupt_while_kernels_are_built_ends_all(tree: Tree) -> None:
    """Ctrl-C ends what builds, and pytest with it: no test runs, and the run of the builds says so."""
    tree.write(
        test_endless="""
            import threading, pytest
            from pathlib import Path

            def endless():
                Path("begun").touch()
                threading.Event().wait()

            @pytest.mark.tile_kernel(kernel=endless)
            def test_never(tile_kernel): pass
        """,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, "--tileyard"],
        cwd=tree.folder,
        env=tree.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(tree.folder / "begun")
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate()
    interrupted = 2
    assert process.returncode == interrupted, text
    assert "no tests ran" in text
    for run in (tree.folder / "home" / "runs").iterdir():
        assert '"reason":"interrupted"' in run.read_text()


FLOW = """
    import os, pathlib, pytest, subprocess, time

    def build(out, arch):
        (out / "binary").write_text(arch)
        return {"arch": arch, "pid": os.getpid()}

    def breaks(out):
        print("looking for a toolchain")
        subprocess.run("echo nothing found >&2; exit 1", shell=True)
        raise ValueError("no toolchain here")

    def hangs(out):
        time.sleep(60)

    def waits(out):
        folder, until_s = pathlib.Path(__file__).parent, time.monotonic() + 1.5
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        (folder / "go").write_text("")
        while time.monotonic() < until_s:
            pass
        (folder / "done").touch()

    @pytest.mark.tile_compile(function=build)
    @pytest.mark.parametrize("arch", ["a1", "a2"])
    @pytest.mark.parametrize("case", [1, 2])
    def test_built(arch, case, tile_built):
        assert tile_built.result["arch"] == arch
        assert tile_built.result["pid"] != os.getpid()
        assert (tile_built.folder / "binary").read_text() == arch

    @pytest.mark.tile_compile(function=breaks)
    def test_broken(tile_built): pass

    @pytest.mark.tile_compile(function=hangs, limit="200ms")
    def test_hung(tile_built): pass

    @pytest.mark.tile_compile(function=waits, limit="1s")
    def test_waited(tile_built): pass
"""
CONFTEST = """
    import os, pathlib
    BUILT = pathlib.Path(__file__).parent / "built"

    def build(name):
        BUILT.mkdir(exist_ok=True)
        (BUILT / f"{name}-{os.getpid()}").touch()

    def pytest_tileyard_compile_steps(item):
        name = item.name.partition("_of_")[2]
        if name == "odd":
            yield name, "build", {}
        elif name == "unlike":
            yield "a", build, {"name": "b"}
        elif name == "raises":
            raise ValueError("no such case")
        elif name:
            yield name[0], build, {"name": name[0]}
"""
CASES = """
    from conftest import BUILT

    def look(name):
        assert len(list(BUILT.glob(f"{name}-*"))) == 1

    def test_one_of_a(): look("a")
    def test_two_of_a(): look("a")
    def test_one_of_b(): look("b")
    def test_plain(): pass
    def test_of_odd(): pass
    def test_of_raises(): pass
    def test_zero_of_unlike(): pass
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of tests for which functions build, by marks and as the tree says."""
    tree = make_tree(tmp_path_factory.mktemp("built"))
    tree.write(test_flow=FLOW, conftest=CONFTEST, test_cases=CASES)
    os.mkfifo(tree.folder / "go")
    hog = ["sh", "-c", ": < go; until [ -e done ]; do :; done"]
    with subprocess.Popen(hog, cwd=tree.folder) as process:
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        try:
            return tree.run()
        finally:
            process.kill()


def outcomes_of(ran: Ran, file: str) -> dict[str, str]:
    """How each test of a file ended."""
    ends = ((entry["test"].partition("::"), entry["outcome"]) for entry in ran.report["tests"])
    return {name: end for (path, _, name), end in ends if path == f"{file}.py"}


def test_functions_build_before_the_tests(built: Ran) -> None:
    """A step that is a plain function runs once for equal parameters and gives its result and directory. It
    gives way to other work, and its limit leaves out its waits for a core: one waits most of one and a half
    times its limit.
    """
    expected = {f"test_built[{case}-{arch}]": "passed" for case in (1, 2) for arch in ("a1", "a2")}
    others = {"test_broken": "compile_error", "test_hung": "timeout", "test_waited": "passed"}
    assert built.code == 1
    assert outcomes_of(built, "test_flow") == {**expected, **others}
    assert len(built.report["steps"]) == 5 + 2
    _, title, errors = built.text.partition(" ERRORS ")
    assert "ValueError: no toolchain here" in errors
    assert " Captured output of the compile step ---" in errors
    assert "looking for a toolchain\nnothing found\n" in errors
    assert "nothing found" not in built.text.partition(title)[0]


def test_a_tree_names_the_steps_of_its_own_cases(built: Ran) -> None:
    """By key, without a change to tests; what makes no sense fails only the tests that it is for."""
    outcomes = outcomes_of(built, "test_cases")
    passed = {name for name, outcome in outcomes.items() if outcome == "passed"}
    assert passed == {"test_one_of_a", "test_two_of_a", "test_one_of_b", "test_plain"}
    assert "pytest_tileyard_compile_steps yields ('odd', 'build', {})" in built.text
    assert "ValueError: no such case" in built.text
    assert "yields 'a' with another function or other arguments" in built.text


BAD = """
    import os, pytest
    from some_kernels import scale

    def ends():
        os._exit(3)

    @pytest.mark.tile_kernel(kernel=scale, N=32, colour=1)
    def test_unknown(tile_kernel): pass

    @pytest.mark.tile_kernel(kernel=ends, name="ends")
    def test_ends(tile_kernel): pass

    @pytest.mark.tile_kernel("nothing", N=32)
    def test_nameless(tile_kernel): pass

    @pytest.mark.tile_kernel(kernel=scale, N=32)
    def test_called_without_device(tile_kernel):
        tile_kernel(None)

    @pytest.mark.tile_kernel(kernel=scale, N=32)
    def test_good(tile_kernel): pass
"""
BODIES = """
    import numpy as np, pytest, tileyard
    import tilelang.language as T
    from some_kernels import scale

    @pytest.fixture(params=[2.0, 3.0])
    def factor_and_kernel(request):
        kernel = tileyard.compile(scale.get_tir(N=64, factor=request.param), out_idx=[-1])
        return request.param, kernel

    def test_fixture(factor_and_kernel, tile_device):
        factor, kernel = factor_and_kernel
        with tile_device():
            assert kernel(np.ones(64, "float32"))[0] == factor

    def run_scale(n, factor=4.0):
        kernel = tileyard.compile(scale.get_tir(N=n, factor=factor), out_idx=[-1])
        assert kernel(np.ones(n, "float32"))[0] == factor

    def test_helper(tile_device):
        tile_device.run(run_scale, 64)
        run_scale(64)

    @pytest.mark.parametrize("half", [32, 64])
    def test_inner(half, tile_device):
        N = 2 * half
        @T.prim_func
        def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
            with T.Kernel(T.ceildiv(N, 32), threads=128) as bx:
                for i in T.Parallel(32):
                    Y[bx * 32 + i] = X[bx * 32 + i] * 9.0
        kernel = tileyard.compile(main)
        with tile_device():
            assert kernel(np.ones(N, "float32"))[0] == 9.0

    def test_refused():
        with pytest.raises(tileyard.TileyardError):
            tileyard.compile(scale.get_tir(N=64), target="abacus")
"""
DYNAMIC = """
    import numpy as np, pytest, tileyard
    from some_kernels import scale

    def test_dynamic(tile_device):
        for factor in (5.0,):
            f = tileyard.compile(scale.get_tir(N=64, factor=factor), out_idx=[-1])
            with tile_device():
                assert f(np.ones(64, "float32"))[0] == factor

    def test_swallowed():
        for factor in (7.0,):
            try:
                tileyard.compile(scale.get_tir(N=64, factor=factor), out_idx=[-1])
            except Exception:
                pass
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of tests whose kernels are marked, found by reading, or not to be known before they run."""
    tree = make_tree(tmp_path_factory.mktemp("compiled"))
    tree.write(some_kernels=KERNELS, test_bad=BAD, test_bodies=BODIES, test_dynamic=DYNAMIC)
    return tree.run()


def test_failed_steps_fail_their_tests_alone(compiled: Ran) -> None:
    """A kernel that can't be built, one that ends its process and a senseless marker name their test."""
    outcomes = outcomes_of(compiled, "test_bad")
    assert compiled.code == 1
    assert "scale has no argument 'colour'" in compiled.text
    assert "ended with exit code 3" in compiled.text
    assert "tile_kernel names 'nothing', which is not a parameter of the test" in compiled.text
    assert "is called while the test holds no device" in compiled.text
    assert [name for name, outcome in outcomes.items() if outcome == "passed"] == ["test_good"]


def test_what_tests_compile_in_their_bodies_is_found_by_reading(compiled: Ran) -> None:
    """Tests that call ``tileyard.compile`` as ever, there, in a helper or a fixture, find it built."""
    entries = [e for e in compiled.report["tests"] if e["test"].startswith("test_bodies.py::")]
    assert [entry["outcome"] for entry in entries] == ["passed"] * 6, compiled.text
    assert not any(entry["compiled"] for entry in entries)
    of_bad, of_bodies = 1, 5
    built = [step for step in compiled.report["steps"] if step["outcome"] == "passed"]
    assert len(built) == of_bad + of_bodies


def test_a_test_that_compiles_while_it_runs_fails_by_name(compiled: Ran) -> None:
    """By default a kernel that nobody declared is an error of its test, even where that catches it."""
    assert "test_dynamic.py::test_dynamic compiles main while it runs" in compiled.text
    expected = {"test_dynamic": "compile_error", "test_swallowed": "compile_error"}
    assert outcomes_of(compiled, "test_dynamic") == expected


LEASED = """
    import os, numpy as np, pytest, tileyard
    from some_kernels import scale

    def holds():
        return "TILEYARD_LEASE" in os.environ

    @pytest.fixture
    def launch():
        for factor in (9.0,):
            f = tileyard.compile(scale.get_tir(N=64, factor=factor), out_idx=[-1])
        assert not holds()
        yield lambda: f(np.ones(64, "float32"))[0]
        assert not holds()

    def test_launches(launch):
        assert launch() == 9.0
        assert holds()

    def test_launches_again(launch, tile_device):
        with tile_device():
            launch()
        assert not holds()
        launch()
        with tile_device() as device:
            assert os.environ["TILEYARD_LEASE"] == str(device.lease)
        assert holds()
        raise ZeroDivisionError
"""


def test_a_launch_outside_of_a_block_leases_to_the_end_of_the_function(tree: Tree) -> None:
    """With ``--tileyard-dynamic=lease``: compiling holds nothing, use of earlier compiled kernels does."""
    tree.write(some_kernels=KERNELS, test_dynamic=DYNAMIC, test_leased=LEASED)
    ran = tree.run("--tileyard-dynamic=lease")
    ended = {entry["test"].rpartition("::")[2]: entry["outcome"] for entry in ran.report["tests"]}
    passed = dict.fromkeys(("test_dynamic", "test_swallowed", "test_launches"), "passed")
    assert ended == {**passed, "test_launches_again": "runtime_error"}, ran.text
    holds = sorted(
        (hold["test"].rpartition("::")[2], hold["dynamic"]) for hold in ran.report["holds"]
    )
    assert holds == [
        ("test_dynamic", False),
        ("test_launches", True),
        ("test_launches_again", False),
        ("test_launches_again", True),
    ]
    assert "test_swallowed compiled main itself\n" in ran.text
    assert "test_launches compiled main itself and held a device from its first use" in ran.text


# ---- the whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tests", "options", "at_once"),
    [(8, "--tileyard-workers=2", 2), *([(10, "-n2", 1)] if IS_WHOLE else [])],
    ids=["alone", "xdist"][: 1 + IS_WHOLE],
)
def test_a_tree_holds_the_device_for_a_tenth_of_the_time(
    tree: Tree, tests: int, options: str, at_once: int
) -> None:
    """Each test has a kernel of its own: builds overlap, and the ledger has under 10 % of the wall time.
    Under xdist they may not: on a busy machine one of its workers can start when the other has run nearly
    everything.
    """
    spec = importlib.util.spec_from_file_location("pytest_tree", ROOT / "benchmarks/pytest_tree.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    benchmark.make_tree(tree.folder / "tree", tests)
    for number in range(tests // 2, 5):  # files that would have no tests
        (tree.folder / "tree" / f"test_tree_{number}.py").unlink()
    ran = tree.run("tree", options)
    expected = {"share": 0.1, "at_once": min(at_once, len(os.sched_getaffinity(0)))}
    report = ran.report
    assert ran.code == 0, ran.text
    assert [entry["outcome"] for entry in report["tests"]] == ["passed"] * tests
    assert len(report["holds"]) == len(report["steps"]) == tests
    assert not any(step["reused"] for step in report["steps"])
    assert report["most_builds_at_once"] >= expected["at_once"]
    (device,) = report["devices"]
    assert device["share"] < expected["share"]
