"""What regress timed of a case, run by run: series, changes, and the revisions that can have caused them."""

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, REVISIONS, make, record_runs

from tileyard.store.base import TrialQuery
from tileyard.store.trials import TrialStore
from tileyard.verbs.regress.plan.history import (
    Point,
    Series,
    collect_history,
    find_possible,
    find_shifts,
    find_times,
)

MARGIN = 0.02
NOISE = random.Random(3)


def series_of(home: Path, case: str, side: str, commits: Sequence[str] = ()) -> Series:
    """The one series of a side."""
    with TrialStore.open(home) as store:
        trials = store.list_trials(TrialQuery(case=case, limit=0))
    found = collect_history(case, trials, MARGIN, commits)
    (series,) = (one for one in found.series if one.side == side)
    return series


def points_of(*times: float, revision: str = "") -> list[Point]:
    """Runs that timed this."""
    return [
        Point(
            run=f"run{number}",
            at=float(number),
            revision=revision or str(number),
            time_ns=time,
            low_ns=0.998 * time,
            high_ns=1.002 * time,
            processes=4,
        )
        for number, time in enumerate(times)
    ]


def test_a_change_is_found_with_the_revisions_that_can_have_caused_it(tmp_path: Path) -> None:
    """One planted change of 5 % among runs that move by 0.5 %; base, which did not change, has none."""
    steady = [BASE_NS * NOISE.gauss(1.0, 0.005) for _ in range(12)]
    record_runs(tmp_path, [*steady[:7], *(1.05 * time for time in steady[7:])])
    head, base = (series_of(tmp_path, "scale", side) for side in ("head", "base"))
    assert [point.run for point in head.points] == [f"run{day}" for day in range(12)]
    assert [point.processes for point in head.points] == [4] * 12
    assert (head.target, head.device, head.silicon) == ("cpu", "cpu:0", "a CPU")
    (shift,) = head.shifts
    assert shift.low < 1.05 < shift.high
    between = head.points[shift.last].revision, head.points[shift.first].revision
    assert between == (REVISIONS[6], REVISIONS[7])
    assert shift.is_of_code
    assert base.shifts == ()


def test_a_run_that_timed_nothing_has_the_time_of_its_binary(tmp_path: Path) -> None:
    """So the range of revisions is as small as runs have made it, and not as small as they were timed."""
    record_runs(tmp_path, [None, None, None, 1.1 * BASE_NS, 1.1 * BASE_NS])
    head = series_of(tmp_path, "scale/config-1", "head")
    assert [point.processes for point in head.points] == [0, 0, 0, 4, 4]
    assert head.points[0].time_ns == pytest.approx(BASE_NS, rel=0.01)
    (shift,) = head.shifts
    assert (shift.last, shift.first) == (2, 3)


def test_commits_count_and_not_when_they_were_timed(tmp_path: Path) -> None:
    """As a bisection times them; a changed working tree follows its commit; unknown commits go by run."""
    days = (0, 6, 3, 2, 1, 4, 5)
    revisions = [REVISIONS[number] for number in days]
    revisions[2] += " with changes in 1 file"
    slow = 1.1 * BASE_NS
    record_runs(tmp_path, [slow if day >= 3 else BASE_NS for day in days], revisions=revisions)
    head = series_of(tmp_path, "scale", "head", REVISIONS)
    assert head.is_by_commit
    assert [point.run for point in head.points] == [f"run{days.index(day)}" for day in range(7)]
    (shift,) = head.shifts
    assert head.points[shift.last].revision == REVISIONS[2]
    assert head.points[shift.first].revision == f"{REVISIONS[3]} with changes in 1 file"
    unknown = series_of(tmp_path, "scale", "head", REVISIONS[:6])
    assert not unknown.is_by_commit
    assert [point.run for point in unknown.points] == [f"run{number}" for number in range(7)]


@pytest.mark.parametrize(
    "times",
    [
        [1.0, 1.01, 0.995, 1.005, 1.0, 1.01],
        [1.0, 1.0, 1.0, 1.3, 1.0, 1.0, 1.0],  # one outlier
        [1.0, 1.0, 1.0, 1.015, 1.015, 1.015],  # less than the margin
        [1.0, 1.0, 1.3],
    ],
)
def test_what_is_no_change_is_none(times: list[float]) -> None:
    """Noise, an outlier, less than the margin, and a change that only one run has seen."""
    assert list(find_shifts(points_of(*times), MARGIN)) == []


def test_a_change_within_one_revision_is_not_of_the_code() -> None:
    """The machine has changed, or what is installed there; two changes are two."""
    times = [1.0, 1.001, 1.0, 1.2, 1.201, 1.2, 1.0, 1.001]
    shifts = list(find_shifts(points_of(*times, revision="v1"), MARGIN))
    assert [(one.first, one.is_of_code) for one in shifts] == [(3, False), (6, False)]


def test_a_case_has_all_below_it_and_no_other(tmp_path: Path) -> None:
    """Names are compared part by part, letter by letter."""
    record_runs(tmp_path, [BASE_NS])
    record_runs(tmp_path, [BASE_NS], case="file/scale/large/config-1")
    record_runs(tmp_path, [BASE_NS], case="scale/config-10")
    with TrialStore.open(tmp_path) as store:

        def cases_below(case: str) -> set[str]:
            trials = store.list_trials(TrialQuery(case=case, limit=0))
            return {one.case for one in collect_history(case, trials, MARGIN).series}

        assert cases_below("scale") == {"scale/config-1", "scale/config-10"}
        assert cases_below("scale/config-1") == {"scale/config-1"}
        assert cases_below("file/scale") == {"file/scale/large/config-1"}
        assert cases_below("scal") == cases_below("SCALE") == cases_below("scale/%") == set()


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((100, 100, 100.2, 100, 130), (4, 1)),
        ((100, 100, 130), (2, 1)),
        ((100, 100, 130, 130, 130, 160), (5, 1)),
        ((100, 103, 99, 108, 110), (3, 2)),
        ((100, 100, 130, 130), None),
        ((100, 100, 100, 101), None),
        ((100, 100, 130, 100, 100), None),
        ((100, 130), None),
        ((100,), None),
    ],
)
def test_a_change_that_needs_another_run_is_possible(
    times: tuple[float, ...], expected: tuple[int, int] | None
) -> None:
    """A certain one, a small one, and a single slow run between others are not."""
    found = find_possible(points_of(*times), MARGIN)
    assert (found and (found.shift.first, found.runs)) == expected


@pytest.mark.parametrize("count", [1, 2, 8, 11, 40])
def test_the_time_of_a_process_is_its_lower_decile(count: int) -> None:
    """Between two samples in proportion, as NumPy has it."""
    samples = tuple(NOISE.uniform(100, 200) for _ in range(count))
    trial = make(0, "scale/1/head", "scale/1", "head", "x", REVISIONS, BASE_NS)
    measured = msgspec.structs.replace(trial.measurement, samples_ns=samples)
    (timed,) = find_times([msgspec.structs.replace(trial, measurement=measured)]).timed
    assert timed.point.time_ns == pytest.approx(float(np.quantile(samples, 0.1)))
