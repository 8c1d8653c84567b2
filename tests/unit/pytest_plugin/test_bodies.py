"""Compilations found by reading the functions that make them."""

import importlib.util
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from tileyard.pytest_plugin.bodies import find_compiles, may_compile

HEAD = """
import tileyard
from tileyard import compile as build

SIZE = 8
ran = []

def make(n, factor=1):
    return f"kernel({n}, {factor})"
"""


def load(folder: Path, body: str, head: str = HEAD) -> ModuleType:
    """A module with these functions."""
    path = folder / "read_me.py"
    path.write_text(head + textwrap.dedent(body))
    spec = importlib.util.spec_from_file_location("read_me", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("tileyard.compile(make(SIZE))", ["kernel(8, 1)"]),
        ("build(make(M))", ["kernel(3, 1)"]),
        ("N = M + 1\n    prim = make(N, factor=2)\n    k = build(prim)", ["kernel(4, 2)"]),
        ("build(make(1))\n    build(make(2))", ["kernel(1, 1)", "kernel(2, 1)"]),
        ("N = 1\n    N = N + 1\n    build(make(N))", []),
        ("for n in range(3):\n        build(make(n))", []),
        ("for n in range(3):\n        build(make(M))", ["kernel(3, 1)"]),
        ("with open('x') as M:\n        build(make(M))", []),
        ("if M > 2:\n        build(make(1))\n    else:\n        build(make(2))", ["kernel(1, 1)"]),
        ("if unknown:\n        build(make(1))", []),
        ("build(make(unknown))", []),
        ("a, b = 1, 2\n    build(make(a))", []),
        ("import tileyard as ty\n    ty.compile(make(5))", ["kernel(5, 1)"]),
        ("def inner(n):\n        return make(n)\n    build(inner(6))", ["kernel(6, 1)"]),
        ("build(make(sum(x for x in [M, M])))", ["kernel(6, 1)"]),
        ("assert build(make(M)) is not None", ["kernel(3, 1)"]),
        ("helper(M)", ["kernel(4, 7)"]),
        ("print(make(M))", []),
        ("build(1 / 0)\n    build(make(M))", ["kernel(3, 1)"]),
    ],
)
def test_compilations_are_found_where_nothing_but_plain_values_leads_to_them(
    tmp_path: Path, body: str, expected: list[str]
) -> None:
    """Module, parameters, plain assignments and helpers are followed; loops and what is unpacked are not."""
    helper = "def helper(n, factor=7):\n    build(make(n + 1, factor))\n"
    module = load(tmp_path, f"{helper}\ndef test(M):\n    {body}\n")
    found = list(find_compiles(module.test, {"M": 3}))
    assert [call.prim_func for call in found] == expected


def test_what_no_compilation_needs_is_not_evaluated(tmp_path: Path) -> None:
    """A test's other statements and assignments are left alone."""
    module = load(
        tmp_path,
        """
        def test():
            first = ran.append("assigned")
            ran.append("said")
            build(make(1), target="cpu", out_idx=[-1])
        """,
    )
    (found,) = find_compiles(module.test, {})
    expected = ("kernel(1, 1)", "cpu", [-1])
    assert (found.prim_func, found.target, found.out_idx) == expected
    assert module.ran == []


def test_recursion_ends(tmp_path: Path) -> None:
    """A helper that calls itself is followed a few times at most."""
    module = load(tmp_path, "def test(n=0):\n    build(make(n))\n    test(n + 1)\n")
    found = list(find_compiles(module.test, {"n": 0}))
    expected = [f"kernel({n}, 1)" for n in range(4)]
    assert [call.prim_func for call in found] == expected


def test_modules_without_a_word_of_us_are_not_read(tmp_path: Path) -> None:
    """Whether a function is worth reading is told by its file."""
    without = load(tmp_path, "def test(): pass", head="")
    assert not may_compile(without.test)
    assert not may_compile(len)
