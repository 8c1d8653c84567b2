"""Collects the times of a case in runs of ``regress``, and finds where they changed."""

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from scipy.special import stdtrit

from tileyard.base.model import WELL, Record, Trial
from tileyard.measure.looks import mean_interval

ERROR: Final = 0.05
"""Share of the points' intervals that may miss the true time."""
SHIFT_ERROR: Final = 0.01
"""Share of the changes' intervals that may miss the true change."""
PENALTY: Final = 6.0
"""Cost of a further level, in ``variance * ln(runs)``."""
FEWEST: Final = 2
"""Fewest runs of a level: a single one may be an outlier."""
Place = tuple[str, str, str, str]
"""Case, target, device, and the device's identity, which is empty if unrecorded."""
_COMMIT: Final = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
SHORTEST_NS: Final = 1e-3
"""A shorter time is none: a file that others wrote may have 0."""
MORE: Final = 3
"""Most further runs that are awaited for a change."""
FINEST: Final = 0.001
"""Least standard deviation of runs, as a share. It is also at least that of the median run's interval."""


class Point(Record):
    """One side of a run: nanoseconds of a launch over ``processes``, and the interval of their mean (of a
    single one, of its median). With 0 processes both sides had the same binary, and the time is its time in
    the nearest other run. ``at`` is the start, in seconds since the epoch. ``revision``, a commit or another
    name, is empty if unrecorded.
    """

    run: str
    at: float
    revision: str
    time_ns: float
    low_ns: float
    high_ns: float
    processes: int


class Timed(Record):
    """A side of a case that a run timed at a place, and the name of its binary."""

    case: str
    side: str
    target: str
    device: str
    silicon: str
    binary: str
    point: Point

    @property
    def place(self) -> Place:
        """Where it was timed."""
        return self.case, self.target, self.device, self.silicon


def as_timed(case: str, trial: Trial) -> Timed:
    """A trial as a point of a case's history: its measured time, or else that on the device."""
    measured = trial.measurement
    took_ns = measured.median_ns if measured else trial.run_s * 1e9
    return Timed(
        case=case,
        side="",
        target=trial.target,
        # Cases run on any device of their class.
        device=trial.device.partition(":")[0],
        silicon=trial.silicon,
        binary="",
        point=Point(
            run=trial.run,
            at=trial.started_at,
            revision=trial.revision,
            time_ns=took_ns,
            low_ns=measured.low_ns if measured else took_ns,
            high_ns=measured.high_ns if measured else took_ns,
            processes=1,
        ),
    )


class Built(Record):
    """A side of a case that a run built, timed or not, and the name of its binary."""

    case: str
    side: str
    target: str
    binary: str
    run: str
    at: float
    revision: str


class Found(Record):
    """What runs have recorded of cases: all that their histories are made from."""

    timed: tuple[Timed, ...] = ()
    built: tuple[Built, ...] = ()


class Shift(Record):
    """A change of level: the ratio of times after to before, with an interval. It came after the revision of
    point ``last`` and not later than that of ``first``, from 0; if these are the same, the code did not cause
    it.
    """

    last: int
    first: int
    ratio: float
    low: float
    high: float
    is_of_code: bool


class Possible(Record):
    """A change that would be certain after ``runs`` more runs with the time of the last one."""

    shift: Shift
    runs: int


class Series(Record):
    """One side of a case on one device; ``silicon`` is empty if unrecorded. Points are in time order, or, if
    ``is_by_commit``, first by commit.
    """

    case: str
    side: str
    target: str
    device: str
    silicon: str
    is_by_commit: bool
    points: tuple[Point, ...]
    shifts: tuple[Shift, ...]
    possible: Possible | None = None


class CaseHistory(Record):
    """All series of a case and the cases below it; changes of at most ``margin``, a share, do not count."""

    case: str
    margin: float
    series: tuple[Series, ...]


def find_commit(revision: str) -> str:
    """The commit of a revision, or of a working tree without its changes; empty if it has none."""
    found = _COMMIT.match(revision)
    return found[0] if found else ""


def collect_history(
    case: str,
    trials: Iterable[Trial],
    margin: float,
    commits: Sequence[str] = (),
    tuned: Iterable[Timed] = (),
) -> CaseHistory:
    """The series of a case and those below it in trials of ``regress``, and of what was ``tuned``.
    ``commits`` have parents first; a series with a revision that is not among them is in the order of its
    runs.
    """
    found = find_times(trials)
    found = msgspec.structs.replace(found, timed=(*found.timed, *tuned))
    series = list_series(found, margin, commits)
    return CaseHistory(case=case, margin=margin, series=tuple(series))


