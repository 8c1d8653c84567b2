"""What a run says when it ends."""

from tileyard.service.runs import _describe_unchecked


def test_configs_that_were_not_checked_have_a_reason() -> None:
    """The first one."""
    assert _describe_unchecked(["k: it asks for time", "k: x"]) == (
        "2 configs not checked for races and undefined accesses: k: it asks for time "
        "(--check-sync allows ten minutes)"
    )
