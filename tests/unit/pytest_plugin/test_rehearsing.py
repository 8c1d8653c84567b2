"""Which tests run ahead."""

from types import SimpleNamespace
from typing import Any

from tileyard.pytest_plugin.declared import DeclaredSteps
from tileyard.pytest_plugin.far_records import StepResult
from tileyard.pytest_plugin.rehearsing import choose_tests


def item(name: str, *fixtures: str) -> Any:  # noqa: ANN401 - pytest's
    """A test that asks for fixtures."""
    return SimpleNamespace(nodeid=f"t.py::{name}", fixturenames=fixtures)


def test_tests_run_ahead_whose_compilations_are_not_all_known() -> None:
    """Those that hold a device or are worth reading, without a step or a complete reading."""
    declared = DeclaredSteps((), "cpu", 300.0)
    names = ("found", "partly", "nothing")
    declared.bodies = {f"t.py::{name}": [f"t.py::{name}#body:0"] for name in names}
    declared.kernels = {"t.py::marked": {"k": "t.py::marked#tile_kernel:k"}}
    declared.functions = {"t.py::called": {"f": "t.py::called#tile_compile:f"}}
    declared.refusals = {"t.py::refused": "its compile step makes no sense"}
    results = [
        StepResult(step="t.py::found#body:0:0"),
        StepResult(step="t.py::partly#body:0:0"),
        StepResult(step="t.py::partly#body:0:tilelang:0", is_partial=True),
    ]
    items = [
        *(item(name) for name in names),
        *(item(name, "tile_device") for name in ("marked", "called", "refused", "unread")),
        item("plain", "tmp_path"),
    ]
    chosen = choose_tests(reversed(items), declared, {result.step: result for result in results})
    expected = ["t.py::nothing", "t.py::partly", "t.py::unread"]
    assert [one.nodeid for one in chosen] == expected
