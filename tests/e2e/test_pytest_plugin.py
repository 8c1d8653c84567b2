"""``pytest --tileyard`` on small trees of tests, each run in a process of its own."""

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tileyard.model import Outcome
from tileyard.store.trials import TrialQuery, TrialStore

pytestmark = pytest.mark.slow

THOROUGH = pytest.mark.thorough
WAYS_TO_END = [
    (),
    pytest.param(("--tileyard-workers=3",), marks=THOROUGH),
    pytest.param(("-n2",), marks=THOROUGH),
]
"""With which options every end of a test is tried."""
WAYS_TO_FAIL = [
    ("--maxfail=2",),
    pytest.param((), marks=THOROUGH),
    pytest.param(("-n2", "--maxfail=2"), marks=THOROUGH),
]
"""With which options an exit status of zero would be a lie."""
ROOT = Path(__file__).parents[2]

KERNELS = """
    import tilelang
    import tilelang.language as T

    @tilelang.jit(out_idx=[-1])
    def scale(N, factor=2.0, block=64):
        @T.prim_func
        def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    Y[bx * block + i] = X[bx * block + i] * factor
        return main
"""


@dataclass
class Ran:
    """One run of pytest: its exit code, what it printed, and its report where it wrote one."""

    code: int
    text: str
    report: dict[str, Any]

    def outcome(self, name: str) -> str:
        """How the test of this name ended."""
        (entry,) = [entry for entry in self.report["tests"] if entry["test"].endswith(name)]
        return str(entry["outcome"])


