"""The corpus: correct kernels give what they should, and mistakes and mutants are kernels still."""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from tests.differential.conftest import load_module
from tests.samples import IS_WHOLE, choose_cases, sampled
from tests.sync.cases import CASES
from tests.sync.mistakes import MISTAKES, SOURCE, Kind, Mistake, alone, extent_of
from tests.sync.mutants import Mutant, equivalent, mutants, unseen

from tileyard.artifacts.objects import digest_parts
from tileyard.ir.lanes import interpret_lanes
from tileyard.sync.blocks import check_program
from tileyard.sync.findings import Finding
from tileyard.sync.words import describe_race

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

pytestmark = pytest.mark.slow

Lower = Callable[..., "Lowered"]
MUTANTS = [mutant for kernel in CASES for mutant in mutants(SOURCE, kernel)]


def called(text: str) -> set[str]:
    """The operations of TileLang in a text."""
    return set(re.findall(r"\bT\.(\w+)", text))


SHOWING = choose_cases(
    {kernel: called(SOURCE[slice(*extent_of(SOURCE, kernel))]) for kernel in CASES}
)
"""Kernels that together have every operation of the file."""
SILENT = {one.name: {equivalent(one)} for one in MUTANTS if equivalent(one)}
"""Why an equivalent mutant is one."""
CHANGED = choose_cases(
    {
        one.name: {one.operator, unseen(one), *SILENT.get(one.name, ()), *called(one.statement)}
        for one in MUTANTS
    }
)
"""Mutants of every operator and of every statement, equivalent ones for every reason."""


def load(text: str, folder: Path) -> ModuleType:
    """A module with this text; TileLang looks for a kernel's source in its file."""
    # A file for each text: what was compiled in the same second, of the same size, counts as current.
    path = folder / f"edited_{digest_parts(text)}.py"
    path.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return load_module(path)


def lower_kernel(
    lower: Lower, text: str, kernel: str, folder: Path, arguments: dict[str, int]
) -> "Lowered":
    """A kernel of this text, elaborated and lowered."""
    function = getattr(load(alone(text, kernel), folder), kernel)
    return lower(function.get_tir(**arguments), function.out_idx)


def check(lowered: "Lowered", kernel: str) -> list[Finding]:
    """All findings of a kernel on the inputs of its case."""
    inputs = CASES[kernel].make(np.random.default_rng(5))
    checked = check_program(lowered.written, lowered.written_lines, inputs)
    return [*map(describe_race, lowered.races), *checked.findings]


def lines_of(finding: Finding) -> set[int]:
    """All lines that a finding names."""
    places = (finding.access, finding.other, finding.wait, *finding.waiting)
    return {place.line for place in places if place is not None}


def assert_right(lowered: "Lowered", kernel: str) -> None:
    """What the interpreter makes is what NumPy makes."""
    case = CASES[kernel]
    inputs = case.make(np.random.default_rng(5))
    found = interpret_lanes(lowered.program, inputs)
    for got, expected in zip(found, case.expect(*inputs), strict=True):
        assert np.allclose(got.astype(np.float32), expected, rtol=1e-5, atol=1e-5)


def test_every_kernel_is_a_case() -> None:
    """No kernel of the file is forgotten."""
    kernels = [node.name for node in ast.parse(SOURCE).body if isinstance(node, ast.FunctionDef)]
    assert kernels == list(CASES)
    assert {mistake.kernel for mistake in MISTAKES} == set(CASES)


@pytest.mark.parametrize("kernel", sampled(CASES, SHOWING))
def test_a_correct_kernel_gives_what_it_should(
    lower_prim_func: Lower, tmp_path: Path, kernel: str
) -> None:
    """Nothing of it is given up, its result is that of NumPy, and nothing is found in it."""
    case = CASES[kernel]
    lowered = lower_kernel(lower_prim_func, SOURCE, kernel, tmp_path, {**case.arguments})
    assert lowered.given_up == ()
    assert_right(lowered, kernel)
    assert check(lowered, kernel) == []


def test_mistakes_are_many_and_of_all_kinds() -> None:
    """Every kind is planted at several places, under names that differ."""
    kinds = Counter(mistake.kind for mistake in MISTAKES)
    assert set(kinds) == set(get_args(Kind))
    assert min(kinds.values()) >= 4
    assert len({(mistake.kernel, mistake.name) for mistake in MISTAKES}) == len(MISTAKES)


