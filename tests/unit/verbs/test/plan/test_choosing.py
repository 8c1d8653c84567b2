"""Which cases run: policies, lists, what was asked for, and what is said of the rest."""

import datetime
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork, KernelWork, Step
from tileyard.base.quarantine import Quarantine
from tileyard.verbs.test.plan.choosing import (
    Wish,
    canonical_dtype,
    choose,
    dtype_class,
    find_covering,
    find_policy,
    is_expression,
    select,
)
from tileyard.verbs.test.result.result import LeftOut, Policy, Rule, Selection, Suite, SuiteCase

TODAY = datetime.date(2026, 11, 21)
WORK = CommandWork(run=Step(argv=("true",)))
NAMES = {"a": "123", "b": "2", "c/x-*": "34", "7[f]": "5"}
EVERY = frozenset("12345")


def case(
    name: str,
    dtype: str = "float32",
    *,
    family: str = "sum",
    smoke: bool | None = False,
    tags: tuple[str, ...] = (),
) -> SuiteCase:
    """A case of which only what choosing looks at matters; ``smoke`` is None for one of smoke runs only."""
    return SuiteCase(
        testcase=family if family == "odd" else f"row{family}",
        name=name,
        work=WORK,
        family=family,
        dtype=dtype,
        smoke=smoke is not False,
        only_smoke=smoke is None,
        tags=tags,
    )


CASES = (
    case("c1"),
    case("c10", smoke=True),
    case("c2", "f16", tags=("quick",)),
    case("c3", "bf16"),
    case("i", "int32", family="max"),
    case("u", "uint8", family="max", tags=("quick",)),
    case("x", "vendor4", family="odd"),
)
SUITE = Suite(name="s", path="/s/suite.toml", folder="/s", cases=CASES)


def suite_with(
    *,
    allow: tuple[Rule, ...] = (),
    skip: tuple[Rule, ...] = (),
    quarantine: tuple[Quarantine, ...] = (),
    policies: tuple[Policy, ...] = (),
) -> Suite:
    """The suite with lists or policies."""
    return Suite(
        name="s",
        path="/s/suite.toml",
        folder="/s",
        cases=CASES,
        allow=allow,
        skip=skip,
        quarantine=quarantine,
        policies={policy.name: policy for policy in policies},
    )


def names(selection: Selection) -> list[str]:
    """The names of the cases that run."""
    return [one.name for one in selection.cases]


def run(
    suite: Suite = SUITE, expected_s: Mapping[str, float] | None = None, **wish: object
) -> Selection:
    """Choose by a wish given in words."""
    return choose(suite, Wish(**wish), TODAY, expected_s or {})  # type: ignore[arg-type]


def test_full_runs_all() -> None:
    """Without anything asked for, every case runs, in the order of the suite."""
    expected = Selection(policy="full", cases=CASES)
    assert run() == expected


def test_smoke_has_one_of_each_family_and_class_of_dtypes() -> None:
    """Declared smoke cases go first, then the quickest known one, then the first of the suite."""
    selection = run(policy="smoke", expected_s={"rowmax/u": 5.0, "rowsum/c3": 1.0})
    expected = ["c10", "c3", "u", "x"]
    assert names(selection) == expected
    assert selection.left_out[0] == LeftOut(
        case="rowsum/c1", reason="policy smoke runs another case of its family: rowsum/c10"
    )
    assert [one.case for one in selection.left_out[1:]] == ["rowsum/c2", "rowmax/i"]
    assert selection.uncovered == ()


@pytest.mark.parametrize(
    ("cases", "wish", "is_told"),
    [
        ((case("a"), case("b", "f16"), case("c", family="max")), {}, True),
        ((case("a"), case("b"), case("c", family="max")), {}, False),
        ((case("a", smoke=True), case("b", "f16")), {}, False),
        ((case("a"),), {}, False),
        ((case("a"), case("b", "f16")), {"select": ("a", "b")}, False),
        ((case("a"), case("b", "f16")), {"policy": "full"}, False),
    ],
)
def test_a_smoke_run_of_all_cases_is_noted(
    cases: tuple[SuiteCase, ...], wish: dict[str, object], *, is_told: bool
) -> None:
    """Where no case is declared as smoke and each is alone in its family and class of dtypes."""
    suite = Suite(name="s", path="/s", folder="/", cases=cases)
    selection = run(suite, **{"policy": "smoke", **wish})  # type: ignore[arg-type]
    expected = (
        "policy smoke chooses nothing, so all 3 cases run:"
        " no case says smoke = true, and each is alone in its family and class of dtypes"
    )
    assert selection.notes == ((expected,) if is_told else ())


