"""From arrays to the arguments that a kernel is made with."""

import msgspec
import pytest

from tileyard.api.kernels import Shapes, infer_arguments
from tileyard.base.errors import UsageError
from tileyard.base.model import TensorSpec, Value
from tileyard.store.choices import Choice

ROLES = (("A", "in"), ("B", "out"))


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