FIXES = {
    ("two_stages", "stages are never released"): "nothing arrives at free: ",
    ("gathered", "fills are never said"): "nothing arrives at full: ",
    ("two_stages", "too few arrive"): "128 more arrivals at full[0] are missing ",
    ("stores", "more threads than there are"): "128 more arrivals at barrier 1 are missing ",
    ("gathered", "arrives twice"): "full[0] has ended 2 phases before the first wait for it: ",
    (
        "attention",
        "first wait for values blocks",
    ): "each waits for what another one does behind its ",
    ("gathered", "no wait for a free stage"): "nothing holds the arrives at full[0] back ",
    ("turns", "participants disagree"): "all that meet at barrier 2 ",
    ("stores", "some threads wait for all"): "more threads come to barrier 0 than it counts: ",
    ("two_stages", "fill said twice"): "the phase before still waits for its bytes: ",
    ("three_stages", "all threads arrive"): "arrive_count has to be 128 at least, ",
    ("turns", "a turn too many"): "nobody waits for this arrive at barrier 1: ",
    ("epilogue", "sums in one column"): "blocks do not wait for each other: ",
    ("epilogue", "waits until it is read"): "the wait of line 607 is over when the tile is read: ",
}
"""How a fix begins that names the cause."""

UNKNOWN = {
    ("three_stages", "all threads arrive"),
    ("in_one_loop", "each waits for the other"),
    ("stored_by_another", "releases the wrong tile"),
}
"""Deadlocks that may have several causes: a wrong one is not named."""


NAMED = [one for one in MISTAKES if (one.kernel, one.name) in {*FIXES, *UNKNOWN}]
PLANTED = NAMED + [
    MISTAKES[int(number)]
    for number in choose_cases(
        {
            str(number): {one.kind}.difference(n.kind for n in NAMED)
            for number, one in enumerate(MISTAKES)
        }
    )
]
"""Those whose causes are named, and others, so that every kind is there."""


@pytest.fixture(scope="module")
def find(
    lower_prim_func: Lower, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Mistake], list[Finding]]:
    """What is found in a kernel with a mistake, found once."""
    folder = tmp_path_factory.mktemp("mistakes")
    known: dict[tuple[str, str], list[Finding]] = {}

    def run(one: Mistake) -> list[Finding]:
        if (key := (one.kernel, one.name)) not in known:
            arguments = {**CASES[one.kernel].arguments, **one.arguments}
            text = one.apply(SOURCE)
            lowered = lower_kernel(lower_prim_func, text, one.kernel, folder, arguments)
            known[key] = check(lowered, one.kernel)
        return known[key]

    return run


@pytest.mark.parametrize(
    "mistake", sampled(MISTAKES, PLANTED), ids=lambda one: f"{one.kernel}, {one.name}"
)
def test_a_mistake_is_found(find: Callable[[Mistake], list[Finding]], mistake: Mistake) -> None:
    """With its kind, at one of its lines."""
    edited = mistake.apply(SOURCE)
    assert edited != SOURCE
    lines = mistake.lines(edited)
    assert lines
    findings = find(mistake)
    assert all(one.fix for one in findings)
    found = [(one.kind, lines_of(one)) for one in findings]
    wanted = (mistake.kind, *mistake.also)
    assert any(kind in wanted and named & lines for kind, named in found), found


@pytest.mark.parametrize(("kernel", "name"), [*FIXES, *sorted(UNKNOWN - FIXES.keys())])
def test_a_cause_that_is_determined_is_named(
    find: Callable[[Mistake], list[Finding]], kernel: str, name: str
) -> None:
    """In the fix; where it is not, the fix of a deadlock says what it may be."""
    (mistake,) = (one for one in MISTAKES if (one.kernel, one.name) == (kernel, name))
    found = find(mistake)
    if (kernel, name) in FIXES:
        assert any(one.fix.startswith(FIXES[kernel, name]) for one in found)
    if (kernel, name) in UNKNOWN:
        (stuck,) = (one for one in found if one.kind == "deadlock")
        assert stuck.fix == "an arrive is missing or comes too late, or a parity is wrong"


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
        chosen.setdefault(mutant.operator, mutant)
    for mutant in chosen.values():
        arguments = {**CASES[mutant.kernel].arguments}
        assert lower_kernel(lower_prim_func, mutant.text, mutant.kernel, tmp_path, arguments)


@pytest.mark.parametrize(
    "mutant",
    sampled(MUTANTS, [one for one in MUTANTS if one.name in CHANGED]),
    ids=lambda one: one.name,
)
def test_a_mutant_is_reported_or_explained(
    lower_prim_func: Lower, tmp_path: Path, mutant: Mutant
) -> None:
    """What can change the outcome is found; of what is not found it is known why."""
    arguments = {**CASES[mutant.kernel].arguments}
    lowered = lower_kernel(lower_prim_func, mutant.text, mutant.kernel, tmp_path, arguments)
    if equivalent(mutant) or unseen(mutant):
        assert not check(lowered, mutant.kernel)
    else:
        assert check(lowered, mutant.kernel)


def test_an_equivalent_mutant_gives_the_same(lower_prim_func: Lower, tmp_path: Path) -> None:
    """In the one order that the interpreter takes, at least."""
    chosen = SILENT if IS_WHOLE else choose_cases(SILENT)
    for mutant in [one for one in MUTANTS if one.name in chosen]:
        arguments = {**CASES[mutant.kernel].arguments}
        lowered = lower_kernel(lower_prim_func, mutant.text, mutant.kernel, tmp_path, arguments)
        assert_right(lowered, mutant.kernel)
