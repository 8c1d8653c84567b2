"""Tunes a kernel as a source of cases: screens every config once, then lets the best ones meet."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.clock import Clock
from tileyard.base.events import Event, HostJoined, StopReason, StudyAdvanced
from tileyard.base.model import (
    INFRASTRUCTURE,
    Batch,
    Case,
    Device,
    KernelWork,
    Limits,
    Outcome,
    Record,
    TimingPolicy,
    Tolerance,
    Trial,
    Value,
)
from tileyard.targets.own_sources import name_bound
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.budgets import Budgets
from tileyard.verbs.tune.plan.contest import Contest
from tileyard.verbs.tune.plan.deciding import Sweep, is_screening, make_cases
from tileyard.verbs.tune.plan.goals import TIME_ALONE, Goals
from tileyard.verbs.tune.plan.silicon import split_by_silicon
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.result import StudyResult


class Place(Record):
    """The file of a study's kernel, its target, and the targets ``also_build`` for builds only. Its run had
    spent ``spent_s`` before the study.
    """

    file: str = ""
    target: str = "cpu"
    also_build: tuple[str, ...] = ()
    spent_s: float = 0.0


AMOUNTS = ("warmup_launches", "warmup_ns", "launches", "max_ns")
"""The fields of a policy that decide how often a config is launched."""
TELL_S = 0.2
"""Least seconds between two reports of how far a study is."""


class Study:
    """A CaseSource: screening batches of one case, then checks of configs that may win on further inputs, and
    builds for the targets ``also_build``, then finals: interleaved batches per kind of silicon. Without
    ``devices`` it is unknown where cases run. Finals are held again after a pause, which ``ask`` waits for
    with ``sleep`` and ``plan`` does not. ``goals`` are what is sought besides short times.
    """

    def __init__(  # noqa: PLR0913 - the last two by keyword only
        self,
        request: TuneRequest,
        space: OpenSpace,
        clock: Clock,
        place: Place = Place(),  # noqa: B008 - a frozen record
        devices: Sequence[Device] = (),
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        goals: Goals = TIME_ALONE,
    ) -> None:
        tolerance = _choose_tolerance(request, space.tolerance)
        self._check = msgspec.structs.replace(request.check, tolerance=tolerance)
        self._timing = _complete_timing(request.timing, space.timing)
        is_usual = request.limits.run_s == Limits().run_s
        self._limits = request.limits
        if space.run_s and is_usual:
            self._limits = msgspec.structs.replace(request.limits, run_s=space.run_s)
        self._request = request
        self.space = space
        self._clock = clock
        self._sleep = sleep
        self.budgets = Budgets(request, clock, place.spent_s)
        self._resumes_s = 0.0
        self.watch: Callable[[StudyAdvanced], object] = lambda _: None
        """Receives how far the study is, from time to time."""
        self._told_s = -math.inf
        self._expected = 0
        self._finals_s = 0.0
        """The time that finals take, as expected when ``_expected`` configs had ended."""
        self._finals_began_s = 0.0
        self._place = place
        self._goals = goals
        self._also_built: Sweep | None = None
        self._next = 0
        self._ended_s: dict[str, float] = {}
        """When the trials ended; those that measure a config again have the moment of its first."""
        self._first_s: dict[tuple[str, str], float] = {}
        self._are_finals_asked = False
        self.is_screening = True
        """True until the steps that need the times of all configs are planned."""
        kinds = split_by_silicon(devices) or [()]
        numbers = range(len(kinds)) if len(kinds) > 1 else [None]
        self.contests = [
            Contest(
                request,
                self._case,
                kind,
                number,
                learn=space.tell,
                incumbents=space.incumbents,
                goals=goals,
            )
            for number, kind in zip(numbers, kinds, strict=True)
        ]

    def hear(self, event: Event) -> None:
        """Take in a run's event: the devices of a host that joins are compared with others of their kind."""
        self.budgets.hear(event)
        if isinstance(event, HostJoined):
            for device in event.devices:
                for contest in self.contests:
                    contest.join(device)

    async def ask(self, limit: int) -> Sequence[Batch]:
        """Return screening cases until there are no more, or the budget is spent; then the finals."""
        while not (batches := await self.plan(limit)) and self.pause_s > 0:
            await self.rest()
        return batches

    @property
    def pause_s(self) -> float:
        """The seconds of a pause that are left; at most 0 without one."""
        return self._resumes_s - self._clock.monotonic_s()

    async def rest(self) -> None:
        """Wait until the pause ends."""
        await self._sleep(self.pause_s)

    async def plan(self, limit: int) -> Sequence[Batch]:
        """The next batches; none during a pause."""
        if self._are_finals_asked:
            return ()
        if self.is_screening and not self.why_ended:
            await self._draw(limit)
        batches = [
            batch
            for contest in self.contests
            for batch in (*contest.compare_devices(), *contest.screen_sanitized())
        ]
        while len(batches) < limit and not self._is_screened():
            number, kind = divmod(self._next, len(self.contests))
            batches.append(self.contests[kind].screen(number, self.space.configs[number]))
            self._next += 1
        return batches or await self._ask_more(limit)

    async def _draw(self, limit: int) -> None:
        """Have configs chosen for as many batches, unless so little gain is expected that the study ends."""
        if self._request.until_gain is not None:
            await self.space.settle()
            self.budgets.expect(self.space.expected_gain)
        if not self.why_ended:
            await self.space.draw(-(-(self._next + limit) // len(self.contests)))

    async def _ask_more(self, limit: int) -> Sequence[Batch]:
        """The steps that follow the screening, one after another."""
        if self._is_pending or self.pause_s > 0:
            return ()
        if self.is_screening:
            self.budgets.close()
            self._finals_began_s = self.budgets.elapsed_s
            self.is_screening = False
        await self.space.end_ahead()
        left_s, left_ns = self.budgets.left_s, self._left_ns
        if pause_s := max(contest.review(left_s, left_ns) for contest in self.contests):
            self._resumes_s = self._clock.monotonic_s() + pause_s
            return ()
        for step in (Contest.screen_again, Contest.check):
            if batches := [batch for contest in self.contests for batch in step(contest)]:
                return batches
        if not self.also_built.done():
            return await self.also_built.ask(limit)
        for meet in (Contest.meet, Contest.meet_incumbents):
            if batches := [batch for contest in self.contests for batch in meet(contest, left_ns)]:
                break
        self._are_finals_asked = not batches
        return batches

    def tell(self, trial: Trial) -> None:
        """Record a trial."""
        self._ended_s[trial.id] = now_s = self.budgets.elapsed_s
        if not any(contest.tell(trial) for contest in self.contests):
            self.also_built.tell(trial)
        if is_screening(trial):
            key = (trial.silicon, canonical_json(trial.config))
            self._ended_s[trial.id] = self._first_s.setdefault(key, now_s)
            self.budgets.take(trial)
        self._advance()

    def _advance(self) -> None:
        """Report how far the study is, from time to time; of several studies none does."""
        now_s = self._clock.monotonic_s()
        is_late = now_s >= self._told_s + TELL_S or not self._is_pending
        is_due = is_late and self.budgets.sharers == 1
        if not is_due and self._request.until_gain is None:
            return
        self.space.want_gain()
        if not is_due:
            return
        self._told_s, gain = now_s, self.space.expected_gain
        is_known = gain is not None and math.isfinite(gain)
        self.watch(
            StudyAdvanced(
                expected_gain=gain if is_known else None,
                left_s=self.left_s,
                rejected=self._count_rejected(),
            )
        )

    def _count_rejected(self) -> dict[str, int]:
        """The configs that the study's rules and bounds rejected, by reason."""
        bounds = set(map(name_bound, self._goals.bounds))
        contests = self.contests if bounds else ()
        screened = (one for contest in contests for one in contest.screened)
        rejected = Counter(one.exceeds for one in screened if one.exceeds in bounds)
        rejected["`where`"] = self.space.rejected
        return dict(+rejected)

    def done(self) -> bool:
        """Whether all cases were requested and have ended."""
        return self._are_finals_asked and not self._is_pending

    def result(self, run: str, reason: StopReason, device: Device) -> StudyResult:
        """The study's result in this run, with the trials so far; on ``device`` if no others are known."""
        found = [
            self._result(contest, run, reason, (*contest.devices, device)[0])
            for contest in self.contests
        ]
        return msgspec.structs.replace(found[0], others=tuple(found[1:]))

    def _result(
        self, contest: Contest, run: str, reason: StopReason, device: Device
    ) -> StudyResult:
        screened, verdict = contest.screened, contest.verdict
        result = StudyResult(
            run=run,
            kernel=self.space.kernel,
            arguments=self.space.arguments,
            target=self._place.target if screened else "",
            device=device.name,
            flops=self.space.flops,
            space=self.space.size,
            trials=screened,
            ended_s=tuple(sorted(self._ended_s[trial.id] for trial in screened)),
            rejected=self.space.rejected,
            best=verdict.best,
            leader=verdict.leader,
            finals=verdict.finals,
            control=verdict.control,
            least=verdict.least,
            reason=self.reason if reason in ("budget", "gain") else reason,
            stopped=self.why_ended if reason in ("budget", "gain") and self.is_cut_short else "",
            seconds=self.budgets.elapsed_s,
            silicon=device.identity,
            checked=self._request.check.enabled,
            require_check=self._request.require_check,
            draws=self._request.draws,
            are_finals_lost=any(trial.outcome in INFRASTRUCTURE for trial in contest.finals),
            kept_out=contest.alike.list_kept_out(),
            unmet=contest.unmet,
            busy=contest.busy,
            disturbances=contest.disturbances,
            disturbed=contest.is_disturbed,
            incumbents=contest.incumbents,
        )
        front = contest.front
        return self._goals.describe_front(front, result) if front else result

    @property
    def _is_pending(self) -> bool:
        return any(contest.is_pending for contest in self.contests)

    @property
    def also_built(self) -> Sweep:
        """The builds of the drawn configs for further targets."""
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
    def left_s(self) -> float | None:
        """The time until the study ends, finals included; None before that can be said."""
        finals_s, configs = self._expect_finals_s(), 0
        if self.is_screening:
            configs = self.space.at_most * len(self.contests) - self.budgets.screened
        else:
            spent_s = self.budgets.elapsed_s - self._finals_began_s
            done = min(contest.finals_done for contest in self.contests)
            finals_s = spent_s * (1 - done) / done if done else finals_s - spent_s
            if finals_s < 0:
                return None  # they take longer than expected
        return self.budgets.forecast_s(configs, finals_s)

    @property
    def _left_ns(self) -> float:
        """This study's share of what is left of the budgets."""
        return 1e9 * max(self.budgets.left_s, 0.0) / self.budgets.sharers

    def _expect_finals_s(self) -> float:
        """The time that finals take; it is computed anew when a tenth more configs have ended."""
        if self.budgets.screened > 1.1 * self._expected:
            self._expected = self.budgets.screened
            self._finals_s = max(contest.expect_finals_s() for contest in self.contests)
        return self._finals_s

    @property
    def why_ended(self) -> str:
        """Why the screening ended although configs are left; empty if it did not."""
        return self.budgets.over[1]

    @property
    def reason(self) -> StopReason:
        """Why the study ended, if nothing stopped it."""
        return self.budgets.over[0] if self.is_cut_short else "done"

    @property
    def is_cut_short(self) -> bool:
        """Whether the time was too short for some configs."""
        if self._request.finals_only:
            return False
        left = self._next < self._planned or not self.space.is_whole
        screened = (trial for contest in self.contests for trial in contest.screened)
        return left or any(trial.outcome is Outcome.NOT_RUN for trial in screened)

    @property
    def _planned(self) -> int:
        """Number of screenings of the configs drawn so far: one per config and kind of silicon."""
        return len(self.space.configs) * len(self.contests)

    def _is_screened(self) -> bool:
        return self._next >= self._planned or bool(self.why_ended)

    def _case(self, name: str, config: dict[str, Value]) -> Case:
        return Case(
            id=name,
            work=KernelWork(
                file=self._place.file,
                kernel=self.space.kernel,
                arguments=self.space.arguments,
                config=config,
                reference=self._request.reference,
                inputs=self._request.inputs,
            ),
            target=self._place.target,
            check=self._check,
            timing=self._timing,
            limits=self._limits,
        )


def _choose_tolerance(request: TuneRequest, own: Tolerance | None) -> Tolerance | None:
    """The requested tolerance; where rtol or atol is missing, the kernel's own, or equal to the other."""
    rtol, atol = request.rtol, request.atol
    given = [number for number in (rtol, atol) if number is not None]
    if not given:
        return request.check.tolerance or own
    base = own or Tolerance(rtol=given[0], atol=given[0])
    return msgspec.structs.replace(
        base,
        rtol=base.rtol if rtol is None else rtol,
        atol=base.atol if atol is None else atol,
    )


def _complete_timing(asked: TimingPolicy, declared: TimingPolicy | None) -> TimingPolicy:
    """The requested timing of cases, with the kernel's declared numbers of launches if none is requested."""
    usual = msgspec.structs.replace(
        asked, **{name: getattr(TimingPolicy(), name) for name in AMOUNTS}
    )
    if declared is not None and asked == usual:
        asked = msgspec.structs.replace(
            asked, launches=declared.launches, warmup_launches=declared.warmup_launches
        )
    return asked