def test_of_cases_that_nothing_is_known_of_the_smallest_stands_for_the_others() -> None:
    """Data of programs and arguments of kernels say how much work a case is."""
    programs = tuple(
        msgspec.structs.replace(case(name), shape=shape)
        for name, shape in (("large", (64, 64)), ("small", (8, 8)), ("wide", (8, 64)))
    )
    kernels = tuple(
        SuiteCase(
            testcase="gemm",
            name=str(size),
            work=KernelWork(file="k.py", arguments={"M": size, "N": 8, "flag": True}),
            family="gemm",
        )
        for size in (64, 16, 32)
    )
    suite = Suite(name="s", path="/s", folder="/", cases=(*programs, *kernels))
    expected = ["small", "16"]
    assert names(run(suite, policy="smoke")) == expected


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["sum", "max"]),
            st.sampled_from(["float32", "float64", "f16", "bf16", "fp8_e4m3", "int8", "bool"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_smoke_covers_what_full_covers(rows: list[tuple[str, str, bool]]) -> None:
    """Whatever the suite, smoke leaves out no family and no class of dtypes, and no declared case."""
    cases = tuple(
        case(str(n), dtype, family=family, smoke=smoke)
        for n, (family, dtype, smoke) in enumerate(rows)
    )
    suite = Suite(name="s", path="/s", folder="/", cases=cases)
    chosen = run(suite, policy="smoke").cases
    expected = {(one.family, dtype_class(one.dtype)) for one in cases}
    assert {(one.family, dtype_class(one.dtype)) for one in chosen} == expected
    assert {one.id for one in cases if one.smoke} <= {one.id for one in chosen}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rowsum/c1", ["c1"]),
        ("rowmax", ["i", "u"]),
        ("max", ["i", "u"]),
        ("quick", ["c2", "u"]),
        ("*/c1*", ["c1", "c10"]),
        ("/c", ["c1", "c10", "c2", "c3"]),
    ],
)
def test_a_text_selects_by_id_name_tag_glob_or_part(text: str, expected: list[str]) -> None:
    """The closest of these readings counts: an id does not drag in those that merely begin like it."""
    assert names(run(select=(text,))) == expected


def test_several_texts_select_what_any_of_them_means() -> None:
    """Texts add up, and what none of them means is left out for that reason."""
    selection = run(select=("odd", "rowsum/c1"))
    expected = ["c1", "x"]
    assert names(selection) == expected
    assert selection.left_out[0].reason == "not selected by --select odd rowsum/c1"
    assert selection.uncovered == ()
    suite = msgspec.structs.replace(SUITE, skip=(Rule(cases="odd/*", reason="slow"),))
    assert run(suite, select=("odd", "rowsum/c1")).uncovered == ("odd",)
    assert run(select=("odd", "rowsum/c1"), skip=("odd",)).uncovered == ()


def test_a_text_that_means_nothing_is_refused() -> None:
    """Also beside one that means something, the nearest names are told."""
    with pytest.raises(UsageError) as refused:
        run(select=("rowmax", "rowsun"))
    expected = (
        "/s/suite.toml: --select rowsun matches none of its 7 cases",
        "did you mean rowsum",
    )
    assert refused.value.message == expected[0]
    assert refused.value.hint.startswith(expected[1])
    assert refused.value.exit_status == 2


def test_lists_leave_cases_out_with_their_reasons() -> None:
    """Only what is allowed runs, and nothing of that which is to be skipped."""
    suite = suite_with(
        allow=(Rule(cases="rowsum/*", reason="the rest is new"),),
        skip=(Rule(cases="*/c1?", reason="needs a card"), Rule(cases="gone/*", reason="old")),
    )
    selection = run(suite)
    expected = {
        "rowsum/c10": "on the skip list: needs a card",
        "rowmax/i": "not on the allow list",
        "rowmax/u": "not on the allow list",
        "odd/x": "not on the allow list",
    }
    assert {one.case: one.reason for one in selection.left_out} == expected
    assert selection.notes == (
        "no policy runs cases of max, odd",
        "skip: gone/* matches no case",
    )
    assert selection.uncovered == ("max", "odd")


def test_asking_for_what_is_skipped_is_refused_with_the_reason() -> None:
    """A run of nothing is never green: it says why nothing is left."""
    suite = suite_with(skip=(Rule(cases="odd/*", reason="needs a card"),))
    with pytest.raises(UsageError) as refused:
        run(suite, select=("odd",))
    expected = (
        "/s/suite.toml: nothing to run for policy full, --select odd: "
        "odd/x: on the skip list: needs a card"
    )
    assert refused.value.message == expected


