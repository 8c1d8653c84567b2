"""The times that count for recorded trials of studies: those of finals in which their binaries were."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from tileyard.artifacts.objects import canonical_json
from tileyard.base.events import FINALS, is_final, is_meeting
from tileyard.base.model import (
    WELL,
    Batch,
    Case,
    KernelWork,
    Limits,
    Measurement,
    RunKey,
    Trial,
    Value,
)
from tileyard.show.words import format_config
from tileyard.store.base import Store, TrialQuery
from tileyard.verbs.tune.plan.finals import find_culprit, judge_finals, select_last
from tileyard.verbs.tune.plan.space import OpenSpace

MOST_KEYS: Final = 1000
"""Number of keys per query."""


def find_deciding(store: Store, shown: Sequence[Trial]) -> dict[str, Measurement]:
    """The times of the finals by screening trials' ids, without those that met nobody: the latest finals of
    the trial's own run, and of later runs that knew it.
    """
    screened = [one for one in shown if _is_timed(one) and one.outcome in WELL]
    if not screened:
        return {}
    finals = defaultdict(list)
    for one in _list_finals(store, screened):
        finals[one.keys.run].append(one)
    decided = _Decided(store)
    found: dict[str, Measurement] = {}
    for trial in screened:
        later = (one.run for one in finals[trial.keys.run] if one.started_at >= trial.started_at)
        for run in (*dict.fromkeys(later), trial.run):
            if run != trial.run and decided.has_screened(run, trial.keys.run):
                continue
            if (measured := decided.find(run, trial)) is not None:
                found[trial.id] = measured
                break
    return found


class ShownTrial(Trial):
    """A trial with its time in the ``finals``, which counts; None if its binary took part in none."""

    finals: Measurement | None = None


def add_deciding(trial: Trial, deciding: Mapping[str, Measurement]) -> ShownTrial:
    """A trial with its time among those that ``find_deciding`` returned."""
    return ShownTrial(
        **{name: getattr(trial, name) for name in trial.__struct_fields__},
        finals=deciding.get(trial.id),
    )


def _list_finals(store: Store, screened: Sequence[Trial]) -> Iterator[Trial]:
    """The later finals of what ran the same as one of these, newest first for each kernel."""
    since = min((one.started_at for one in screened), default=0.0)
    by_kernel: dict[str, dict[RunKey, None]] = {}
    for one in screened:
        by_kernel.setdefault(one.kernel, {})[one.keys.run] = None
    for kernel, keys in by_kernel.items():
        for first in range(0, len(keys), MOST_KEYS):
            some = tuple(keys)[first : first + MOST_KEYS]
            query = TrialQuery(kernel=kernel, run_keys=some, batch=FINALS, since=since, limit=0)
            yield from store.list_trials(query)


class _Decided:
    """The results of the finals of recorded runs, each judged once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], dict[str, Measurement]] = {}
        self._trials: dict[str, list[Trial]] = {}
        self._screened: dict[str, set[RunKey]] = {}

    def find(self, run: str, trial: Trial) -> Measurement | None:
        """The time of a trial's binary in the finals of a run."""
        study = name_study(trial)
        if (run, study) not in self._known:
            its = [one for one in self._list_trials(run) if name_study(one) == study]
            screened = [one for one in its if _is_timed(one) and one.outcome in WELL] or [trial]
            self._known[run, study] = dict(_judge(its, screened))
        known = self._known[run, study]
        return known.get(trial.keys.binary) or known.get(canonical_json(trial.config))

    def has_screened(self, run: str, key: RunKey) -> bool:
        """Whether a run has timed what has this key by itself."""
        if run not in self._screened:
            self._screened[run] = {one.keys.run for one in self._list_trials(run) if _is_timed(one)}
        return key in self._screened[run]

    def _list_trials(self, run: str) -> list[Trial]:
        if run not in self._trials:
            self._trials[run] = self._store.list_trials(TrialQuery(run=run, limit=0))
        return self._trials[run]


def _judge(trials: Sequence[Trial], screened: Sequence[Trial]) -> Iterator[tuple[str, Measurement]]:
    """The times of binaries and configs, undisturbed, finals last as they count more than later meetings."""
    meetings = sorted({one.batch for one in trials if is_meeting(one)}, reverse=True)
    groups = [[one for one in trials if one.batch == batch] for batch in meetings]
    finals = select_last(filter(is_final, trials))
    if find_culprit(screened[::-1], finals)[0]:
        return
    for group in (*groups, finals):
        passed = [one for one in group if one.measurement and one.outcome in WELL]
        if not passed or passed[0].measurement is None:
            continue
        binaries = {canonical_json(one.config): one.keys.binary for one in passed}
        for final in judge_finals(passed, group, passed[0].measurement.confidence).finals:
            key = canonical_json(final.config)
            if final.measurement is not None:
                yield from ((name, final.measurement) for name in (key, binaries[key]) if name)


