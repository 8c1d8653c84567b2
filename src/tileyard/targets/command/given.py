"""Selects the process's variables that a step gets: declared ones and a few usual ones. A case's
keys contain all that decides its result, so a step gets no unchecked one.
"""

import re
from collections.abc import Mapping

from tileyard.base.model import Step

BY_VALUE = re.compile(r"HOME|LANG|LANGUAGE|LC_[A-Z]+|LD_LIBRARY_PATH|PYTHON[A-Z0-9_]*|TZ")
"""Usual variables whose values are part of keys."""
UNKEYED = re.compile(
    r"PATH|TASK_DEVICE|USER|LOGNAME|TERM|SSL_CERT_(FILE|DIR)|TILEYARD_[A-Z0-9_]*|(?i:(http|https|no)_proxy)"
    r"|(OMP|OPENBLAS|MKL|NUMEXPR)_NUM_THREADS"
)
"""Usual variables whose values are part of no key; for PATH, the programs found there are part of keys."""
OF_QUEUE = "TILEYARD_GIVEN"
"""The variable that lists, comma-separated, further variables for steps, such as those that a queue sets."""


def give(environ: Mapping[str, str], step: Step) -> dict[str, str]:
    """The variables of this environment that a step gets."""
    if step.inherits_all:
        return dict(environ)
    named = {*step.inherits, *environ.get(OF_QUEUE, "").split(",")}
    return {
        name: text
        for name, text in environ.items()
        if name in named or BY_VALUE.fullmatch(name) or UNKEYED.fullmatch(name)
    }


def find_deciding(environ: Mapping[str, str], step: Step) -> dict[str, str]:
    """The given variables whose values are part of keys; keys have the step's own with its words."""
    return {
        name: text
        for name, text in environ.items()
        if name not in step.env
        and (name in step.inherits or BY_VALUE.fullmatch(name))
        and name != "PATH"
    }
