"""What a run of a suite came to: one verdict for each case that was expected, whatever was told."""

from datetime import date

import msgspec
import pytest

from tileyard.base.model import CommandWork, Outcome, Step, Trial
from tileyard.base.quarantine import Quarantine
from tileyard.verbs.test.result.result import (
    SuiteCase,
    SuiteResult,
    fails_run,
    judge_cases,
    skip_unbegun,
)

CARE = Quarantine(cases="*", owner="ana", reason="flaky card", until=date.max)


def case(name: str, family: str = "") -> SuiteCase:
    """A case of the testcase ``t``."""
    work = CommandWork(run=Step(argv=("true",)))
    return SuiteCase(testcase="t", name=name, work=work, family=family, where="suite.toml:3")


def trials(name: str, *outcomes: Outcome) -> list[Trial]:
    """Attempts at a case, in their order."""
    return [
        Trial(
            id=f"{name}.{number}",
            run="r",
            case=name,
            batch="b",
            kernel="t",
            arguments={},
            config={},
            target="command",
            outcome=outcome,
            message=f"attempt {number}",
            device="slot:1",
            run_s=2.0,
            log="logs/r/t/a.log",
        )
        for number, outcome in enumerate(outcomes, 1)
    ]


def result(*outcomes: Outcome, quarantined: bool = False) -> SuiteResult:
    """A run in which cases ended so."""
    cases = [case(str(number)) for number in range(len(outcomes))]
    told = {c.id: trials(c.id, o) for c, o in zip(cases, outcomes, strict=True)}
    verdicts = judge_cases(cases, told, {c.id: CARE for c in cases} if quarantined else {})
    return SuiteResult(
        run="r", suite="s", path="suite.toml", policy="full", home=".", verdicts=verdicts
    )


def test_every_expected_case_has_one_verdict() -> None:
    """In the suite's order; one that nothing was told of was not run, and a stranger counts for nothing."""
    cases = [case("a"), case("b", family="sum"), case("c")]
    told = {"t/c": trials("t/c", Outcome.PASSED), "t/z": trials("t/z", Outcome.CRASHED)}
    verdicts = judge_cases(cases, told, {})
    expected = [("t/a", "t", "not_run"), ("t/b", "sum", "not_run"), ("t/c", "t", "passed")]
    assert [(v.case, v.family, v.outcome.value) for v in verdicts] == expected
    assert verdicts[0].message == "the run ended before this case was reached"
    assert verdicts[0].is_failure


def test_what_must_be_checked_and_was_not_fails() -> None:
    """With the reason; where nothing asks for a check it is well."""
    told = {"t/a": trials("t/a", Outcome.UNCHECKED)}
    (free,) = judge_cases([case("a")], told, {})
    (bound,) = judge_cases([case("a")], told, {}, require_check=True)
    expected = "attempt 1; no reference, and a check is required"
    assert (free.is_bad, bound.is_failure, bound.message) == (False, True, expected)


def test_the_last_attempt_decides_and_all_are_kept() -> None:
    """A pass after a failure is flaky; a failure after a pass, or alone, is not."""
    ends = {
        "a": (Outcome.CRASHED, Outcome.PASSED),
        "b": (Outcome.CRASHED, Outcome.MISMATCH),
        "c": (Outcome.PASSED,),
        "d": (Outcome.PASSED, Outcome.PASSED),
    }
    cases = [case(name) for name in ends]
    told = {f"t/{name}": trials(f"t/{name}", *outcomes) for name, outcomes in ends.items()}
    verdicts = judge_cases(cases, told, {})
    assert [v.is_flaky for v in verdicts] == [True, False, False, False]
    assert [v.outcome for v in verdicts] == [outcomes[-1] for outcomes in ends.values()]
    assert verdicts[1].message == "attempt 2"
    assert [a.trial for a in verdicts[0].attempts] == ["t/a.1", "t/a.2"]
    assert (verdicts[0].attempts[0].device, verdicts[0].attempts[0].run_s) == ("slot:1", 2.0)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((), 0),
        ((Outcome.PASSED, Outcome.UNCHECKED, Outcome.SKIPPED), 0),
        ((Outcome.PASSED, Outcome.INFRA_ERROR), 3),
        ((Outcome.QUEUE_TIMEOUT,), 3),
        ((Outcome.QUEUE_TIMEOUT, Outcome.MISMATCH), 1),
        ((Outcome.NOT_RUN,), 1),
        ((Outcome.COMPILE_ERROR,), 1),
        ((Outcome.OUT_OF_MEMORY,), 1),
    ],
)
def test_the_exit_status_tells_failures_from_infrastructure(
    outcomes: tuple[Outcome, ...], expected: int
) -> None:
    """One failure of a case counts more than any number of faults."""
    assert result(*outcomes).exit_status == expected


