"""Predicts how long cases run: as in earlier runs, otherwise from their family."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log, prod
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.events import StepKind
from tileyard.base.model import CommandWork, Outcome, Record
from tileyard.base.wording import count_of
from tileyard.devices.base import class_of
from tileyard.store.base import CaseTimes, RunTime
from tileyard.verbs.test.plan.content import Contents
from tileyard.verbs.test.plan.imports import ImportedTime
from tileyard.verbs.test.result.result import Expected, SuiteCase

ENDED = frozenset({Outcome.PASSED, Outcome.UNCHECKED, Outcome.MISMATCH})
"""Outcomes of runs that ended by themselves; the cause that cut the others short may be fixed."""
LIKELY = 0.5
HIGH = 0.9
"""The quantiles of earlier runs that are reported."""
DEFAULT_S = 10.0
"""Seconds assumed for a case of which nothing is known."""
STEEPEST = 2.0
"""Highest power of the size with which time is assumed to grow; higher values are noise."""
ENOUGH = 3
"""Number of known cases of a family from which its own growth with the size is used."""
FARTHEST = 32.0
"""Upper limit of a guess, as a multiple of the longest case of its family that ran."""
FASTEST_S = 1e-3
"""Seconds that replace shorter times: growth is fitted on a logarithmic scale."""
GUESS_S = 1.0
"""Seconds assumed for a step of which nothing is known."""
MOST_MADE = 100_000
"""Number of identities that are kept, the newest first."""
DIGITS = 16
Seconds = NDArray[np.float64]
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
SAMPLES = 3
"""Number of runs that a case needs before and after the date to be compared."""
MOVED = 1.2
"""Factor between two medians from which on a case counts as changed; its quartiles must differ as well."""


class Known(Record):
    """Recorded time of a case: median, the time that nine of ten runs do not exceed, number of runs."""

    seconds: float
    high_s: float
    samples: int


def learn(times: Iterable[RunTime], target: str = "", device_class: str = "") -> dict[str, Known]:
    """Recorded time of each case, by its id, on this target and class of devices, or on all. If no run of a
    case ended by itself, it is expected to take as long as they did.
    """
    ended: dict[str, list[float]] = {}
    others: dict[str, list[float]] = {}
    for time in times:
        if target and time.target != target:
            continue
        if time.run_s <= 0 or (device_class and class_of(time.device) != device_class):
            continue
        found = ended if time.outcome in ENDED else others
        found.setdefault(time.case, []).append(time.run_s)
    return {case: _summarize(times_s) for case, times_s in (others | ended).items()}


def learn_imported(times: Iterable[ImportedTime], cases: Sequence[SuiteCase]) -> dict[str, Known]:
    """Times of these cases in an imported history; a testcase's time is divided among its cases."""
    found = {time.id: time.seconds for time in times}
    sizes = Counter(case.testcase for case in cases)
    known = {}
    for case in cases:
        seconds = found.get(case.id, found.get(case.plain_id))
        if seconds is None and case.testcase in found:
            seconds = found[case.testcase] / sizes[case.testcase]
        if seconds is not None:
            known[case.id] = Known(seconds=seconds, high_s=seconds, samples=1)
    return known


def note_strangers(times: Sequence[ImportedTime], cases: Iterable[SuiteCase]) -> tuple[str, ...]:
    """A line about times of an imported history that are of none of these cases."""
    names = {name for case in cases for name in (case.id, case.plain_id, case.testcase)}
    strangers = sum(time.id not in names for time in times)
    return (f"{strangers} of {count_of(len(times), 'time')} match no case",) if strangers else ()


def tabulate(times: Iterable[RunTime], device_class: str = "") -> str:
    """The times of ``learn`` in a form that ``imports.read_times`` reads; empty if there are none."""
    attempts = list(times)
    known = learn(attempts, device_class=device_class)
    if not known:
        return ""
    testcases = {time.case: time.testcase for time in attempts}
    text = io.StringIO()
    # Quoted: a name may contain a comma, or begin like a line that is ignored.
    table = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    text.write("testcase,case,seconds\n")
    for name, one in sorted(known.items()):
        own = f"{testcases[name]}/"
        # The id of a pytest test begins with its file, and what ran was its function.
        testcase, case = name.rpartition("/")[::2]
        if name.startswith(own):
            testcase, case = own[:-1], name[len(own) :]
        table.writerow((testcase, case, float(f"{one.seconds:.6g}")))
    return text.getvalue()


