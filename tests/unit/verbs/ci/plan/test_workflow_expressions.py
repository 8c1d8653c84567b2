"""Expressions of workflows, as far as they are known before a run."""

import pytest

from tileyard.verbs.ci.plan.workflow_expressions import can_both_hold, fill, holds

KNOWN = {"env.A": "x", "matrix.os": "linux", "github.event_name": "push"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${{ env.A }}/b", "x/b"),
        ("${{ env.B }}/b", "${{ env.B }}/b"),
        ("${{ matrix.os == 'LINUX' && 'arm' || 'x64' }}", "arm"),
        ("${{ matrix.os != 'linux' && 'arm' || 'x64' }}", "x64"),
        ("${{ env.B && 'arm' || 'x64' }}", "${{ env.B && 'arm' || 'x64' }}"),
        ("${{ format('{0}', env.A) }} ${{ 1 }} ${{ 'it''s' }}", "${{ format('{0}', env.A) }} 1 it's"),
        ("${{ env.A == }} ${{ ( }} ${{ ?! }}", "${{ env.A == }} ${{ ( }} ${{ ?! }}"),
    ],
)  # fmt: skip
def test_what_is_known_is_filled_in(text: str, expected: str) -> None:
    """The rest stays, also what is not an expression at all."""
    assert fill(text, KNOWN) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("", True),
        ("always()", True),
        ("github.event_name == 'push'", True),
        ("${{ github.event_name == 'push' && env.B == 'y' }}", None),
        ("github.event_name == 'pull_request' && env.B == 'y'", False),
        ("!(github.event_name == 'push')", False),
        ("failure()", None),
    ],
)
def test_a_condition_holds_or_not_or_nobody_knows(condition: str, expected: bool | None) -> None:
    """One unknown part does not always matter."""
    assert holds(condition, KNOWN) is expected


@pytest.mark.parametrize(
    ("first", "second", "is_same_run", "expected"),
    [
        ("", "", False, {"push", "schedule"}),
        ("github.event_name == 'push'", "", False, {"push"}),
        ("github.event_name == 'push'", "github.event_name != 'push'", False, set()),
        ("github.ref == 'a'", "github.ref != 'a'", False, set()),
        ("github.ref == 'a'", "github.ref != 'b'", False, {"push", "schedule"}),
        ("needs.x.outputs.y == '1'", "needs.x.outputs.y != '1'", True, set()),
        ("needs.x.outputs.y == '1'", "needs.x.outputs.y != '1'", False, {"push", "schedule"}),
    ],
)
def test_conditions_that_exclude_each_other_are_seen(
    first: str, second: str, is_same_run: bool, expected: set[str]
) -> None:
    """What one workflow's jobs tell each other says nothing of another workflow."""
    events = ("push", "schedule")
    assert can_both_hold((first,), (second,), events, is_same_run=is_same_run) == expected
