"""Faults that are planted in the source."""

import ast
from itertools import zip_longest

import pytest
from tools.planted_faults import draw_faults


@pytest.mark.slow
def test_a_fault_is_one_line_that_still_compiles() -> None:
    """Each is in another room."""
    faults = draw_faults(seed=1, count=12)
    assert len({fault.file.parts[2] for fault in faults}) == 12
    for fault in faults:
        before, after = fault.file.read_text(encoding="utf-8"), fault.plant()
        ast.parse(after)
        pairs = zip_longest(before.splitlines(), after.splitlines())
        assert [number for number, (a, b) in enumerate(pairs, 1) if a != b] == [fault.line]
