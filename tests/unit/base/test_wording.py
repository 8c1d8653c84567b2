"""Words of counted things, and the suggestion for a misspelt name."""

import pytest

from tileyard.base.wording import count_of, find_similar


@pytest.mark.parametrize(
    ("number", "what", "expected"),
    [
        (0, "config", "0 configs"),
        (1, "config", "1 config"),
        (2, "config", "2 configs"),
        (1, "launch", "1 launch"),
        (2, "launch", "2 launches"),
        (2, "entry", "2 entries"),
        (2, "key", "2 keys"),
    ],
)
def test_a_number_and_its_noun(number: int, what: str, expected: str) -> None:
    """One is singular; everything else has the plural of English."""
    assert count_of(number, what) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("block_m", "block_M"),
        ("blok_N", "block_N"),
        ("NUM_STAGE", "num_stages"),
        ("zzz", ""),
        ("num", "num_stages"),
        ("nu", ""),
    ],
)
def test_a_misspelt_name_is_compared_without_its_case(word: str, expected: str) -> None:
    """A name that differs only in case comes before names that differ in a letter."""
    assert find_similar(word, ("block_N", "block_M", "block_K", "num_stages")) == expected
