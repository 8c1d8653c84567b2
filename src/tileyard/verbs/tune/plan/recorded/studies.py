"""Recorded spaces of our own studies: the trials of the store, by kernel, arguments, target and silicon."""

from collections.abc import Iterable, Sequence

from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.model import INFRASTRUCTURE, Outcome, Trial
from tileyard.verbs.tune.plan.deciding import is_screening
from tileyard.verbs.tune.plan.foresight import count_built
from tileyard.verbs.tune.plan.goals import find_facts
from tileyard.verbs.tune.plan.recorded.space import (
    FORMAT,
    Header,
    Recorded,
    RecordedSpace,
    list_parameters,
    make_space,
)

UNKNOWN = INFRASTRUCTURE | {Outcome.NOT_RUN, Outcome.SKIPPED}
"""Outcomes that say nothing of a config."""


def list_spaces(newest_first: Iterable[Trial], objects: ObjectStore) -> list[RecordedSpace]:
    """The spaces of these trials in which something was timed, one for each kernel, arguments, target and
    silicon. A config has its latest trial, or the latest that measured it itself. Failed builds belong to
    every silicon.
    """
    trials = [one for one in newest_first if is_screening(one) and one.outcome not in UNKNOWN]
    subjects: dict[str, list[Trial]] = {}
    for one in trials:
        subject = canonical_json((one.kernel, one.arguments, one.target))
        subjects.setdefault(subject, []).append(one)
    spaces = []
    for same in subjects.values():
        kinds = dict.fromkeys(one.silicon for one in same if one.measurement is not None)
        for silicon in kinds:
            alike = [one for one in same if one.silicon in ("", silicon)]
            spaces.append(_make(_choose(alike), objects))
    return spaces


def _choose(newest_first: Sequence[Trial]) -> list[Trial]:
    """One trial of each config, the first tried first."""
    chosen: dict[str, Trial] = {}
    for one in newest_first:
        key = canonical_json(one.config)
        if key not in chosen or (chosen[key].reused and not one.reused):
            chosen.pop(key, None)
            chosen[key] = one
    return list(chosen.values())[::-1]


def _make(trials: Sequence[Trial], objects: ObjectStore) -> RecordedSpace:
    timed = next(one for one in trials if one.measurement is not None)
    configs = [_record(one, objects) for one in trials]
    header = Header(
        tileyard=FORMAT,
        kernel=timed.kernel,
        arguments=timed.arguments,
        target=timed.target,
        device=timed.device,
        silicon=timed.silicon,
        configs=len(configs),
        parameters=list_parameters([one.config for one in configs]),
    )
    return make_space(header, configs, f"the trials of {timed.kernel}")


def _record(trial: Trial, objects: ObjectStore) -> Recorded:
    measured = trial.measurement
    return Recorded(
        config=trial.config,
        outcome=trial.outcome,
        time_ns=None if measured is None else measured.median_ns,
        low_ns=None if measured is None else measured.low_ns,
        high_ns=None if measured is None else measured.high_ns,
        build_s=trial.build_s,
        run_s=trial.run_s,
        reason=next(iter(trial.message.splitlines()), ""),
        exceeds=trial.exceeds,
        facts={
            **count_built(trial.keys.build, trial.arguments, objects),
            **find_facts(trial, objects),
        },
    )
