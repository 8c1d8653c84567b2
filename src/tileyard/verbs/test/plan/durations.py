"""Predicts how long cases run: as in earlier runs, otherwise from their family."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log, prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tileyard.base.model import Outcome, Record
from tileyard.base.wording import count_of
from tileyard.devices.names import class_of
from tileyard.store.base import RunTime
from tileyard.verbs.test.plan.imports import ImportedTime
from tileyard.verbs.test.result.records import Expected, SuiteCase

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
