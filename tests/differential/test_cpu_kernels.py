"""Our kernels, from TileLang through the CPU target, against NumPy."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.samples import choose_cases, list_contents, sampled

from tileyard.base.errors import KernelFault
from tileyard.base.model import Device
from tileyard.ir.printer import print_program
from tileyard.targets.base import KnowsLines
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import load_program


def _load_examples() -> ModuleType:
    """The examples that the interpreter is tried on."""
    path = Path(__file__).with_name("test_kernels.py")
    spec = importlib.util.spec_from_file_location("interpreted_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_EXAMPLES = _load_examples()
_TARGET = CpuTarget()
_SANITIZED = CpuTarget("native,sanitize=1")
SAMPLE = (
    *("functions", "integers", "collatz", "gelu", "scale in place", "columns", "places"),
    *(
        "gemm, bfloat16",
        "attention, causal",
        "dynamic linear",
        "roles, gemm_three_roles",
        "dot rows",
    ),
)
"""Kernels that together have everything which any of them has."""


@pytest.mark.slow
def test_the_sample_has_everything(
    kernels: Callable[[str], ModuleType], lower_prim_func: Callable[..., Any]
) -> None:
    """Each operation, scalar type and statement of any kernel is in one of the sample."""
    contents: dict[str, set[str]] = {}
    for name, example in _EXAMPLES.EXAMPLES.items():
        function = getattr(kernels(example.file), example.kernel)
        func = function.get_tir(**example.arguments)
        contents[name] = list_contents(lower_prim_func(func, function.out_idx).program)
    missing = set().union(*contents.values()).difference(*(contents[name] for name in SAMPLE))
    assert not missing, f"{missing}: a sample is {choose_cases(contents)}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(_EXAMPLES.EXAMPLES, SAMPLE))
def test_compiled_kernel_agrees_with_its_reference(
    name: str,
    kernels: Callable[[str], ModuleType],
    lower_prim_func: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Every kernel computes on the CPU what its NumPy reference does."""
    _compare(_TARGET, name, kernels, lower_prim_func, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sampled(_EXAMPLES.EXAMPLES, ("dynamic linear", "roles, gemm_three_roles"))
)
def test_sanitized_kernel_agrees_with_its_reference(
    name: str,
    kernels: Callable[[str], ModuleType],
    lower_prim_func: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """And no kernel reads what it has not written."""
    _compare(_SANITIZED, name, kernels, lower_prim_func, tmp_path)


def _compare(
    target: CpuTarget,
    name: str,
    kernels: Callable[[str], ModuleType],
    lower_prim_func: Callable[..., Any],
    tmp_path: Path,
) -> None:
    example = _EXAMPLES.EXAMPLES[name]
    module = kernels(example.file)
    function = getattr(module, example.kernel)
    lowered = lower_prim_func(function.get_tir(**example.arguments), function.out_idx)
    arrays = _EXAMPLES.inputs(example)
    expected = getattr(module, example.reference)(*arrays, *example.scalars, **example.options)
    cores = tuple(sorted(os.sched_getaffinity(0)))[:1]
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    launch = load_program(target, device, lowered.program, tmp_path).bind(arrays, example.scalars)
    launch.run()
    (got,) = launch.read()
    np.testing.assert_allclose(
        got.astype(np.float64),
        expected.astype(np.float64),
        rtol=example.rtol,
        atol=example.atol,
        err_msg=print_program(lowered.program),
    )


@pytest.mark.slow
def test_a_deadlock_names_both_lines_that_wait(
    kernels: Callable[[str], ModuleType], lower_prim_func: Callable[..., Any], tmp_path: Path
) -> None:
    """It ends as the kernel's own fault, and at once."""
    module = kernels("roles")
    lowered = lower_prim_func(module.deadlocked.get_tir(N=96), module.deadlocked.out_idx)
    lines = Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if "def deadlocked" in line)
    waits = [i for i, line in enumerate(lines[start:], start + 1) if "T.barrier_wait(" in line]
    said = [
        f".*roles.py:{line}: deadlock: nothing ends the wait for {barrier}"
        for line, barrier in zip(waits, ("free", "full"), strict=True)
    ]
    expected = "; ".join(said)
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=(0,))
    loaded = load_program(_TARGET, device, lowered.program, tmp_path)
    assert isinstance(loaded, KnowsLines)
    loaded.know_lines(lowered.lines)
    launch = loaded.bind([np.ones(96, np.float32)], ())
    with pytest.raises(KernelFault, match=expected):
        launch.run()
