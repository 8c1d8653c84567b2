"""What a change is tested with: test files' imports, records of tests, and the choice between them."""

from pathlib import Path

import numpy as np
import pytest
from tests.chosen import Chosen
from tools.closures import Closures, find_imports
from tools.quick import Choice, is_named_after, list_modules
from tools.recorded import CoveringTest, Recorded, cover, read_recorded, settle, write_recorded

FOLDED = Path("tests/unit/ir/test_ranges.py")


def test_imports_for_type_checkers_do_not_count() -> None:
    """What only type checkers import is not needed by tests; its ``else`` is."""
    text = "if TYPE_CHECKING:\n    import tileyard.ir\nelse:\n    import tileyard.sync\n"
    assert find_imports(text, "tests.unit") == {"tileyard", "tileyard.sync"}


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("def f():\n    from tileyard.ir import ranges\n", "tileyard.ir.ranges"),
        ("HOMES = {'cpu': 'tileyard.targets.cpu.target:CpuTarget'}", "tileyard.targets.cpu.target"),
        ("from tileyard import kernel", "tileyard.frontend.declare"),
        ("import tileyard\ntileyard.tuned(1)", "tileyard.api.dispatch"),
        ("from . import targets", "tileyard.testing.targets"),
        ("from tests.conftest import CommandLine", "tests.in_process"),
        ("match 1:\n    case 1:\n        import tileyard.base.model\n", "tileyard.base.model"),
    ],
)
def test_modules_are_found_however_they_are_named(text: str, module: str) -> None:
    """Imports within functions, names as text, public names and relative imports are those of modules."""
    assert module in find_imports(text, "tileyard.testing")


def test_a_closure_holds_what_is_imported_through_others() -> None:
    """A test file needs what its imports import, farther away, and no module of a room above these."""
    distances = Closures().measure(FOLDED)
    assert distances["tileyard.ir.ranges"] == 1
    assert distances["tileyard.base.errors"] > 1
    assert "tileyard.engine.driver" not in distances


def test_files_with_commands_can_reach_anything() -> None:
    """What a file of commands imports does not tell what it runs."""
    closures = Closures()
    assert closures.reaches_anything(Path("tests/e2e/test_run.py"))
    assert not closures.reaches_anything(FOLDED)


def test_a_header_stands_for_the_modules_beside_its_folder() -> None:
    """A changed file that is no module selects the nearest modules; one outside the source for none."""
    found = list_modules([Path("src/tileyard/targets/cpu/headers/floats.h"), Path("README.md")])
    assert "tileyard.targets.cpu.target" in found
    assert "tileyard.targets.registry" not in found


def test_the_first_test_covers_most_lines_per_second() -> None:
    """A cheap test goes before a dear one that runs the same lines, and one that adds nothing is left out."""
    ran = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 0]], bool)
    assert cover(ran, [(1.0, ()), (10.0, ()), (1.0, ())], {}) == [(0, 3), (1, 2)]


def test_what_tests_share_is_paid_once() -> None:
    """A test is cheap where another one has already paid for what both need."""
    ran = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]], bool)
    costs = [(1.0, ["run"]), (0.1, ["run"]), (4.0, [])]
    assert [index for index, _ in cover(ran, costs, {"run": 5.0})] == [0, 1, 2]


def test_costs_stay_what_they_were_until_they_differ() -> None:
    """A cost that is measured again is only changed where it is another one."""
    assert settle(1.234, 1.1) == 1.1
    assert settle(2.345, 1.1) == 2.3
    assert settle(0.0, None) == 0.05


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The file keeps all that is recorded; without a file nothing is."""
    recorded = Recorded(
        shared={"warm tileyard": 4.0},
        files={"tests/unit/test_a.py": 0.5},
        whole_files={"tests/unit/test_a.py": 7.5},
        tests={
            "tests/e2e/test_b.py::test": CoveringTest(1.0, ("warm tileyard",), {"base.model": 3})
        },
    )
    write_recorded(recorded, tmp_path / "recorded.json")
    assert read_recorded(tmp_path / "recorded.json") == recorded
    assert read_recorded(tmp_path / "none.json") == Recorded()


def choose(tests: dict[str, CoveringTest], left_s: float) -> Choice:
    """A choice among recorded tests of one existing file, for a change of ``model.py``."""
    named = {f"{FOLDED}::{name}": test for name, test in tests.items()}
    choice = Choice(Recorded(shared={"run": 5.0}, tests=named), Closures(), left_s)
    choice.take_covering({"tileyard.base.model"}, processes=1)
    return choice


def test_recorded_tests_are_chosen_by_lines_per_second() -> None:
    """The tests that cover most of a changed module for their seconds are chosen, as far as seconds reach."""
    tests = {
        "dear": CoveringTest(40.0, (), {"base.model": 30}),
        "cheap": CoveringTest(1.0, (), {"base.model": 10}),
        "other": CoveringTest(1.0, (), {"events": 90}),
    }
    assert choose(tests, 30.0).tests == [f"{FOLDED}::cheap"]
    assert choose(tests, 50.0).tests == [f"{FOLDED}::cheap", f"{FOLDED}::dear"]


def test_the_nearest_quick_tests_are_chosen_first() -> None:
    """Of test files that import a changed module, those named after it come first, then indirect ones."""
    far = Path("tests/unit/verbs/doctor/plan/test_findings.py")
    choice = Choice(Recorded(files={str(FOLDED): 1.0, str(far): 1.0}), Closures(), 1.5)
    choice.take_importing({"tileyard.ir.ranges"}, [far, FOLDED], limit_s=9.0)
    assert choice.files == [str(FOLDED)]


def test_a_changed_test_file_runs_as_far_as_seconds_reach() -> None:
    """All its tests run, or only the quick ones where the others are too dear."""
    recorded = Recorded(files={str(FOLDED): 1.0}, whole_files={str(FOLDED): 90.0})
    few, many = (Choice(recorded, Closures(), left_s) for left_s in (50.0, 100.0))
    few.take_changed([FOLDED])
    many.take_changed([FOLDED])
    assert (few.whole, few.files) == ([], [str(FOLDED)])
    assert (many.whole, many.files) == ([str(FOLDED)], [])


def test_a_test_file_is_named_after_its_module() -> None:
    """The mirror of a module in ``tests/unit/`` has its room and begins with its name."""
    assert is_named_after(Path("tests/unit/ir/test_ranges.py"), "tileyard.ir.ranges")
    assert not is_named_after(Path("tests/unit/ir/test_ranges.py"), "tileyard.sync.fold")


def test_only_chosen_tests_run() -> None:
    """Whole files run with slow tests, others without, and named tests with all parameters or one."""
    chosen = Chosen(("a.py",), ("b.py",), ("c.py::test", "d.py::test[1]"))
    assert chosen.has("a.py::any", is_slow=True)
    assert chosen.has("b.py::any", is_slow=False)
    assert not chosen.has("b.py::any", is_slow=True)
    assert chosen.has("c.py::test[7]", is_slow=True)
    assert not chosen.has("d.py::test[2]", is_slow=False)
