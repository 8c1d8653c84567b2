"""Finds work that jobs of workflows do twice, and trees of tests that are copies which have since diverged.

``jobs_duplicates`` decides which side keeps what: each finding is a check of its jobs.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

from msgspec.structs import replace

from tileyard.artifacts.keys import digest_parts
from tileyard.base.model import Digest
from tileyard.verbs.ci.plan.jobs import Check, CiJob
from tileyard.verbs.ci.plan.jobs_duplicates import Duplicate, Finding, Spot
from tileyard.verbs.ci.plan.workflow_coverage import (
    MANUAL,
    Jobs,
    find_together,
    name_other_builds,
    say_why,
    serves,
)
from tileyard.verbs.ci.plan.workflow_tests import Tests, list_covered, walk
from tileyard.verbs.ci.plan.workflow_work import Work, is_place, matters
from tileyard.verbs.ci.plan.workflows import WorkflowJob

MOST_APART = 20
"""Maximum number of named jobs that never run together."""
FEWEST_NAMESAKES = 3
FEWEST_FILES = 8
"""Number of equal files, tests or folders of tests that make a tree the copy of another one."""
MOST_BEARERS = 20
"""A name that more folders contain does not identify copies."""


def find_repeated(jobs: Sequence[WorkflowJob], work: Sequence[Work]) -> list[Finding]:
    """All work that at least two jobs do on machines of the same kind."""
    by_name = {job.name: job for job in jobs}
    groups: list[list[Work]] = []
    for one in work:
        group = next((some for some in groups if all(_is_same(one, other) for other in some)), None)
        if group is None:
            groups.append([one])
        elif all(other.job != one.job for other in group):
            group.append(one)
    parts = [part for group in groups for part in _split(group, by_name)]
    tests = [one for one in work if one.kind == "tests"]
    described = (found for part in parts for found in _describe_part(part, by_name))
    return [*described, *_find_overlaps(tests, by_name)]


def list_unseen(work: Sequence[Work], found: Iterable[Finding]) -> tuple[Spot, ...]:
    """The commands that may run tests which cannot be seen, without those of which something is found."""
    told = {(spot.job, spot.where, spot.command) for one in found for spot in one.spots}
    return tuple(
        Spot(job=one.job, where=one.where, command=one.command, seconds=one.seconds)
        for one in work
        if not one.is_seen and (one.job, one.where, one.command) not in told
    )


def make_jobs(
    jobs: Sequence[WorkflowJob], work: Sequence[Work], found: Sequence[Finding]
) -> list[CiJob]:
    """The jobs with their work as checks; what jobs that run together repeat is one check of theirs."""
    checks: dict[str, list[Check]] = {job.name: [] for job in jobs}
    rest = {(one.job, one.where, one.command): one.seconds for one in work}
    held = {(spot.job, spot.where) for one in found if one.because for spot in one.spots}
    for finding in found:
        for spot in finding.spots if finding.together and not finding.because else ():
            rest[spot.job, spot.where, spot.command] -= spot.seconds
            check = _check(finding.identity, finding.what, spot, spot.seconds)
            checks[spot.job].append(replace(check, can_keep=spot.can_keep))
    for one in work:
        key = (one.job, one.where, one.command)
        if rest[key] > 1e-6:
            is_label = one.kind == "label"
            identity = identify_label(one.subject) if is_label else digest_parts("own", *key)
            check = _check(identity, one.command, one, rest[key])
            checks[one.job].append(replace(check, can_keep=key[:2] not in held))
    return [CiJob(name=name, checks=tuple(those)) for name, those in checks.items() if those]


def _check(identity: Digest, name: str, part: Spot | Work, seconds: float) -> Check:
    return Check(identity=identity, name=name, seconds=seconds, is_guess=part.is_guess)


def identify_label(does: str) -> Digest:
    """The identity of work declared as equal by a label; nothing else has it."""
    return digest_parts("label", does)


def name_keepers(found: Iterable[Finding], duplicates: Iterable[Duplicate]) -> tuple[Finding, ...]:
    """The findings with the jobs that should keep them."""
    keepers = {one.identity: one.keeper for one in duplicates}
    return tuple(replace(one, keeper=keepers.get(one.identity, "")) for one in found)


def _is_same(one: Work, other: Work) -> bool:
    """Whether both do the same. Builds may differ in how they are made, tests and commands may not."""
    mine, yours = one.tests, other.tests
    is_same_run = (mine.variant, mine.select) == (yours.variant, yours.select)
    is_same = (one.kind, one.subject) == (other.kind, other.subject)
    return is_same and is_same_run and _agree(one, other)


def _agree(one: Work, other: Work) -> bool:
    """Whether machines, relevant variables and language versions agree (unset means the installed one)."""
    if one.kind == "label" or one.platform != other.platform:
        return one.kind == "label"
    return one.kind == "build" or (
        all(other.versions.get(key, text) == text for key, text in one.versions.items())
        and not any(
            one.env.get(name) != other.env.get(name)
            and not (is_place(one, name) or is_place(other, name))
            and (matters(one, name) or matters(other, name))
            for name in {*one.env, *other.env}
        )
    )


def _split(group: list[Work], jobs: Jobs) -> Iterator[list[Work]]:
    """Divide a group into work that runs together, without a matrix's wanted repetitions, and the rest."""
    if len({jobs[one.job].leg_of or one.job for one in group}) < 2:
        return
    parts: list[list[Work]] = []
    for one in group:
        joined = [part for part in parts if any(find_together(one, other, jobs) for other in part)]
        merged = [other for part in joined for other in part]
        parts = [*(part for part in parts if part not in joined), [*merged, one]]
    yield from (part for part in parts if len(part) > 1)
    if any(len(part) == 1 for part in parts) and len(parts) > 1:
        yield [part[0] for part in sorted(parts, key=lambda part: -len(part))][:MOST_APART]


