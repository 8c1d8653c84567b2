"""The corpus: correct kernels give what they should, and mistakes and mutants are kernels still."""

import ast
import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from tests.differential.conftest import load_module
from tests.sync.cases import CASES, NOT_LOWERED
from tests.sync.mistakes import MISTAKES, SOURCE, Kind, Mistake, alone
from tests.sync.mutants import Mutant, equivalent, mutants

from tileyard.errors import UnsupportedError
from tileyard.ir.interpret import interpret

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

pytestmark = pytest.mark.slow

Lower = Callable[..., "Lowered"]
MUTANTS = [mutant for kernel in CASES for mutant in mutants(SOURCE, kernel)]


def load(text: str, folder: Path) -> ModuleType:
    """A module with this text; TileLang looks for a kernel's source in its file."""
    path = folder / "edited.py"
    path.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return load_module(path)


def lower_kernel(
    lower: Lower, text: str, kernel: str, folder: Path, arguments: dict[str, int]
) -> "Lowered | None":
    """A kernel of this text, elaborated and lowered; None where the frontend refuses it so far."""
    function = getattr(load(alone(text, kernel), folder), kernel)
    tir = function.get_tir(**arguments)
    if kernel not in NOT_LOWERED:
        return lower(tir, function.out_idx)
    try:
        return lower(tir, function.out_idx)
    except UnsupportedError as error:
        assert NOT_LOWERED[kernel] in str(error)  # noqa: PT017 (an edit may have taken away what is refused)
        return None


def assert_right(lowered: "Lowered", kernel: str) -> None:
    """What the interpreter makes is what NumPy makes."""
    case = CASES[kernel]
    inputs = case.make(np.random.default_rng(5))
    found = interpret(lowered.program, inputs)
    for got, expected in zip(found, case.expect(*inputs), strict=True):
        assert np.allclose(got.astype(np.float32), expected, rtol=1e-5, atol=1e-5)


def test_every_kernel_is_a_case() -> None:
    """No kernel of the file is forgotten."""
    kernels = [node.name for node in ast.parse(SOURCE).body if isinstance(node, ast.FunctionDef)]
    assert kernels == list(CASES)
    assert {mistake.kernel for mistake in MISTAKES} == set(CASES)


@pytest.mark.parametrize("kernel", [name for name in CASES if name not in NOT_LOWERED])
def test_a_correct_kernel_gives_what_it_should(
    lower_prim_func: Lower, tmp_path: Path, kernel: str
) -> None:
    """Nothing of it is given up, and its result is that of NumPy."""
    case = CASES[kernel]
    lowered = lower_kernel(lower_prim_func, SOURCE, kernel, tmp_path, {**case.arguments})
    assert lowered is not None
    assert lowered.given_up == ()
    assert_right(lowered, kernel)


@pytest.mark.parametrize("kernel", list(NOT_LOWERED))
def test_a_kernel_that_is_refused_is_refused_by_name(
    lower_prim_func: Lower, tmp_path: Path, kernel: str
) -> None:
    """Once it is lowered, it belongs to the others."""
    case = CASES[kernel]
    assert lower_kernel(lower_prim_func, SOURCE, kernel, tmp_path, {**case.arguments}) is None


def test_mistakes_are_many_and_of_all_kinds() -> None:
    """Every kind is planted at several places, under names that differ."""
    kinds = Counter(mistake.kind for mistake in MISTAKES)
    assert set(kinds) == set(get_args(Kind))
    assert min(kinds.values()) >= 4
    assert len({(mistake.kernel, mistake.name) for mistake in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: f"{one.kernel}, {one.name}")
def test_a_mistake_can_be_planted(lower_prim_func: Lower, tmp_path: Path, mistake: Mistake) -> None:
    """Its edit applies exactly once, the kernel is one still, and the lines that a finding may name are in it."""
    edited = mistake.apply(SOURCE)
    assert edited != SOURCE
    lines = mistake.lines(edited)
    assert lines
    arguments = {**CASES[mistake.kernel].arguments, **mistake.arguments}
    lower_kernel(lower_prim_func, edited, mistake.kernel, tmp_path, arguments)
    # ---- THE CHECKER IS TO BE CALLED HERE ----------------------------------------------------
    # findings = check(lowered.written, lowered.written_lines) of what lower_kernel returned: one of them has a
    # kind among (mistake.kind, *mistake.also) and one of ``lines`` among its lines.


def test_mutants_keep_their_lines() -> None:
    """Each is Python still, differs, and has as many lines as the file; names differ."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    before = SOURCE.splitlines()
    for mutant in MUTANTS:
        ast.parse(alone(mutant.text, mutant.kernel))
        after = mutant.text.splitlines()
        assert len(after) == len(before)
        assert mutant.text != SOURCE


def test_a_mutant_of_each_operator_is_a_kernel(lower_prim_func: Lower, tmp_path: Path) -> None:
    """It is elaborated and lowered."""
    chosen: dict[str, Mutant] = {}
    for mutant in MUTANTS:
        if mutant.kernel not in NOT_LOWERED:
            chosen.setdefault(mutant.operator, mutant)
    for mutant in chosen.values():
        arguments = {**CASES[mutant.kernel].arguments}
        assert lower_kernel(lower_prim_func, mutant.text, mutant.kernel, tmp_path, arguments)


def test_an_equivalent_mutant_gives_the_same(lower_prim_func: Lower, tmp_path: Path) -> None:
    """In the one order that the interpreter takes, at least."""
    for mutant in MUTANTS:
        if not equivalent(mutant) or mutant.kernel in NOT_LOWERED:
            continue
        case = CASES[mutant.kernel]
        arguments = {**case.arguments}
        lowered = lower_kernel(lower_prim_func, mutant.text, mutant.kernel, tmp_path, arguments)
        assert lowered is not None
        assert_right(lowered, mutant.kernel)