def expect(cases: Sequence[SuiteCase], known: Mapping[str, Known]) -> tuple[Expected, ...]:
    """The expected time of each case, in the order given, and its source."""
    new = [case for case in cases if case.id not in known]
    guesses = {one.case: one for one in _guess(new, cases, known)}
    return tuple(
        guesses[case.id]
        if (before := known.get(case.id)) is None
        else Expected(
            case=case.id,
            testcase=case.testcase,
            seconds=before.seconds,
            high_s=before.high_s,
            samples=before.samples,
        )
        for case in cases
    )


def expect_imported(times: Iterable[ImportedTime], case_s: float = 0.0) -> tuple[Expected, ...]:
    """An imported history in place of a suite. With ``case_s`` each entry consists of cases of that many
    seconds; the last is shorter.
    """
    expected = []
    for time in times:
        testcase, whole_s = time.testcase, time.seconds
        if not case_s or whole_s <= case_s:
            expected.append(Expected(case=time.id, testcase=testcase, seconds=whole_s, samples=1))
            continue
        full = int(whole_s / case_s * (1 + 1e-12))
        parts_s = [case_s] * full
        if whole_s - full * case_s > 1e-9 * whole_s:
            parts_s.append(whole_s - full * case_s)
        expected += [
            Expected(case=f"{time.id}/{number}", testcase=testcase, seconds=part_s, samples=1)
            for number, part_s in enumerate(parts_s, start=1)
        ]
    return tuple(expected)


def find_quantile(ordered: Sequence[float] | NDArray[np.float64], share: float) -> float:
    """A quantile of sorted values, linear between neighbours."""
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def _summarize(times_s: list[float]) -> Known:
    ordered = sorted(times_s)
    return Known(
        seconds=find_quantile(ordered, LIKELY),
        high_s=find_quantile(ordered, HIGH),
        samples=len(ordered),
    )


# ---- cases that never ran -----------------------------------------------------------------------


def _guess(
    new: Sequence[SuiteCase], cases: Sequence[SuiteCase], known: Mapping[str, Known]
) -> list[Expected]:
    """Times of new cases from known ones of their family: ``log(seconds)`` is linear in ``log(size)``. The
    slope is the family's (all known cases' if it has too few), the height that of its cases of one dtype, or
    of the family.
    """
    if not new:
        return []
    seen = [case for case in cases if case.id in known]
    if not seen:
        return [_expected(case, DEFAULT_S, "default") for case in new]
    families = {family: n for n, family in enumerate(dict.fromkeys(_family(c) for c in seen))}
    stands = {stand: n for n, stand in enumerate(dict.fromkeys(_stand(c) for c in seen))}
    family_of = np.array([families[_family(case)] for case in seen])
    stand_of = np.array([stands[_stand(case)] for case in seen])
    x = np.array([_log_size(case) for case in seen])
    y = np.log(np.maximum([known[case.id].seconds for case in seen], FASTEST_S))
    slopes = _fit_slopes(x, y, family_of, stand_of)
    heights = y - slopes[family_of] * x
    by_family = _means(heights, family_of)
    by_stand = _means(heights, stand_of)
    longest = np.full(len(families), -np.inf)
    np.maximum.at(longest, family_of, y)
    usual_s = float(np.exp(np.median(y)))
    home = np.array([families.get(_family(case), -1) for case in new])
    stand = np.array([stands.get(_stand(case), -1) for case in new])
    height = np.where(stand >= 0, by_stand[stand], by_family[home])
    size = np.array([_log_size(case) for case in new])
    farthest = longest[home] + log(FARTHEST)
    seconds = np.exp(np.minimum(height + slopes[home] * size, farthest)).tolist()
    return [
        _expected(case, guess_s, "family") if family >= 0 else _expected(case, usual_s, "default")
        for case, guess_s, family in zip(new, seconds, home.tolist(), strict=True)
    ]