def find_times(trials: Iterable[Trial]) -> Found:
    """What trials of ``regress``, of any runs, say of their cases' histories."""
    members = [one for one in trials if is_compared(one)]
    # Different sources may give the same binary; only trials of builds record its name.
    builds = [one for one in members if one.case == one.batch and one.outcome in WELL]
    binaries = {one.keys.build: one.keys.binary or one.keys.build for one in builds}
    groups: dict[tuple[Place, str, str], list[Trial]] = {}
    for one in members:
        if (
            one.case == f"{one.batch}/{one.side}"
            and one.outcome in WELL
            and one.measurement is not None
            and one.measurement.median_ns >= SHORTEST_NS
        ):
            groups.setdefault((_place_of(one), one.side, one.run), []).append(one)
    timed = []
    for ((case, target, device, silicon), side, _), own in groups.items():
        own.sort(key=lambda one: one.started_at)
        timed.append(
            Timed(
                case=case,
                side=side,
                target=target,
                device=device,
                silicon=silicon,
                binary=binaries.get(own[0].keys.build, own[0].keys.build),
                point=_as_point(own),
            )
        )
    built = [
        Built(
            case=one.case.removesuffix(f"/{one.side}"),
            side=one.side,
            target=one.target,
            binary=binaries[one.keys.build],
            run=one.run,
            at=one.started_at,
            revision=one.revision,
        )
        for one in builds
    ]
    return Found(timed=tuple(timed), built=tuple(built))


def is_compared(trial: Trial) -> bool:
    """Whether a trial is of ``regress``."""
    return bool(trial.side) and trial.case.endswith(f"/{trial.side}")


def list_series(found: Found, margin: float, commits: Sequence[str] = ()) -> Iterator[Series]:
    """The series of what was found, place by place, and there side by side; see ``collect_history``."""
    ranks = {commit: number for number, commit in enumerate(commits)}
    by_place: dict[Place, list[Timed]] = {}
    for one in found.timed:
        by_place.setdefault(one.place, []).append(one)
    built_of: dict[tuple[str, str], list[Built]] = {}
    for built in found.built:
        built_of.setdefault((built.case, built.target), []).append(built)
    for place, own in sorted(by_place.items(), key=lambda item: item[0]):
        for side, points in _find_points(own, built_of.get(place[:2], ())).items():
            yield _order(place, side, points, margin, ranks)


def _order(
    place: Place, side: str, points: Sequence[Point], margin: float, ranks: Mapping[str, int]
) -> Series:
    is_by_commit = all(find_commit(point.revision) in ranks for point in points)
    case, target, device, silicon = place
    own = ranks if is_by_commit else {}
    ordered = tuple(sorted(points, key=lambda one: rank_run(one.revision, one.at, own)))
    return Series(
        case=case,
        side=side,
        target=target,
        device=device,
        silicon=silicon,
        is_by_commit=is_by_commit,
        points=ordered,
        shifts=tuple(find_shifts(ordered, margin)),
        possible=find_possible(ordered, margin),
    )


def rank_run(revision: str, at: float, ranks: Mapping[str, int]) -> tuple[int, bool, float]:
    """The place of a run by the rank of its commit, a working tree with changes after the commit, and then by
    time; by time alone if the commit has no rank.
    """
    commit = find_commit(revision)
    return (ranks[commit], revision != commit, at) if commit in ranks else (-1, False, at)


def blame_machine(series: Series, base: Series | None) -> Series:
    """The same series; a change that base had, too, between the same runs, is not of the code."""
    if base is None or not series.shifts:
        return series
    had = [(base.points[one.last].run, base.points[one.first].run, one) for one in base.shifts]

    def blame(shift: Shift) -> Shift:
        ends = series.points[shift.last].run, series.points[shift.first].run
        is_shared = any(
            (last, first) == ends and one.low <= shift.high and shift.low <= one.high
            for last, first, one in had
        )
        return msgspec.structs.replace(shift, is_of_code=False) if is_shared else shift

    return msgspec.structs.replace(series, shifts=tuple(map(blame, series.shifts)))


def find_possible(points: Sequence[Point], margin: float) -> Possible | None:
    """The change that at most MORE further runs with the time of the last one would make certain, or None."""
    certain = {shift.first for shift in find_shifts(points, margin)}
    for runs in range(1, MORE + 1):
        for shift in find_shifts([*points, *list(points[-1:]) * runs], margin):
            if shift.first < len(points) and shift.first > max(certain, default=0):
                return Possible(shift=shift, runs=runs)
    return None


