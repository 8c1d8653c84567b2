"""Studies of many shapes as one source of cases, and the dispatch table: the fewest configs that serve all.
Screening times, of different moments, propose it; in finals its config of each shape meets the shape's best.
If that shows it too slow, a new table is proposed, and pairs that have not met yet meet.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, eye_array, hstack

from tileyard.artifacts.objects import canonical_json
from tileyard.base.events import MEETING, StopReason
from tileyard.base.model import WELL, Batch, Case, Device, KernelWork, Outcome, Trial, median_ns
from tileyard.verbs.tune.options import Shape, TuneRequest
from tileyard.verbs.tune.plan.finals import Verdict, judge_finals, list_complete
from tileyard.verbs.tune.plan.study import Study
from tileyard.verbs.tune.result import CurvePoint, StudyResult, TableResult, TableRow

Served = Mapping[str, frozenset[int]]
"""The numbers of the shapes that each config serves well enough, by the config's name."""
LIMIT_S = 20.0
SHORT_S = 0.05
MEETING_ROUNDS = 60
MEETINGS = 3
"""Most proposals of a table; in the last one, configs only serve shapes whose best config they have met."""


def find_fewest(served: Served) -> tuple[str, ...]:
    """The fewest configs that serve all shapes that any config serves, in the order of their names."""
    useful = _drop_dominated(served)
    shapes = sorted(frozenset().union(*useful.values()))
    greedy = choose_greedily(served, [1.0] * (max(shapes, default=-1) + 1))
    if len(greedy) < 2:
        return greedy
    rows = _rows(useful, shapes)
    found = _solve(np.ones(len(useful)), [LinearConstraint(rows, 1)], len(useful), LIMIT_S)
    chosen = [name for name, is_in in zip(useful, found, strict=False) if is_in]
    is_better = len(chosen) < len(greedy) and _serves(served, chosen) == frozenset(shapes)
    return tuple(sorted(chosen if is_better else greedy))


def draw_curve(
    served: Served, weights: Sequence[float], count: int, limit_s: float = LIMIT_S
) -> list[tuple[str, ...]]:
    """The configs that serve the most shapes, by weight, for 1, 2, ... ``count`` configs; a choice need not
    contain the one before. After ``limit_s`` seconds a point is the solver's best so far, a greedy choice, or
    the point before and the config that adds most, whichever serves more.
    """
    useful = _drop_dominated(served)
    greedy = choose_greedily(served, weights)
    if len(greedy) < 2:
        return [greedy] * count
    # Shapes that the same configs serve are merged.
    alike: dict[tuple[str, ...], float] = {}
    for shape in sorted(frozenset().union(*useful.values())):
        by = tuple(name for name, shapes in useful.items() if shape in shapes)
        alike[by] = alike.get(by, 0.0) + weights[shape]
    groups = {name: frozenset(i for i, by in enumerate(alike) if name in by) for name in useful}
    rows = hstack([_rows(groups, range(len(alike))), -eye_array(len(alike))])
    gains = np.concatenate([np.zeros(len(useful)), -np.array([*alike.values()])])
    chosen = np.concatenate([np.ones(len(useful)), np.zeros(len(alike))])
    curve: list[tuple[str, ...]] = []
    end_s = time.monotonic() + limit_s
    for number in range(1, count + 1):
        best = greedy[:number]
        if 1 < number < len(greedy):  # otherwise there is nothing better
            grown = ((*curve[-1], name) for name in useful)
            limits = [LinearConstraint(rows, 0), LinearConstraint(chosen[None, :], 0, number)]
            left_s = max(end_s - time.monotonic(), SHORT_S)
            found = _solve(gains, limits, len(useful), left_s)
            solved = tuple(name for name, is_in in zip(useful, found, strict=False) if is_in)
            best = max(best, solved, *grown, key=lambda names: _weigh(served, names, weights))
        curve.append(tuple(sorted(set(best))))
    return curve


def choose_greedily(served: Served, weights: Sequence[float]) -> tuple[str, ...]:
    """Configs until all shapes are served, each the one that adds most; ties go to the first name."""
    left, chosen = frozenset().union(*served.values()), []
    names = sorted(served)
    while left:
        chosen.append(max(names, key=lambda name: sum(weights[i] for i in served[name] & left)))
        left -= served[chosen[-1]]
    return tuple(chosen)


