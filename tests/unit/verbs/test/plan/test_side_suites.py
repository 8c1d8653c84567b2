"""A suite as a source: every case once, longest pieces first, failures again while they may be."""

import asyncio
from collections.abc import Sequence

import pytest

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import (
    Batch,
    BuildPart,
    CommandWork,
    KernelWork,
    Limits,
    Outcome,
    Step,
    Trial,
)
from tileyard.verbs.test.plan.source import Part, SuiteSource, find_targets
from tileyard.verbs.test.result.result import Piece, Plan, SuiteCase

RUN = Step(argv=("true",))
CASES = tuple(
    SuiteCase(testcase=testcase, name=name, work=CommandWork(run=RUN))
    for testcase, name in (("rows", "a"), ("rows", "b"), ("sort", "a"))
)
PIECES = (
    Piece(testcase="sort", cases=("sort/a",), expected_s=9.0),
    Piece(testcase="rows", cases=("rows/a", "rows/b"), expected_s=2.0),
)


def make_plan(pieces: tuple[Piece, ...], slots: int = 1) -> Plan:
    """A plan of these pieces."""
    return Plan(
        slots=slots,
        pieces=pieces,
        startup_s=0.0,
        total_s=1.0,
        longest_s=1.0,
        bound_s=1.0,
        predicted_s=1.0,
    )


def make_source(
    retries: int = 0,
    cases: tuple[SuiteCase, ...] = CASES,
    pieces: tuple[Piece, ...] = PIECES,
) -> SuiteSource:
    """The three cases in two pieces."""
    part = Part(target="command", cases=cases, plan=make_plan(pieces), expected_s={"sort/a": 9.0})
    return SuiteSource("suite", (part,), retries=retries)


def ask(source: SuiteSource, limit: int) -> Sequence[Batch]:
    """What the source gives now."""
    return asyncio.run(source.ask(limit))


def trial(batch: Batch, case: str, outcome: Outcome) -> Trial:
    """What became of a case of a batch."""
    found = next(one for one in batch.cases if one.id == case)
    return Trial(
        id="r.1",
        run="r",
        case=case,
        attempt=found.attempt,
        testcase=found.testcase,
        batch=batch.id,
        target=found.target,
        outcome=outcome,
    )


def names(batches: object) -> list[list[str]]:
    """The ids of the cases of each batch."""
    assert isinstance(batches, list)
    return [[case.id for case in batch.cases] for batch in batches]


def test_pieces_come_in_the_order_of_the_plan() -> None:
    """Each piece is a batch; no more are given than are asked for."""
    source = make_source()
    first, second, third = ask(source, 1), ask(source, 5), ask(source, 5)
    expected = [["sort/a"]], [["rows/a", "rows/b"]]
    assert (names(first), names(second)) == expected
    assert third == []
    assert first[0].cases[0].expected_s == 9.0
    assert second[0].cases[0].expected_s is None


def test_it_is_done_once_all_is_told() -> None:
    """Neither while a piece is left nor while a case runs."""
    source = make_source()
    seen = [source.done()]
    batches = ask(source, 5)
    for batch in batches:
        for case in batch.cases:
            seen.append(source.done())
            source.tell(trial(batch, case.id, Outcome.PASSED))
    seen.append(source.done())
    assert seen == [False, False, False, False, True]


def test_a_case_that_fails_is_tried_again_before_what_is_new() -> None:
    """In a fresh process, as an attempt of its own, up to so many times; each attempt is kept."""
    source = make_source(retries=2)
    (batch,) = ask(source, 1)
    name = "sort/a"
    for attempt in (2, 3):
        source.tell(trial(batch, name, Outcome.MISMATCH))
        (batch,) = ask(source, 1)
        assert (batch.cases[0].id, batch.cases[0].attempt) == (name, attempt)
        assert batch.process == "fresh"
    source.tell(trial(batch, name, Outcome.MISMATCH))
    assert names(ask(source, 1)) == [["rows/a", "rows/b"]]
    assert [one.attempt for one in source.trials["sort/a"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.PASSED, []),
        (Outcome.UNCHECKED, []),
        (Outcome.SKIPPED, []),
        (Outcome.INFRA_ERROR, []),
        (Outcome.QUEUE_TIMEOUT, []),
        (Outcome.NOT_RUN, []),
        (Outcome.MISMATCH, [["sort/a"]]),
        (Outcome.CRASHED, [["sort/a"]]),
        (Outcome.TIMEOUT, [["sort/a"]]),
        (Outcome.COMPILE_ERROR, []),
    ],
)
def test_only_what_the_case_itself_did_is_tried_again(
    outcome: Outcome, expected: list[list[str]]
) -> None:
    """The engine has tried infrastructure again already, and a build that others share is the same."""
    source = make_source(1, CASES[2:], PIECES[:1])
    (batch,) = ask(source, 1)
    source.tell(trial(batch, "sort/a", outcome))
    assert names(ask(source, 5)) == expected


