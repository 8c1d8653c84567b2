"""What runs say of each case: times of ``regress``, of the finals of ``tune``, and of ``test``."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tileyard.base.model import INFRASTRUCTURE, WELL, Outcome, Trial
from tileyard.show.words import format_config
from tileyard.verbs.regress.plan.history import (
    SHORTEST_NS,
    Built,
    Found,
    Point,
    Timed,
    as_timed,
    find_times,
    is_compared,
)
from tileyard.verbs.regress.plan.tuned import Study, split_studies, time_study
from tileyard.verbs.site.result import Failure, Place, Recorded, Subject, Timing, Untimed

DIGITS: Final = 7
"""Significant digits of a time."""
BINARY_LENGTH: Final = 16
"""Digits of a binary's name: it only has to differ from that of the same case in another run."""
MESSAGE_LENGTH: Final = 300
_FAILED: Final = frozenset(Outcome) - WELL - INFRASTRUCTURE - {Outcome.NOT_RUN}


def collect_run(
    trials: Sequence[Trial], studies: Mapping[str, Study], moved_bytes: Mapping[str, int]
) -> Iterator[Recorded]:
    """What a whole run says of each case that it timed, or that failed. ``studies`` and the bytes of their
    tensors are by ``name_study``.
    """
    yield from _collect_comparisons([one for one in trials if is_compared(one)])
    yield from _collect_cases([one for one in trials if one.testcase and not one.side])
    for name, own in split_studies(trials).items():
        kept = studies.get(name, Study())
        if (found := time_study(own, kept)) is not None:
            winner, timed = found
            subject = Subject(kind="study", case=timed[0].case, target=winner.target)
            described = _describe(subject, winner, Found(timed=timed), ())
            yield msgspec.structs.replace(
                described, config="", flops=kept.flops, moved_bytes=moved_bytes.get(name, 0)
            )


def _collect_comparisons(trials: Sequence[Trial]) -> Iterator[Recorded]:
    found = find_times(trials)
    timed = {(one.case, one.target, one.side, one.point.run) for one in found.timed}
    untimed = [one for one in found.built if (one.case, one.target, one.side, one.run) not in timed]
    failures: dict[Subject, dict[str, Failure]] = {}
    about: dict[Subject, Trial] = {}
    for one in trials:
        subject = _compared(one)
        about.setdefault(subject, one)
        if one.outcome in _FAILED and one.side != "base":
            failures.setdefault(subject, {})[one.run] = _failure(one)
    for subject, own in _split(found.timed, untimed).items():
        yield _describe(subject, about[subject], own, failures.pop(subject, {}).values())
    for subject, failed in failures.items():
        yield _describe(subject, about[subject], Found(), failed.values())


def _compared(trial: Trial) -> Subject:
    is_build = trial.case == trial.batch
    case = trial.case.removesuffix(f"/{trial.side}") if is_build else trial.batch.rpartition("/")[0]
    return Subject(kind="comparison", case=case, target=trial.target)


def _collect_cases(trials: Sequence[Trial]) -> Iterator[Recorded]:
    """Cases of suites: of each run the last attempt, with the time that was measured, else that on the
    device.
    """
    last: dict[tuple[Subject, str], Trial] = {}
    for one in trials:
        key = (
            Subject(kind="suite", case=one.case, target=one.target, suite=one.suite),
            one.run,
        )
        if key not in last or one.attempt >= last[key].attempt:
            last[key] = one
    by_subject: dict[Subject, list[Trial]] = {}
    for (subject, _), one in last.items():
        if not one.reused:
            by_subject.setdefault(subject, []).append(one)
    for subject, own in by_subject.items():
        timed = [
            as_timed(subject.case, one) for one in own if one.outcome in WELL and one.run_s > 0
        ]
        failed = [_failure(one) for one in own if one.outcome in _FAILED]
        if timed or failed:
            yield _describe(subject, own[-1], Found(timed=tuple(timed)), failed)


def _describe(subject: Subject, about: Trial, found: Found, failed: Iterable[Failure]) -> Recorded:
    """What is remembered of a case; its name is that of the kernel or testcase."""
    name = about.kernel or about.testcase
    rest = subject.case.removeprefix(name).strip("/") if not about.kernel else ""
    return Recorded(
        subject=subject,
        name=name,
        shape=about.shape or format_config(about.arguments) or rest,
        config=format_config(about.config),
        places=_list_places(found.timed),
        untimed=tuple(
            Untimed(
                side=one.side,
                run=one.run,
                at=round(one.at, 3),
                revision=one.revision,
                binary=one.binary[:BINARY_LENGTH],
            )
            for one in found.built
        ),
        failures=tuple(failed),
    )


