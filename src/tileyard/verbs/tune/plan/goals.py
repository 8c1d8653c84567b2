"""What a study looks for besides short times: facts within bounds, or the Pareto set of two measures, their
scales, and the volume that a set of trade-offs dominates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.model import WELL, Outcome, Trial, median_ns
from tileyard.targets.own_sources import find_excess, read_reported
from tileyard.targets.registry import find_needs
from tileyard.verbs.tune.plan.finals import contender_margin, fit_finalists, judge_finals
from tileyard.verbs.tune.result import StudyResult, Tradeoff

Floats = NDArray[np.float64]
Pairs = Sequence[tuple[float, float]]
"""Times and amounts, each above 0 and at least 0."""

BEYOND: Final = 0.1
"""How far the reference of a volume is beyond the set: the share of its extent, and the least logarithm."""


def find_least(pairs: Pairs) -> float:
    """The amount as which 0 counts, which has no logarithm: half the least other one."""
    return min((amount for _, amount in pairs if amount > 0), default=2.0) / 2


def take_logs(pairs: Pairs, least: float) -> Floats:
    """Logarithms, one row per pair, of amounts that are at least ``least``."""
    logs: Floats = np.log(np.maximum(np.array(pairs, dtype=float).reshape(-1, 2), (0.0, least)))
    return logs


def weigh_both(pairs: Pairs, share: float) -> Floats:
    """One number per pair, small for a good one: the augmented Chebyshev norm of their logarithms, each
    relative to its range, with weights ``share`` and 1 - ``share``, as in ParEGO (Knowles 2006,
    doi:10.1109/TEVC.2005.851274).
    """
    logs = take_logs(pairs, find_least(pairs))
    extent = np.ptp(logs, axis=0)
    parts = (logs - logs.min(axis=0)) / np.where(extent > 0, extent, 1.0) * (share, 1 - share)
    result: Floats = parts.max(axis=1) + 0.05 * parts.sum(axis=1)
    return result


def list_undominated(pairs: Pairs) -> list[int]:
    """The places of the pairs to which no other is equal or better in both numbers, the fastest first."""
    front: list[int] = []
    for at in sorted(range(len(pairs)), key=pairs.__getitem__):
        if not front or pairs[at][1] < pairs[front[-1]][1]:
            front.append(at)
    return front


class Volume:
    """The hypervolume that trade-offs among ``pairs`` dominate: an area of logarithms, up to a reference a
    little beyond the worst of the Pareto set of all.
    """

    def __init__(self, pairs: Pairs) -> None:
        self._least = find_least(pairs)
        front = take_logs([pairs[at] for at in list_undominated(pairs)], self._least)
        best, worst = front.min(axis=0), front.max(axis=0)
        self._reference = worst + np.maximum(BEYOND * (worst - best), BEYOND)
        self._whole = self._area(pairs)

    def missing(self, found: Pairs) -> float:
        """The share of the whole volume that these do not dominate: 0 is none of it."""
        return 1.0 - self._area(found) / self._whole

    def _area(self, pairs: Pairs) -> float:
        front = take_logs([pairs[at] for at in list_undominated(pairs)], self._least)
        room = np.maximum(self._reference - front, 0.0)
        # The fastest first: each adds what it dominates beyond the amounts of those before.
        return float((room[:, 0] * np.diff(room[:, 1], prepend=0.0)).sum())


Facts = Mapping[str, float]
NO_FACTS: Final[Facts] = {}


def find_facts(trial: Trial, objects: ObjectStore) -> Mapping[str, int]:
    """What the target reports of a trial's binary, as far as that is still kept."""
    artifact = find_artifact(trial.keys.build, objects) if trial.keys.build else None
    return read_reported(artifact.manifest.details).facts if artifact else {}


def cache_facts(find: Callable[[Trial], Facts]) -> Callable[[Trial], Facts]:
    """``find``, asked once for each binary of which something is known."""
    known: dict[str, Facts] = {}

    def find_once(trial: Trial) -> Facts:
        facts = known.get(trial.keys.build) or find(trial)
        known[trial.keys.build] = facts
        return facts

    return find_once


def check_facts(asked: Mapping[str, str], known: Iterable[str] | None, place: str) -> None:
    """Raise UsageError for the first name, by its option, that is no fact at this place; None: not known."""
    names = None if known is None else sorted(known)
    for name, option in asked.items():
        if names is not None and name not in names:
            hint = f"there are: {', '.join(names)}" if names else ""
            raise UsageError(f"{option} {name}: {place} has no such number", hint)