def _describe_part(part: Sequence[Work], jobs: Jobs) -> Iterator[Finding]:
    """What one job can do for others, each with these; then what no job can do for the others, and why."""
    if all(not find_together(a, b, jobs) for a, b in combinations(part, 2)):
        yield _describe(part, jobs)
        return
    left, groups = list(part), list[list[Work]]()
    while left:
        served = [[b for b in left if a is not b and serves(a, b, jobs)] for a in left]
        best = max(range(len(left)), key=lambda n: len(served[n]))
        groups.append([left[best], *served[best]])
        left = [one for one in left if all(one is not other for other in groups[-1])]
    for group in groups:
        if len({jobs[one.job].leg_of or one.job for one in group}) > 1:
            yield _describe([one for one in part if any(one is other for other in group)], jobs)
    firsts = [group[0] for group in groups]
    if len({jobs[one.job].leg_of or one.job for one in firsts}) > 1:
        yield _describe(firsts, jobs, because=say_why(firsts))


def _describe(
    group: Sequence[Work], jobs: Jobs, shares: Sequence[float] = (), because: str = ""
) -> Finding:
    first = group[0]
    told = {"selected by": [" ".join(one.tests.select) for one in group]}
    if first.kind != "build":
        other = {name for one in group for name in name_other_builds(first, one)}
        told["built before, with other"] = ["", *[", ".join(sorted(other))] * (len(group) - 1)]
        told["set, and read"] = [
            " ".join(name for name in sorted(one.env) if is_place(one, name) and matters(one, name))
            for one in group
        ]
    names = dict.fromkeys(name for one in group for name in (*one.details, *told))
    texts = {
        name: tuple(told.get(name) or (one.details.get(name, "") for one in group))
        for name in names
    }
    events = set[str]().union(*(find_together(a, b, jobs) for a, b in combinations(group, 2)))
    spots = tuple(
        Spot(
            job=one.job,
            where=one.where,
            command=one.command,
            seconds=one.seconds * share,
            is_guess=one.is_guess,
            conditions=one.conditions,
            can_keep=all(serves(one, other, jobs) for other in group if other is not one),
            still=tuple(sorted({*jobs[one.job].events} - events - MANUAL)),
        )
        for one, share in zip(group, shares or [1.0] * len(group), strict=True)
    )
    places = (f"{one.job} {one.where} {one.command}" for one in group)
    return Finding(
        kind=first.kind,
        what=first.command if first.kind in ("tests", "command") else first.subject,
        spots=spots,
        identity=digest_parts(first.kind, first.subject, *places),
        differences={name: those for name, those in texts.items() if len({*those}) > 1},
        together=tuple(sorted(events)),
        tests=first.tests.ids,
        because=because,
    )


