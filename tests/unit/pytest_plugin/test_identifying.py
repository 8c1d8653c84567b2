"""What the result of a function's compile step depends on."""

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tileyard.artifacts.footprint import describe_changes
from tileyard.artifacts.objects import ObjectStore
from tileyard.pytest_plugin.far_records import Declared, FunctionStep
from tileyard.pytest_plugin.identifying import Identity, StepReader

BUILDERS = """
import os
import step_tools.parts

PLACE = [os.sep]

def build(out, arch):
    return open(os.environ["NAMED"]), PLACE
"""
ENV = {"PATH": "/usr/bin:/bin", "MODE": "sim", "NAMED": "a", "OTHER": "1"}


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FunctionStep]:
    """A step of a small tree that declares what it depends on."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "builders_of_a_step.py": BUILDERS,
        "step_tools/__init__.py": "",
        "step_tools/parts.py": "PARTS = 1\n",
        "csrc/in/a.c": "int a;\n",
        "csrc/b.h": "int b;\n",
        "bin/tool": "#!/bin/sh\n",
        "conftest.py": "",
        "cases_of_a_step.py": "import subprocess\nclass Case:\n    def go(self): return 1\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    module = importlib.import_module("builders_of_a_step")
    declared = Declared(
        root=tmp_path, inputs=("csrc/**",), runs=("tool", "sh"), env=("MODE", "SET=1")
    )
    yield FunctionStep(
        id="x", function=module.build, values={"arch": "a"}, limit_s=1.0, declared=declared
    )
    for name in ("builders_of_a_step", "cases_of_a_step", "step_tools", "step_tools.parts"):
        sys.modules.pop(name, None)


def identify(step: FunctionStep, **changed: str) -> Identity:
    """By a process that knows nothing yet."""
    assert step.declared is not None
    root = step.declared.root
    env = {**ENV, **changed}
    reader = StepReader(root / "home", {**env, "PATH": f"{root / 'bin'}:{env['PATH']}"})
    return reader.identify(step)


def declare(step: FunctionStep, **changed: tuple[str, ...] | None) -> FunctionStep:
    """The same step with another declaration."""
    assert step.declared is not None
    return replace(step, declared=replace(step.declared, **changed))


def write(name: str) -> Callable[[FunctionStep], FunctionStep]:
    """Change a file of the tree."""

    def change(step: FunctionStep) -> FunctionStep:
        with Path(name).open("a") as file:
            file.write("\n")
        return step

    return change


def set_global(step: FunctionStep) -> FunctionStep:
    """What a module worked out when it was imported is different, and its text is not."""
    step.function.__globals__["PLACE"].append("more")
    return step


def with_case(step: FunctionStep) -> FunctionStep:
    """A value whose class is code of another module, which starts programs."""
    case = importlib.import_module("cases_of_a_step").Case()
    return replace(step, values={"arch": case})


CHANGES: Mapping[str, Callable[[FunctionStep], FunctionStep]] = {
    "inputs csrc/**": write("csrc/in/a.c"),
    "module builders_of_a_step.py": write("builders_of_a_step.py"),
    "module step_tools/parts.py": write("step_tools/parts.py"),
    "module conftest.py": write("conftest.py"),
    "program tool": write("bin/tool"),
    "arguments": lambda step: replace(step, values={"arch": "b"}),
    "function": set_global,
    "what is declared": lambda step: declare(step, env=("MODE", "SET=2")),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", CHANGES)
def test_each_part_of_it_counts(step: FunctionStep, part: str) -> None:
    """A change gives another key, and the part that changed is named."""
    before = identify(step)
    now = identify(CHANGES[part](step))
    objects = ObjectStore(Path("home") / "objects")
    changed = describe_changes(before.footprint, now.footprint, objects)
    assert before.problem == now.problem == ""
    assert before.key != now.key
    assert part in changed


@pytest.mark.slow
def test_a_function_gets_only_the_variables_that_count(step: FunctionStep) -> None:
    """Those that are declared, usual, or named by code of its tree; no other is part of the key."""
    before = identify(step)
    expected = {"MODE": "sim", "NAMED": "a", "SET": "1"}
    assert {name: text for name, text in before.env.items() if name != "PATH"} == expected
    keys = {identify(step, **{name: "2"}).key for name in ("MODE", "NAMED", "LC_ALL", "CUDA_HOME")}
    assert len(keys - {before.key}) == 4
    assert identify(step, OTHER="2").key == before.key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda step: declare(step, inputs=("src/*.c",)), "inputs 'src/*.c': there is no such"),
        (lambda step: declare(step, runs=("gone",)), "there is no program gone"),
        (lambda step: replace(step, values={"arch": threading.Lock()}), "its arguments cannot"),
        (lambda step: replace(step, function=os.getpid), "its function is not in the tree"),
        (lambda step: declare(step, runs=None), ""),
        (lambda step: declare(with_case(step), runs=None), "can start other programs"),
    ],
)
def test_what_cannot_be_told_has_no_key(
    step: FunctionStep, change: Callable[[FunctionStep], FunctionStep], problem: str
) -> None:
    """And a reason instead."""
    found = identify(change(step))
    assert problem in found.problem
    assert (found.key == "") == bool(problem)
