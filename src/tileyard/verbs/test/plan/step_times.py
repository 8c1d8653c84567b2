"""Durations of golden and check steps by testcase, as a suite remembers, and which golden results exist."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.keys import canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.events import StepKind
from tileyard.base.model import CommandWork, Record
from tileyard.verbs.test.plan.content import Contents
from tileyard.verbs.test.result.records import Expected, SuiteCase

GUESS_S = 1.0
"""Seconds assumed for a step of which nothing is known."""
MOST_MADE = 100_000
"""Number of identities that are kept, the newest first."""
DIGITS = 16


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
