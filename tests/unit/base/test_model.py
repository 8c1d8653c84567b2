"""Parts of a test run: together they are everything, and each is about as long as the others."""

import pytest
from tests import parts
from tests.parts import choose_part

TESTS = [f"tests/f{file}.py::test_{number}" for file in range(9) for number in range(file + 1)]
TESTS += [f"tests/long.py::test_it[{number}]" for number in range(60)]


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MINUTES", {"tests/long.py": 60.0, "tests/f3.py": 10.0})
    monkeypatch.setattr(parts, "SPLIT", frozenset({"tests/long.py"}))


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_each_test_is_in_one_part(count: int) -> None:
    """Whatever the order in which tests are found."""
    found = [choose_part(TESTS, f"{number}/{count}", {}) for number in range(1, count + 1)]
    assert sorted(test for part in found for test in part) == sorted(TESTS)
    assert choose_part(TESTS[::-1], f"{count}/{count}", {}) == found[-1]


def test_only_long_files_are_split() -> None:
    """Every part has some tests of the long file; of each other file one part has all."""
    found = [choose_part(TESTS, f"{number}/4", {}) for number in range(1, 5)]
    files = [{test.partition("::")[0] for test in part} for part in found]
    assert all("tests/long.py" in part for part in files)
    for number in range(9):
        assert sum(f"tests/f{number}.py" in part for part in files) == 1


def test_parts_are_about_as_long() -> None:
    """The part with the 10 minutes of one file has so much less of the file that is split."""
    found = [choose_part(TESTS, f"{number}/4", {"tests/f5.py": 300.0}) for number in range(1, 5)]
    minutes = [
        sum(test.startswith("tests/long") for test in part)
        + 10 * any(test.startswith("tests/f3") for test in part)
        + 5 * any(test.startswith("tests/f5") for test in part)
        for part in found
    ]
    assert max(minutes) - min(minutes) <= 2


@pytest.mark.parametrize("part", ["0/6", "7/6", "2", "2/", "a/b", "-1/2", "1/0"])
def test_a_part_that_there_is_not_is_refused(part: str) -> None:
    """With how it is written."""
    with pytest.raises(pytest.UsageError, match="write the second of six as 2/6"):
        choose_part(TESTS, part, {})
