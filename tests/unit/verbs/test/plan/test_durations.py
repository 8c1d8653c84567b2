"""Expected times: what was seen before, else what family, dtype and size make likely."""

import random
from pathlib import Path

import pytest

from tileyard.base.model import CommandWork, Outcome, Step
from tileyard.store.base import CaseTimes, RunTime
from tileyard.verbs.test.plan.durations import (
    DEFAULT_S,
    FARTHEST,
    Known,
    Quantile,
    expect,
    expect_imported,
    learn,
    learn_imported,
    note_strangers,
    summarize_history,
    tabulate,
)
from tileyard.verbs.test.plan.imports import ImportedTime, read_times
from tileyard.verbs.test.result.result import SuiteCase

WORK = CommandWork(run=Step(argv=("true",)))
DATE = 100.0


def case(name: str, **fields: object) -> SuiteCase:
    """A case ``testcase/name``."""
    testcase, _, own = name.partition("/")
    content = {"testcase": testcase, "name": own, "family": testcase, "work": WORK} | fields
    return SuiteCase(**content)  # type: ignore[arg-type]  # fields by name


def ran(name: str, run_s: float, **fields: object) -> RunTime:
    """A run of a case."""
    usual: dict[str, object] = {
        "case": name,
        "testcase": name.partition("/")[0],
        "target": "command",
        "device": "sim:0",
        "outcome": Outcome.PASSED,
        "started_at": 0.0,
        "run_s": run_s,
    }
    return RunTime(**(usual | fields))  # type: ignore[arg-type]  # fields by name


def taken(seconds: float) -> Known:
    """A case that took so long once."""
    return Known(seconds=seconds, high_s=seconds, samples=1)


def test_quantiles_of_earlier_runs() -> None:
    """The median counts, one slow night does not."""
    times = [ran("t/a", seconds) for seconds in (2.0, 1.0, 3.0, 100.0, 2.0)]
    expected = Known(seconds=2.0, high_s=pytest.approx(61.2), samples=5)
    assert learn(times) == {"t/a": expected}


def test_runs_that_were_cut_short_count_only_where_there_are_no_others() -> None:
    """A crash after a second says nothing of a case that takes a minute, a hang says what it costs."""
    times = [
        ran("t/a", 60.0),
        ran("t/a", 1.0, outcome=Outcome.CRASHED),
        ran("t/b", 30.0, outcome=Outcome.TIMEOUT),
        ran("t/c", 0.0, outcome=Outcome.COMPILE_ERROR),
    ]
    expected = {"t/a": 60.0, "t/b": 30.0}
    assert {name: known.seconds for name, known in learn(times).items()} == expected


def test_targets_and_classes_of_devices_are_told_apart() -> None:
    """A simulator's minutes are no card's."""
    times = [
        ran("t/a", 60.0, device="sim:3"),
        ran("t/a", 0.5, device="npu:0"),
        ran("t/a", 9.0, target="cpu", device="npu:0"),
    ]
    expected = [60.0, 0.5, 9.0]
    found = [
        learn(times, "command", "sim"),
        learn(times, "command", "npu"),
        learn(times, "cpu", "npu"),
    ]
    assert [known["t/a"].seconds for known in found] == expected


def test_known_cases_are_expected_as_before() -> None:
    """In the order given, with their samples."""
    known = {"t/a": Known(seconds=2.0, high_s=3.0, samples=4)}
    found = expect([case("t/a")], known)[0]
    expected = ("t/a", 2.0, 3.0, 4, "history")
    assert (found.case, found.seconds, found.high_s, found.samples, found.source) == expected


def test_a_new_case_follows_the_growth_of_its_family() -> None:
    """Time that grows with the power 1.5 of the size goes on doing so."""
    sizes = [64, 128, 256, 512]
    cases = [case(f"t/{n}", shape=(n, 4), dtype="f16") for n in [*sizes, 1024]]
    known = {f"t/{n}": taken(1e-3 * n**1.5) for n in sizes}
    found = expect(cases, known)[-1]
    expected = 1e-3 * 1024**1.5
    assert found.seconds == pytest.approx(expected)
    assert found.source == "family"