def _drop_dominated(served: Served) -> dict[str, frozenset[int]]:
    """``served`` without configs whose shapes another one serves as well; ties keep the first name."""
    kept: dict[str, frozenset[int]] = {}
    for name, shapes in sorted(served.items(), key=lambda one: (-len(one[1]), one[0])):
        if shapes and not any(shapes <= other for other in kept.values()):
            kept[name] = shapes
    return kept


def _rows(served: Served, shapes: Iterable[int]) -> csr_array:
    """A row per shape, with a 1 for each config that serves it."""
    return csr_array(np.array([[i in by for by in served.values()] for i in shapes], dtype=float))


def _solve(
    costs: np.ndarray, limits: list[LinearConstraint], count: int, limit_s: float
) -> Sequence[bool]:
    """Which of the first ``count`` binary unknowns are 1 at least cost; empty if none found in time."""
    whole = np.concatenate([np.ones(count), np.zeros(len(costs) - count)])
    done = milp(
        costs,
        integrality=whole,
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"time_limit": limit_s},
    )
    return [] if done.x is None else [bool(one > 0.5) for one in done.x[:count]]


def _serves(served: Served, chosen: Iterable[str]) -> frozenset[int]:
    return frozenset().union(*(served[name] for name in chosen))


def _weigh(served: Served, chosen: Iterable[str], weights: Sequence[float]) -> float:
    return sum(weights[i] for i in sorted(_serves(served, chosen)))


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """A config's time over its shape's best: an upper bound if they ``met`` in finals, else as screened."""

    trial: Trial
    ratio: float
    met: bool
    latency_ns: float


Slowdowns = Mapping[str, Slowdown]
"""Slowdowns by the canonical text of the config."""


class ShapeStudy:
    """One shape's study and later meetings; ids of its cases and batches begin with its number in the run."""

    def __init__(self, study: Study, shape: Shape, number: int) -> None:
        self.study = study
        self.shape = shape
        self.folder = f"s{number}/"
        given = (f"{key}={value}" for key, value in shape.arguments.items())
        self.name = ": ".join(filter(None, (shape.name, " ".join(given))))
        self._cases: dict[str, Case] = {}
        self._pending: set[str] = set()
        self._met: list[list[Trial]] = []

    async def plan(self, limit: int) -> list[Batch]:
        """The study's next batches; none during its pause."""
        return [self._adopt(batch) for batch in await self.study.plan(limit)]

    def meet(self, rival: Trial, best: Trial) -> Batch:
        """The batch that times the best config and another one in turn."""
        self._met.append([])
        name = f"{self.folder}{MEETING}{len(self._met)}"
        cases = tuple(
            msgspec.structs.replace(
                self._cases[canonical_json(trial.config)],
                id=f"{name}-{number}",
                abandon_above_ns=0.0,
            )
            for number, trial in enumerate((best, rival), start=1)
        )
        self._pending |= {case.id for case in cases}
        (contest,) = self.study.contests  # a table is for one kind of device
        devices = contest.proven_slots
        return Batch(
            id=name, cases=cases, order="interleaved", rounds=MEETING_ROUNDS, devices=devices
        )

    def tell(self, trial: Trial) -> None:
        """Record a trial."""
        if trial.case in self._pending:
            self._pending.discard(trial.case)
            self._met[-1].append(trial)
            return
        named = (trial.case.removeprefix(self.folder), trial.batch.removeprefix(self.folder))
        self.study.tell(msgspec.structs.replace(trial, case=named[0], batch=named[1]))

    def done(self) -> bool:
        """Whether all cases were requested and have ended."""
        return self.study.done() and not self._pending

    def list_slowdowns(self, result: StudyResult, request: TuneRequest) -> dict[str, Slowdown]:
        """The slowdown of each config that may win. Configs with the same binary share it."""
        best = result.best
        if best is None:
            return {}
        right = {Outcome.PASSED} if request.require_check else WELL
        passed = [t for t in result.trials if t.outcome in right and t.measurement]
        passed.sort(key=lambda trial: (median_ns(trial), canonical_json(trial.config)))
        binaries = {trial.id: trial.keys.binary or trial.id for trial in passed}
        verdicts = [Verdict(best=best, finals=result.finals)]
        verdicts += [judge_finals(passed, met, request.timing.confidence) for met in self._met]
        met: dict[str, tuple[float, float]] = {}
        for final in (final for verdict in verdicts for final in list_complete(verdict.finals)):
            took_ns = final.measurement.median_ns if final.measurement is not None else 0.0
            met.setdefault(binaries[final.trial], (final.high, took_ns))
        measured = result.measurement_of(best)
        met[binaries[best.id]] = (1.0, measured.median_ns if measured is not None else 0.0)
        found = {}
        for trial in passed:
            ratio, took_ns = met.get(
                binaries[trial.id], (median_ns(trial) / median_ns(passed[0]), median_ns(trial))
            )
            found[canonical_json(trial.config)] = Slowdown(
                trial=trial, ratio=ratio, met=binaries[trial.id] in met, latency_ns=took_ns
            )
        return found

    def _adopt(self, batch: Batch) -> Batch:
        """A batch of the study with ids of the run, whose times are compared within this shape only."""
        cases = [self._adopt_case(case) for case in batch.cases]
        return msgspec.structs.replace(batch, id=f"{self.folder}{batch.id}", cases=tuple(cases))

    def _adopt_case(self, case: Case) -> Case:
        timing, work = case.timing, case.work
        if timing is not None and timing.group:
            timing = msgspec.structs.replace(timing, group=f"{self.folder}{timing.group}")
        if isinstance(work, KernelWork):
            work = msgspec.structs.replace(work, shape=self.name)
        named = f"{self.folder}{case.id}"
        case = msgspec.structs.replace(case, id=named, work=work, timing=timing)
        if case.timing is not None and not case.control:
            self._cases.setdefault(canonical_json(case.config), case)
        return case


