"""What tune is asked to check beside the usual inputs."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Draw
from tileyard.verbs.tune.options import TuneOptions, start_tune


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"seeds": 3}, [Draw(seed=1), Draw(seed=2)]),
        ({"edge_values": "nan,zeros"}, [Draw(edges="zeros"), Draw(edges="nan")]),
        ({"edge_values": ["inf"], "seeds": 2}, [Draw(seed=1), Draw(edges="inf")]),
    ],
)
def test_draws_follow_from_the_options(given: TuneOptions, expected: list[Draw]) -> None:
    """Seeds first, then edge values in their own order."""
    assert list(start_tune("k.py", "", given).request.draws) == expected


def test_all_edge_values() -> None:
    """By one word."""
    draws = start_tune("k.py", "", {"edge_values": ["all"]}).request.draws
    assert [draw.edges for draw in draws] == ["zeros", "tiny", "largest", "inf", "nan"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"edge_values": "zero"}, "--edge-values 'zero' is not one of zeros, tiny, largest, inf, nan, all"),
        ({"edge_values": "inf", "check": False}, "--edge-values has no effect with --no-check"),
        ({"seeds": 2, "check": False}, "--seeds has no effect with --no-check"),
        ({"finals": True, "resume": False}, "--fresh has no effect with --finals"),
        ({"finals": True, "also_build": "cuda:sm_90a"}, "--also-build has no effect with --finals"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(given: TuneOptions, expected: str) -> None:
    """In a line that names the option."""
    with pytest.raises(UsageError) as refused:
        start_tune("k.py", "", given)
    assert str(refused.value) == expected
