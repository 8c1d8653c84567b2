"""Compile steps as tests declare them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tileyard.frontend.declare import kernel
from tileyard.pytest_plugin.declared import DeclaredSteps
from tileyard.pytest_plugin.far_records import Declared, FunctionStep, KernelStep


@kernel
def scale(N: int, factor: float = 2.0) -> object:  # noqa: N803 - as kernels are written
    """A kernel that is never elaborated here."""
    raise AssertionError


def build(out: Path, arch: str) -> None:
    """A step that is never called here."""


def item(name: str, *markers: pytest.MarkDecorator, **params: object) -> Any:  # noqa: ANN401 - pytest's
    """A test with markers, the nearest first, and parameters."""
    marks = [marker.mark for marker in markers]
    return SimpleNamespace(
        nodeid=f"t.py::{name}",
        callspec=SimpleNamespace(params=params),
        config=SimpleNamespace(rootpath=Path("/tree")),
        iter_markers=lambda kind: [mark for mark in marks if mark.name == kind],
        ihook=SimpleNamespace(pytest_tileyard_compile_steps=lambda item: []),
    )


def declare(*items: Any) -> DeclaredSteps:  # noqa: ANN401 - pytest's
    """Read them."""
    return DeclaredSteps(items, "cpu", 300.0)


def arguments_of(steps: DeclaredSteps) -> list[object]:
    """The values of all steps."""
    return [
        step.arguments if isinstance(step, KernelStep) else step.values
        for step in steps.steps.values()
    ]


def test_values_come_from_the_marker_and_the_tests_own_parameters() -> None:
    """The marker's count more; parameters that the kernel does not have are the test's own affair."""
    marker = pytest.mark.tile_kernel(kernel=scale, factor=3.0)
    steps = declare(item("a", marker, N=64, factor=1.0, seed=5))
    expected = [{"N": 64, "factor": 3.0}]
    assert arguments_of(steps) == expected
    assert steps.refusals == {}


def test_equal_steps_are_one() -> None:
    """Tests that need the same share a step, whatever else they are parametrised by."""
    marker = pytest.mark.tile_kernel(kernel=scale)
    flow = pytest.mark.tile_compile(function=build)
    steps = declare(
        item("a", marker, N=64, seed=1),
        item("b", marker, N=64, seed=2),
        item("c", flow, arch="x", seed=1),
        item("d", flow, arch="x", seed=2),
        item("e", flow, arch="y"),
    )
    expected = [{"N": 64}, {"arch": "x"}, {"arch": "y"}]
    assert arguments_of(steps) == expected
    assert steps.kernels["t.py::a"] == steps.kernels["t.py::b"]


def test_ids_do_not_depend_on_the_order_of_tests() -> None:
    """Processes that have the tests in different orders name the steps alike."""
    marker = pytest.mark.tile_kernel(kernel=scale)
    tests = [item(name, marker, N=64) for name in "abc"]
    expected = ["t.py::a#tile_kernel:scale"]
    assert list(declare(*tests).steps) == list(declare(*reversed(tests)).steps) == expected


def test_a_nearer_marker_of_the_same_name_counts() -> None:
    """A test's own marker replaces its class's."""
    near, far = (pytest.mark.tile_kernel(kernel=scale, N=n) for n in (1, 2))
    steps = declare(item("a", near, far))
    named = steps.kernels["t.py::a"]
    expected = {"N": 1}
    step = steps.steps[named["scale"]]
    assert isinstance(step, KernelStep)
    assert step.arguments == expected


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (pytest.mark.tile_kernel(N=64), "takes one kernel, not 0"),
        (pytest.mark.tile_kernel("which", N=64), "'which', which is not a parameter of the test"),
        (pytest.mark.tile_kernel(kernel=3), "3 is not a kernel"),
        (pytest.mark.tile_kernel(kernel=scale, N=object()), "cannot be a value"),
        (pytest.mark.tile_kernel(kernel=scale, arguments=3), "arguments must be a mapping"),
        (pytest.mark.tile_kernel(kernel=scale, out_idx="last"), "out_idx must be positions"),
        (
            pytest.mark.tile_kernel(kernel=scale, check_sync="yes"),
            "check_sync is True, False or None",
        ),
        (pytest.mark.tile_compile(functon=build), "no function=, but functon= (did you mean"),
        (pytest.mark.tile_compile(function=3), "takes a function, not 3"),
        (pytest.mark.tile_compile(function=build, limit="soon"), "'soon' is not a duration"),
        (pytest.mark.tile_compile(function=build, runs="make"), "runs takes a list of texts, not"),
        (pytest.mark.tile_compile(function=build, inputs=[3]), "inputs takes a list of texts, not"),
    ],
)
def test_markers_without_sense_refuse_their_test_alone(
    marker: pytest.MarkDecorator, message: str
) -> None:
    """What is wrong is said of the test; the others have their steps."""
    good = pytest.mark.tile_kernel(kernel=scale, N=1)
    steps = declare(item("bad", marker), item("good", good))
    expected = {"t.py::bad"}
    assert set(steps.refusals) == expected
    assert message in steps.refusals["t.py::bad"]
    assert "t.py::good" in steps.kernels


def test_steps_that_declare_different_things_are_two() -> None:
    """What is declared is part of a step; one that declares nothing has none."""
    plain, declared, other = (
        pytest.mark.tile_compile(function=build, arch="x", **given)
        for given in ({}, {"inputs": ["a.c"]}, {"inputs": ["a.c"], "runs": []})
    )
    steps = declare(item("a", plain), item("b", declared), item("c", other), item("d", declared))
    found = [step.declared for step in steps.steps.values() if isinstance(step, FunctionStep)]
    root = Path("/tree")
    expected = [
        None,
        Declared(root=root, inputs=("a.c",)),
        Declared(root=root, inputs=("a.c",), runs=()),
    ]
    assert found == expected


def test_arguments_may_be_made_of_the_tests_parameters() -> None:
    """A function gets those that it names."""
    make: Callable[[int], dict[str, int]] = lambda size: {"N": 2 * size}  # noqa: E731 - as users write it
    steps = declare(item("a", pytest.mark.tile_kernel(kernel=scale, arguments=make), size=8))
    expected = [{"N": 16}]
    assert arguments_of(steps) == expected
    assert not any(isinstance(step, FunctionStep) for step in steps.steps.values())
