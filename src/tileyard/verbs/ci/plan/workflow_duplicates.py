"""Finds work that jobs of workflows do twice, and trees of tests that are copies which have since diverged.

``jobs_duplicates`` decides which side keeps what: each finding is a check of its jobs.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tileyard.artifacts.objects import digest_parts
from tileyard.base.decoding import decode_json
from tileyard.base.errors import UsageError
from tileyard.base.model import Digest, Record
from tileyard.verbs.ci.plan.jobs import Check, CiJob
from tileyard.verbs.ci.plan.jobs_duplicates import Duplicate, Finding, Spot
from tileyard.verbs.ci.plan.workflow_expressions import can_both_hold, holds, is_implied
from tileyard.verbs.ci.plan.workflow_tests import Tests, list_covered, walk
from tileyard.verbs.ci.plan.workflow_work import StepTimes, Work, find_work, is_place, matters
from tileyard.verbs.ci.plan.workflows import WorkflowJob, read_workflow
from tileyard.verbs.test.plan.content import find_root
from tileyard.verbs.test.plan.imports import ImportedTime

MANUAL = frozenset({"workflow_dispatch", "repository_dispatch", "workflow_call", "workflow_run"})
"""Events that start a single workflow."""
_NO_OPTIONS = frozenset({"into", "targets", "selected by"})
"""Differences between builds that do not make one unfit for the user of the other."""
Jobs = Mapping[str, WorkflowJob]
MOST_APART = 20
"""Maximum number of named jobs that never run together."""
FEWEST_NAMESAKES = 3
FEWEST_FILES = 8
"""Number of equal files, tests or folders of tests that make a tree the copy of another one."""
MOST_BEARERS = 20
"""A name that more folders contain does not identify copies."""


def find_together(one: Work, other: Work, jobs: Jobs) -> frozenset[str]:
    """The events at which both may run."""
    first, second = jobs[one.job], jobs[other.job]
    is_same_run = first.workflow == second.workflow
    events = [
        event
        for event in first.events
        if event in second.events and (is_same_run or event not in MANUAL)
    ]
    mine = (*first.conditions, *one.conditions)
    yours = (*second.conditions, *other.conditions)
    return can_both_hold(mine, yours, events, is_same_run=is_same_run)


def serves(one: Work, other: Work, jobs: Jobs) -> bool:
    """Whether the other can be left out: this one runs at all its events, and is of use to its users."""
    if one.kind == "build" and _name_options(one.details, other.details):
        return False
    if _checks_build(one) and name_other_builds(one, other):
        return False
    if one.tests.select and one.tests.select != other.tests.select:
        return False
    first, second = jobs[one.job], jobs[other.job]
    is_same_run = first.workflow == second.workflow
    given = (*second.conditions, *other.conditions)
    own = (*first.conditions, *one.conditions)
    events = [event for event in second.events if event in first.events]
    events = [event for event in events if is_same_run or event not in MANUAL]
    return bool(events) and all(
        any(holds(condition, {"github.event_name": event}) is False for condition in given)
        or (
            {*first.filters.get(event, ())} <= {*second.filters.get(event, ())}
            and all(is_implied(one, given, event, is_same_run=is_same_run) for one in own)
        )
        for event in events
    )


def _checks_build(work: Work) -> bool:
    """Whether work may be a check of what was built: programs that ctest runs, and what cannot be seen."""
    is_known = work.is_seen and not any(one.startswith("ctest ") for one in work.tests.ids)
    return work.kind in ("command", "tests") and not is_known


def _name_options(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """What makes a build, by its details, unfit for the users of the other."""
    names = {*one, *other} - _NO_OPTIONS
    differing = [name for name in names if one.get(name) != other.get(name)]
    is_part = one.get("targets") and one["targets"] != other.get("targets")
    return sorted([*differing, "targets"] if is_part else differing)


def name_other_builds(one: Work, other: Work) -> list[str]:
    """The options in which two jobs differ that build the same trees before they do the same."""
    common = one.built.keys() & other.built.keys()
    found = (_name_options(one.built[tree], other.built[tree]) for tree in common)
    return sorted({name for names in found for name in names if one.kind != "build"})


def say_why(works: Sequence[Work]) -> str:
    """Why none of these can be done for the others."""
    pairs = list(combinations(works, 2))
    names = {
        name
        for a, b in pairs
        if a.kind == "build"
        for name in (*_name_options(a.details, b.details), *_name_options(b.details, a.details))
    }
    if names:
        return f"none serves the others: {', '.join(sorted(names))} differ"
    if any(_checks_build(a) and name_other_builds(a, b) for a, b in pairs):
        return "each checks a build of its own"
    return "none runs whenever the others do"


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


class InWorkflows(Record):
    """The jobs of workflows, their work, the repeated work, and trees of tests that are ``copies``."""

    jobs: tuple[WorkflowJob, ...]
    work: tuple[Work, ...]
    findings: tuple[Finding, ...]
    copies: tuple[Finding, ...]


class _Step(Record):
    name: str
    started_at: datetime | None = None
    completed_at: datetime | None = None


class _Job(Record):
    name: str
    workflow_name: str
    steps: tuple[_Step, ...] = ()


class _Page(Record):
    jobs: tuple[_Job, ...]


def find_in_workflows(
    paths: Sequence[Path], steps: StepTimes, imported: Sequence[ImportedTime]
) -> InWorkflows:
    """Read the workflows of these files and folders, each once. Raises UsageError."""
    files = {file.resolve(): file for path in paths for file in list_workflows(path)}
    tops = {file: _find_top(given.parent.resolve()) for file, given in files.items()}
    names = _name_workflows(files)
    read = [
        (job, top)
        for file, top in tops.items()
        for job in read_workflow(files[file], top, names[file])
    ]
    work = [one for job, top in read for one in find_work(job, top, steps)]
    work = _settle_times(work, imported)
    jobs = tuple(job for job, _ in read)
    return InWorkflows(
        jobs=jobs,
        work=tuple(work),
        findings=tuple(find_repeated(jobs, work)),
        copies=tuple(one for top in dict.fromkeys(tops.values()) for one in find_copies(top)),
    )


def list_workflows(path: Path) -> list[Path]:
    """The workflows of a folder, or a file itself. Raises UsageError if there is none."""
    if not path.is_dir():
        return [path]
    inner = path / ".github" / "workflows"
    path = inner if inner.is_dir() else path
    files = sorted(one for one in path.iterdir() if one.suffix in (".yml", ".yaml"))
    if not files:
        raise UsageError(f"{path}: holds no workflow *.yml")
    return files


def read_step_times(path: Path) -> StepTimes | None:
    """Seconds of each step, as ``gh api .../actions/runs/ID/jobs`` prints them; None for other files."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None  # the next reader reports it
    if not text.startswith(("{", "[")) or '"jobs"' not in text:
        return None
    try:
        pages = decode_json(text if text.startswith("[") else f"[{text}]", tuple[_Page, ...])
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is not a list of jobs as GitHub gives it: {error}") from error
    rows = ((job, step) for page in pages for job in page.jobs for step in job.steps)
    return {
        (job.workflow_name, job.name, step.name): max(
            0.0, (step.completed_at - step.started_at).total_seconds()
        )
        for job, step in rows
        if step.started_at and step.completed_at
    }