def test_what_failed_runs_again() -> None:
    """Of the failed cases none is missing for a policy's sake; those that are gone are counted."""
    failed = ("rowsum/c1", "rowsum/c10", "rowsum/gone")
    selection = run(policy="smoke", rerun=failed)
    expected = ["c1", "c10"]
    assert names(selection) == expected
    assert selection.notes == (
        "1 of the cases that failed are not in the suite any more: rowsum/gone",
    )
    assert selection.left_out[0].reason == "did not fail in the run that is repeated"


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ((), "nothing failed in the run that is repeated"),
        (("a/b",), "none of them is in the suite"),
    ],
)
def test_nothing_to_run_again_is_refused(failed: tuple[str, ...], why: str) -> None:
    """Where nothing failed, or only what is gone, there is nothing to run."""
    with pytest.raises(UsageError, match=why):
        run(rerun=failed)


def quarantine(cases: str, until: str, owner: str = "ana") -> Quarantine:
    """An entry of the quarantine."""
    return Quarantine(
        cases=cases, owner=owner, reason="flaky", until=datetime.date.fromisoformat(until)
    )


def test_a_quarantine_lasts_to_the_end_of_its_last_day() -> None:
    """On its last day a case does not gate; of several entries the one that lasts longest counts."""
    today = quarantine("rowsum/*", "2026-11-21")
    longer = quarantine("*/c1", "2027-01-01", "bo")
    over = quarantine("*/i", "2026-11-20")
    selection = run(suite_with(quarantine=(today, longer, over)), select=("*/c1*", "*/i"))
    expected = {"rowsum/c1": longer, "rowsum/c10": today}
    assert selection.quarantined == expected
    assert selection.notes == (
        "the quarantine of */i ended on 2026-11-20: 1 case gates again (owner ana: flaky)",
    )


def test_policies_of_the_suite_choose_by_glob_and_tag() -> None:
    """A named policy takes cases like its globs that have one of its tags, and smoke picks of these."""
    suite = suite_with(
        policies=(
            Policy(name="quick", tags=("quick", "other"), cases=("row*",)),
            Policy(name="sums", select="smoke", cases=("rowsum/*",)),
        )
    )
    selection = run(suite, policy="quick")
    expected = ["c2", "u"]
    assert names(selection) == expected
    assert {one.reason for one in selection.left_out} == {
        "policy quick takes only cases tagged quick, other",
        "policy quick takes only cases like row*",
    }
    assert names(run(suite, policy="sums")) == ["c10", "c2"]


def test_all_but_the_heavy_ones() -> None:
    """A policy excludes by testcase, family, tag or glob, and says of which families, whole or in part."""
    light = Policy(name="light", exclude=("odd", "max", "*/c1*"))
    selection = run(suite_with(policies=(light,)), policy="light")
    expected = ["c2", "c3"]
    assert names(selection) == expected
    assert selection.uncovered == ("max", "odd")
    assert selection.notes[0] == "policy light excludes 5 cases: max, odd, sum (2 of 4)"
    reasons = {one.case: one.reason for one in selection.left_out}
    assert reasons["rowsum/c10"] == "policy light excludes */c1*"


def test_a_policy_skips_for_a_reason_of_its_own() -> None:
    """Other policies run what one of them skips."""
    nightly = Policy(name="nightly", skip=(Rule(cases="rowsum/c?", reason="too long for a night"),))
    suite = suite_with(policies=(nightly,))
    selection = run(suite, policy="nightly")
    expected = ["c10", "i", "u", "x"]
    assert names(selection) == expected
    reason = "on the skip list of policy nightly: too long for a night"
    assert {one.reason for one in selection.left_out} == {reason}
    assert names(run(suite)) == [case.name for case in CASES]


DECLARED = Suite(
    name="s",
    path="/s/suite.toml",
    folder="/s",
    cases=(*CASES, case("tiny", smoke=None), case("old", family="odd", smoke=None)),
    policies={"change": Policy(name="change", select="declared")},
)


def test_a_declared_smoke_run_is_what_its_owner_lists() -> None:
    """A family of which no case is declared has none."""
    selection = run(DECLARED, policy="change")
    expected = ["c10", "tiny", "old"]
    assert names(selection) == expected
    assert selection.uncovered == ("max",)
    with pytest.raises(UsageError, match="takes only cases that are declared as smoke"):
        run(DECLARED, policy="change", select=("rowmax",))


def test_cases_of_smoke_runs_only_are_in_no_full_run() -> None:
    """They run in smoke runs, and where one is asked for by its id."""
    assert run(DECLARED).cases == CASES
    expected = ["c10", "c2", "i", "x", "tiny", "old"]
    assert names(run(DECLARED, policy="smoke")) == expected
    assert names(run(DECLARED, select=("rowsum/tiny",))) == ["tiny"]
    assert names(run(DECLARED, select=("odd",))) == ["x"]


