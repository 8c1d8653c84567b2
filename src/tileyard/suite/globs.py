"""Which cases a text means: a glob on ids in suite files, and more freely on the command line."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import translate
from functools import lru_cache

from tileyard.suite.records import SuiteCase

NEAREST = 3
MANY = 5000
"""Among more names than these, the nearest ones take too long to find."""


def fits(glob: str, case: str) -> bool:
    """Whether a case's id is the text itself, or like it as a glob."""
    return glob == case or _compiled(glob).match(case) is not None


def find_meant(text: str, cases: Sequence[SuiteCase]) -> frozenset[str]:
    """The ids of the cases that a text on the command line means; the first of these that means any.

    The case of that id alone; all of a testcase, family or tag of that name; ids like it as a glob;
    ids that contain it.
    """
    exact = frozenset(case.id for case in cases if text == case.id)
    if exact:
        return exact
    named = frozenset(
        case.id for case in cases if text in (case.testcase, case.family) or text in case.tags
    )
    if named:
        return named
    like = frozenset(case.id for case in cases if fits(text, case.id))
    return like or frozenset(case.id for case in cases if text in case.id)


def nearest(text: str, cases: Sequence[SuiteCase]) -> tuple[str, ...]:
    """Names of the suite that come closest to a text that means nothing."""
    names: dict[str, None] = {}
    for case in cases:
        names.update(dict.fromkeys((case.testcase, case.family, *case.tags)))
    if len(cases) <= MANY:
        names.update(dict.fromkeys(case.id for case in cases))
    return tuple(get_close_matches(text, names, n=NEAREST, cutoff=0.5))


def first_fitting(globs: Iterable[str], case: str) -> str | None:
    """The first of the globs that a case's id is like."""
    return next((glob for glob in globs if fits(glob, case)), None)


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))
