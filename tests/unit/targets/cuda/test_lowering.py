"""How TileLang's refusals are told."""

import msgspec
import pytest
from tests.kernels import elementwise

from tileyard.frontend.kernels import make_kernel
from tileyard.model import Elaborated, Value
from tileyard.targets.cuda.lowering import LoweringError, lower

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"tl.enable_fast_mth": True},
            r"TileLang has no pass option 'tl.enable_fast_mth' \(near to it: tl.enable_fast_math",
        ),
        ({"zzzzzz": 1}, "TileLang has no pass option 'zzzzzz'$"),
        ({"tl.enable_fast_math": "yes"}, "TileLang: Expect config tl.enable_fast_math"),
    ],
)
def test_pass_options_that_make_no_sense_are_one_line(
    options: dict[str, Value], expected: str
) -> None:
    """An option that TileLang does not have is named with what is near to it, and not with all there are."""
    made = make_kernel(elementwise.gelu.get_tir(N=1024, block=64), name="gelu", with_tir=True)
    kernel = msgspec.structs.replace(made.kernel, pass_options=options)
    with pytest.raises(LoweringError, match=expected) as caught:
        lower(Elaborated(kernel=kernel, tir=made.tir), "sm_80")
    assert len(caught.value.diagnostic.message) < 200