def _find_overlaps(tests: Sequence[Work], jobs: Jobs) -> Iterator[Finding]:
    for one, other in combinations(tests, 2):
        mine, yours = one.tests, other.tests
        leg = jobs[one.job].leg_of
        if one.job == other.job or (leg and leg == jobs[other.job].leg_of) or _is_same(one, other):
            continue
        is_other_run = mine.select and yours.select and mine.select != yours.select
        if mine.variant != yours.variant or is_other_run or not _agree(one, other):
            continue
        narrow, wide = list_covered(mine.ids, yours.ids), list_covered(yours.ids, mine.ids)
        if narrow or wide:
            shares = (_share(mine, yours, narrow), _share(yours, mine, wide))
            is_served = serves(one, other, jobs) or serves(other, one, jobs)
            because = "" if is_served else say_why((one, other))
            found = _describe((one, other), jobs, shares, because)
            what = f"{one.command} | {other.command}"
            yield replace(found, what=what, tests=tuple(dict.fromkeys((*narrow, *wide))))


def _share(mine: Tests, yours: Tests, common: Sequence[str]) -> float:
    """The share of a command's time that the common tests take; 0 if the other runs only some of these."""
    if yours.select and not mine.select:
        return 0.0
    return max(1, len(common)) / len(mine.ids)


# ---- trees of tests -----------------------------------------------------------------------------


def find_copies(root: Path) -> list[Finding]:
    """Folders of tests of which one has the names of the other, and how many of these differ."""
    held: dict[Path, set[str]] = {}
    for folder, folders, files in walk(root):
        if "test" in os.path.relpath(folder, root).lower():
            told = ("__init__", "CMakeLists", "README", "conftest")
            held[Path(folder)] = {*folders, *(name for name in files if not name.startswith(told))}
    bearers = Counter(name for names in held.values() for name in names)
    held = {
        folder: {name for name in names if bearers[name] <= MOST_BEARERS}
        for folder, names in held.items()
    }
    found: list[tuple[Path, Path]] = []
    copies = []
    for one, other in combinations(sorted(held), 2):
        names = sorted(held[one] & held[other])
        namesakes = sum("test" in name.lower() for name in names)
        if len(names) < FEWEST_FILES and namesakes < FEWEST_NAMESAKES:
            continue
        if 2 * len(names) < min(len(held[one]), len(held[other])):
            continue
        if any(one.is_relative_to(a) and other.is_relative_to(b) for a, b in found):
            continue
        folders = [name for name in names if (one / name).is_dir() and (other / name).is_dir()]
        read = {name: (_read_all(one / name), _read_all(other / name)) for name in names}
        lines = [
            tuple({*b"\n".join(tree.values()).split(b"\n")} for tree in both)
            for both in read.values()
        ]
        if 4 * sum(len(a & b) for a, b in lines) < sum(len(a) + len(b) for a, b in lines):
            continue  # they only use the same names
        found.append((one, other))
        names = folders if len(folders) >= FEWEST_NAMESAKES else names
        mine, yours = (str(path.relative_to(root)) for path in (one, other))
        copies.append(
            Finding(
                kind="copies",
                what=f"tests of the same names in {mine} and {yours}",
                spots=tuple(Spot(job="", where=path, command="") for path in (mine, yours)),
                identity=digest_parts("copies", mine, yours),
                tests=tuple(names),
                differing=sum(read[name][0] != read[name][1] for name in names),
                keeper=mine if len(held[one]) >= len(held[other]) else yours,
            )
        )
    return copies


def _read_all(path: Path) -> dict[str, bytes]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(one.relative_to(path)): one.read_bytes() for one in files if one.is_file()}