def _fit_slopes(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    family_of: NDArray[np.int64],
    stand_of: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Growth of time with size in each family, within cases of one dtype."""
    dx, dy = x - _means(x, stand_of)[stand_of], y - _means(y, stand_of)[stand_of]
    spreads, products = np.bincount(family_of, dx * dx), np.bincount(family_of, dx * dy)
    pooled = products.sum() / spreads.sum() if spreads.sum() > 0 else 0.0
    is_enough = (spreads > 0) & (np.bincount(family_of) >= ENOUGH)
    own = np.divide(products, spreads, out=np.zeros_like(products), where=spreads > 0)
    return np.clip(np.where(is_enough, own, pooled), 0.0, STEEPEST)


def _means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    means: NDArray[np.float64] = np.bincount(groups, values) / np.bincount(groups)
    return means


def _expected(case: SuiteCase, seconds: float, source: Literal["family", "default"]) -> Expected:
    return Expected(
        case=case.id, testcase=case.testcase, seconds=seconds, high_s=seconds, source=source
    )


def _family(case: SuiteCase) -> str:
    return case.family or case.testcase


def _stand(case: SuiteCase) -> tuple[str, str]:
    return _family(case), case.dtype


def _log_size(case: SuiteCase) -> float:
    """Logarithm of its volume; a case without a shape counts as a single element."""
    return log(max(prod(case.shape), 1))


class StepTimes(Record):
    """Mean time of a golden and of a check step of a testcase, in seconds; 0 if none has run."""

    golden_s: float = 0.0
    check_s: float = 0.0


class KnownSteps(Record):
    """Of earlier runs of a suite: times by testcase, and which golden steps have made their result."""

    times: dict[str, StepTimes] = {}
    made: tuple[str, ...] = ()


class Goldens:
    """Identities of golden steps by their words and the files that they name, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents = Contents(folder)
        self._known: dict[str, str] = {}

    def identify(self, case: SuiteCase) -> str:
        """Cases with the same identity share a golden result; empty for a case without a golden step."""
        work = case.work
        if not isinstance(work, CommandWork) or work.golden is None:
            return ""
        words = canonical_json(work.golden)
        if words not in self._known:
            try:
                found = self._contents.identify_step(work.golden, self._folder)[:DIGITS]
            except UsageError:  # its inputs cannot be read; the run reports it
                found = words
            self._known[words] = found
        return self._known[words]


def add_steps(
    cases: Sequence[SuiteCase], expected: Sequence[Expected], known: KnownSteps, goldens: Goldens
) -> tuple[Expected, ...]:
    """Expected times of these cases with golden and check steps. A golden step counts for the first case that
    shares it, and not if its result exists.
    """
    made, counted = set(known.made), set[str]()
    usual = _mean(known.times.values())
    found = []
    for case, one in zip(cases, expected, strict=True):
        work = case.work
        times = known.times.get(case.testcase, StepTimes())
        identity = goldens.identify(case)
        golden = "" if identity in made else identity
        golden_s = 0.0 if not golden or golden in counted else times.golden_s or usual.golden_s
        counted.add(golden)
        is_judged = isinstance(work, CommandWork) and (work.check is not None or work.outputs)
        check_s = (times.check_s or usual.check_s) if is_judged else 0.0
        found.append(
            msgspec.structs.replace(one, golden_s=golden_s, check_s=check_s, golden=golden)
        )
    return tuple(found)


def learn_steps(
    known: KnownSteps,
    seconds: Mapping[tuple[str, StepKind], Sequence[float]],
    made: Iterable[str],
) -> KnownSteps:
    """The state after a run in which these steps ran, by testcase, and these results existed."""
    times = dict(known.times)
    for (testcase, kind), steps_s in seconds.items():
        mean_s = sum(steps_s) / len(steps_s)
        before = times.get(testcase, StepTimes())
        times[testcase] = msgspec.structs.replace(before, **{f"{kind}_s": mean_s})
    all_made = dict.fromkeys((*filter(None, made), *known.made))
    return KnownSteps(times=times, made=tuple(all_made)[:MOST_MADE])


def _mean(times: Iterable[StepTimes]) -> StepTimes:
    """The assumed time of a step of a testcase of which nothing is known."""
    all_times = list(times)
    goldens_s = [one.golden_s for one in all_times if one.golden_s]
    checks_s = [one.check_s for one in all_times if one.check_s]
    return StepTimes(
        golden_s=sum(goldens_s) / len(goldens_s) if goldens_s else GUESS_S,
        check_s=sum(checks_s) / len(checks_s) if checks_s else GUESS_S,
    )


class CaseHistory(Record):
    """A case's median time, the time that nine of ten runs do not exceed, and its share of the total."""

    case: str
    seconds: float
    high_s: float
    samples: int
    share: float


class Quantile(Record):
    """The number of cases that take no longer than ``seconds``."""

    share: float
    seconds: float


class Moved(Record):
    """A case whose median has changed since the date."""

    case: str
    before_s: float
    after_s: float
    samples_before: int
    samples_after: int

    @property
    def ratio(self) -> float:
        """After to before."""
        return self.after_s / self.before_s


class History(Record):
    """All cases that ran; ``total_s`` is the sum of their medians. ``longest`` are the longest cases and
    ``longest_testcases`` the testcases, whose ``seconds`` and ``high_s`` are sums. ``moved`` changed most of
    the ``compared`` ones.
    """

    cases: int
    runs: int
    total_s: float
    quantiles: tuple[Quantile, ...]
    longest: tuple[CaseHistory, ...]
    longest_testcases: tuple[CaseHistory, ...]
    since: float
    compared: int
    moved: tuple[Moved, ...]


def summarize_history(times: Iterable[CaseTimes], since: float, longest: int = 10) -> History:
    """A summary of the runs that ended by themselves; ``since``, in seconds since the epoch, divides them."""
    by_case = {own.case: own for own in _name_apart(list(times))}
    ordered = {case: _sort(own.before_s, own.after_s) for case, own in by_case.items()}
    medians = {case: find_quantile(own, LIKELY) for case, own in ordered.items()}
    total_s = sum(medians.values())
    by_testcase: dict[str, list[str]] = {}
    for case, own in by_case.items():
        by_testcase.setdefault(own.testcase, []).append(case)
    shared = sorted(medians.values())
    compared = [
        own for own in by_case.values() if min(len(own.before_s), len(own.after_s)) >= SAMPLES
    ]

    def describe(name: str, cases: Sequence[str]) -> CaseHistory:
        seconds = sum([medians[case] for case in cases])
        return CaseHistory(
            case=name,
            seconds=seconds,
            high_s=sum([find_quantile(ordered[case], HIGH) for case in cases]),
            samples=min([len(ordered[case]) for case in cases]),
            share=seconds / total_s,
        )

    def take_longest(groups: Iterable[tuple[str, Sequence[str]]]) -> tuple[CaseHistory, ...]:
        described = [describe(name, cases) for name, cases in groups]
        return tuple(sorted(described, key=lambda one: (-one.seconds, one.case))[:longest])

    return History(
        cases=len(ordered),
        runs=sum(len(own) for own in ordered.values()),
        total_s=total_s,
        quantiles=tuple(
            Quantile(share=share, seconds=find_quantile(shared, share))
            for share in QUANTILES
            if shared
        ),
        longest=take_longest((case, [case]) for case in ordered),
        longest_testcases=take_longest(by_testcase.items()),
        since=since,
        compared=len(compared),
        moved=_find_moved(compared)[:longest],
    )


def _name_apart(times: Sequence[CaseTimes]) -> Iterator[CaseTimes]:
    """The same times; a case or testcase of several suites is named with its suite."""
    owners = Counter(name for _, name in {(one.suite, n) for one in times for n in _names(one)})
    for one in times:
        case, testcase = (
            f"{name} ({one.suite})" if one.suite and owners[name] > 1 else name
            for name in _names(one)
        )
        yield msgspec.structs.replace(one, case=case, testcase=testcase)


def _names(times: CaseTimes) -> tuple[str, str]:
    return times.case, times.testcase


def _sort(*parts: Sequence[float]) -> Seconds:
    return np.sort(np.concatenate([np.asarray(part, np.float64) for part in parts]))


def _find_moved(compared: Iterable[CaseTimes]) -> tuple[Moved, ...]:
    """The cases that clearly changed, the one that costs or saves most first."""
    found = []
    for own in compared:
        before, after = _sort(own.before_s), _sort(own.after_s)
        moved = Moved(
            case=own.case,
            before_s=find_quantile(before, LIKELY),
            after_s=find_quantile(after, LIKELY),
            samples_before=len(before),
            samples_after=len(after),
        )
        is_slower = find_quantile(after, 0.25) > find_quantile(before, 0.75)
        is_faster = find_quantile(after, 0.75) < find_quantile(before, 0.25)
        if (is_slower and moved.ratio >= MOVED) or (is_faster and moved.ratio <= 1 / MOVED):
            found.append(moved)
    found.sort(key=lambda one: (-abs(one.after_s - one.before_s), one.case))
    return tuple(found)