@dataclass
class Tree:
    """A tree of tests with a home and locks of its own."""

    folder: Path

    def write(self, **files: str) -> None:
        """Write modules; ``test_`` before a name makes one of tests."""
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(textwrap.dedent(text))

    def environment(self) -> dict[str, str]:
        """As a user's shell has it."""
        ours = ("PYTEST_", "TILEYARD_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
        return {
            **kept,
            "TILEYARD_HOME": str(self.folder / "home"),
            "TILEYARD_LOCK_DIR": str(self.folder / "locks"),
            # pytest closes the directory of all temporary ones to others whenever it starts
            "PYTEST_DEBUG_TEMPROOT": str(self.folder),
        }

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run pytest with ``--tileyard``."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        return self.plain("--tileyard", f"--tileyard-report={report}", *arguments, env=env)

    def plain(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run pytest."""
        options = ("-p", "no:cacheprovider", "-p", "no:randomly", "-W", "error")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *arguments],
            cwd=self.folder,
            env={**self.environment(), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        report = self.folder / "report.json"
        return Ran(
            code=done.returncode,
            text=done.stdout + done.stderr,
            report=json.loads(report.read_text()) if report.exists() else {},
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty tree."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return Tree(tmp_path)


# ---- kernels --------------------------------------------------------------------------------------


def test_kernels_are_built_ahead_once_for_all_tests_and_all_runs(tree: Tree) -> None:
    """Tests get kernels of their parameters, built before; neither equal ones nor a second run builds again."""
    tree.write(
        some_kernels=KERNELS,
        test_scale="""
            import numpy as np, pytest
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

            def test_prepared_elsewhere():
                import tileyard
                for n in (64,):
                    tileyard.compile(scale.get_tir(N=n), out_idx=[-1])

            @pytest.mark.tile_kernel(kernel=scale.get_tir(N=64), out_idx=[-1])
            def test_prim_func(tile_kernel, tile_device):
                with tile_device():
                    assert tile_kernel(np.ones(64, "float32"))[0] == 2.0
        """,
    )
    first = tree.run()
    expected = {"passed": 8, "steps": 4, "holds": 7}
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


def test_failed_steps_fail_their_tests_alone(tree: Tree) -> None:
    """A kernel that can't be built, one that ends its process, and a marker without sense each name their test."""
    tree.write(
        some_kernels=KERNELS,
        test_bad="""
            import os, pytest
            from some_kernels import scale

            def ends():
                os._exit(3)

            @pytest.mark.tile_kernel(kernel=scale, N=64, colour=1)
            def test_unknown(tile_kernel): pass

            @pytest.mark.tile_kernel(kernel=ends, name="ends")
            def test_ends(tile_kernel): pass

            @pytest.mark.tile_kernel("nothing", N=64)
            def test_nameless(tile_kernel): pass

            @pytest.mark.tile_kernel(kernel=scale, N=64)
            def test_called_without_device(tile_kernel):
                tile_kernel(None)

            @pytest.mark.tile_kernel(kernel=scale, N=64)
            def test_good(tile_kernel): pass
        """,
    )
    ran = tree.run()
    expected = 1
    assert ran.code == expected
    assert "scale has no argument 'colour'" in ran.text
    assert "ended with exit code 3" in ran.text
    assert "tile_kernel names 'nothing', which is no parameter of the test" in ran.text
    assert "is called while the test holds no device" in ran.text
    assert ran.outcome("test_good") == "passed"


@pytest.mark.thorough
def test_functions_build_before_the_tests(tree: Tree) -> None:
    """A step that is a plain function runs once for equal parameters and gives its result and directory."""
    tree.write(
        test_flow="""
            import os, pytest

            def build(out, arch):
                (out / "binary").write_text(arch)
                return {"arch": arch, "pid": os.getpid()}

            def breaks(out):
                raise ValueError("no toolchain here")

            def hangs(out):
                import time; time.sleep(60)

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
        """,
    )
    ran = tree.run()
    expected = {"steps": 4, "passed": 4}
    outcomes = [entry["outcome"] for entry in ran.report["tests"]]
    assert ran.code == 1
    assert len(ran.report["steps"]) == expected["steps"]
    assert outcomes.count("passed") == expected["passed"]
    assert "ValueError: no toolchain here" in ran.text
    assert ran.outcome("test_broken") == "compile_error"
    assert ran.outcome("test_hung") == "timeout"


@pytest.mark.thorough
def test_what_tests_compile_in_their_bodies_is_found_by_reading(tree: Tree) -> None:
    """Tests that call ``tileyard.compile`` as ever, there, in a helper or a fixture, find it built."""
    tree.write(
        some_kernels=KERNELS,
        test_bodies="""
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
        """,
    )
    ran = tree.run()
    expected = {"steps": 5, "passed": 6}
    assert ran.code == 0, ran.text
    assert len(ran.report["tests"]) == expected["passed"]
    assert len(ran.report["steps"]) == expected["steps"]
    assert not any(entry["compiled"] for entry in ran.report["tests"])


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


@pytest.mark.thorough
def test_a_test_that_compiles_while_it_runs_fails_by_name(tree: Tree) -> None:
    """By default a kernel that nobody declared is an error of its test, even where that catches it."""
    tree.write(some_kernels=KERNELS, test_dynamic=DYNAMIC)
    ran = tree.run()
    assert ran.code == 1
    assert "test_dynamic.py::test_dynamic compiles main while it runs" in ran.text
    expected = {"test_dynamic": "compile_error", "test_swallowed": "compile_error"}
    assert {name: ran.outcome(name) for name in expected} == expected


@pytest.mark.thorough
def test_dynamic_kernels_hold_a_device_from_their_compilation_on(tree: Tree) -> None:
    """With ``--tileyard-dynamic=lease`` such a test passes, and the ledger says how long it held."""
    tree.write(some_kernels=KERNELS, test_dynamic=DYNAMIC)
    ran = tree.run("--tileyard-dynamic=lease")
    assert ran.code == 0, ran.text
    expected = [True, True]
    assert [hold["dynamic"] for hold in ran.report["holds"]] == expected
    assert "test_dynamic compiled main itself" in ran.text


# ---- devices --------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_leases_are_real_exclusive_and_end_with_their_holder(tree: Tree) -> None:
    """Two tests at a time take turns, a second lease in a block is refused, a killed holder blocks nobody."""
    tree.write(
        test_devices="""
            import os, pathlib, pytest, signal, subprocess, sys

            @pytest.mark.parametrize("number", range(6))
            def test_turns(number, tile_device):
                held = pathlib.Path(__file__).parent / "held"
                with tile_device() as device:
                    held.mkdir()
                    assert os.environ["TILEYARD_LEASE"] == str(device.lease)
                    held.rmdir()
                assert os.environ.get("TILEYARD_LEASE") is None

            def test_nested(tile_device):
                with tile_device(), pytest.raises(Exception, match="holds cpu:0 already"):
                    with tile_device():
                        pass

            def test_nested_outside(tile_device):
                argv = [sys.executable, "-m", "tileyard", "lease", "--device", "cpu", "--", "true"]
                with tile_device():
                    done = subprocess.run(argv, capture_output=True, text=True)
                assert done.returncode == 69
                assert "under a lease of the same device" in done.stderr

            def test_killed(tile_device):
                with tile_device():
                    os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    ran = tree.run("--tileyard-workers=2", "--tileyard-queue-limit=60s")
    expected = {"failed": ["test_killed"], "holds": 9}
    failed = [entry["test"] for entry in ran.report["tests"] if entry["outcome"] != "passed"]
    assert [name.rpartition("::")[2] for name in failed] == expected["failed"], ran.text
    holds = ran.report["holds"]
    assert len(holds) == expected["holds"]
    assert sorted(hold["lease"] for hold in holds) == list(range(1, 1 + len(holds)))
    again = tree.run("-k", "test_turns", "--tileyard-queue-limit=60s")
    assert again.code == 0, again.text


DECLARED = f"""
[[device]]
name = "npu:0"
id = "0000:c1:00.0"
env = {{ MY_NPU = "{{index}}" }}
probe = ["{sys.executable}", "-c", "import pathlib; pathlib.Path('PROBED').touch()"]

[[device]]
name = "npu:1"
id = "0000:c2:00.0"
env = {{ MY_NPU = "{{index}}" }}
"""


@pytest.mark.thorough
def test_accelerators_are_leased_by_class_and_probed_after_a_crash(tree: Tree) -> None:
    """Two tests hold two cards at a time and find them by their variables; one that dies has its card probed."""
    tree.write(
        test_cards="""
            import ctypes, os, pathlib, pytest, time

            @pytest.mark.parametrize("mine, other", [("a", "b"), ("b", "a")])
            def test_both(mine, other, tile_device):
                with tile_device() as device:
                    assert device.name == "npu:" + os.environ["MY_NPU"]
                    pathlib.Path(mine).touch()
                    until = time.monotonic() + 60
                    while not pathlib.Path(other).exists():
                        assert time.monotonic() < until
                        time.sleep(0.01)
                assert "MY_NPU" not in os.environ

            def test_crash(tile_device):
                with tile_device():
                    ctypes.string_at(0)
        """
    )
    etc = tree.folder / "etc"
    etc.mkdir()
    (etc / "devices.toml").write_text(DECLARED.replace("PROBED", str(tree.folder / "probed")))
    env = {"TILEYARD_HOST_CONFIG": str(etc)}
    both = tree.run("--tileyard-device=npu", "--tileyard-workers=2", "-k", "both", env=env)
    assert both.code == 0, both.text
    expected = {"npu:0", "npu:1"}
    assert {use["device"] for use in both.report["devices"]} == expected
    assert not (tree.folder / "probed").exists()
    crash = tree.run("--tileyard-device=npu:0", "-k", "crash", env=env)
    assert crash.outcome("test_crash") == "crashed"
    wait_for(tree.folder / "probed")


@pytest.mark.thorough
def test_no_device_in_time_is_a_queue_timeout(tree: Tree) -> None:
    """A test that gets no device within the queue limit fails and says who has it; its own limit stands still."""
    tree.write(
        test_queue="""
            import pytest

            @pytest.mark.tile_limit("1s")
            def test_waits(tile_device):
                with tile_device():
                    pass
        """,
    )
    argv = [sys.executable, "-m", "tileyard", "lease", "--device", "cpu", "--"]
    script = "echo held; sleep 600"
    with subprocess.Popen(
        [*argv, "/bin/sh", "-c", script], env=tree.environment(), stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        ran = tree.run("--tileyard-queue-limit=1500ms")
        holder.terminate()
    expected = "queue_timeout"
    assert ran.outcome("test_waits") == expected
    assert "no cpu:0 within 1.5 s, held by" in ran.text


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=str)
def test_the_end_of_pytest_gives_the_device_back(tree: Tree, number: signal.Signals) -> None:
    """However pytest is ended while a test holds a device, the test ends too and the next one gets it."""
    tree.write(
        test_holds="""
            import os, pathlib, signal
            def test_holds(tile_device):
                with tile_device():
                    pathlib.Path("pid").write_text(str(os.getpid()))
                    pathlib.Path("held").touch()
                    signal.pause()
        """,
        test_next="""
            def test_next(tile_device):
                with tile_device() as device:
                    assert device.lease == 2
        """,
    )
    argv = [sys.executable, "-m", "pytest", "--tileyard", "-p", "no:cacheprovider", "test_holds.py"]
    with subprocess.Popen(
        argv, cwd=tree.folder, env=tree.environment(), stdout=subprocess.PIPE, text=True
    ) as run:
        wait_for(tree.folder / "held")
        run.send_signal(number)
        text = run.communicate()[0]
    expected = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: int(pytest.ExitCode.INTERRUPTED)}
    assert run.returncode == expected[number], text
    following = tree.run("test_next.py", "--tileyard-queue-limit=60s")
    assert following.code == 0, following.text
    assert not is_alive(tree.folder / "pid")


def wait_for(path: Path) -> None:
    """Return once a file is there."""
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        select.select([], [], [], 0.02)


# ---- processes ------------------------------------------------------------------------------------

ENDS = """
    import ctypes, os, pathlib, pytest, subprocess, sys, time, warnings

    @pytest.fixture(scope="session")
    def shared(tmp_path_factory):
        return tmp_path_factory.mktemp("shared")

    def test_segfault(shared):
        print("about to crash")
        ctypes.string_at(0)

    def test_hang():
        print("about to hang")
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path("left.pid").write_text(str(child.pid))
        time.sleep(600)

    def test_exit():
        os._exit(0)

    def test_abandons_a_child():
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        pathlib.Path("abandoned.pid").write_text(str(child.pid))
        child.returncode = 0

    def test_prints_and_fails():
        print("printed before")
        assert 1 == 2

    def test_teardown_crashes(crashes_at_its_end): pass

    @pytest.fixture
    def crashes_at_its_end():
        yield
        ctypes.string_at(0)

    @pytest.mark.filterwarnings("always")
    def test_warns():
        warnings.warn("take care of this")

    @pytest.mark.skip(reason="not now")
    def test_skipped(): pass

    @pytest.mark.xfail(strict=True)
    def test_expected(): assert 0

    def test_passes(tmp_path, shared, capfd):
        os.system("echo from a child")
        assert capfd.readouterr().out == "from a child\\n"
"""


@pytest.mark.parametrize("options", WAYS_TO_END, ids=str)
def test_every_end_is_its_own(tree: Tree, options: tuple[str, ...]) -> None:
    """A crash, a hang and an early exit fail one test each, with what it printed; all others go on."""
    tree.write(test_ends=ENDS)
    ran = tree.run("--tileyard-limit=2s", "--junitxml=junit.xml", *options)
    expected = {
        "test_segfault": "crashed",
        "test_hang": "timeout",
        "test_exit": "crashed",
        "test_abandons_a_child": "passed",
        "test_prints_and_fails": "mismatch",
        "test_teardown_crashes": "crashed",
        "test_warns": "passed",
        "test_skipped": "skipped",
        "test_expected": "passed",
        "test_passes": "passed",
    }
    assert ran.code == 1
    assert {name: ran.outcome(name) for name in expected} == expected, ran.text
    for text in (
        "died of SIGSEGV",
        "ran past its limit of 2 s, killed with SIGABRT",
        "ended with exit code 0 before it was done",
        "about to crash",
        "about to hang",
        "printed before",
        "take care of this",
        "in test_hang",
        "in test_segfault",
    ):
        assert text in ran.text
    suite = ET.parse(tree.folder / "junit.xml").getroot()[0]
    assert int(suite.attrib["tests"]) >= len(expected)
    assert not is_alive(tree.folder / "left.pid")
    assert not is_alive(tree.folder / "abandoned.pid")


def is_alive(file: Path) -> bool:
    """Whether the process whose pid a file holds is there, and no zombie."""
    try:
        text = Path(f"/proc/{file.read_text()}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.thorough
def test_history_is_kept_and_orders_the_next_run(tree: Tree) -> None:
    """Each test is a trial of target ``pytest``; what took longest, or was never run, comes first next time."""
    tree.write(
        test_times="""
            import time
            def test_a_short(): pass
            def test_b_long(): time.sleep(0.6)
            def test_c_middle(): time.sleep(0.3)
        """
    )
    first = tree.run()
    tree.write(test_new="def test_new(): pass")
    second = tree.run()
    with TrialStore.open(tree.folder / "home") as store:
        trials = store.list_trials(TrialQuery(target="pytest"))
    expected = ["test_new", "test_b_long", "test_c_middle", "test_a_short"]
    assert (first.code, second.code) == (0, 0)
    assert [entry["test"].rpartition("::")[2] for entry in second.report["tests"]] == expected
    assert {trial.case for trial in trials} >= {"test_times.py/test_b_long", "test_new.py/test_new"}
    assert {trial.outcome for trial in trials} == {Outcome.PASSED}


# ---- exit codes -----------------------------------------------------------------------------------

FAILING = """
    import pytest
    @pytest.mark.parametrize("number", range(9))
    def test_fails(number): assert number < 0
    @pytest.mark.parametrize("number", range(9))
    def test_passes(number): pass
"""
LYING = """
    import pytest
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(session):
        session.exitstatus = 0
"""


@pytest.mark.parametrize("options", WAYS_TO_FAIL, ids=str)
def test_failures_never_end_in_zero(tree: Tree, options: tuple[str, ...]) -> None:
    """Whatever stops the run early, and whoever sets the status at its end, failures are told by it."""
    tree.write(test_failing=FAILING, conftest=LYING)
    ran = tree.run(*options)
    expected = 1
    assert ran.code == expected, ran.text


@pytest.mark.thorough
def test_a_dead_worker_never_ends_in_zero(tree: Tree) -> None:
    """A process of pytest-xdist's that dies is a failure, also where nothing else is and somebody lies."""
    tree.write(
        conftest=LYING,
        test_dies="""
            import os, signal
            def test_kills_its_worker():
                os.kill(os.getppid(), signal.SIGKILL)
            def test_passes(): pass
            def test_passes_too(): pass
        """,
    )
    ran = tree.run("-n2", "--max-worker-restart=0")
    expected = 1
    assert ran.code == expected, ran.text
    assert "gw" in ran.text
    assert "died" in ran.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tileyard", "--tileyard-device=abacus:3"), "there is no device 'abacus:3'"),
        (("--tileyard", "--tileyard-limit=soon"), "--tileyard-limit: 'soon' is not a duration"),
        (("--tileyard", "--tileyard-limit=0s"), "--tileyard-limit: '0s' leaves no time"),
        (("--tileyard", "--tileyard-workers=many"), "--tileyard-workers: 'many' is not between"),
        (("--tileyard", "--tileyard-workers=2", "-n2"), "does not go with pytest-xdist's -n"),
        (("--tileyard", "--tileyard-dynamic=maybe"), "'maybe' is neither error nor lease"),
        (("--tileyard", "--tileyard-target=abacus"), "there is no target abacus"),
        (("--tileyard", "--pdb"), "--pdb does not go with --tileyard"),
        (("--tileyard-limit=5s",), "--tileyard-limit needs --tileyard"),
    ],
)
def test_bad_options_are_one_line(tree: Tree, arguments: tuple[str, ...], message: str) -> None:
    """What makes no sense is said in one line, before anything is collected or written, with exit code 4."""
    tree.write(test_nothing="def test_nothing(): pass")
    ran = tree.plain(*arguments)
    expected = 4
    assert ran.code == expected
    assert [message in line for line in ran.text.splitlines()].count(True) == 1
    assert not (tree.folder / "home" / "runs").exists()


def test_a_bad_marker_limit_is_a_usage_error(tree: Tree) -> None:
    """A ``tile_limit`` that is no duration names its test and ends the run with exit code 4."""
    tree.write(
        test_bad="""
            import pytest
            @pytest.mark.tile_limit("soon")
            def test_bad(): pass
        """
    )
    ran = tree.run()
    expected = 4
    assert ran.code == expected, ran.text
    assert "test_bad.py::test_bad: tile_limit: 'soon' is not a duration" in ran.text


# ---- without --tileyard ---------------------------------------------------------------------------


def test_a_run_that_does_not_ask_for_it_is_left_alone(tree: Tree) -> None:
    """Without ``--tileyard`` nothing of Tileyard but the entry is loaded, and nothing is written."""
    tree.write(
        test_plain="""
            import os, sys
            def test_modules():
                loaded = sorted(name for name in sys.modules if name.startswith("tileyard"))
                assert loaded == ["tileyard", "tileyard.pytest_plugin", "tileyard.pytest_plugin.entry"]
                assert os.getppid() == int(os.environ["STARTED_BY"])
        """
    )
    ran = tree.plain(env={"STARTED_BY": str(os.getpid())})
    assert ran.code == 0, ran.text
    expected = {"pytest.ini", "test_plain.py"}
    assert {path.name for path in tree.folder.iterdir()} - {"__pycache__"} == expected


def test_fixtures_say_that_they_need_the_option(tree: Tree) -> None:
    """A test with our fixtures fails without ``--tileyard``, and says what is missing."""
    tree.write(test_device="def test_device(tile_device): pass")
    ran = tree.plain()
    assert ran.code == 1
    assert "the fixture tile_device needs `pytest --tileyard`" in ran.text


# ---- the whole ------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tests", "options"), [(60, "--tileyard-workers=2"), (10, "-n2")], ids=["alone", "xdist"]
)
def test_a_tree_holds_the_device_for_a_tenth_of_the_time(
    tree: Tree, tests: int, options: str
) -> None:
    """Each test has a kernel of its own: builds overlap, and the ledger has under 10 % of the wall time."""
    spec = importlib.util.spec_from_file_location("pytest_tree", ROOT / "benchmarks/pytest_tree.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    benchmark.make_tree(tree.folder / "tree", tests)
    ran = tree.run("tree", options)
    expected = {"share": 0.1, "at_once": min(2, len(os.sched_getaffinity(0)))}
    report = ran.report
    assert ran.code == 0, ran.text
    assert [entry["outcome"] for entry in report["tests"]] == ["passed"] * tests
    assert len(report["holds"]) == len(report["steps"]) == tests
    assert not any(step["reused"] for step in report["steps"])
    assert report["most_builds_at_once"] >= expected["at_once"]
    (device,) = report["devices"]
    assert device["share"] < expected["share"]
