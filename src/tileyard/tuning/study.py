"""A tuning run as a source of cases: screen every config once, then let the best ones meet."""

from collections.abc import Sequence

import msgspec

from tileyard.artifacts.keys import canonical_json
from tileyard.clock import Clock
from tileyard.events import StopReason
from tileyard.model import (
    INFRASTRUCTURE,
    WELL,
    Batch,
    Case,
    Device,
    KernelWork,
    Limits,
    Outcome,
    Record,
    TimingPolicy,
    Trial,
    Value,
)
from tileyard.tuning.finals import judge_finals
from tileyard.tuning.request import StudyResult, TuneRequest, median_ns, one_per_binary
from tileyard.tuning.space import OpenSpace
from tileyard.tuning.sweep import Sweep, make_cases


class Place(Record):
    """Where a study's kernel is, and what it is built for: to be run, and ``also_build`` without."""

    file: str = ""
    target: str = "cpu"
    also_build: tuple[str, ...] = ()


STUDY, FINALS = "study", "finals"
AMOUNTS = ("warmup_launches", "warmup_ns", "launches", "max_ns")
"""What of a policy says how often a config is launched."""
CONTENDER_MARGIN = 1.05
"""A config whose interval begins within this factor of the best one's end may be the winner."""


class Study:
    """A CaseSource. Screening cases are batches of one; the finals are one interleaved batch.

    Between the two the same configs are built for the targets ``also_build``, and not run.
    """

    def __init__(
        self,
        request: TuneRequest,
        space: OpenSpace,
        clock: Clock,
        place: Place = Place(),  # noqa: B008 - a frozen record
    ) -> None:
        tolerance = request.check.tolerance or space.tolerance
        self._check = msgspec.structs.replace(request.check, tolerance=tolerance)
        self._timing = _complete_timing(request.timing, space.timing)
        is_usual = request.limits.run_s == Limits().run_s
        self._limits = request.limits
        if space.run_s and is_usual:
            self._limits = msgspec.structs.replace(request.limits, run_s=space.run_s)
        self._request = request
        self.space = space
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._place = place
        self._also_built: Sweep | None = None
        self._next = 0
        self._pending: set[str] = set()
        self._screened: list[Trial] = []
        self._final_trials: list[Trial] = []
        self._finals_asked = False

    async def ask(self, limit: int) -> Sequence[Batch]:
        """Screening cases until there are no more, or the budget is spent; then the finals."""
        if self._finals_asked:
            return ()
        if not self.is_out_of_budget:
            await self.space.draw(self._next + limit)
        if not self._is_screened():
            count = min(limit, len(self.space.configs) - self._next)
            batches = [self._screening(self._next + i) for i in range(count)]
            self._next += count
            self._pending.update(batch.cases[0].id for batch in batches)
            return batches
        if self._pending:
            return ()
        if not self.also_built.done():
            return await self.also_built.ask(limit)
        self._finals_asked = True
        finals = self._finals()
        self._pending.update(case.id for batch in finals for case in batch.cases)
        return finals

    def tell(self, trial: Trial) -> None:
        """Take in a trial of the screening or of the finals."""
        if trial.case not in self._pending:
            self.also_built.tell(trial)
            return
        self._pending.discard(trial.case)
        (self._final_trials if trial.batch == FINALS else self._screened).append(trial)

    def done(self) -> bool:
        """All is asked and told."""
        return self._finals_asked and not self._pending

    def result(self, run: str, reason: StopReason, device: Device) -> StudyResult:
        """The result of the study as part of this run, with the trials told so far."""
        verdict = judge_finals(self._passed(), self._final_trials, self._request.timing.confidence)
        return StudyResult(
            run=run,
            kernel=self.space.kernel,
            arguments=self.space.arguments,
            target=self._screened[0].target if self._screened else "",
            device=device.name,
            flops=self.space.flops,
            space=self.space.size,
            trials=tuple(self._screened),
            best=verdict.best,
            finals=verdict.finals,
            control=verdict.control,
            reason=reason,
            seconds=self.elapsed_s,
            silicon=device.identity,
            checked=self._request.check.enabled,
            require_check=self._request.require_check,
            are_finals_lost=any(trial.outcome in INFRASTRUCTURE for trial in self._final_trials),
        )

    @property
    def also_built(self) -> Sweep:
        """The configs that were drawn, as they are built for further targets."""
        if self._also_built is None:
            file, limits = self._place.file, self._limits
            self._also_built = Sweep(
                *(
                    make_cases(self.space, file, target, limits, f"{target}/")
                    for target in self._place.also_build
                )
            )
        return self._also_built

    @property
    def is_out_of_budget(self) -> bool:
        """The time for screening is spent."""
        budget_s = self._request.budget_s
        return budget_s is not None and self.elapsed_s >= budget_s

    @property
    def is_screening(self) -> bool:
        """Neither the finals nor builds for other targets are planned yet."""
        return not self._finals_asked and self._also_built is None

    @property
    def is_cut_short(self) -> bool:
        """There were configs that the time did not suffice for."""
        left = self._next < len(self.space.configs) or not self.space.is_whole
        return left or any(trial.outcome is Outcome.NOT_RUN for trial in self._screened)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the study was opened."""
        return self._clock.monotonic_s() - self._started_s

    def _is_screened(self) -> bool:
        is_drawn = self.space.is_whole and self._next >= len(self.space.configs)
        return is_drawn or self.is_out_of_budget

    def _screening(self, number: int) -> Batch:
        case = self._case(f"c{number + 1:04d}", dict(self.space.configs[number]))
        bounds = [t.measurement.high_ns for t in self._passed() if t.measurement is not None]
        case = msgspec.structs.replace(case, abandon_above_ns=min(bounds, default=0.0))
        return Batch(id=case.id, cases=(case,), alike=True)

    def _case(self, name: str, config: dict[str, Value]) -> Case:
        return Case(
            id=name,
            work=KernelWork(
                file=self._place.file,
                kernel=self.space.kernel,
                arguments=self.space.arguments,
                config=config,
                reference=self._request.reference,
            ),
            target=self._place.target,
            check=self._check,
            timing=self._timing,
            limits=self._limits,
        )

    def _passed(self) -> list[Trial]:
        """Trials that may win, fastest first; equal medians in the order of their configs."""
        right = {Outcome.PASSED} if self._request.require_check else WELL
        passed = [trial for trial in self._screened if trial.outcome in right and trial.measurement]
        return sorted(passed, key=lambda t: (median_ns(t), canonical_json(t.config)))

    def _finals(self) -> Sequence[Batch]:
        """The leader twice (the second time as control) and whoever may still beat it.

        Of configs with the same binary the first in the order of configs is there for all.
        """
        passed = one_per_binary(self._passed())
        if len(passed) < 2 or self._request.finalists < 2:
            return ()
        leader = passed[0].measurement
        bound = leader.high_ns * CONTENDER_MARGIN if leader is not None else 0.0
        contenders = [t for t in passed[1:] if t.measurement and t.measurement.low_ns <= bound]
        chosen = [passed[0], *contenders[: self._request.finalists - 1]]
        if len(chosen) < 2:
            return ()
        cases = [self._case(f"f{i + 1:02d}", dict(t.config)) for i, t in enumerate(chosen)]
        control = msgspec.structs.replace(cases[0], id="f00", control=True)
        return (
            Batch(
                id=FINALS,
                cases=(*cases, control),
                order="interleaved",
                rounds=self._request.rounds,
            ),
        )


def _complete_timing(asked: TimingPolicy, declared: TimingPolicy | None) -> TimingPolicy:
    """How cases are timed: as asked for, with the numbers of launches that the kernel declares where none are."""
    usual = msgspec.structs.replace(
        asked, **{name: getattr(TimingPolicy(), name) for name in AMOUNTS}
    )
    if declared is not None and asked == usual:
        asked = msgspec.structs.replace(
            asked, launches=declared.launches, warmup_launches=declared.warmup_launches
        )
    return msgspec.structs.replace(asked, group=STUDY)
