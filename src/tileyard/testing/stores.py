"""The contract of stores: each trial comes back complete, once, and by each of its keys. Test
classes inherit ``StoreContract`` and define the fixture ``open_store``.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.model import (
    BuildKey,
    Keys,
    Measurement,
    MeasurementKey,
    Mismatch,
    Outcome,
    RunKey,
    Trial,
)
from tileyard.store.base import BUILD_FAILURES, REUSABLE, Store, TrialQuery

OpenStore = Callable[[], Store]
PASSED, CRASHED = Outcome.PASSED, Outcome.CRASHED
OF_SUITE = {"case": "s/a", "testcase": "s", "kernel": "", "arguments": {}, "config": {}}
"""The fields of a trial of a suite's program that differ from those of a tuned kernel."""


def make_trial(
    trial_id: str,
    **fields: Any,  # noqa: ANN401 (of any type: a wrong one fails when it is recorded)
) -> Trial:
    """A trial of a tuned kernel; ``fields`` replace those of Trial. ``build``, ``run_key`` and
    ``measurement_key`` are its keys, empty by default.
    """
    content: dict[str, Any] = {
        "run": "r1",
        "case": "c1",
        "batch": "b1",
        "kernel": "gemm",
        "arguments": {"M": 64},
        "config": {"block_M": 32, "fast": True},
        "target": "cpu",
        "outcome": PASSED,
        "started_at": 1.0,
        "keys": Keys(
            build=BuildKey(fields.pop("build", "")),
            run=RunKey(fields.pop("run_key", "")),
            measurement=MeasurementKey(fields.pop("measurement_key", "")),
        ),
        "measurement": Measurement(
            median_ns=2.5, low_ns=2.0, high_ns=3.0, confidence=0.95, samples_ns=(2.0, 2.5, 3.0)
        ),
    }
    return Trial(id=trial_id, **(content | fields))


