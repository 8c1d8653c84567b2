"""Compilations found by reading the functions that make them."""

import importlib
import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tileyard.pytest_plugin.bodies import (
    FoundCompile,
    FoundTileLang,
    find_compiles,
    hands_on_parameter,
    may_compile,
)
from tileyard.pytest_plugin.tilelang_jit import keep_factories

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


def names_of(module: ModuleType, values: dict[str, object]) -> list[str]:
    """The kernels that its test compiles."""
    found = find_compiles(module.test, values, [])
    return [call.prim_func for call in found if isinstance(call, FoundCompile)]


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
        ("a, b = 1, 2\n    build(make(a))", ["kernel(1, 1)"]),
        ("a, b = 1, M\n    a, b = b, a\n    build(make(a))", []),
        ("a, b = [1, 2]\n    build(make(a))", []),
        ("n: int = 4\n    build(make(n))", ["kernel(4, 1)"]),
        ("args = (1, 2)\n    build(make(*args))", ["kernel(1, 2)"]),
        ("given = {'kernel': make(2)}\n    build(**given)", ["kernel(2, 1)"]),
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
    assert names_of(module, {"M": 3}) == expected


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
    (found,) = find_compiles(module.test, {}, [])
    assert isinstance(found, FoundCompile)
    expected = ("kernel(1, 1)", "cpu", [-1])
    assert (found.prim_func, found.target, found.out_idx) == expected
    assert module.ran == []


def test_recursion_ends(tmp_path: Path) -> None:
    """A helper that calls itself is followed a few times at most."""
    module = load(tmp_path, "def test(n=0):\n    build(make(n))\n    test(n + 1)\n")
    expected = [f"kernel({n}, 1)" for n in range(4)]
    assert names_of(module, {"n": 0}) == expected


def test_modules_without_a_word_of_us_are_not_read(tmp_path: Path) -> None:
    """Whether a function is worth reading is told by its file."""
    without = load(tmp_path, "def test(): pass", head="")
    assert not may_compile(without.test)
    assert not may_compile(len)


# ---- TileLang's own -------------------------------------------------------------------------------


class Factory:
    """As what ``@tilelang.jit`` makes of a function: it writes positions of outputs anew."""

    def __init__(self) -> None:
        self.out_idx = [-1]
        self.compiled: list[tuple[object, ...]] = []

    def __call__(self, *args: object) -> None:
        """Compile."""
        self.compile(*args)

    def compile(self, *args: object) -> None:
        """Note what it is asked for, and under which positions."""
        self.compiled.append((*args, *self.out_idx))
        self.out_idx[0] = 1


@pytest.fixture
def jit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A TileLang of which only as much is there as is looked at."""
    importlib.import_module("tilelang")  # it could not be imported beside the stub
    module = ModuleType("tilelang.jit")
    whole = Factory()

    def compile_whole(*args: object) -> None:
        whole.compile(*args)

    vars(module).update(JITImpl=Factory, whole=whole, compile=compile_whole)
    monkeypatch.setitem(sys.modules, "tilelang.jit", module)
    return module


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("scale(M)", [(3, -1)]),
        ("k = scale(M, 2)", [(3, 2, -1)]),
        ("scale.compile(M)", [(3, -1)]),
        ("compile(make(1))", [("kernel(1, 1)", -1)]),
        ("for n in (1, 2):\n        scale(n)", []),
    ],
)
def test_what_tilelang_compiles_is_found_and_not_run(
    jit: ModuleType, tmp_path: Path, body: str, expected: list[tuple[object, ...]]
) -> None:
    """A factory's call, its ``compile`` and TileLang's own are found with arguments; nothing is called."""
    module = load(tmp_path, f"def test(M):\n    {body}\n")
    vars(module).update(scale=jit.whole, compile=jit.compile)
    found = list(find_compiles(module.test, {"M": 3}, []))
    assert jit.whole.compiled == []
    for call in found:
        assert isinstance(call, FoundTileLang)
        call.compile()
    assert jit.whole.compiled == expected


def test_every_test_finds_factories_as_they_were(jit: ModuleType, tmp_path: Path) -> None:
    """What compiling changes of a factory is undone after a test's kernels, and not between them."""
    module = load(tmp_path, "def test(M):\n    scale(M)\n    scale(M)\n")
    vars(module).update(scale=jit.whole)
    for _ in range(2):
        found = [
            c for c in find_compiles(module.test, {"M": 3}, []) if isinstance(c, FoundTileLang)
        ]
        with keep_factories(call.factory for call in found):
            for call in found:
                call.compile()
    expected = [(3, -1), (3, 1)] * 2
    assert jit.whole.compiled == expected


def test_modules_with_kernels_of_tilelang_are_read(jit: ModuleType, tmp_path: Path) -> None:
    """A test that imports a kernel from elsewhere is worth reading, though its file has no word of it."""
    module = load(tmp_path, "def test(): pass", head="")
    assert not may_compile(module.test)
    vars(module).update(scale=jit.whole)
    assert may_compile(module.test)


def test_nothing_is_found_where_tilelang_keeps_nothing(jit: ModuleType, tmp_path: Path) -> None:
    """With TileLang's cache switched off a kernel that is compiled ahead would be lost: none is."""
    vars(jit).update(env=SimpleNamespace(is_cache_enabled=lambda: False))
    module = load(tmp_path, "def test(): scale(1)")
    vars(module).update(scale=jit.whole)
    assert list(find_compiles(module.test, {}, [])) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("build(make(M))", []),
        ("for n in range(3):\n        build(make(n))", ["build(make(n))"]),
        ("wrapped(M)", []),
        ("for n in range(3):\n        wrapped(n)", ["build(make(n))"]),
        ("kernel = build(make(M))\n    run(kernel)\n    kernel(ran)", []),
        ("Elsewhere().run(M)\n    elsewhere(M)", ["elsewhere(M)"]),
        ("print(M)\n    ran.append(M)", []),
    ],
)
def test_calls_that_may_compile_and_are_not_followed_are_named(
    tmp_path: Path, body: str, expected: list[str]
) -> None:
    """Those whose arguments are not known, and code of the user's elsewhere that knows of compilers."""
    helpers = "def wrapped(n):\n    build(make(n))\ndef run(kernel):\n    kernel(ran)\n"
    module = load(tmp_path, f"{helpers}def test(M):\n    {body}\n")
    (tmp_path / "other").mkdir()
    other = load(tmp_path / "other", "def elsewhere(n): pass\n")
    vars(module).update(elsewhere=other.elsewhere)
    missed: list[str] = []
    list(find_compiles(module.test, {"M": 3}, missed))
    assert missed == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return request.param", True),
        ("'Says what.'\n    return request.param", True),
        ("return request.param + 1", False),
        ("x = 1\n    return request.param", False),
        ("yield request.param", False),
    ],
)
def test_fixtures_that_only_hand_on_their_parameter_are_told(
    tmp_path: Path, body: str, expected: bool
) -> None:
    """The value of such a fixture is known before it is set up; that of any other is not."""
    module = load(tmp_path, f"def fixture(request):\n    {body}\n")
    assert hands_on_parameter(module.fixture) == expected
