"""The identity of a function's behaviour."""

import functools
import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tileyard.frontend.closure import examine

Load = Callable[[str], ModuleType]


def closure_digest(value: object, *, has_sources: bool = False) -> str | None:
    """The identity of a function's behaviour; None if it has none."""
    found = examine(value, "function", has_sources=has_sources)
    return None if found.doubts else found.parts["function"]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Runs source text as a fresh module, each time from another file."""
    monkeypatch.syspath_prepend(str(tmp_path))
    count = 0

    def run(source: str) -> ModuleType:
        nonlocal count
        count += 1
        file = tmp_path / f"made_{count}.py"
        file.write_text(textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, file.stem, module)
        spec.loader.exec_module(module)
        return module

    return run


BASE = """
    import numpy as np
    SCALE = {scale}
    TABLE = np.array([1.0, {entry}])

    class Adder:
        step = {step}
        def add(self, x):
            return x + self.step

    def helper(x):
        return x * {factor}

    def make(power):
        def f(a, b={default}):
            return Adder().add(helper(a @ a)) * SCALE + TABLE[0] + b ** power
        return f

    f = make({power})
"""
VALUES = {"scale": 2, "entry": 3.0, "step": 1, "factor": 5, "default": 0, "power": 2}


def test_comments_formatting_and_place_do_not_count(load: Load) -> None:
    """Functions that differ in comments, line breaks and file only have one identity."""
    one = load("""
        import numpy as np
        def f(a, b):
            return np.exp(a @ b).sum(axis=0) + 1
    """)
    other = load("""
        # A comment.
        import numpy as np


        def f(a, b):
            # Another comment.
            return (
                np.exp(
                    a @ b
                )
                .sum(
                    axis=0,
                )
                + 1
            )
    """)
    expected = closure_digest(one.f)
    assert expected is not None
    assert closure_digest(other.f) == expected


@pytest.mark.parametrize("changed", VALUES)
def test_every_dependency_counts(load: Load, changed: str) -> None:
    """A change in a global, an array, a class, a callee, a default or a captured value is seen."""
    before = load(BASE.format(**VALUES))
    same = load(BASE.format(**VALUES))
    after = load(BASE.format(**{**VALUES, changed: 7}))
    expected = closure_digest(before.f)
    assert expected is not None
    assert closure_digest(same.f) == expected
    assert closure_digest(after.f) not in (None, expected)


def test_names_that_are_not_used_do_not_count(load: Load) -> None:
    """A change in a global that the function does not name leaves its identity alone."""
    one = load("unused = 1\ndef f(a): return a.unused")
    other = load("unused = 2\ndef f(a): return a.unused")
    expected = closure_digest(one.f)
    assert closure_digest(other.f) == expected


def test_recursion_and_cycles_end(load: Load) -> None:
    """Functions that call each other and data that holds itself have an identity."""
    module = load("""
        loop = [1]
        loop.append(loop)
        def f(n): return g(n - 1) if n else loop
        def g(n): return f(n)
    """)
    assert closure_digest(module.f) is not None
    assert closure_digest(module.f) != closure_digest(module.g)


def test_a_module_of_the_users_counts_by_what_it_says(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment in an imported module changes nothing, a changed function in it does."""
    source = "import mine\ndef f(a): return mine.helper(a)\n"
    digests = []
    for text in (
        "def helper(a): return a\n",
        "# why\ndef helper(a):\n  return a\n",
        "helper = abs\n",
    ):
        (tmp_path / "mine.py").write_text(text)
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        digests.append(closure_digest(load(source).f))
    assert digests[0] is not None
    assert digests[1] == digests[0]
    assert digests[2] != digests[0]


def test_a_module_imported_inside_the_function_counts(load: Load) -> None:
    """What a function imports when it runs is among its modules."""
    module = load("def f(a):\n    from json import dumps\n    return dumps(a)\n")
    closure = examine(module.f, "function")
    assert closure.doubts == []
    assert "package json" in closure.parts
    assert closure.code == [module.__file__]


