"""The declaration of a kernel."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import tileyard
from tileyard.base.errors import UsageError
from tileyard.base.model import Tolerance
from tileyard.frontend.declare import KernelDeclaration


def test_a_declared_kernel_is_called_like_its_function() -> None:
    """A declaration passes calls on, and bears its function's name, text and signature."""

    @tileyard.kernel(space={"block": [1, 2]})
    def double(n: int, block: int = 1) -> int:
        """Twice n."""
        return 2 * n * block

    assert double(3, block=2) == 12
    assert double.__name__ == "double"
    assert double.__doc__ == "Twice n."
    assert list(inspect.signature(double).parameters) == ["n", "block"]


def test_powers_of_two_are_both_ends_and_those_between() -> None:
    """Ends that are none are refused."""
    assert tileyard.powers_of_two(16, 128) == (16, 32, 64, 128)
    assert tileyard.powers_of_two(1, 1) == (1,)
    for first, last in ((0, 4), (3, 8), (16, 100), (16, 8)):
        with pytest.raises(UsageError, match=f"powers of two from {first} to {last}: "):
            tileyard.powers_of_two(first, last)


@pytest.mark.parametrize("where", [3, {"a": 1}, ["a < 3", 3]])
def test_rules_are_texts_and_functions(where: Any) -> None:  # noqa: ANN401 - any wrong one
    """Anything else is refused where it is declared."""
    with pytest.raises(UsageError, match=r"test_declare.py:\d+: <lambda>: where must be a text, a"):
        tileyard.kernel(where=where)(lambda: None)
    with pytest.raises(UsageError, match=r"tileyard.when: the condition must be a text"):
        tileyard.when(where, [1, 2])


def test_a_kernel_can_be_declared_without_saying_anything() -> None:
    """The decorator works without parentheses."""

    @tileyard.kernel
    def one() -> int:
        return 1

    assert isinstance(one, KernelDeclaration)
    assert one() == 1


def test_a_call_declares_and_declares_anew() -> None:
    """What is given with the function counts, and later what is given again."""
    declared = tileyard.kernel(lambda n: n, space={"n": [1]}, reference=max)
    again = tileyard.kernel(declared, reference=min)
    expected = ({"n": [1]}, max, {"n": [1]}, min)
    assert (declared.space, declared.reference, again.space, again.reference) == expected
    assert again.function is declared.function


@pytest.mark.parametrize(
    "given", [(1e-3, 1e-2), [1e-3, 1e-2], Tolerance(rtol=1e-3, atol=1e-2)], ids=repr
)
def test_a_tolerance_may_be_a_pair_or_a_record(given: Tolerance | tuple[float, float]) -> None:
    """Both forms of a tolerance mean the same."""
    expected = Tolerance(rtol=1e-3, atol=1e-2)
    declared = tileyard.kernel(tolerance=given)(lambda: None)
    assert declared.tolerance == expected


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"where": {"block": 1}}, "where"),
        ({"reference": "gemm"}, "reference"),
        ({"inputs": [1]}, "inputs"),
        ({"flops": 2.0}, "flops must be a text or callable"),
        ({"shapes": {"small": 256}}, "shapes"),
        ({"shapes": [256]}, "shapes"),
        ({"tolerance": 1e-3}, "tolerance"),
        ({"tolerance": "tight"}, "tolerance"),
    ],
)
def test_arguments_of_the_wrong_form_are_refused(wrong: dict[str, Any], named: str) -> None:
    """A declaration that cannot work fails where it stands, naming the kernel, its line and the argument."""
    with pytest.raises(UsageError, match=rf"test_declare.py:\d+: <lambda>: {named}"):
        tileyard.kernel(**wrong)(lambda: None)


def test_only_what_is_callable_can_be_decorated() -> None:
    """Declaring something that is not a function is refused."""
    with pytest.raises(UsageError, match="callable"):
        tileyard.kernel(3)  # type: ignore[call-overload]


@pytest.mark.slow
def test_declaring_imports_nothing_heavy() -> None:
    """A file that only declares kernels pays for neither TileLang, torch nor NumPy."""
    script = (
        "import sys, tileyard\n"
        "tileyard.kernel(space={'block': [1]})(lambda block: None)\n"
        "print(*{'tilelang', 'torch', 'numpy', 'sqlalchemy', 'tvm'} & sys.modules.keys())"
    )
    expected = "\n"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout == expected