def test_a_run_that_was_stopped_tries_nothing_again() -> None:
    """Not what failed after the first case was told to be not run, either."""
    source = make_source(retries=3)
    _, batch = ask(source, 5)
    source.tell(trial(batch, "rows/a", Outcome.NOT_RUN))
    source.tell(trial(batch, "rows/b", Outcome.CRASHED))
    assert ask(source, 5) == []


def test_memory_is_a_matter_of_programs_and_not_of_their_runner() -> None:
    """The limit of the run step counts more than the case's; a kernel keeps the memory it may have."""
    limits = Limits(run_s=5.0, memory_bytes=1000)
    work = CommandWork(run=Step(argv=("true",), limit_s=7.0))
    cases = (
        SuiteCase(testcase="t", name="program", work=work, limits=limits),
        SuiteCase(testcase="t", name="kernel", work=KernelWork(file="k.py"), limits=limits),
    )
    piece = Piece(testcase="t", cases=("t/program", "t/kernel"), expected_s=1.0)
    (batch,) = ask(make_source(0, cases, (piece,)), 1)
    expected = [(7.0, 0), (5.0, 1000)]
    assert [(c.limits.run_s, c.runner_bytes) for c in batch.cases] == expected


def test_parts_take_turns_by_their_slots() -> None:
    """A part with twice the slots is given twice the pieces, so that no device waits for another part."""
    cases = {
        target: tuple(
            SuiteCase(testcase=target, name=str(n), work=CommandWork(run=RUN)) for n in range(6)
        )
        for target in ("cpu", "command")
    }
    parts = []
    for target, slots in (("cpu", 1), ("command", 2)):
        pieces = tuple(
            Piece(testcase=target, cases=(case.id,), expected_s=1.0) for case in cases[target]
        )
        parts.append(Part(target=target, cases=cases[target], plan=make_plan(pieces, slots)))
    batches = ask(SuiteSource("suite", parts), 6)
    given = [batch.cases[0].target for batch in batches]
    assert (given.count("cpu"), given.count("command")) == (2, 4)


def test_the_targets_of_a_shared_build_are_known_before_any_is_built() -> None:
    """By step and target, whichever case comes first; two cases with one target add up."""
    build = Step(argv=("make", "{targets}"))
    cases = tuple(
        SuiteCase(
            testcase="t",
            name=f"{target}{number}",
            work=CommandWork(
                run=RUN, build=build, target=target, target_part=BuildPart(inputs=inputs)
            ),
        )
        for number, (target, inputs) in enumerate([("b", ("x",)), ("a", ()), ("b", ("x", "y"))])
    )
    parts = {"b": BuildPart(inputs=("x", "y")), "a": BuildPart()}
    assert find_targets(cases) == {canonical_json(build): parts}


def test_no_name_of_a_case_is_that_of_an_attempt() -> None:
    """The second attempt at a case and a case that is called like one are told apart."""
    cases = tuple(
        SuiteCase(testcase="t", name=n, work=CommandWork(run=RUN)) for n in ("c", "c~2", "c/2")
    )
    piece = Piece(testcase="t", cases=tuple(case.id for case in cases), expected_s=1.0)
    source = make_source(1, cases, (piece,))
    (batch,) = ask(source, 1)
    source.tell(trial(batch, "t/c", Outcome.MISMATCH))
    (again,) = ask(source, 1)
    keys = [case.key for one in (batch, again) for case in one.cases]
    assert len(set(keys)) == 4
    source.tell(trial(again, "t/c", Outcome.PASSED))
    source.tell(trial(batch, "t/c~2", Outcome.CRASHED))
    assert [one.outcome for one in source.trials["t/c"]] == [Outcome.MISMATCH, Outcome.PASSED]