def test_a_quarantined_case_does_not_gate() -> None:
    """Its failure and its faults are in the verdicts, and not in the exit status."""
    seen = result(Outcome.CRASHED, Outcome.INFRA_ERROR, Outcome.NOT_RUN, quarantined=True)
    assert seen.exit_status == 0
    assert seen.failures == ()
    assert seen.spared == seen.verdicts[:2], "what never ran is listed as that alone"
    assert seen.never_ran == seen.verdicts[2:]
    assert seen.verdicts[0].is_failure
    assert seen.verdicts[0].quarantine == CARE


def test_an_interrupted_run_says_so_whatever_failed() -> None:
    """130, also where all that ran was well."""
    for outcome in (Outcome.PASSED, Outcome.CRASHED):
        stopped = msgspec.structs.replace(result(outcome), reason="interrupted")
        assert stopped.exit_status == 130


@pytest.mark.parametrize(
    ("outcome", "attempt", "expected"),
    [
        (Outcome.PASSED, 1, False),
        (Outcome.SKIPPED, 1, False),
        (Outcome.NOT_RUN, 1, False),
        (Outcome.INFRA_ERROR, 1, False),
        (Outcome.QUEUE_TIMEOUT, 1, False),
        (Outcome.UNCHECKED, 1, True),
        (Outcome.COMPILE_ERROR, 1, True),
        (Outcome.MISMATCH, 1, False),
        (Outcome.MISMATCH, 2, True),
        (Outcome.CRASHED, 2, True),
    ],
)
def test_a_first_failure_is_a_last_attempt_that_failed(
    outcome: Outcome, attempt: int, expected: bool
) -> None:
    """Where a case is tried again once and must be checked; faults of devices and hosts are none."""
    (*_, last) = (msgspec.structs.replace(t, attempt=attempt) for t in trials("a", outcome))
    assert fails_run(last, retries=1, require_check=True) is expected


def test_cases_after_a_first_failure_are_skipped_and_have_not_passed() -> None:
    """Whatever ended beside the failure, the exit status is 1."""
    for beside in (Outcome.PASSED, Outcome.CRASHED, Outcome.INFRA_ERROR):
        ran = result(Outcome.MISMATCH, beside, Outcome.NOT_RUN)
        skipped = skip_unbegun(ran.verdicts, "skipped: t/0 failed")
        ended = msgspec.structs.replace(ran, verdicts=skipped, reason="first_failure")
        assert ended.exit_status == 1
        assert [one.is_skipped for one in ended.verdicts] == [False, False, True]
        assert ended.never_ran[0].message == "skipped: t/0 failed"
        assert ended.verdicts[2].is_bad


def test_outcomes_are_counted_from_verdicts() -> None:
    """None is the rest of others."""
    seen = result(Outcome.PASSED, Outcome.PASSED, Outcome.NOT_RUN).count()
    assert seen == {Outcome.PASSED: 2, Outcome.NOT_RUN: 1}
