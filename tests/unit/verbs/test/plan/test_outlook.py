"""What of a suite will run: policy and wish first, then the shard, then the budget; each says why not."""

from collections.abc import Sequence
from datetime import date

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork, KernelWork, Outcome, Step
from tileyard.base.quarantine import Quarantine
from tileyard.store.base import RunTime
from tileyard.verbs.test.options.suites import Wish
from tileyard.verbs.test.plan.durations import Known
from tileyard.verbs.test.plan.outlook import Bounds, Outlook, expect_all, look_ahead, target_of
from tileyard.verbs.test.plan.shards import Shard
from tileyard.verbs.test.result.records import Expected, Policy, Suite, SuiteCase

PROGRAM = CommandWork(run=Step(argv=("true",)))
FAMILIES = {"sum": 3, "sort": 2}


def make_suite(**changes: object) -> Suite:
    """Three cases of one family and two of another; ``changes`` are fields of the suite."""
    cases = tuple(
        SuiteCase(testcase=family, name=str(number), work=PROGRAM, family=family, dtype="float32")
        for family, count in FAMILIES.items()
        for number in range(count)
    )
    fields: dict[str, object] = {"name": "s", "path": "/s.toml", "folder": "/", "cases": cases}
    return Suite(**{**fields, **changes})  # type: ignore[arg-type]  # fields of a suite


def expected_of(suite: Suite, seconds: float = 10.0) -> dict[str, Expected]:
    """All cases take as long."""
    return {
        case.id: Expected(case=case.id, testcase=case.testcase, seconds=seconds)
        for case in suite.cases
    }


def look(suite: Suite, bounds: Bounds | None = None, wish: Wish | None = None) -> Outlook:
    """The outlook, with no history."""
    expected = expected_of(suite)
    return look_ahead(suite, wish or Wish(), lambda _: expected, bounds or Bounds(), ())


def ids(outlook: Outlook) -> list[str]:
    """What runs."""
    return [case.id for case in outlook.selection.cases]


def test_all_of_a_suite_runs_unless_somebody_says_otherwise() -> None:
    """Nothing is left out, no family is uncovered, and what is expected is known of each."""
    suite = make_suite()
    outlook = look(suite)
    assert ids(outlook) == [case.id for case in suite.cases]
    assert (outlook.selection.left_out, outlook.selection.uncovered) == ((), ())
    assert [one.case for one in outlook.of(suite.cases[3:])] == ["sort/0", "sort/1"]


@pytest.mark.parametrize("count", [2, 3])
def test_shards_part_what_was_chosen(count: int) -> None:
    """Each case is in exactly one; those of others say so; only what is chosen is parted."""
    suite = make_suite()
    wish = Wish(select=("sum",))
    found: list[str] = []
    for number in range(1, count + 1):
        bounds = Bounds(shard=Shard(number=number, count=count))
        outlook = look(suite, bounds, wish)
        found += ids(outlook)
        reason = f"another shard than {number}/{count} runs it"
        others = {left.case for left in outlook.selection.left_out if left.reason == reason}
        assert others | set(ids(outlook)) == {"sum/0", "sum/1", "sum/2"}
    assert sorted(found) == ["sum/0", "sum/1", "sum/2"]


def test_a_budget_takes_what_fits_and_lists_the_rest() -> None:
    """A family of which nothing fits is uncovered."""
    suite = make_suite()
    outlook = look(suite, Bounds(budget_s=10.0))
    (kept,) = outlook.selection.cases
    left = {one.case for one in outlook.selection.left_out}
    expected = {case.id for case in suite.cases} - {kept.id}
    assert left == expected
    assert all(one.reason for one in outlook.selection.left_out)
    assert set(outlook.selection.uncovered) == FAMILIES.keys() - {kept.family}


def test_a_budget_is_one_of_wall_time() -> None:
    """On more slots more fits."""
    suite = make_suite()
    counts = [len(ids(look(suite, Bounds(budget_s=21.0, slots=slots)))) for slots in (1, 2, 3)]
    assert counts == [2, 4, 5]


def test_the_policys_budget_counts_unless_another_is_asked_for() -> None:
    """What is asked for may be more."""
    suite = make_suite(policies={"quick": Policy(name="quick", budget_s=11.0)})
    wish = Wish(policy="quick")
    counts = [len(ids(look(suite, bounds, wish))) for bounds in (Bounds(), Bounds(budget_s=31.0))]
    assert counts == [1, 3]


def test_a_quarantine_stays_with_the_cases_that_are_kept() -> None:
    """That of a case which another shard runs is of no concern here."""
    care = Quarantine(cases="*", owner="ana", reason="why", until=date.max)
    outlook = look(make_suite(quarantine=(care,)), Bounds(budget_s=10.0))
    assert list(outlook.selection.quarantined) == ids(outlook)


def test_nothing_to_run_is_refused() -> None:
    """It is no success."""
    with pytest.raises(UsageError, match="budget"):
        look(make_suite(), Bounds(budget_s=1.0))


def test_programs_and_kernels_have_their_own_targets_and_times() -> None:
    """A time that was measured on another class of devices, or for another target, counts less."""
    kernel = SuiteCase(testcase="gemm", name="k", work=KernelWork(file="gemm.py"))
    program = SuiteCase(testcase="sum", name="p", work=PROGRAM)
    suite = make_suite(cases=(kernel, program))
    targets = {case.id: target_of(case, "cpu") for case in suite.cases}
    assert targets == {"gemm/k": "cpu", "sum/p": "command"}
    found = expect_all(
        suite,
        (),
        {"cpu": "cpu", "command": "slot"},
        lambda case: targets[case.id],
        {"sum/p": Known(seconds=3.0, high_s=4.0, samples=5)},
    )
    assert (found["sum/p"].seconds, found["sum/p"].source) == (3.0, "history")
    assert found["gemm/k"].source != "history"


def test_a_shard_is_cut_without_the_store_and_expected_with_it() -> None:
    """Jobs with stores of their own agree on what each runs; a prediction is of what is known here."""
    suite = make_suite()
    known = RunTime(
        case="sum/0",
        testcase="sum",
        target="command",
        device="slot:0",
        outcome=Outcome.PASSED,
        started_at=1.0,
        run_s=500.0,
    )
    seen: list[int] = []

    def expecting(times: Sequence[RunTime]) -> dict[str, Expected]:
        seen.append(len(times))
        return expected_of(suite, 500.0 if times else 10.0)

    bounds = Bounds(shard=Shard(number=1, count=2))
    outlook = look_ahead(suite, Wish(), expecting, bounds, (known,))
    assert ids(outlook) == ids(look(suite, bounds))
    assert {one.seconds for one in outlook.expected.values()} == {500.0}
    assert sorted(seen) == [0, 1]
    assert sum(outlook.shards_s) == 50.0
    assert outlook.shards_s[0] == 10.0 * len(ids(outlook))