def find_shifts(points: Sequence[Point], margin: float) -> Iterator[Shift]:
    """The changes of level of a series by more than ``margin``, a share. PELT (Killick, Fearnhead and Eckley
    2012) proposes changes of the mean logarithm; one stays if it exceeds the margin and its two-sample t
    interval does not contain 0.
    """
    if len(points) < 2 * FEWEST:
        return
    logs = [math.log(point.time_ns) for point in points]
    spread = 1.4826 * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2)
    within = statistics.median((one.high_ns - one.low_ns) / one.time_ns for one in points) / 4
    least = max(within, FINEST) ** 2
    variance = max(spread**2, least)
    from ruptures import KernelCPD  # which loads in 0.7 s, twice what all else here takes

    # PELT in C, which takes a thousandth of the time; the linear kernel is the squared distance.
    search = KernelCPD(kernel="linear", min_size=FEWEST).fit(np.asarray(logs))
    ends = map(int, search.predict(pen=PENALTY * variance * math.log(len(points))))
    begin = 0
    for middle, end in itertools.pairwise(ends):
        before, after = logs[begin:middle], logs[middle:end]
        size, half = _compare(before, after, least)
        if abs(size) > max(half, math.log1p(margin)):
            here, there = points[middle - 1].revision, points[middle].revision
            yield Shift(
                last=middle - 1,
                first=middle,
                ratio=math.exp(size),
                low=math.exp(size - half),
                high=math.exp(size + half),
                is_of_code=not here or here != there,
            )
            begin = middle


def _compare(before: Sequence[float], after: Sequence[float], least: float) -> tuple[float, float]:
    """The difference of two means, and half the width of its interval; ``least`` bounds the variance."""
    free = len(before) + len(after) - 2
    squares = sum(statistics.pvariance(part) * len(part) for part in (before, after))
    variance = max(squares / free, least)
    half = -float(stdtrit(free, SHIFT_ERROR / 2)) * math.sqrt(
        variance * (1 / len(before) + 1 / len(after))
    )
    return statistics.fmean(after) - statistics.fmean(before), half


def _place_of(trial: Trial) -> Place:
    """The place of a trial: its case, which is the batch without its number, target, device and silicon."""
    return trial.batch.rpartition("/")[0], trial.target, trial.device, trial.silicon


def _find_points(timed: Sequence[Timed], builds: Sequence[Built]) -> dict[str, list[Point]]:
    """The points of each side at a place."""
    points: dict[tuple[str, str], Point] = {}
    known: dict[str, list[Point]] = {}
    for one in sorted(timed, key=lambda one: one.point.at):
        points[one.side, one.point.run] = one.point
        known.setdefault(one.binary, []).append(one.point)
    for built in builds:
        same = known.get(built.binary)
        if same and (built.side, built.run) not in points:
            points[built.side, built.run] = _borrow(built, same)
    sides: dict[str, list[Point]] = {}
    for (side, _), point in sorted(points.items(), key=lambda item: item[0]):
        sides.setdefault(side, []).append(point)
    return sides


def _borrow(built: Built, same: Sequence[Point]) -> Point:
    nearest = min(same, key=lambda point: abs(point.at - built.at))
    return msgspec.structs.replace(
        nearest, run=built.run, at=built.at, revision=built.revision, processes=0
    )


def _find_decile(samples_ns: Sequence[float]) -> float:
    """The lower decile, which is that of rounds without interference, as in ``pairs.py``. NumPy's function
    takes ten times as long for the few samples of a process, and histories have hundred thousands.
    """
    ordered = sorted(samples_ns)
    at, rest = divmod(0.1 * (len(ordered) - 1), 1)
    low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
    return low + rest * (high - low)


def _as_point(trials: Sequence[Trial]) -> Point:
    measured = [trial.measurement for trial in trials if trial.measurement]
    logs = [math.log(_find_decile(one.samples_ns)) for one in measured]
    found = mean_interval(logs, ERROR)
    low_ns, high_ns = math.exp(found.low), math.exp(found.high)
    if len(measured) == 1:
        low_ns, high_ns = measured[0].low_ns, measured[0].high_ns
    return Point(
        run=trials[0].run,
        at=trials[0].started_at,
        revision=trials[0].revision,
        time_ns=math.exp(found.mean),
        low_ns=low_ns,
        high_ns=high_ns,
        processes=len(measured),
    )