def test_dtypes_differ_by_a_factor() -> None:
    """A new size of a slow dtype is slow, and a new dtype lies between those that are known."""
    cases = [
        case(f"t/{dtype}{n}", shape=(n,), dtype=dtype)
        for dtype in ("f16", "f32")
        for n in (10, 100, 1000)
    ]
    known = {c.id: taken(c.shape[0] * (4.0 if c.dtype == "f32" else 1.0)) for c in cases}
    new = [case("t/x", shape=(500,), dtype="f32"), case("t/y", shape=(500,), dtype="i8")]
    expected = [pytest.approx(2000.0), pytest.approx(1000.0)]
    assert [found.seconds for found in expect([*cases, *new], known)[-2:]] == expected


def test_few_cases_of_a_family_grow_as_all_families_do() -> None:
    """Two cases give a height, and the others the slope."""
    many = [case(f"t/{n}", shape=(n,)) for n in (10, 100, 1000, 10000)]
    few = [case("u/1", shape=(10,)), case("u/2", shape=(100,))]
    known = {c.id: taken(float(c.shape[0])) for c in many}
    known |= {"u/1": taken(1.0), "u/2": taken(1.0)}
    found = expect([*many, *few, case("u/3", shape=(1000,))], known)[-1]
    lowest = 1.0
    assert found.seconds > 5 * lowest


def test_guesses_stay_near_what_was_seen() -> None:
    """A shape that is a million times as large is not believed to take a million times as long."""
    cases = [case(f"t/{n}", shape=(n,)) for n in (1, 10, 100)]
    known = {c.id: taken(float(c.shape[0])) for c in cases}
    found = expect([*cases, case("t/x", shape=(100_000_000,))], known)[-1]
    expected = FARTHEST * 100.0
    assert found.seconds == pytest.approx(expected)


def test_strangers_are_taken_for_usual_ones() -> None:
    """A family that never ran takes the median of all, or the default where nothing ever ran."""
    known = {f"t/{n}": taken(float(n)) for n in (1, 2, 50)}
    cases = [*(case(name) for name in known), case("u/1")]
    found = expect(cases, known)[-1]
    expected = (2.0, "default")
    assert (pytest.approx(found.seconds), found.source) == expected
    assert expect([case("u/1")], {})[0].seconds == DEFAULT_S


def test_guesses_are_close_on_noisy_cases() -> None:
    """Half of the cases of twenty families, with a tenth of noise, tell of the other half."""
    chance = random.Random(7)
    cases, truth = [], {}
    for family in range(20):
        height, slope = chance.uniform(0.1, 10), chance.uniform(0.5, 1.5)
        for number in range(20):
            size = chance.choice([2**k for k in range(4, 14)])
            one = case(f"f{family}/{number}", shape=(size,), dtype=chance.choice(["f16", "f32"]))
            cases.append(one)
            truth[one.id] = height * size**slope * chance.lognormvariate(0, 0.1)
    known = {one.id: taken(truth[one.id]) for one in cases[::2]}
    errors = sorted(
        abs(found.seconds / truth[found.case] - 1)
        for found in expect(cases, known)
        if found.source == "family"
    )
    expected = 0.25
    assert len(errors) == len(cases) // 2
    assert errors[int(0.9 * len(errors))] < expected


def test_imported_times_of_testcases_are_shared_among_their_cases() -> None:
    """What is known of a single case goes before that."""
    times = [
        ImportedTime(testcase="t", seconds=6.0),
        ImportedTime(testcase="u", case="a", seconds=5.0),
    ]
    cases = [case("t/a"), case("t/b"), case("t/c"), case("u/a"), case("u/b")]
    expected = {"t/a": 2.0, "t/b": 2.0, "t/c": 2.0, "u/a": 5.0}
    found = learn_imported(times, cases)
    assert {name: known.seconds for name, known in found.items()} == expected
    assert note_strangers(times, cases) == ()
    assert note_strangers(times, cases[:3]) == ("1 of 2 times match no case",)


@pytest.mark.parametrize(
    ("seconds", "case_s", "expected"),
    [
        (150.0, 60.0, [60.0, 60.0, 30.0]),
        (120.0, 60.0, [60.0, 60.0]),
        (0.3, 0.1, [0.1, 0.1, 0.1]),
        (30.0, 60.0, [30.0]),
        (150.0, 0.0, [150.0]),
        (0.0, 60.0, [0.0]),
    ],
)
def test_testcases_consist_of_cases_of_one_length(
    seconds: float, case_s: float, expected: list[float]
) -> None:
    """The last one is shorter; the sum stays what it was."""
    found = expect_imported([ImportedTime(testcase="t", seconds=seconds)], case_s)
    assert [one.seconds for one in found] == pytest.approx(expected)
    assert {one.testcase for one in found} == {"t"}
    assert len({one.case for one in found}) == len(expected)


