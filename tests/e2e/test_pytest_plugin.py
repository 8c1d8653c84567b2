"""``pytest --tileyard``: tests in processes of their own, exit codes, and runs that do without it."""

import os
import xml.etree.ElementTree as ET

import pytest
from tests.e2e.pytest_tree import Tree, is_alive
from tests.samples import sampled

from tileyard.base.model import Outcome
from tileyard.store.trials import TrialQuery, TrialStore

pytestmark = pytest.mark.slow

# ---- processes ------------------------------------------------------------------------------------

ENDS = """
    import ctypes, os, pathlib, pytest, signal, subprocess, sys, time, warnings

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

    def test_kills_its_parent():
        os.kill(os.getppid(), signal.SIGKILL)

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


WORKERS, XDIST = "--tileyard-workers=3", "-n2"


@pytest.mark.parametrize("options", sampled(["", WORKERS, XDIST], [WORKERS, XDIST]))
def test_every_end_is_its_own(tree: Tree, options: str) -> None:
    """A crash, a hang and an early exit fail one test each, with what it printed; all others go on."""
    tree.write(test_ends=ENDS)
    ran = tree.run("--tileyard-limit=2s", "--junitxml=junit.xml", *options.split())
    expected = {
        "test_segfault": "crashed",
        "test_hang": "timeout",
        "test_exit": "crashed",
        "test_kills_its_parent": "crashed",
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
        "the test's process ended because its parent was killed",
        "about to crash",
        "about to hang",
        "printed before",
        "take care of this",
        "in test_hang",
        "in test_segfault",
        "1 warning",
    ):
        assert text in ran.text
    suite = ET.parse(tree.folder / "junit.xml").getroot()[0]
    assert int(suite.attrib["tests"]) >= len(expected)
    assert not is_alive(tree.folder / "left.pid")
    assert not is_alive(tree.folder / "abandoned.pid")


SUBTESTS = """
    import os, unittest

    class TestCase(unittest.TestCase):
        def test_case(self):
            for number in range(3):
                with self.subTest("case", number=number):
                    self.assertNotEqual(number, 1)

    def test_fixture(subtests):
        for number in range(3):
            with subtests.test("fixture", number=number):
                assert number != 1

    def test_passes(subtests):
        with subtests.test():
            pass
"""


def test_subtests_are_reported_as_ever(tree: Tree) -> None:
    """Each is a report of its own, with its own outcome; a crash between two of them fails its test alone."""
    tree.write(test_sub=SUBTESTS)
    ran = tree.run("-v", "-rA")
    plain = tree.warm_run("-v", "-rA")
    for text in (
        "SUBFAILED[case]",
        "SUBFAILED[fixture]",
        "FAILED test_sub.py::test_fixture - contains 1 failed subtest",
        "3 failed, 2 passed, 5 subtests passed",
    ):
        assert text in ran.text
        assert text in plain.text
    expected = {"test_case": "mismatch", "test_fixture": "mismatch", "test_passes": "passed"}
    assert {name: ran.outcome(name) for name in expected} == expected
    crash = '\n    with subtests.test("fixture"):\n        pass\n    os.abort()'
    tree.write(test_sub=f"import os\ndef test_crash(subtests):{crash}")
    ran = tree.run("-v")
    assert "1 failed, 1 subtests passed" in ran.text
    assert ran.outcome("test_crash") == "crashed"


def test_history_is_kept_and_orders_the_next_run(tree: Tree) -> None:
    """Each test is a trial of target ``pytest``; what took longest or was never run comes first next time."""
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


@pytest.mark.parametrize(
    "options", sampled(["", "--maxfail=2", "-n2 --maxfail=2"], ["--maxfail=2"])
)
def test_failures_never_end_in_zero(tree: Tree, options: str) -> None:
    """Whatever stops the run early, and whoever sets the status at its end, failures are told by it."""
    tree.write(test_failing=FAILING, conftest=LYING)
    ran = tree.run(*options.split())
    expected = 1
    assert ran.code == expected, ran.text


def test_a_dead_worker_never_ends_in_zero(tree: Tree) -> None:
    """A process of pytest-xdist's that dies is a failure, also where nothing else is and somebody lies."""
    tree.write(
        conftest=LYING,
        test_dies="""
            import os, signal
            WORKER = os.getpid()
            def test_kills_its_worker():
                os.kill(WORKER, signal.SIGKILL)
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
        (
            ("--tileyard", "--tileyard-limit=0s"),
            "--tileyard-limit: '0s': the limit must be longer than 0",
        ),
        (("--tileyard", "--tileyard-workers=many"), "--tileyard-workers: 'many' is not between"),
        (
            ("--tileyard", "--tileyard-workers=2", "-n2"),
            "cannot be combined with pytest-xdist's -n",
        ),
        (("--tileyard", "--tileyard-dynamic=maybe"), "'maybe' is not one of error, lease, prepare"),
        (("--tileyard", "--tileyard-target=abacus"), "there is no target abacus"),
        (("--tileyard", "--pdb"), "--pdb cannot be combined with --tileyard"),
        (
            ("--tileyard", "--tileyard-report=test_nothing.py/r.json"),
            "cannot write test_nothing.py/",
        ),
        (("--tileyard-limit=5s",), "--tileyard-limit needs --tileyard"),
    ],
)
def test_bad_options_are_one_line(tree: Tree, arguments: tuple[str, ...], message: str) -> None:
    """What makes no sense is said in one line, before anything is collected or written, with exit code 4."""
    tree.write(test_nothing="def test_nothing(): pass")
    ran = tree.warm_run(*arguments)
    expected = 4
    assert ran.code == expected
    assert [message in line for line in ran.text.splitlines()].count(True) == 1
    assert not (tree.folder / "home" / "runs").exists()


def test_a_bad_marker_limit_is_a_usage_error(tree: Tree) -> None:
    """A ``tile_limit`` that is not a duration names its test and ends the run with exit code 4."""
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
                room = [f"tileyard.pytest_plugin{module}" for module in ("", ".entry", ".flags")]
                assert loaded == ["tileyard", *room]
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
    ran = tree.warm_run()
    assert ran.code == 1
    assert "the fixture tile_device needs `pytest --tileyard`" in ran.text