def test_who_has_the_sources_answers_for_files(load: Load) -> None:
    """Then what opens files, or imports when it runs, has an identity; what evaluates text has none."""
    module = load("""
        def f(path): return open(path)
        def g(): import not_here_at_all
        def h(text): return eval(text)
    """)
    assert [closure_digest(f) for f in (module.f, module.g, module.h)] == [None] * 3
    found = [closure_digest(f, has_sources=True) for f in (module.f, module.g, module.h)]
    assert [digest is None for digest in found] == [False, False, True]


def test_installed_modules_are_reported(load: Load) -> None:
    """The modules that a function reaches through its helpers are known by their top-level name."""
    module = load("""
        import numpy.linalg
        def helper(x): return numpy.linalg.norm(x)
        def f(a): return helper(a)
    """)
    expected = {"function", "package numpy"}
    assert examine(module.f, "function").parts.keys() == expected


def test_a_wrapper_is_not_mistaken_for_what_it_wraps(load: Load) -> None:
    """A decorated library function counts by the decorator's own code."""
    template = """
        import functools
        import numpy as np
        def twist(g):
            @functools.wraps(g)
            def f(*args): return g(*args) + {shift}
            return f
        f = twist(np.linalg.norm)
    """
    one, other = load(template.format(shift=1)), load(template.format(shift=2))
    assert closure_digest(one.f) is not None
    assert closure_digest(one.f) != closure_digest(other.f)


def test_a_users_function_in_a_librarys_wrapper_counts(load: Load) -> None:
    """What a library's decorator makes of a function is not mistaken for the library's own."""
    template = """
        import contextlib
        @contextlib.contextmanager
        def f(a):
            yield a + {shift}
    """
    one, other = load(template.format(shift=1)), load(template.format(shift=2))
    assert closure_digest(one.f) is not None
    assert closure_digest(one.f) != closure_digest(other.f)


def test_partials_and_methods_count_by_their_parts(load: Load) -> None:
    """Bound values of partial functions and instances take part."""
    module = load("""
        class Scale:
            def __init__(self, by): self.by = by
            def __call__(self, a): return a * self.by
            def apply(self, a): return a * self.by
        def f(a, by): return a * by
    """)
    pairs: list[tuple[object, object]] = [
        (functools.partial(module.f, by=2), functools.partial(module.f, by=3)),
        (module.Scale(2), module.Scale(3)),
        (module.Scale(2).apply, module.Scale(3).apply),
    ]
    for one, other in pairs:
        assert closure_digest(one) is not None
        assert closure_digest(one) != closure_digest(other)
    assert closure_digest(module.Scale(2)) == closure_digest(module.Scale(2))


def test_what_cannot_be_identified_is_refused(load: Load) -> None:
    """Open files, generators and functions that evaluate text have no identity."""
    module = load("""
        import sys
        stream = sys.stdout
        numbers = (n for n in range(3))
        def from_stream(a): return stream.fileno()
        def from_generator(a): return next(numbers)
        def from_text(a): return eval(a)
        def from_file(a): return open(a).read()
    """)
    expected = [None] * 4
    found = [
        closure_digest(getattr(module, name))
        for name in ("from_stream", "from_generator", "from_text", "from_file")
    ]
    assert found == expected


@pytest.mark.slow
def test_the_order_of_a_set_does_not_count() -> None:
    """Identities agree between processes, whatever the seed of their hashes."""
    script = (
        "from tileyard.frontend.closure import examine\n"
        "print(examine((frozenset(['a', 'bc', 'def']), {'x', 'y', 'zz'}, examine), 'set').parts['set'])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_values_are_told_apart_by_type_and_content() -> None:
    """Equal numbers of different types, and arrays of different dtype or shape, differ."""
    values: list[object] = [
        1,
        1.0,
        True,
        "1",
        b"1",
        (1,),
        [1],
        {1: 1},
        0.0,
        -0.0,
        np.float32(1),
        np.zeros(4, np.float32),
        np.zeros(4, np.int32),
        np.zeros((2, 2), np.float32),
    ]
    digests = [closure_digest(value) for value in values]
    assert None not in digests
    assert len(set(digests)) == len(values)
