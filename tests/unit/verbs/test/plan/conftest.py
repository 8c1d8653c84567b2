"""What the tests of suites share: cases that are expected to take so long."""

from collections.abc import Callable, Iterable

import pytest

from tileyard.verbs.test.result.result import Expected

Expect = Callable[..., list[Expected]]


@pytest.fixture
def expect_cases() -> Expect:
    """The cases of testcases, given as ``name=[seconds, ...]``; cases are called by their number."""

    def expect(**testcases: Iterable[float]) -> list[Expected]:
        return [
            Expected(case=f"{name}/{number}", testcase=name, seconds=seconds)
            for name, times in testcases.items()
            for number, seconds in enumerate(times)
        ]

    return expect