def _name_workflows(files: Collection[Path]) -> dict[Path, str]:
    """A name for each file: its stem, or its path below the common folder if several have the same stem."""
    stems = Counter(file.stem for file in files)
    shared = [file for file in files if stems[file.stem] > 1]
    top = os.path.commonpath([file.parent for file in shared]) if shared else ""
    paths = {file: file.relative_to(top).as_posix() for file in shared}
    short = {file: path.replace(".github/workflows/", "") for file, path in paths.items()}
    names = short if len({*short.values()}) == len(short) else paths
    return {file: names.get(file, file.stem) for file in files}


def _find_top(folder: Path) -> Path:
    places = (one.parent for one in (folder, *folder.parents) if one.name == ".github")
    return next(places, None) or find_root([folder])


def _settle_times(work: Sequence[Work], imported: Sequence[ImportedTime]) -> list[Work]:
    """The work with times for guesses: those of cases, as from JUnit files, or the mean of equal work."""
    known: dict[tuple[str, str], list[float]] = {}
    for one in work:
        if not one.is_guess:
            known.setdefault((one.kind, one.subject), []).append(one.seconds)
    settled = []
    for one in work:
        files = {
            test.partition("::")[0].removesuffix(".py").replace("/", ".") for test in one.tests.ids
        }
        total_s = sum(
            case.seconds
            for case in imported
            if any(f"{case.testcase}.".startswith(f"{file}.") for file in files)
        )
        means = known.get((one.kind, one.subject), [one.seconds])
        if one.is_guess:
            seconds = total_s or sum(means) / len(means)
            one = replace(one, seconds=seconds, is_guess=not total_s)  # noqa: PLW2901 - the same, settled
        settled.append(one)
    return settled
