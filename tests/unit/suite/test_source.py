"""A suite as a source: every case once, longest pieces first, failures again while they may be."""

import pytest

from tileyard.model import Batch, Limits, Outcome, Trial
from tileyard.suite.records import CommandWork, KernelWork, Piece, SuiteCase
from tileyard.suite.source import SuiteSource
from tileyard.targets.command.records import Step

RUN = Step(argv=("true",))
CASES = tuple(
    SuiteCase(testcase=testcase, name=name, work=CommandWork(run=RUN))
    for testcase, name in (("rows", "a"), ("rows", "b"), ("sort", "a"))
)
PIECES = (
    Piece(testcase="sort", cases=("sort/a",), expected_s=9.0),
    Piece(testcase="rows", cases=("rows/a", "rows/b"), expected_s=2.0),
)


def make_source(retries: int = 0) -> SuiteSource:
    """The three cases in two pieces."""
    return SuiteSource(CASES, PIECES, {"sort/a": 9.0}, retries)


def trial(batch: Batch, case: str, outcome: Outcome) -> Trial:
    """What became of a case of a batch."""
    found = next(one for one in batch.cases if one.id == case)
    return Trial(
        id="r.1",
        run="r",
        case=case,
        batch=batch.id,
        kernel=found.kernel,
        arguments=found.arguments,
        config={},
        target="command",
        outcome=outcome,
    )


def names(batches: object) -> list[list[str]]:
    """The ids of the cases of each batch."""
    assert isinstance(batches, list)
    return [[case.id for case in batch.cases] for batch in batches]


def test_pieces_come_in_the_order_of_the_plan() -> None:
    """Each piece is a batch; no more are given than are asked for."""
    source = make_source()
    first, second, third = source.ask(1), source.ask(5), source.ask(5)
    expected = [["sort/a"]], [["rows/a", "rows/b"]]
    assert (names(first), names(second)) == expected
    assert third == []
    assert first[0].cases[0].expected_s == 9.0
    assert second[0].cases[0].expected_s is None


def test_it_is_done_once_all_is_told() -> None:
    """Neither while a piece is left nor while a case runs."""
    source = make_source()
    seen = [source.done()]
    batches = source.ask(5)
    for batch in batches:
        for case in batch.cases:
            seen.append(source.done())
            source.tell(trial(batch, case.id, Outcome.PASSED))
    seen.append(source.done())
    assert seen == [False, False, False, False, True]


def test_a_case_that_fails_is_tried_again_before_what_is_new() -> None:
    """In a fresh process, under a name of its own, up to so many times; each attempt is kept."""
    source = make_source(retries=2)
    (batch,) = source.ask(1)
    name = "sort/a"
    for attempt in (2, 3):
        source.tell(trial(batch, name, Outcome.MISMATCH))
        (batch,) = source.ask(1)
        name = f"sort/a~{attempt}"
        assert (batch.cases[0].id, batch.cases[0].arguments["attempt"]) == (name, attempt)
        assert batch.process == "fresh"
    source.tell(trial(batch, name, Outcome.MISMATCH))
    assert names(source.ask(1)) == [["rows/a", "rows/b"]]
    assert [one.case for one in source.trials["sort/a"]] == ["sort/a", "sort/a~2", "sort/a~3"]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.PASSED, []),
        (Outcome.UNCHECKED, []),
        (Outcome.SKIPPED, []),
        (Outcome.INFRA_ERROR, []),
        (Outcome.QUEUE_TIMEOUT, []),
        (Outcome.NOT_RUN, []),
        (Outcome.MISMATCH, [["sort/a~2"]]),
        (Outcome.CRASHED, [["sort/a~2"]]),
        (Outcome.TIMEOUT, [["sort/a~2"]]),
        (Outcome.COMPILE_ERROR, []),
    ],
)
def test_only_what_the_case_itself_did_is_tried_again(
    outcome: Outcome, expected: list[list[str]]
) -> None:
    """The engine has tried infrastructure again already, and a build that others share is the same."""
    source = SuiteSource(CASES[2:], PIECES[:1], {}, retries=1)
    (batch,) = source.ask(1)
    source.tell(trial(batch, "sort/a", outcome))
    assert names(source.ask(5)) == expected


def test_a_run_that_was_stopped_tries_nothing_again() -> None:
    """Not what failed after the first case was told to be not run, either."""
    source = make_source(retries=3)
    _, batch = source.ask(5)
    source.tell(trial(batch, "rows/a", Outcome.NOT_RUN))
    source.tell(trial(batch, "rows/b", Outcome.CRASHED))
    assert source.ask(5) == []


def test_memory_is_a_matter_of_programs_and_not_of_their_runner() -> None:
    """The limit of the run step counts more than the case's; a kernel keeps the memory it may have."""
    limits = Limits(run_s=5.0, memory_bytes=1000)
    work = CommandWork(run=Step(argv=("true",), limit_s=7.0))
    cases = (
        SuiteCase(testcase="t", name="program", work=work, limits=limits),
        SuiteCase(testcase="t", name="kernel", work=KernelWork(file="k.py"), limits=limits),
    )
    piece = Piece(testcase="t", cases=("t/program", "t/kernel"), expected_s=1.0)
    (batch,) = SuiteSource(cases, (piece,), {}).ask(1)
    expected = [(7.0, 0), (5.0, 1000)]
    assert [(c.limits.run_s, c.limits.memory_bytes) for c in batch.cases] == expected
