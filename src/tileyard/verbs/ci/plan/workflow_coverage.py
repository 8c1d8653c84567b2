"""Whether a job can do something for another: at which events both run, and what their builds serve."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from tileyard.verbs.ci.plan.workflow_expressions import can_both_hold, holds, is_implied
from tileyard.verbs.ci.plan.workflow_work import Work
from tileyard.verbs.ci.plan.workflows import WorkflowJob

MANUAL = frozenset({"workflow_dispatch", "repository_dispatch", "workflow_call", "workflow_run"})
"""Events that start a single workflow."""
_NO_OPTIONS = frozenset({"into", "targets", "selected by"})
"""Differences between builds that do not make one unfit for the user of the other."""
Jobs = Mapping[str, WorkflowJob]


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
