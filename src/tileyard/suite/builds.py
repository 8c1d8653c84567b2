"""Builds that several cases share, and what of them is needed."""

from collections.abc import Sequence

from tileyard.artifacts.keys import canonical_json
from tileyard.suite.records import CommandWork, SuiteCase


def find_targets(cases: Sequence[SuiteCase]) -> dict[str, tuple[str, ...]]:
    """For each build step, what of it these cases need."""
    found: dict[str, set[str]] = {}
    for case in cases:
        if isinstance(case.work, CommandWork) and case.work.build is not None:
            found.setdefault(build_of(case.work), set()).update(
                {case.work.target} if case.work.target else set()
            )
    return {build: tuple(sorted(targets)) for build, targets in found.items()}


def build_of(work: CommandWork) -> str:
    """What cases that share a build have in common."""
    return canonical_json(work.build)