@dataclass(frozen=True, kw_only=True)
class Goals:
    """Short times, no facts above the ``bounds``, and, if it has a name, little of the ``second`` measure."""

    bounds: Facts = field(default_factory=dict)
    second: str = ""
    find: Callable[[Trial], Facts] = lambda _: NO_FACTS
    """Finds the facts of a trial's binary; without any if they are not known."""

    def require_known(self, target: str) -> None:
        """Raise UsageError for facts that binaries for this target do not have."""
        known = find_needs(target).facts
        check_facts(self.options, known, f"a binary for {target}")

    @property
    def options(self) -> dict[str, str]:
        """The named facts, each with the option that names it."""
        return dict.fromkeys(self.bounds, "--bound") | (
            {self.second: "--pareto"} if self.second else {}
        )

    def judge(self, trial: Trial) -> Trial:
        """A trial as it counts: beyond a bound it has failed, as with facts that are not known."""
        if not self.options or trial.outcome not in WELL | {Outcome.NOT_RUN}:
            return trial
        facts = self.find(trial)
        excess = find_excess(facts, self.bounds)
        missing = ", ".join(name for name in self.options if name not in facts)
        why = f"{missing} of its binary is not known: --fresh builds it again"
        if not excess and (not missing or trial.outcome not in WELL):
            return trial
        failed = replace(trial, outcome=Outcome.COMPILE_ERROR, message=why, measurement=None)
        return replace(failed, message=excess.message, exceeds=excess.limit) if excess else failed

    def amount(self, trial: Trial) -> float:
        """The second measure of a trial; 0 if there is none."""
        return self.find(trial).get(self.second, 0.0)

    # ---- Pareto sets ---------------------------------------------------------------------------

    def choose_finalists(
        self, passed: Sequence[Trial], most: int, left_ns: float, always: Sequence[Trial] = ()
    ) -> list[Trial]:
        """The configs that meet: at most ``most`` of the front of their medians, evenly spread if there are
        more, ``always`` these, and then others that may belong to it, as many as fit into ``left_ns``.

        ``passed`` are measured, fastest first, one per binary.
        """
        amounts = {trial.id: self.amount(trial) for trial in passed}
        pairs = [(median_ns(trial), amounts[trial.id]) for trial in passed]
        front = [passed[at] for at in list_undominated(pairs)]
        if len(front) > most > 1:
            front = [front[round(at * (len(front) - 1) / (most - 1))] for at in range(most)]
        needed = {one.id: one for one in (*front, *always)}
        others = [one for one in _list_rivals(passed, amounts) if one.id not in needed]
        room = max(most - len(needed), 0)
        chosen = fit_finalists([*needed.values(), *others[:room]], passed, left_ns, len(needed))
        kept = {one.id for one in chosen}
        return [one for one in passed if one.id in kept]

    def list_front(
        self,
        passed: Sequence[Trial],
        finals: Sequence[Trial],
        confidence: float,
        incumbents: Iterable[str] = (),
    ) -> list[Trial]:
        """The members of the Pareto set, the one with the least amount first: each is clearly faster than
        those before it, and none that needs no more is clearly faster.

        As in ``judge_finals``; of equal ones the first of the ``incumbents`` is a member.
        """
        met = {canonical_json(one.config) for one in finals if one.measurement}
        passed = [one for one in passed if not met or canonical_json(one.config) in met]
        amounts = {trial.id: self.amount(trial) for trial in passed}
        front: list[Trial] = []
        for level in sorted(set(amounts.values())):
            within = [one for one in passed if amounts[one.id] <= level]
            known = [canonical_json(one.config) for one in front]
            best = judge_finals(within, finals, confidence, (*known, *incumbents)).best
            if best is not None and amounts[best.id] == level:
                front.append(best)
        return front

    def describe_front(self, front: Sequence[Trial], result: StudyResult) -> StudyResult:
        """The result with the members of its Pareto set, the fastest first."""
        members = (
            Tradeoff(
                trial=one.id,
                config=dict(one.config),
                measurement=measured,
                amount=self.amount(one),
            )
            for one in reversed(front)
            if (measured := result.measurement_of(one)) is not None
        )
        return replace(result, second=self.second, pareto=tuple(members))


TIME_ALONE: Final = Goals()


def _list_rivals(passed: Sequence[Trial], amounts: Mapping[str, float]) -> list[Trial]:
    """The trials that may be as fast as all that need no more, the nearest first."""
    margin = contender_margin(passed)
    bound_ns, nearness = float("inf"), dict[str, float]()
    for trial in sorted(passed, key=lambda one: amounts[one.id]):
        if trial.measurement is not None:
            bound_ns = min(bound_ns, trial.measurement.high_ns)
            nearness[trial.id] = trial.measurement.low_ns / bound_ns
    near = [one for one in passed if nearness.get(one.id, margin + 1) <= margin]
    return sorted(near, key=lambda one: nearness[one.id])