def test_a_table_of_times_says_elsewhere_what_is_known_here(tmp_path: Path) -> None:
    """Medians by case, attempts counted with their case, whatever signs are in its name."""
    times = [
        *(ran("sum/a", seconds) for seconds in (2.0, 9.0, 1.0)),
        ran("sum/a", 1.0 / 3),
        ran("#sum/a,b", 0.25),
        ran("dir/test_x.py/test_y[1]", 4.0, testcase="test_y", target="pytest"),
    ]
    file = tmp_path / "times.csv"
    file.write_text(tabulate(times), encoding="utf-8")
    expected = {case: pytest.approx(one.seconds, rel=1e-5) for case, one in learn(times).items()}
    assert len(expected) == 3
    assert {time.id: time.seconds for time in read_times(file)} == expected


def test_a_table_is_of_one_class_of_devices() -> None:
    """Where nothing ran on any of them there is no table."""
    times = [ran("sum/a", 2.0), ran("sum/a", 60.0, device="npu:1"), ran("sum/b", 1.0)]
    expected = 'testcase,case,seconds\n"sum","a",60.0\n'
    assert tabulate(times, "npu") == expected
    assert tabulate(times, "cuda") == ""


def runs(name: str, *before_s: float, after_s: tuple[float, ...] = ()) -> CaseTimes:
    """Runs of a case ``testcase/name``."""
    testcase = name.rpartition("/")[0]
    return CaseTimes(suite="", case=name, testcase=testcase, before_s=before_s, after_s=after_s)


def test_the_tail_is_named() -> None:
    """The longest cases and testcases with their share of one run of all."""
    times = [
        runs("a/x", 60.0, 62.0, 61.0),
        runs("b/x", 20.0),
        runs("b/y", 19.0),
        runs("dir/c.py/x", 0.5, after_s=(0.5,)),
    ]
    history = summarize_history(times, DATE, longest=2)
    total_s = 61.0 + 20.0 + 19.0 + 0.5
    expected = (4, 7, pytest.approx(total_s))
    assert (history.cases, history.runs, history.total_s) == expected
    assert [(one.case, one.seconds) for one in history.longest] == [("a/x", 61.0), ("b/x", 20.0)]
    assert [(one.case, one.seconds) for one in history.longest_testcases] == [
        ("a", 61.0),
        ("b", 39.0),
    ]
    assert history.longest[0].share == pytest.approx(61.0 / total_s)
    assert Quantile(share=0.5, seconds=19.5) in history.quantiles


def test_a_clear_change_of_the_median_is_told() -> None:
    """Cases that became slower or faster, the one that costs or saves most in front."""
    times = [
        runs("t/slower", 10.0, 10.1, 9.9, after_s=(15.0, 15.2, 14.9)),
        runs("t/faster", 100.0, 100.0, 99.0, after_s=(50.0, 51.0, 50.0)),
    ]
    history = summarize_history(times, DATE)
    expected = [("t/faster", pytest.approx(0.5)), ("t/slower", pytest.approx(1.5))]
    assert [(one.case, one.ratio) for one in history.moved] == expected
    assert history.compared == len(expected)


@pytest.mark.parametrize(
    ("before", "after", "compared"),
    [
        ((10.0, 10.0), (20.0, 20.0, 20.0), 0),
        ((10.0, 10.0, 10.0), (20.0, 20.0), 0),
        ((10.0, 10.0, 10.0), (11.0, 11.0, 11.0), 1),
        ((10.0, 5.0, 40.0, 41.0), (30.0, 31.0, 32.0), 1),
        ((30.0, 31.0, 32.0), (10.0, 9.0, 40.0, 41.0, 8.0), 1),
    ],
)
def test_noise_is_no_change(
    before: tuple[float, ...], after: tuple[float, ...], compared: int
) -> None:
    """Too few runs, a small factor, or medians within each other's spread."""
    expected: tuple[object, ...] = ()
    history = summarize_history([runs("t/a", *before, after_s=after)], DATE)
    assert history.moved == expected
    assert history.compared == compared


def test_no_history_is_empty() -> None:
    """Nothing ran: nothing to tell."""
    history = summarize_history([], DATE)
    expected = (0, 0, (), ())
    assert (history.cases, history.total_s, history.quantiles, history.longest) == expected