def find_winner(
    trials: Sequence[Trial], decided: Iterable[str] = ()
) -> tuple[Trial, Measurement] | None:
    """The winner of the finals that a study held in its own run, and its time there; None if there were none,
    they were disturbed, or their times are of an earlier run. Of tied configs the one wins that the run has
    ``decided`` for, a canonical text; it may have won a later meeting without having been in the finals.
    """
    screened = [one for one in trials if _is_timed(one) and one.outcome in WELL]
    finals = select_last(filter(is_final, trials))
    passed = [one for one in finals if one.measurement and one.outcome in WELL and not one.control]
    if not passed or any(one.reused for one in passed) or find_culprit(screened, finals)[0]:
        return None
    finalists = {canonical_json(one.config) for one in passed}
    for text in set(decided) - finalists:
        times = dict(_judge(trials, screened))
        alike = [
            one for one in trials if canonical_json(one.config) == text and one.outcome in WELL
        ]
        if alike and text in times:
            return alike[-1], times[text]
    confidence = passed[0].measurement.confidence if passed[0].measurement else 0.0
    verdict = judge_finals(passed, finals, confidence, decided)
    winner = verdict.best
    if winner is None:
        return None
    key = canonical_json(winner.config)
    own = (one.measurement for one in verdict.finals if canonical_json(one.config) == key)
    measured = next(own, None)
    return None if measured is None else (winner, measured)


def is_screening(trial: Trial) -> bool:
    """Whether a trial is a config of a study by itself."""
    is_own = not (trial.side or trial.testcase or trial.control or is_final(trial))
    return is_own and bool(trial.kernel) and not is_meeting(trial)


def _is_timed(trial: Trial) -> bool:
    return trial.measurement is not None and is_screening(trial)


class OfStudy(Protocol):
    """What has the subject of a study."""

    @property
    def kernel(self) -> str:
        """The kernel's name."""

    @property
    def arguments(self) -> Mapping[str, Value]:
        """The kernel's arguments."""

    @property
    def target(self) -> str:
        """The target."""

    @property
    def silicon(self) -> str:
        """The identity of the device."""


def name_study(trial: OfStudy) -> str:
    """The study of a trial, or of a result, within its run."""
    return canonical_json((trial.kernel, trial.arguments, trial.target, trial.silicon))


class Sweep:
    """A CaseSource: every case once, in order, one round after another."""

    def __init__(self, *rounds: Sequence[Case]) -> None:
        self.cases = tuple(case for cases in rounds for case in cases)
        self._rounds = [list(reversed(cases)) for cases in reversed(rounds)]
        self._pending = 0

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next configs of this round, one batch each; the next round once this one is over."""
        while self._rounds and not self._rounds[-1] and not self._pending:
            self._rounds.pop()
        left = self._rounds[-1] if self._rounds else []
        cases = [left.pop() for _ in range(min(limit, len(left)))]
        self._pending += len(cases)
        return [Batch(id=case.id, cases=(case,)) for case in cases]

    def tell(self, trial: Trial) -> None:
        """Record the trial of a config."""
        self._pending -= 1

    def done(self) -> bool:
        """Whether all cases were requested and have ended."""
        return not self._pending and not any(self._rounds)


def make_cases(
    space: OpenSpace, file: str, target: str, limits: Limits, folder: str = ""
) -> tuple[Case, ...]:
    """A case per config drawn so far, to be built but not run; ids begin with ``folder``."""
    return tuple(
        Case(
            id=f"{folder}{name}",
            work=KernelWork(
                file=file, kernel=space.kernel, arguments=space.arguments, config=config
            ),
            target=target,
            until="built",
            timing=None,
            limits=limits,
        )
        for name, config in name_configs(space.configs)
    )


def name_configs(
    configs: Iterable[dict[str, Value]],
) -> Iterable[tuple[str, dict[str, Value]]]:
    """Each config with a unique name that is valid for a folder, as in ``block_M=64,block_N=128``."""
    named: set[str] = set()
    for number, config in enumerate(configs, start=1):
        # A number and a text of the same digits look alike, and are two configs.
        name = name_config(config, number)
        name = f"config-{number}" if name in named else name
        named.add(name)
        yield name, config


def name_config(config: dict[str, Value], number: int) -> str:
    """A name for a config that is valid for a folder, as in ``block_M=64,block_N=128``."""
    text = format_config(config, ",")
    sound = all(sign.isalnum() or sign in "=,._+-" for sign in text) and 0 < len(text) <= 120
    return text if sound else f"config-{number}"