class Studies:
    """A CaseSource: one study after another, each while those before wait for times; with a budget in turns,
    so that all get equal shares.
    """

    def __init__(self, studies: Sequence[ShapeStudy], request: TuneRequest, within: float) -> None:
        self.studies = tuple(studies)
        for one in self.studies:
            one.study.budgets.sharers = len(self.studies)
        self._request = request
        self._limit = 1 + within
        self._open = deque(self.studies)
        self._meetings = 0
        self._planned: list[Batch] = []
        self._by_folder = {study.folder: study for study in studies}

    async def ask(self, limit: int) -> Sequence[Batch]:
        """Cases of the first studies that have any; after all finals, those of further meetings."""
        while not (batches := await self._plan(limit)) and (resting := self._list_resting()):
            await resting[0].rest()
        return batches

    async def _plan(self, limit: int) -> list[Batch]:
        batches: list[Batch] = []
        is_waiting = False
        while len(batches) < limit and not is_waiting:
            found = await self._ask_each(limit - len(batches))
            batches += found
            is_waiting = not found
        if not batches and self._meetings < MEETINGS and all(one.done() for one in self.studies):
            self._planned = await self._plan_meetings()
            self._meetings = self._meetings + 1 if self._planned else MEETINGS
        if not batches:
            batches, self._planned = self._planned[:limit], self._planned[limit:]
        return batches

    def tell(self, trial: Trial) -> None:
        """Record a trial of any of the studies."""
        self._by_folder[f"{trial.case.partition('/')[0]}/"].tell(trial)

    def done(self) -> bool:
        """Whether all cases were requested and have ended."""
        return self._meetings == MEETINGS and all(study.done() for study in self.studies)

    def result(self, run: str, reason: StopReason, results: Sequence[StudyResult]) -> TableResult:
        """The table, from configs that have met, and the curve; with the studies' results in their order."""
        known = self._list_known(results)
        met = [{key: one for key, one in of.items() if one.met} for of in known]
        rows = [
            TableRow(
                name=one.name,
                arguments=result.arguments,
                weight=one.shape.weight,
                trial=chosen.trial if chosen else None,
                slowdown=chosen.ratio if chosen else 1.0,
                latency_ns=chosen.latency_ns if chosen else 0.0,
            )
            for one, result, chosen in zip(self.studies, results, self._choose(met), strict=True)
        ]
        return TableResult(
            run=run,
            kernel=results[0].kernel,
            target=results[0].target,
            within=self._limit - 1,
            studies=tuple(results),
            rows=tuple(rows),
            curve=self._draw(known, rows),
            reason=reason,
            seconds=max(result.seconds for result in results),
        )

    async def _ask_each(self, limit: int) -> list[Batch]:
        """At most ``limit`` batches; with a budget one per study, first of studies that got none before."""
        budgets = (self._request.budget_s, self._request.device_budget_s)
        is_fair = any(budget is not None for budget in budgets)
        self._open = deque(study for study in self._open if not study.done())
        batches: list[Batch] = []
        for study in tuple(self._open):
            if (left := limit - len(batches)) > 0:
                batches += await study.plan(1 if is_fair else left)
                self._open.rotate(-is_fair)
        return batches

    def _list_resting(self) -> list[Study]:
        """The studies that are not done, the first to go on first; none if one does more than pause."""
        left = [one.study for one in self.studies if not one.done()]
        left.sort(key=lambda study: study.pause_s)
        return left if left and left[0].pause_s > 0 else []

    async def _plan_meetings(self) -> list[Batch]:
        """The proposed table's meetings: its configs with the best ones of shapes that they have not met."""
        results = self._results()
        chosen = await asyncio.to_thread(self._choose, self._list_known(results))
        return [
            study.meet(one.trial, result.best)
            for study, result, one in zip(self.studies, results, chosen, strict=True)
            if one is not None and result.best is not None and not one.met
        ]

    def _results(self) -> list[StudyResult]:
        nowhere = Device(name="", kind="", identity="")
        return [one.study.result("", "done", nowhere) for one in self.studies]

    def _list_known(self, results: Sequence[StudyResult]) -> list[dict[str, Slowdown]]:
        return [
            one.list_slowdowns(result, self._request)
            for one, result in zip(self.studies, results, strict=True)
        ]

    def _serve(self, known: Sequence[Slowdowns]) -> dict[str, frozenset[int]]:
        """The shapes that each config serves within the limit."""
        served: dict[str, set[int]] = {}
        for number, of in enumerate(known):
            for key, one in of.items():
                if one.ratio <= self._limit:
                    served.setdefault(key, set()).add(number)
        return {key: frozenset(shapes) for key, shapes in served.items()}

    def _choose(self, known: Sequence[Slowdowns]) -> list[Slowdown | None]:
        """The fewest configs that serve all shapes: the fastest of them per shape, None if none passed."""
        table = find_fewest(self._serve(known))
        return [
            min((of[key] for key in table if key in of), key=lambda one: one.ratio, default=None)
            for of in known
        ]

    def _draw(self, known: Sequence[Slowdowns], rows: Sequence[TableRow]) -> tuple[CurvePoint, ...]:
        table = {canonical_json(row.trial.config): row.trial.config for row in rows if row.trial}
        served = self._serve(known)
        weights = [one.shape.weight for one in self.studies]
        configs = {key: one.trial.config for of in known for key, one in of.items()}
        curve = draw_curve(served, weights, len(table) - 1) if len(table) > 1 else []
        points = []
        for keys in curve:
            best = [min((of[k].ratio for k in keys if k in of), default=None) for of in known if of]
            timed = [ratio for ratio in best if ratio is not None]
            reached = frozenset().union(*(served[key] for key in keys))
            points.append(
                CurvePoint(
                    configs=tuple(configs[key] for key in keys),
                    share=sum(weights[number] for number in sorted(reached)) / sum(weights),
                    worst=max(timed) if len(timed) == len(best) else None,
                )
            )
        if found := [row for row in rows if row.trial is not None]:
            points.append(
                CurvePoint(
                    configs=tuple(table.values()),
                    share=sum(row.weight for row in found) / sum(weights),
                    worst=max(row.slowdown for row in found),
                )
            )
        return tuple(points)
