"""From arrays to the arguments that a kernel is made with."""

import msgspec
import pytest

from tileyard.api.kernels import Shapes, infer_arguments
from tileyard.base.errors import UsageError
from tileyard.base.model import TensorSpec, Value
from tileyard.store.choices import Choice
from tileyard.verbs.tune.result import evaluate

ROLES = (("A", "in"), ("B", "out"))
ARGUMENTS = {"M": 4, "N": 8, "dtype": "float16"}


def choice(m: int, n: int, dtype: str = "float32") -> Choice:
    """A matrix that is doubled."""
    specs = [TensorSpec(name=name, dtype=dtype, shape=(m, n), role=role) for name, role in ROLES]
    return Choice(
        kernel="double",
        arguments={"M": m, "N": n, "dtype": dtype, "batch": 3},
        target="cpu",
        silicon="one",
        config={},
        tensors=tuple(specs),
        latency_ns=1.0,
    )


KNOWN = (choice(4, 128), choice(4, 256), choice(8, 256, "float16"))


@pytest.mark.parametrize(
    ("known", "shapes", "expected"),
    [
        (KNOWN, (((16, 512), "float16"),), {"M": 16, "N": 512, "dtype": "float16", "batch": 3}),
        (KNOWN[:1], (((5, 6), "float64"),), {"M": 5, "N": 6, "dtype": "float64", "batch": 3}),
    ],
)
def test_arguments_are_where_they_were(
    known: tuple[Choice, ...], shapes: Shapes, expected: dict[str, Value]
) -> None:
    """A size, a dtype, or what never changes."""
    assert infer_arguments("double", known, shapes) == expected


def test_what_cannot_be_told_is_named() -> None:
    """A square says nothing of which side is which, nor does an argument that no shape has."""
    square = choice(64, 64)
    assert infer_arguments("double", [square], (((8, 8), "float32"),))["M"] == 8
    with pytest.raises(UsageError, match="M of double cannot be told from"):
        infer_arguments("double", [square], (((8, 9), "float32"),))
    flagged = msgspec.structs.replace(choice(1, 64), arguments={"causal": True})
    assert infer_arguments("double", [flagged], (((7, 64), "float32"),)) == {"causal": True}
    hidden = [msgspec.structs.replace(one, arguments={"K": n}) for n, one in enumerate(KNOWN)]
    with pytest.raises(UsageError, match="K of double cannot be told from"):
        infer_arguments("double", hidden, (((8, 9), "float32"),))
    for known, why in (((), "nothing was tuned"), (KNOWN, "it was tuned for other arrays")):
        with pytest.raises(UsageError, match=rf"{why} \(tune it, or give arguments=\)"):
            infer_arguments("double", known, (((8, 9), "float32"),) * 2)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("", 0.0),
        ("2*M*N", 64.0),
        ("1e9", 1e9),
        ("(M + N) * 3 // 2 - -1", 19.0),
        ("N / M % 2.5", 2.0),
    ],
)
def test_a_formula_takes_the_arguments(formula: str, expected: float) -> None:
    """By their names, with the operations of arithmetic."""
    assert evaluate(formula, ARGUMENTS) == expected


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("2*K", "--flops 2*K: K is not a number of the kernel's arguments (these are: M, N)"),
        ("2*dtype", "--flops 2*dtype: dtype is not a number"),
        ("M -", "--flops M - gives no number above 0 (numbers and arguments"),
        ("M - 4", "--flops M - 4 gives no number above 0"),
        ("M / 0", "gives no number above 0"),
        ("1e999", "gives no number above 0"),
        ("M ** 9", "gives no number above 0"),
        ("open('x')", "gives no number above 0"),
        ("M.real", "gives no number above 0"),
        ("(" * 300 + "M" + ")" * 300, "gives no number above 0"),
    ],
)
def test_what_is_no_formula_is_refused(formula: str, expected: str) -> None:
    """In one line; nothing of it is run."""
    with pytest.raises(UsageError) as refused:
        evaluate(formula, ARGUMENTS)
    assert expected in str(refused.value)