class StoreContract:
    """Tests of what every store promises."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Opens the store under test, the same one each time; it is empty at first."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[Store]:
        """The opened store."""
        with open_store() as store:
            yield store

    @pytest.mark.parametrize("fields", [{}, {**OF_SUITE, "suite": "nightly", "attempt": 2}])
    def test_trial_comes_back_whole(
        self, open_store: OpenStore, store: Store, fields: dict[str, object]
    ) -> None:
        """Every field of a trial survives, including nested records, and for other handles on the store."""
        expected = make_trial(
            "t1",
            build="b",
            run_key="r",
            measurement_key="m",
            mismatch=Mismatch(output="C", index=(1, 2), got="nan", want="1", wrong=3, total=4),
            message='quoted "text" and ünïcode',
            shape="small",
            side="b",
            lease=7,
            **fields,
        )
        store.record(expected)
        with open_store() as another:
            assert another.get_trial("t1") == expected

    def test_trials_are_recorded_once_and_together(self, store: Store) -> None:
        """An existing id is refused together with all trials recorded with it, and the first record stays."""
        expected = make_trial("t1")
        store.record(expected)
        with pytest.raises(ValueError, match="t1 is already recorded"):
            store.record_all([make_trial("t0"), make_trial("t1", outcome=CRASHED)])
        assert store.list_trials(TrialQuery()) == [expected]

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_measurement_is_found_where_its_outcome_says_something_of_the_kernel(
        self, store: Store, outcome: Outcome
    ) -> None:
        """Faults of the infrastructure and cases that did not run are never reused."""
        trial = make_trial("t1", measurement_key="m", outcome=outcome)
        expected = trial if outcome in REUSABLE else None
        store.record(trial)
        assert store.find_measured(MeasurementKey("m")) == expected

    def test_latest_measurement_is_found(self, store: Store) -> None:
        """Of several trials with a key, the one that started last counts; of equal ones, the last."""
        expected = make_trial("t3", measurement_key="m", started_at=9.0)
        store.record(make_trial("t1", measurement_key="m", started_at=9.0))
        store.record(make_trial("t2", measurement_key="m", started_at=8.0))
        store.record(expected)
        store.record(make_trial("t4", measurement_key="m", started_at=7.0))
        store.record(make_trial("t5", measurement_key="other", started_at=10.0))
        assert store.find_measured(MeasurementKey("m")) == expected

    def test_cases_that_did_not_run_can_be_left_out(self, store: Store) -> None:
        """As for a table of what was measured."""
        ran = make_trial("t1")
        store.record_all([ran, make_trial("t2", outcome=Outcome.NOT_RUN)])
        assert store.list_trials(TrialQuery(was_run=True)) == [ran]

    def test_a_config_finds_its_own_measurement(self, store: Store) -> None:
        """Configs with the same binary share a key: the own trial counts before a later one of
        another config.
        """
        own = make_trial("t1", measurement_key="m", config={"n": 1}, started_at=1.0)
        other = make_trial("t2", measurement_key="m", config={"n": 2}, started_at=2.0)
        store.record_all([own, other])
        assert store.find_measured(MeasurementKey("m"), {"n": 1}) == own
        assert store.find_measured(MeasurementKey("m"), {"n": 3}) == other

    def test_keys_are_searched_as_they_are(self, store: Store) -> None:
        """A key is one value, not a pattern, and a step that was not reached has no key."""
        store.record(make_trial("t1", measurement_key="abc"))
        store.record(make_trial("t2", outcome=Outcome.TIMEOUT))
        assert store.find_measured(MeasurementKey("a%")) is None
        assert store.find_measured(MeasurementKey("")) is None
        assert store.find_build_failure(BuildKey("")) is None
        assert store.find_passed(RunKey("")) is None

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_build_failure_is_found_where_it_says_something_of_the_source(
        self, store: Store, outcome: Outcome
    ) -> None:
        """A build that was refused, hung or lacked memory is not tried again; a case that ran was built."""
        trial = make_trial("t1", build="b", outcome=outcome)
        expected = trial if outcome in BUILD_FAILURES else None
        store.record(trial)
        store.record(make_trial("t2", build="b", run_key="r", outcome=outcome, started_at=2.0))
        assert store.find_build_failure(BuildKey("b")) == expected

    def test_what_proves_a_case_is_found(self, store: Store) -> None:
        """The store finds the latest pass of a suite's case with a run key, in any run or in one run."""
        trials = [
            make_trial("t1", run_key="k", started_at=1.0, **OF_SUITE),
            make_trial("t2", run_key="k", started_at=2.0, run="r2", **OF_SUITE),
            make_trial("t3", run_key="k", started_at=3.0, **{**OF_SUITE, "outcome": CRASHED}),
            make_trial("t4", run_key="k", started_at=4.0),
        ]
        store.record_all(trials)
        assert store.find_passed(RunKey("k")) == trials[1]
        assert store.find_passed(RunKey("k"), "r1") == trials[0]
        assert store.find_passed(RunKey("k"), "r3") is None

    def test_durations_of_a_kernel(self, store: Store) -> None:
        """The duration is that of the latest run per arguments and config, for this target."""
        store.record(make_trial("t1", run_s=1.0))
        store.record(make_trial("t2", run_s=2.0, started_at=2.0))
        store.record(make_trial("t3", run_s=3.0, target="sim:h100", started_at=3.0))
        expected = {canonical_json(({"M": 64}, {"block_M": 32, "fast": True})): 2.0}
        assert store.find_durations("gemm", "cpu") == expected

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (TrialQuery(), ["t4", "t3", "t2", "t1"]),
            (TrialQuery(limit=2), ["t4", "t3"]),
            (TrialQuery(limit=0), ["t4", "t3", "t2", "t1"]),
            (TrialQuery(kernel="softmax"), ["t2"]),
            (TrialQuery(kernel="s"), ["t1"]),
            (TrialQuery(run="r2"), ["t3"]),
            (TrialQuery(target="sim:h100"), ["t4"]),
            (TrialQuery(run_keys=(RunKey("k"), RunKey("l"))), ["t4"]),
            (TrialQuery(outcome=CRASHED), ["t4", "t3"]),
            (TrialQuery(outcome=CRASHED, run="r1"), ["t4"]),
            (TrialQuery(kernel="%"), []),
            (TrialQuery(case="s"), ["t1"]),
            (TrialQuery(case="s/a"), ["t1"]),
            (TrialQuery(case="s/%"), []),
            (TrialQuery(suite="nightly"), ["t1"]),
            (TrialQuery(suite="nightly", case="s/a"), ["t1"]),
            (TrialQuery(suite="weekly", case="s/a"), []),
            (TrialQuery(batch="finals"), ["t3", "t2"]),
            (TrialQuery(batch="finals", limit=1), ["t3"]),
            (TrialQuery(batch="b1"), ["t4"]),
            (TrialQuery(since=3.0), ["t4", "t3"]),
        ],
    )
    def test_trials_are_listed_newest_first(
        self, store: Store, query: TrialQuery, expected: list[str]
    ) -> None:
        """Filters combine; the limit keeps the newest; a program is found by its testcase."""
        store.record(
            make_trial("t3", started_at=3.0, run="r2", outcome=CRASHED, batch="s0/finals.2")
        )
        started = {"started_at": 1.0, "batch": "finals/b"}
        store.record(make_trial("t1", suite="nightly", **started, **OF_SUITE))
        other = {"target": "sim:h100", "outcome": CRASHED, "run_key": "k"}
        store.record(make_trial("t4", started_at=4.0, **other))
        store.record(make_trial("t2", started_at=2.0, kernel="softmax", batch="finals"))
        assert [trial.id for trial in store.list_trials(query)] == expected

    def test_runs_are_listed_by_name(self, store: Store) -> None:
        """The latest names first, up to a limit, or before one; each with its trials and their starts."""
        for run, times in (("r2", (5.0, 3.0)), ("r1", (9.0,)), ("r3", (1.0, 2.0, 4.0))):
            store.record_all([make_trial(f"{run}.{at}", run=run, started_at=at) for at in times])
        expected = [("r3", 3, 1.0, 4.0), ("r2", 2, 3.0, 5.0), ("r1", 1, 9.0, 9.0)]
        for found, said in (
            (store.list_runs(9), expected),
            (store.list_runs(2), expected[:2]),
            (store.list_runs(2, "r3"), expected[1:]),
            (store.list_runs(2, "r1"), []),
            (store.list_runs(), expected),
        ):
            assert [(one.run, one.trials, one.first_at, one.last_at) for one in found] == said

    def test_each_trial_has_a_higher_number(self, store: Store) -> None:
        """Whatever its name and time."""
        numbers = [store.get_last_number()]
        for name, at in (("t2", 2.0), ("t1", 1.0)):
            store.record(make_trial(name, started_at=at))
            numbers.append(store.get_last_number())
        assert 0 == numbers[0] < numbers[1] < numbers[2]

    def test_outcomes_of_a_run_are_counted(self, store: Store) -> None:
        """Of this run alone."""
        ends = (("a", PASSED), ("b", CRASHED), ("c", PASSED))
        store.record_all([make_trial(name, outcome=outcome) for name, outcome in ends])
        store.record(make_trial("d", run="r2"))
        assert store.count_outcomes("r1") == {PASSED: 2, CRASHED: 1}
        assert store.count_outcomes("r3") == {}

    def test_trial_is_found_by_the_beginning_of_its_id(self, store: Store) -> None:
        """A prefix is enough if it fits only one trial; a whole id wins over longer ones."""
        store.record_all([make_trial(name) for name in ("ab", "abc", "xyz")])
        assert store.get_trial("x").id == "xyz"
        assert store.get_trial("ab").id == "ab"
        assert store.has_all(["ab", "xyz"])
        assert store.has_all([])
        assert not store.has_all(["ab", "x"])

    @pytest.mark.parametrize(
        ("prefix", "message"),
        [
            ("q", "no trial"),
            ("", "no trial"),
            ("%", "no trial"),
            ("AB", "no trial"),
            ("a", "several"),
        ],
    )
    def test_id_that_names_no_single_trial_is_refused(
        self, store: Store, prefix: str, message: str
    ) -> None:
        """Nothing is guessed: unknown, empty and ambiguous prefixes are errors of the user."""
        store.record_all([make_trial("ab"), make_trial("abc")])
        with pytest.raises(UsageError, match=message):
            store.get_trial(prefix)

    def test_the_latest_runs_of_each_case_are_read(self, store: Store) -> None:
        """At most the requested number per case is returned, counting all attempts, the oldest first."""
        for i in range(5):
            for case in ("s/b", "s/a"):
                told = OF_SUITE | {"case": case, "run_s": i + 0.5, "attempt": i}
                store.record(make_trial(f"{case}{i}", started_at=float(i), **told))
        found = store.list_run_times(latest=2)
        expected = [("s/a", "s", 3.5), ("s/a", "s", 4.5), ("s/b", "s", 3.5), ("s/b", "s", 4.5)]
        assert [(time.case, time.testcase, time.run_s) for time in found] == expected

    @pytest.mark.parametrize(
        "fields",
        [
            {"testcase": ""},
            {"reused": True},
            {"outcome": Outcome.SKIPPED},
            {"outcome": Outcome.NOT_RUN},
            {"target": "cpu"},
        ],
    )
    def test_what_says_nothing_of_a_case_is_left_out(
        self, store: Store, fields: dict[str, object]
    ) -> None:
        """Trials of studies, reused trials, cases that did not run, and other targets are left out."""
        usual: dict[str, object] = OF_SUITE | {"target": "command", "started_at": 20.0}
        store.record(make_trial("t1", **usual))
        store.record(make_trial("t2", **(usual | fields)))
        found = store.list_run_times("command")
        expected = ["s/a"]
        assert [time.case for time in found] == expected

    @pytest.mark.parametrize(
        "fields",
        [
            {"testcase": ""},
            {"reused": True},
            {"outcome": Outcome.TIMEOUT},
            {"run_s": 0.0},
            {"target": "cpu"},
            {"device": "npux:0"},
        ],
    )
    def test_times_case_by_case(self, store: Store, fields: dict[str, object]) -> None:
        """Times are of cases that ended by themselves on this class of devices, around a date."""
        on = {"target": "command", "device": "npu:1"}
        usual: dict[str, object] = OF_SUITE | on | {"run_s": 2.5, "started_at": 20.0}
        store.record(make_trial("t1", **usual))
        store.record(make_trial("t2", **(usual | fields)))
        earlier = {"started_at": 10.0, "device": "npu", "run_s": 3.5, "attempt": 2}
        store.record(make_trial("t3", **(usual | earlier)))
        [found] = store.list_case_times((PASSED, Outcome.MISMATCH), 20.0, "command", "npu")
        expected = ("s/a", "s", [3.5], [2.5], "")
        told = (list(found.before_s), list(found.after_s), store.describe_skipped())
        assert (found.case, found.testcase, *told) == expected
