"""Runs a study's configs on one kind of silicon: collects trials, plans more, and finds who may win."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.events import FINALS, MEETING
from tileyard.base.model import (
    INFRASTRUCTURE,
    WELL,
    Batch,
    Case,
    Device,
    KernelWork,
    Outcome,
    Trial,
    Value,
    median_ns,
)
from tileyard.measure.paired import FEWEST_ROUNDS, MOST_NS
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.finals import (
    LATER_SHARE,
    MEETING_NS,
    START_S,
    Holding,
    Verdict,
    choose_finalists,
    find_bound_ns,
    find_culprit,
    find_disturbed_share,
    is_disturbed,
    judge_finals,
    list_complete,
    list_contenders,
    list_unclear,
)
from tileyard.verbs.tune.plan.goals import TIME_ALONE, Goals
from tileyard.verbs.tune.plan.silicon import Alike
from tileyard.verbs.tune.result import Final, Incumbent, one_per_binary

STUDY = "study"
MOST_DISTURBED = 0.25
"""Share of the rounds of finals that are disturbed on a device without other work, with a wide margin."""
DUEL_NS = 0.25e9
"""Nanoseconds for which a winner meets an incumbent that seemed slower."""
MOST_TIMES = 3
"""Most screenings of a config, if its times do not count, or decide nothing."""

Config = dict[str, Value]
Take = Callable[[Trial], None]


class Contest:
    """The configs of a study on ``devices`` of one kind. ``number`` counts the kinds from 0 if there are
    several. ``goals`` are what is sought besides short times.

    ``make_case`` makes the case of a config under a name. ``learn`` is called with each trial of a config by
    itself, as it counts. The winner is the first of the named ``incumbents`` that none is clearly faster
    than, so each of them that is right meets it.
    """

    def __init__(  # noqa: PLR0913 - the last three by keyword only
        self,
        request: TuneRequest,
        make_case: Callable[[str, Config], Case],
        devices: Sequence[Device] = (),
        number: int | None = None,
        *,
        learn: Take = lambda _: None,
        incumbents: Sequence[tuple[str, Config]] = (),
        goals: Goals = TIME_ALONE,
    ) -> None:
        self._request = request
        self._goals = goals
        self._make = make_case
        self._learn = learn
        self._suffix = f"-{number + 1}" if number else ""
        self._is_bound = number is not None
        self._ready: list[tuple[str, Config]] = []
        """The configs whose sanitized builds are right, and that are not timed yet."""
        self._pending: dict[str, Take] = {}
        self._screened: dict[str, Trial] = {}
        self._attempts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._checked: set[str] = set()
        """The configs whose further checks were requested, right or not."""
        self._unproven: dict[str, int] = {}
        """Number of further checks that a config has not yet passed."""
        self._held = Holding()
        self._incumbents = {canonical_json(config): (name, config) for name, config in incumbents}
        self._duels: dict[str, list[Trial]] = {}
        """Trials by the ids of later meetings, of a winner and an incumbent that was no finalist."""
        self._doubted: tuple[Trial, ...] = ()
        """Those whose times are of a screening that other work disturbed."""
        self._is_repeated = False
        """Whether such a screening was repeated, and the finals were not looked at since."""
        self.devices = tuple(devices)
        self.alike = Alike(devices)

    def join(self, device: Device) -> None:
        """Have a further device time configs, if it is of this kind."""
        if device.identity in {one.identity for one in self.devices}:
            self.alike.add(device)

    @property
    def is_pending(self) -> bool:
        """Whether a requested trial has not ended yet."""
        return bool(self._pending)

    @property
    def screened(self) -> tuple[Trial, ...]:
        """Each config's trial, by first ends; trials of devices whose times do not count are undone."""
        return tuple(map(self._as_it_counts, self._screened.values()))

    @property
    def verdict(self) -> Verdict:
        """The winner, and how certain it is; of a disturbed study only the leader."""
        found = self._judge_held()
        if found.best is None:
            return found
        for duel in map(self._judge, self._duels.values()):
            has_met = any(one.trial == found.best.id for one in duel.finals)
            if has_met and duel.best is not found.best:
                return duel  # an incumbent that the screening found slower, and is not
        return found

    @property
    def front(self) -> list[Trial]:
        """The Pareto set, the least amount first; none of a disturbed study, or with one goal."""
        if not self._goals.second or self.is_disturbed:
            return []
        return self._list_front(self._held.trials)

    @property
    def incumbents(self) -> tuple[Incumbent, ...]:
        """The incumbents, each beside the winner."""
        verdict = self.verdict
        met = [self._judge(trials) for trials in self._duels.values()]
        finals = {
            self._name_of(final): final
            for one in (*met, verdict)
            if one.best is not None and one.best is verdict.best
            for final in one.finals
        }
        return tuple(
            Incumbent(
                name=name,
                config=dict(config),
                final=None if trial is None else finals.get(_name_binary(trial)),
                problem=self._say_problem(trial),
            )
            for name, config, trial in (
                (*named, self._screened.get(key)) for key, named in self._incumbents.items()
            )
        )

    @property
    def finals(self) -> tuple[Trial, ...]:
        """The trials of all finals."""
        return tuple(self._held.every)

    @property
    def is_disturbed(self) -> bool:
        """Whether finals contradict the screening, or have not yet been held again since."""
        return self._held.is_open or bool(find_culprit(self.rank(), self._held.trials)[0])

    @property
    def disturbances(self) -> tuple[str, ...]:
        """The contradictions between finals and screening, in the order in which they were found."""
        _, last = find_culprit(self.rank(), self._held.trials)
        return (*self._held.said, *([last] if last else []))

    @property
    def busy(self) -> tuple[str, ...]:
        """The parts of the study that other work disturbed, and which count nevertheless."""
        share = find_disturbed_share(self._held.trials)
        said = ["other work disturbed the screening"] if is_disturbed(self.rank()) else []
        if share > MOST_DISTURBED:
            said.append(
                f"other work disturbed {100 * share:.0f} % of the rounds of the finals: they do not count"
            )
        return tuple(said)

    @property
    def proven_slots(self) -> tuple[str, ...]:
        """The slots where configs may meet; empty for any device of the study."""
        return self.alike.list_slots(proven=True) if self._is_restricted else ()

    @property
    def unmet(self) -> tuple[str, ...]:
        """The trials that may be as fast as the winner, and have not met it; one per binary."""
        if self.is_disturbed:
            return ()
        passed = self._list_distinct(self.rank())
        contenders = list_contenders(passed)
        if is_disturbed(passed):  # a few samples of one moment show little
            contenders += [one for one in passed if one not in contenders and _is_brief(one)]
        met = {canonical_json(final.config) for final in self.verdict.finals}
        met |= {canonical_json(one.config) for duel in self._duels.values() for one in duel}
        binaries = {self._screened[key].keys.binary for key in met} - {""}
        return tuple(
            trial.id
            for trial in contenders[bool(contenders) and not met :]
            if canonical_json(trial.config) not in met and trial.keys.binary not in binaries
        )

    def rank(self, *, is_proven: bool = True) -> list[Trial]:
        """Trials that may win, fastest first, equal medians in the order of configs. Without ``is_proven``,
        also before their config has passed its further checks.
        """
        passed = [
            trial
            for key, trial in self._screened.items()
            if self._is_right(trial)
            and not (is_proven and self._has_checks and self._unproven.get(key, 1))
        ]
        return sorted(passed, key=lambda t: (median_ns(t), canonical_json(t.config)))

    def _list_distinct(self, passed: Sequence[Trial]) -> list[Trial]:
        """One of these for each binary, an incumbent if there is one, in the same order."""
        first = sorted(passed, key=lambda one: canonical_json(one.config) not in self._incumbents)
        chosen = {one.id for one in one_per_binary(first)}
        return [one for one in passed if one.id in chosen]

    def tell(self, trial: Trial) -> bool:
        """Record a trial; returns False if it is not of this contest."""
        take = self._pending.pop(trial.key, None)
        if take is not None:
            take(trial)
        return take is not None

    # ---- what is asked -------------------------------------------------------------------------

    def screen(self, number: int, config: Config) -> Batch:
        """The batch that checks and times a config alone, or before that checks its sanitized build."""
        key = canonical_json(config)
        self._names[key] = self._name(f"c{number + 1:04d}")
        if not self._request.sanitized:
            return self._screening(key, config, self._screening_slots)
        case = self._case(f"{self._names[key]}-sanitized", config, control=True)
        case = msgspec.structs.replace(case, target=self._request.sanitized, timing=None)
        self._pending[case.key] = partial(self._take_sanitized, key)
        slots = self._screening_slots
        return Batch(id=case.id, cases=(case,), alike=True, known=self._known, devices=slots)

    def screen_sanitized(self) -> list[Batch]:
        """Batches that check and time the configs whose sanitized builds have turned out to be right."""
        ready, self._ready = self._ready, []
        return [self._screening(key, config, self._screening_slots) for key, config in ready]

    def compare_devices(self) -> list[Batch]:
        """Batches of the sentinel on each device that has not yet been compared with the others."""
        batches = []
        for place, round_ in self.alike.ask():
            config = self.alike.sentinel.config if self.alike.sentinel is not None else {}
            slots = self.alike.slots
            name = self._name(f"device{list(slots).index(place) + 1}-{round_}")
            case = self._case(name, config, control=True)
            case = msgspec.structs.replace(
                case, timing=case.timing and msgspec.structs.replace(case.timing, group="")
            )
            batches.append(Batch(id=name, cases=(case,), devices=slots[place]))
            self._pending[case.key] = partial(self.alike.tell, place)
        return batches

    def screen_again(self) -> list[Batch]:
        """Batches that repeat configs whose times decide nothing, or are of devices that do not count."""
        batches = []
        for key, trial in self._screened.items():
            if not self.alike.counts(trial) and self._attempts[key] < MOST_TIMES:
                slots = self.alike.list_slots(proven=True)
                batches.append(self._screening(key, trial.config, slots))
        if batches or self._request.finals_only:
            return batches
        if self._doubted:
            unclear, self._doubted = self._doubted, ()
            self._is_repeated = True
        elif not self._held.meetings:
            unclear = tuple(list_unclear(self._list_distinct(self.rank(is_proven=False))))
        else:
            unclear = ()
        return [self._measure_again(trial) for trial in filter(self._may_repeat, unclear)]

    def review(self, left_s: float, left_ns: float) -> float:
        """Begin the finals anew if they contradict the screening, whose configs are measured again if it was
        disturbed; returns the seconds to wait first. ``left_s`` are left of the budget, ``left_ns`` is this
        study's share, as in ``meet``.
        """
        passed, held = self.rank(), self._held
        if self._is_repeated:
            self._is_repeated = held.is_open = False
            every, fitting, met = (
                set(map(_name_binary, trials))
                for trials in (self._choose(passed), self._choose(passed, left_ns), held.trials)
            )
            if not fitting <= met <= every:
                held.restart(are_slow=False)
                return 0.0
        culprit, why = find_culprit(passed, held.trials)
        needs_pause = culprit == "finals" and not held.are_known
        pause_s = self._request.pause_s if needs_pause else 0.0
        if not culprit or left_s <= pause_s:
            return 0.0
        if culprit == "finals" or held.are_known:
            if held.may_restart(self._request.holdings):
                held.note(why)
                held.restart(are_slow=True)
                return pause_s
        elif not self._request.finals_only:
            again = filter(self._may_repeat, self._list_distinct(passed))
            self._doubted = tuple(again)
            if self._doubted:
                held.note(why)
        return 0.0

    def check(self) -> list[Batch]:
        """Batches that check the would-be finalists: for undefined behaviour, and on inputs of all draws."""
        batches = []
        ranked = self.rank(is_proven=False) if self._has_checks else []
        others = self._list_incumbents(self._list_distinct(ranked))
        for trial in (*self._choose(ranked), *others):
            key = canonical_json(trial.config)
            if key in self._checked:
                continue
            self._checked.add(key)
            cases = [*self._further_checks(key, trial.config)]
            same = [canonical_json(one.config) for one in self._list_same(trial)]
            self._unproven |= dict.fromkeys(same, len(cases))
            for where, case in cases:
                batches.append(Batch(id=case.id, cases=(case,), devices=self.proven_slots))
                self._pending[case.key] = partial(self._take_check, key, where)
        return batches

    def _further_checks(self, key: str, config: Config) -> Iterator[tuple[str, Case]]:
        """The cases that a config must pass before finals, each with words for what is special about it."""
        if self._request.check_sync is not False:
            case = self._case(f"{self._names[key]}-check", config, control=True)
            yield "", msgspec.structs.replace(case, until="checked", timing=None)
        for draw in self._request.draws:
            name = f"{self._names[key]}-{draw.edges or f'seed-{draw.seed}'}"
            case = self._case(name, config, control=True)
            if isinstance(case.work, KernelWork):
                work = msgspec.structs.replace(case.work, draw=draw)
                case = msgspec.structs.replace(case, work=work, timing=None)
            yield f"with {draw.name}: ", case

    def meet(self, left_ns: float) -> list[Batch]:
        """A meeting of the finals: the leader twice (once as control) and all configs that may still beat it.
        It takes at most ``left_ns``, but FEWEST_ROUNDS; once that is spent, none follows the first. One
        config represents all of its binary. On a disturbed device tied ones meet again in other processes:
        ratios change between meetings.
        """
        passed, held = self.rank(), self._held
        chosen = self._list_tied() if held.meetings else self._choose(passed, left_ns)
        most = self._request.meetings if is_disturbed(passed) else 1
        if len(chosen) < 2 or held.meetings >= most or (held.meetings and left_ns <= 0):
            held.is_open = False
            return []
        again = held.suffix
        time_ns = min(MEETING_NS if most > 1 else MOST_NS, left_ns)
        names = (self._name(f"f{i + 1:02d}{again}") for i in range(len(chosen)))
        cases = [self._case(name, t.config) for name, t in zip(names, chosen, strict=True)]
        cases.append(self._case(self._name(f"f00{again}"), chosen[0].config, control=True))
        repetition = held.begin_meeting()
        self._pending |= {case.key: self._take_final for case in cases}
        return [
            Batch(
                id=self._name(FINALS + again),
                cases=tuple(cases),
                order="interleaved",
                process="fresh" if again else "warm",
                rounds=self._count_rounds([chosen[0], *chosen], time_ns),
                repetition=repetition,
                known="ignored" if self._request.finals_only else "used",
                devices=self.proven_slots,
            )
        ]

    def expect_finals_s(self) -> float:
        """The seconds that finals of what has passed so far take, if all meetings are needed."""
        passed = self.rank(is_proven=False)
        chosen = self._choose(passed)
        if len(chosen) < 2:
            return 0.0
        members = [chosen[0], *chosen]
        most = self._request.meetings if is_disturbed(passed) else 1
        rounds = self._count_rounds(members, MEETING_NS if most > 1 else MOST_NS)
        first_s = 2e-9 * rounds * sum(map(median_ns, members))
        return most * START_S + first_s * (1 + LATER_SHARE * (most - 1))

    @property
    def finals_done(self) -> float:
        """The share of the finals that is over, if all meetings are needed."""
        most = self._request.meetings if is_disturbed(self.rank()) else 1
        return max(self._held.meetings - self.is_pending, 0) / most

    def meet_incumbents(self, left_ns: float) -> list[Batch]:
        """Meetings of the winner with each incumbent that was no finalist, as it seemed slower."""
        best = self.verdict.best
        if best is None:
            return []
        met = {_name_binary(best), *(self._name_of(one) for one in self.verdict.finals)}
        batches = []
        for trial in self._list_incumbents(self._list_distinct(self.rank())):
            name = self._name(f"{MEETING}-{self._names[canonical_json(trial.config)]}")
            if name in self._duels or _name_binary(trial) in met:
                continue
            self._duels[name] = []
            cases = tuple(
                self._case(f"{name}-{number}", one.config)
                for number, one in enumerate((best, trial), start=1)
            )
            self._pending |= {case.key: partial(self._take_duel, name) for case in cases}
            batches.append(
                Batch(
                    id=name,
                    cases=cases,
                    order="interleaved",
                    rounds=self._count_rounds([best, trial], min(DUEL_NS, left_ns)),
                    known="ignored" if self._request.finals_only else "used",
                    devices=self.proven_slots,
                )
            )
        return batches

    # ---- inside ----------------------------------------------------------------------------------

    def _is_right(self, trial: Trial) -> bool:
        """Whether a config may win according to its own trial."""
        right = {Outcome.PASSED} if self._request.require_check else WELL
        return trial.outcome in right and trial.measurement is not None and self.alike.counts(trial)

    def _as_it_counts(self, trial: Trial) -> Trial:
        return trial if self.alike.counts(trial) else _undo(trial)

    @property
    def _has_checks(self) -> bool:
        """Whether a config must pass further checks before the finals."""
        return bool(self._request.draws) or self._request.check_sync is not False

    @property
    def _is_restricted(self) -> bool:
        """Whether only some devices of the study may run the cases of this contest."""
        return self._is_bound or bool(self.alike.list_kept_out())

    @property
    def _screening_slots(self) -> tuple[str, ...]:
        return self.alike.list_slots() if self._is_restricted else ()

    def _count_rounds(self, members: Sequence[Trial], time_ns: float) -> int:
        """The rounds of a meeting that fit into this time."""
        round_ns = 2 * sum(map(median_ns, members))
        return min(self._request.rounds, max(FEWEST_ROUNDS, int(time_ns / round_ns)))

    def _name(self, name: str) -> str:
        return name + self._suffix

    def _case(self, name: str, config: Config, *, control: bool = False) -> Case:
        case = self._make(name, dict(config))
        # Where the slow may win by their second measure, none is abandoned.
        group = "" if self._goals.second else self._name(STUDY)
        timing = case.timing and msgspec.structs.replace(case.timing, group=group)
        return msgspec.structs.replace(case, timing=timing, control=control)

    def _screening(self, key: str, config: Config, devices: tuple[str, ...]) -> Batch:
        self._attempts[key] = times = self._attempts.get(key, 0) + 1
        case = msgspec.structs.replace(
            self._case(self._names[key] + (f"-again{times}" if times > 1 else ""), config),
            abandon_above_ns=0.0
            if key in self._incumbents or self._goals.second
            else find_bound_ns(filter(self._is_right, self._screened.values())),
            bounds=dict(self._goals.bounds),
        )
        self._pending[case.key] = partial(self._take_screened, key)
        return Batch(id=case.id, cases=(case,), alike=True, known=self._known, devices=devices)

    @property
    def _known(self) -> Literal["used", "required"]:
        return "required" if self._request.finals_only else "used"

    def _may_repeat(self, trial: Trial) -> bool:
        return self._attempts[canonical_json(trial.config)] < MOST_TIMES

    def _measure_again(self, trial: Trial) -> Batch:
        """The batch that times a binary once more, whatever is recorded."""
        batch = self._screening(canonical_json(trial.config), trial.config, self.proven_slots)
        (case,) = batch.cases
        self._pending[case.key] = partial(self._take_again, trial)
        return msgspec.structs.replace(batch, alike=False, known="ignored")

    def _choose(self, passed: Sequence[Trial], left_ns: float = math.inf) -> list[Trial]:
        distinct, most = self._list_distinct(passed), self._request.finalists
        if not self._goals.second:
            return [*choose_finalists(distinct, most, left_ns)]
        always = self._list_incumbents(distinct)
        return self._goals.choose_finalists(distinct, most, left_ns, always)

    def _judge(self, trials: Sequence[Trial]) -> Verdict:
        confidence = self._request.timing.confidence
        firsts: Iterable[str] = self._incumbents
        if self._goals.second:
            firsts = [canonical_json(one.config) for one in self._list_front(trials)[-1:]]
        return judge_finals(self.rank(), trials, confidence, firsts)

    def _list_front(self, trials: Sequence[Trial]) -> list[Trial]:
        confidence = self._request.timing.confidence
        return self._goals.list_front(self.rank(), trials, confidence, self._incumbents)

    def _judge_held(self) -> Verdict:
        """The verdict of the finals alone."""
        found = self._judge(self._held.trials)
        return Verdict(best=None, leader=found.best) if self.is_disturbed else found

    def _list_incumbents(self, trials: Iterable[Trial]) -> list[Trial]:
        """The incumbents among these, the first one first."""
        found = {canonical_json(one.config): one for one in trials}
        return [found[key] for key in self._incumbents if key in found]

    def _name_of(self, final: Final) -> str:
        return _name_binary(self._screened[canonical_json(final.config)])

    def _say_problem(self, trial: Trial | None) -> str:
        """Why an incumbent cannot win; empty if it could."""
        if trial is None:
            return "not tried"
        if self._is_right(trial):
            return ""
        end = "" if trial.exceeds else str(trial.outcome)
        return ": ".join(filter(None, (end, trial.message)))

    def _list_tied(self) -> list[Trial]:
        """The winner of all meetings so far, and those that cannot be distinguished from it; with a second
        goal all, since each may be one of the set.
        """
        finals = list_complete(self._judge_held().finals)
        tied = [one for one in finals if one.tied or self._goals.second]
        return [self._screened[canonical_json(one.config)] for one in tied]

    def _list_same(self, trial: Trial) -> list[Trial]:
        """The trials of all configs with the binary of this trial."""
        binary, all_ = trial.keys.binary, self._screened.values()
        return [one for one in all_ if one is trial or (binary and one.keys.binary == binary)]

    def _take_screened(self, key: str, trial: Trial) -> None:
        self._screened[key] = trial = self._goals.judge(trial)
        self.alike.use(trial)
        self._learn(self._as_it_counts(trial))

    def _take_sanitized(self, key: str, trial: Trial) -> None:
        if trial.outcome in WELL:
            self._ready.append((key, trial.config))
        else:
            message = ": ".join(filter(None, ("sanitized", trial.message)))
            self._screened[key] = trial = msgspec.structs.replace(trial, message=message)
            self._attempts[key] = MOST_TIMES
            self._learn(trial)

    def _take_again(self, known: Trial, trial: Trial) -> None:
        """The new times of a binary count for all its configs; without new ones those of before stay."""
        if trial.outcome in WELL:
            for same in self._list_same(known):
                replaced = msgspec.structs.replace(
                    same, measurement=trial.measurement, reused=False
                )
                key = canonical_json(same.config)
                self._screened[key] = trial if same is known else replaced
        elif trial.outcome not in INFRASTRUCTURE | {Outcome.NOT_RUN}:
            self._reject(self._list_same(known), trial, "measured again: ")

    def _take_check(self, key: str, where: str, trial: Trial) -> None:
        known = self._screened[key]
        if trial.outcome in WELL:
            for same in self._list_same(known):
                self._unproven[canonical_json(same.config)] -= 1
        elif trial.outcome is not Outcome.NOT_RUN:
            # Other sizes may have other binaries: what a check found there is of its own config.
            self._reject([known] if not where else self._list_same(known), trial, where)

    def _take_final(self, trial: Trial) -> None:
        self._held.take(trial)
        self._check_beside_others(trial, "in the finals: ")

    def _take_duel(self, name: str, trial: Trial) -> None:
        self._duels[name].append(trial)
        self._check_beside_others(trial, "beside the best: ")

    def _check_beside_others(self, trial: Trial, where: str) -> None:
        """What is wrong beside others does not win, nor does anything with its binary."""
        known = self._screened[canonical_json(trial.config)]
        # Alone it had enough memory, beside all the others it had not.
        lost = {Outcome.NOT_RUN, Outcome.OUT_OF_MEMORY}
        if trial.outcome not in WELL | INFRASTRUCTURE | lost:
            self._reject(self._list_same(known), trial, where)

    def _reject(self, trials: Sequence[Trial], found: Trial, where: str) -> None:
        """Give configs the outcome of a later run of one of them."""
        for one in trials:
            if one.outcome in WELL:
                self._screened[canonical_json(one.config)] = msgspec.structs.replace(
                    one,
                    outcome=found.outcome,
                    message=where + found.message,
                    mismatch=found.mismatch,
                    measurement=None,
                )


def _name_binary(trial: Trial) -> str:
    return trial.keys.binary or canonical_json(trial.config)


def _is_brief(trial: Trial) -> bool:
    measured = trial.measurement
    return measured is not None and measured.abandoned and len(measured.samples_ns) < FEWEST_ROUNDS


def _undo(trial: Trial) -> Trial:
    """The trial of a config that has run only on a device whose times do not count."""
    message = f"only {trial.device} has run it, whose times do not count"
    return msgspec.structs.replace(
        trial, outcome=Outcome.NOT_RUN, message=message, measurement=None, mismatch=None
    )
