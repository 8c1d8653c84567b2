"""What the jobs of workflows do twice.

Which side keeps what is for ``jobs_duplicates`` to say: each finding is a check of its jobs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from msgspec.structs import replace

from tileyard.artifacts.keys import digest_parts
from tileyard.model import Digest
from tileyard.suite.jobs import Check, CiJob
from tileyard.suite.jobs_duplicates import Duplicate, Finding, Spot
from tileyard.suite.workflow_expressions import can_both_hold
from tileyard.suite.workflow_tests import covered
from tileyard.suite.workflow_work import Work, matters
from tileyard.suite.workflows import WorkflowJob

MANUAL = frozenset({"workflow_dispatch", "repository_dispatch", "workflow_call", "workflow_run"})
"""Events that start one workflow, and no other one with it."""
MOST_APART = 20
"""So many jobs that never run together are named."""


def find_repeated(jobs: Sequence[WorkflowJob], work: Sequence[Work]) -> list[Finding]:
    """All that at least two jobs do on machines of the same kind."""
    by_name = {job.name: job for job in jobs}
    groups: dict[tuple[object, ...], list[Work]] = {}
    for one in work:
        groups.setdefault(_key_of(one), []).append(one)
    found = [
        finding
        for group in groups.values()
        for alike in _part_by_versions(group)
        for some in _split(_one_a_job(alike), by_name)
        if len(some) > 1
        for finding in _describe(some, by_name)
    ]
    found += _find_overlaps([one for one in work if one.kind == "tests"], by_name)
    return found


def make_jobs(
    jobs: Sequence[WorkflowJob], work: Sequence[Work], found: Sequence[Finding]
) -> list[CiJob]:
    """The jobs with all their work as checks: what jobs that run together repeat is one check of theirs."""
    checks: dict[str, list[Check]] = {job.name: [] for job in jobs}
    left = {(one.job, one.where, one.command): one for one in work}
    shares: dict[tuple[str, str, str], float] = {}
    for finding in found:
        for spot in finding.spots if finding.together else ():
            one = left[spot.job, spot.where, spot.command]
            key = (spot.job, spot.where, spot.command)
            shares[key] = shares.get(key, 0.0) + (
                spot.seconds / one.seconds if one.seconds else 1.0
            )
            check = Check(identity=finding.identity, name=finding.what, seconds=spot.seconds, is_guess=spot.is_guess)  # fmt: skip
            checks[spot.job].append(check)
    for key, one in left.items():
        rest = 1.0 - shares.get(key, 0.0)
        if rest > 1e-9:
            identity = (
                identify_label(one.subject) if one.kind == "label" else digest_parts("own", *key)
            )
            checks[one.job].append(
                Check(
                    identity=identity,
                    name=one.command,
                    seconds=rest * one.seconds,
                    is_guess=one.is_guess,
                )
            )
    return [CiJob(name=name, checks=tuple(those)) for name, those in checks.items() if those]


def identify_label(does: str) -> Digest:
    """What is declared to be the same by a label, which nothing else repeats."""
    return digest_parts("label", does)


def _key_of(one: Work) -> tuple[object, ...]:
    """What is the same for all who do the same. Builds may be made in other ways, tests and commands may not."""
    if one.kind == "label":
        return (one.kind, one.subject)
    if one.kind == "build":
        return (one.kind, one.subject, one.platform)
    telling = {name: one.env[name] for name in sorted(one.env) if matters(one, name)}
    variant = (one.tests.variant, one.tests.select) if one.tests else ()
    return (one.kind, one.subject, one.platform, variant, tuple(telling.items()))


def _part_by_versions(group: Iterable[Work]) -> list[list[Work]]:
    """Tests and commands with other versions of a language are not the same; builds are, and show it."""
    parts: list[list[Work]] = []
    for one in group:
        fitting = (
            part for part in parts if not any(_has_other_versions(one, other) for other in part)
        )
        part = next(fitting, None)
        if part is None:
            parts.append([one])
        else:
            part.append(one)
    return parts


def _has_other_versions(one: Work, other: Work) -> bool:
    """Whether both set up the same language in another version; one that sets up none takes what is there."""
    mine, yours = (dict(text.split("=", 1) for text in work.versions) for work in (one, other))
    return one.kind in ("tests", "command") and any(
        yours.get(key, text) != text for key, text in mine.items()
    )


def _one_a_job(group: Iterable[Work]) -> list[Work]:
    """Each job once. Of the legs of one matrix only one: to build one tree in several ways is what they are for."""
    found: dict[str, Work] = {}
    for one in group:
        found.setdefault(one.job, one)
    return list(found.values())


def _split(group: list[Work], jobs: Mapping[str, WorkflowJob]) -> Iterator[list[Work]]:
    """A group without what a matrix repeats on purpose, as those that run together and those that never do."""
    legs: dict[str, Work] = {}
    for one in group:
        legs.setdefault(jobs[one.job].leg_of or one.job, one)
    if len(legs) < 2:
        return
    parts: list[list[Work]] = []
    for one in group:
        joined = [part for part in parts if any(_together(one, other, jobs) for other in part)]
        parts = [part for part in parts if part not in joined]
        parts.append([*(other for part in joined for other in part), one])
    yield from (sorted(part, key=group.index) for part in parts if len(part) > 1)
    alone = [part[0] for part in parts if len(part) == 1]
    if alone:
        yield [*(part[0] for part in parts if len(part) > 1), *alone][:MOST_APART]


def _together(one: Work, other: Work, jobs: Mapping[str, WorkflowJob]) -> frozenset[str]:
    """The events at which both may be done."""
    first, second = jobs[one.job], jobs[other.job]
    is_same_run = first.workflow == second.workflow
    events = [event for event in first.events if event in second.events and (is_same_run or event not in MANUAL)]  # fmt: skip
    return can_both_hold(
        (*first.conditions, *one.conditions),
        (*second.conditions, *other.conditions),
        events,
        is_same_run=is_same_run,
    )


def _describe(group: Sequence[Work], jobs: Mapping[str, WorkflowJob]) -> Iterator[Finding]:
    first = group[0]
    events = set[str]().union(*(_together(a, b, jobs) for a, b in combinations(group, 2)))
    what = first.subject
    if first.kind in ("tests", "command"):
        what = first.command
    yield Finding(
        kind=first.kind,
        what=what,
        spots=tuple(_spot(one) for one in group),
        identity=digest_parts(*map(str, _key_of(first)), *(one.job for one in group)),
        differences=_compare(group),
        together=tuple(sorted(events)),
        tests=first.tests.ids if first.tests else (),
        unknown=first.unknown,
    )


def _spot(one: Work, share: float = 1.0) -> Spot:
    return Spot(
        job=one.job,
        where=one.where,
        command=one.command,
        seconds=one.seconds * share,
        is_guess=one.is_guess,
        conditions=one.conditions,
    )


def _compare(group: Sequence[Work]) -> dict[str, tuple[str, ...]]:
    """What is not the same for all: details, and the versions of languages."""
    names = dict.fromkeys(name for one in group for name in one.details)
    found = {name: tuple(one.details.get(name, "") for one in group) for name in names}
    return {name: texts for name, texts in found.items() if len(set(texts)) > 1}


def _find_overlaps(tests: Sequence[Work], jobs: Mapping[str, WorkflowJob]) -> Iterator[Finding]:
    """Pairs of commands that are not the same, of two jobs, that have tests in common."""
    for one, other in combinations(tests, 2):
        mine, yours = one.tests, other.tests
        first, second = jobs[one.job], jobs[other.job]
        if mine is None or yours is None or one.job == other.job or _key_of(one) == _key_of(other):
            continue
        if (first.leg_of and first.leg_of == second.leg_of) or one.platform != other.platform:
            continue
        if _has_other_versions(one, other) or mine.variant != yours.variant:
            continue
        if mine.select and yours.select and mine.select != yours.select:
            continue
        narrow = covered(mine.ids, frozenset(yours.ids))
        wide = covered(yours.ids, frozenset(mine.ids))
        shared = tuple(dict.fromkeys((*narrow, *wide)))
        if not shared or _told_apart(one, other):
            continue
        events = _together(one, other, jobs)
        # Of tests that one command selects further the other one runs all, at no cost besides.
        spots = tuple(
            _spot(work, 0.0 if rest and not mine_too else min(1.0, max(1, len(those)) / len(ids)))
            for work, ids, those, mine_too, rest in (
                (one, mine.ids, narrow, mine.select, yours.select),
                (other, yours.ids, wide, yours.select, mine.select),
            )
        )
        differences = _compare((one, other))
        if mine.select != yours.select:
            differences["selected by"] = (" ".join(mine.select), " ".join(yours.select))
        yield Finding(
            kind="tests",
            what=f"{one.command} | {other.command}",
            spots=spots,
            identity=digest_parts(
                "tests", one.job, one.where, one.command, other.job, other.where, other.command
            ),
            differences=differences,
            together=tuple(sorted(events)),
            tests=shared,
            unknown=tuple(dict.fromkeys((*one.unknown, *other.unknown))),
        )


def _told_apart(one: Work, other: Work) -> bool:
    """Whether a variable that the tests read has another value."""
    names = {*one.env, *other.env}
    return any(
        one.env.get(name) != other.env.get(name) and (matters(one, name) or matters(other, name))
        for name in names
    )


def name_keepers(found: Iterable[Finding], duplicates: Iterable[Duplicate]) -> tuple[Finding, ...]:
    """The findings with the jobs that are to keep them."""
    keepers = {one.identity: one.keeper for one in duplicates}
    return tuple(replace(one, keeper=keepers.get(one.identity, "")) for one in found)
