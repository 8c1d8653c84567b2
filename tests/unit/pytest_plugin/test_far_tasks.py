"""What goes into one task of a queue."""

import pytest

from tileyard.pytest_plugin.far_tasks import find_due


@pytest.mark.parametrize(
    ("waiting", "busy", "due"),
    [
        ("", 0, None),
        ("ab", 1, None),
        ("ab", 0, "a"),
        ("aba", 1, None),
        ("abab", 1, None),
        ("abbb", 1, "b"),
        ("ababab", 1, "a"),
    ],
)
def test_a_task_begins_once_it_is_full_or_nobody_could_fill_it(
    waiting: str, busy: int, due: str | None
) -> None:
    """One holds parts of one kind only, up to three here; the others do not fill it."""
    cases = 3
    assert find_due(waiting, cases, busy) == due
