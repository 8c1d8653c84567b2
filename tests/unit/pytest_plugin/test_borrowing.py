"""Which tests borrow a device of another queue."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tileyard.base.model import Outcome
from tileyard.devices.foreign import ForeignQueue
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.borrowing import borrows
from tileyard.pytest_plugin.far_records import StepResult

QUEUE = ForeignQueue(
    name="lab", submit=("submit",), device="cuda:{device}", identity="some silicon"
)


@pytest.mark.parametrize(
    ("fixtures", "answer", "target", "outcome", "expected"),
    [
        (["tile_device"], None, "", Outcome.PASSED, True),
        (["tmp_path"], None, "", Outcome.PASSED, False),
        (["tmp_path"], True, "", Outcome.PASSED, True),
        (["tile_device"], False, "", Outcome.PASSED, False),
        (["tile_device"], None, "cuda", Outcome.PASSED, True),
        (["tile_device"], None, "cpu", Outcome.PASSED, False),
        (["tile_device"], None, "cuda", Outcome.COMPILE_ERROR, False),
    ],
)
def test_who_borrows(
    fixtures: list[str], answer: bool | None, target: str, outcome: Outcome, expected: bool
) -> None:
    """Who leases a device, unless the tree says otherwise, its kernel is of another class, or it cannot."""
    hook = SimpleNamespace(pytest_tileyard_borrows=lambda item: answer)
    item: Any = SimpleNamespace(nodeid="test", fixturenames=fixtures, ihook=hook)
    result = StepResult(step="step", target=target, outcome=outcome)
    kernels = {"test": {"kernel": "step"}} if target else {}
    active = SimpleNamespace(
        declared=SimpleNamespace(kernels=kernels),
        results={"step": result},
        find_failure=lambda item: None if outcome is Outcome.PASSED else (outcome, "failed"),
    )
    assert borrows(item, cast(Active, active), QUEUE) is expected