def test_skips_on_the_command_line_are_named_as_selections_are() -> None:
    """Also of what failed before; one that means no case is refused."""
    selection = run(skip=("quick", "odd", "rowsum/c1"))
    expected = ["c10", "c3", "i"]
    assert names(selection) == expected
    assert selection.left_out[0] == LeftOut(case="rowsum/c1", reason="left out by --skip rowsum/c1")
    assert names(run(rerun=("rowsum/c1", "rowsum/c2"), skip=("rowsum/c1",))) == ["c2"]
    with pytest.raises(UsageError) as refused:
        run(skip=("rowsun/*",))
    assert refused.value.message == "/s/suite.toml: --skip rowsun/* matches none of its 7 cases"
    assert refused.value.hint.startswith("did you mean rowsum")
    with pytest.raises(UsageError, match=r"policy full, --select odd, --skip odd/x: odd/x: left"):
        run(select=("odd",), skip=("odd/x",))


def test_it_is_known_which_policies_cover_a_family() -> None:
    """A run can say which of the families that it leaves out only another policy runs."""
    nightly = Policy(name="nightly", cases=("odd/*", "rowmax/*"))
    quick = Policy(name="quick", tags=("quick",))
    suite = suite_with(policies=(nightly, quick), skip=(Rule(cases="odd/*", reason="broken"),))
    uncovered = run(suite, policy="quick").uncovered
    expected = {"odd": ()}
    assert find_covering(suite, uncovered, {}) == expected
    assert find_covering(suite, ("max",), {}) == {"max": ("full", "smoke", "nightly", "quick")}


def test_a_fast_run_says_what_only_the_nightly_covers() -> None:
    """Families that a policy leaves out are told with the policies that run them."""
    suite = suite_with(
        policies=(Policy(name="quick", cases=("rowsum/*",)),),
        skip=(Rule(cases="odd/*", reason="broken"),),
    )
    expected = (
        "cases of max run only under the policies full and smoke",
        "no policy runs cases of odd",
    )
    assert run(suite, policy="quick").notes == expected
    assert run(suite, policy="quick", select=("rowsum",)).notes == ()


def test_a_policy_that_does_not_exist_is_refused() -> None:
    """The nearest one is told, and the suite's own stands before the built-in one of its name."""
    own = Policy(name="smoke", budget_s=3.0)
    assert find_policy(suite_with(policies=(own,)), "smoke") == own
    with pytest.raises(UsageError, match="there is no policy 'smok'") as refused:
        find_policy(SUITE, "smok")
    expected = "did you mean 'smoke'? there are full, smoke"
    assert refused.value.hint == expected


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("fp16", "float16", "half"),
        ("np.float32", "float32", "float"),
        ("bf16", "bfloat16", "half"),
        ("half", "float16", "half"),
        ("double", "float64", "float"),
        ("int", "int32", "int"),
        ("uint8_t", "uint8", "int"),
        ("fp8_e5m2", "float8_e5m2", "fp8"),
        ("e4m3fn", "float8_e4m3fn", "fp8"),
        ("fp8_e3m4", "", "fp8"),
        ("torch.bool", "bool", "bool"),
        ("vendor4", "", "vendor4"),
    ],
)
def test_types_are_known_by_their_usual_names(text: str, name: str, kind: str) -> None:
    """What people call a type is found, and what is not known is a class of its own."""
    assert (canonical_dtype(text), dtype_class(text)) == (name, kind)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not b", "1345"),
        ("a and not b", "13"),
        ("a or c/x-*", "1234"),
        ("a and b or c/x-*", "234"),
        ("a and (b or c/x-*)", "23"),
        ("not (a or 7[f])", "4"),
        ("  ( not a )and(c/x-*)  ", "4"),
        ("a and\tnot not b", "2"),
    ],
)
def test_names_are_joined_as_in_python(text: str, expected: str) -> None:
    """Whatever characters they hold."""
    found = select(text, EVERY, lambda name: frozenset(NAMES[name]))
    assert is_expression(text)
    assert found == frozenset(expected)


@pytest.mark.parametrize(
    "text", ["a b", "a and", "and a", "a or or b", "(a or b", "a ()", "a (b)", "not ", "() or a"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    """In one line that shows what one looks like."""
    with pytest.raises(UsageError, match="is not an expression of names with and, or, not"):
        select(text, EVERY, lambda name: frozenset(NAMES[name]))


@pytest.mark.parametrize("text", ["not " * 50_000 + "a", "(" * 5_000 + "a" + ")" * 5_000])
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    """And ends nothing else."""
    with pytest.raises(UsageError, match="is not an expression of names"):
        select(text, EVERY, lambda name: frozenset(NAMES[name]))