def _list_places(timed: Iterable[Timed]) -> tuple[Place, ...]:
    groups: dict[tuple[str, str, str], list[Timing]] = {}
    for one in timed:
        point = one.point
        is_config = not one.side  # of a study
        timing = Timing(
            run=point.run,
            at=round(point.at, 3),
            revision=point.revision,
            binary=one.binary if is_config else one.binary[:BINARY_LENGTH],
            time_ns=_shorten(point.time_ns),
            low_ns=_shorten(point.low_ns),
            high_ns=_shorten(point.high_ns),
            processes=point.processes,
        )
        if SHORTEST_NS <= timing.low_ns <= timing.time_ns <= timing.high_ns:
            groups.setdefault((one.side, one.device, one.silicon), []).append(timing)
    return tuple(
        Place(side=side, device=device, silicon=silicon, times=tuple(times))
        for (side, device, silicon), times in sorted(groups.items(), key=lambda item: item[0])
    )


def _failure(trial: Trial) -> Failure:
    return Failure(
        run=trial.run,
        at=round(trial.started_at, 3),
        revision=trial.revision,
        outcome=trial.outcome,
        message=trial.message[:MESSAGE_LENGTH],
    )


def _split(timed: Iterable[Timed], built: Iterable[Built]) -> dict[Subject, Found]:
    """What was found, by cases."""
    parts: dict[Subject, tuple[list[Timed], list[Built]]] = {}
    for one in timed:
        subject = Subject(kind="comparison", case=one.case, target=one.target)
        parts.setdefault(subject, ([], []))[0].append(one)
    for other in built:
        subject = Subject(kind="comparison", case=other.case, target=other.target)
        parts.setdefault(subject, ([], []))[1].append(other)
    return {
        subject: Found(timed=tuple(times), built=tuple(builds))
        for subject, (times, builds) in parts.items()
    }


def _shorten(time_ns: float) -> float:
    return float(f"{time_ns:.{DIGITS}g}") if math.isfinite(time_ns) else 0.0


def join(known: Recorded, fresh: Recorded) -> Recorded:
    """A case with what further runs say of it, in place of what it had of them."""
    kept = drop_runs(known, list_runs(fresh))
    places = {(one.side, one.device, one.silicon): one for one in kept.places}
    for one in fresh.places:
        key = one.side, one.device, one.silicon
        times = (*places[key].times, *one.times) if key in places else one.times
        places[key] = msgspec.structs.replace(one, times=times)
    return msgspec.structs.replace(
        fresh,
        flops=fresh.flops or known.flops,
        moved_bytes=fresh.moved_bytes or known.moved_bytes,
        places=tuple(one for _, one in sorted(places.items(), key=lambda item: item[0])),
        untimed=(*kept.untimed, *fresh.untimed),
        failures=(*kept.failures, *fresh.failures),
    )


def list_runs(recorded: Recorded) -> set[str]:
    """All runs of which something is remembered."""
    timed = {one.run for place in recorded.places for one in place.times}
    untimed = {one.run for one in recorded.untimed}
    return timed | untimed | {one.run for one in recorded.failures}


def drop_runs(recorded: Recorded, runs: Iterable[str]) -> Recorded:
    """A case without what these runs said of it."""
    dropped = set(runs)
    places = (
        msgspec.structs.replace(
            one, times=tuple(time for time in one.times if time.run not in dropped)
        )
        for one in recorded.places
    )
    return msgspec.structs.replace(
        recorded,
        places=tuple(one for one in places if one.times),
        untimed=tuple(one for one in recorded.untimed if one.run not in dropped),
        failures=tuple(one for one in recorded.failures if one.run not in dropped),
    )


def as_found(recorded: Recorded) -> Found:
    """What a history is made from."""
    subject = recorded.subject
    return Found(
        timed=tuple(
            Timed(
                case=subject.case,
                side=place.side,
                target=subject.target,
                device=place.device,
                silicon=place.silicon,
                binary=one.binary,
                point=Point(
                    run=one.run,
                    at=one.at,
                    revision=one.revision,
                    time_ns=one.time_ns,
                    low_ns=one.low_ns,
                    high_ns=one.high_ns,
                    processes=one.processes,
                ),
            )
            for place in recorded.places
            for one in place.times
            if min(one.time_ns, one.low_ns, one.high_ns) > 0
        ),
        built=tuple(
            Built(
                case=subject.case,
                side=one.side,
                target=subject.target,
                binary=one.binary,
                run=one.run,
                at=one.at,
                revision=one.revision,
            )
            for one in recorded.untimed
        ),
    )
