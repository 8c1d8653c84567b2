"""Selects the process's variables that a step gets: declared ones and a few usual ones. A case's
keys contain all that decides its result, so a step gets no unchecked one.
"""

import os
import re
import string
import sys
from collections.abc import Mapping, Sequence

import msgspec

from tileyard.base.errors import BindError
from tileyard.base.model import Record, Step

BY_VALUE = re.compile(r"HOME|LANG|LANGUAGE|LC_[A-Z]+|LD_LIBRARY_PATH|PYTHON[A-Z0-9_]*|TZ")
"""Usual variables whose values are part of keys."""
UNKEYED = re.compile(
    r"PATH|TASK_DEVICE|USER|LOGNAME|TERM|SSL_CERT_(FILE|DIR)|TILEYARD_[A-Z0-9_]*|(?i:(http|https|no)_proxy)"
    r"|(OMP|OPENBLAS|MKL|NUMEXPR)_NUM_THREADS"
)
"""Usual variables whose values are part of no key; for PATH, the programs found there are part of keys."""
OF_QUEUE = "TILEYARD_GIVEN"
"""The variable that lists, comma-separated, further variables for steps, such as those that a queue sets."""
Place = str | tuple[str, ...]
Places = Mapping[str, Place]
"""Values by place, without the places that have no value in this step."""
VARIABLE = "TILEYARD_STEPS"
PATH_END = r"(?![\w.-])"
"""Where a path ends in a text: not within a longer name beside it, as of /bin/python3 in /bin/python3.11."""


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


def fill(template: str, places: Places) -> str:
    """The text with its places filled, texts joined by spaces. Raises BindError for a place without value."""
    for _, name, _, _ in string.Formatter().parse(template):
        if name is not None and name not in places:
            said = f"{{{name}}} in {template!r} has no value in this step of this case"
            raise BindError(said)
    texts = {
        name: " ".join(value) if isinstance(value, tuple) else value
        for name, value in places.items()
    }
    return template.format_map(texts)


def fill_argv(argv: Sequence[str], places: Places) -> tuple[str, ...]:
    """Arguments with their places filled in; ``{cases}`` alone becomes one argument per case."""
    filled: list[str] = []
    for template in argv:
        value = places.get(template[1:-1]) if template[:1] == "{" and template[-1:] == "}" else None
        if isinstance(value, tuple):
            filled += value
        else:
            filled.append(fill(template, places))
    return tuple(filled)


class StepSite(Record):
    """The folders of a suite and its toolchain, empty for none, and variables for the toolchain's
    programs. ``tree`` is the toolchain's digest, part of the keys of its steps' results.
    """

    suite: str = ""
    toolchain: str = ""
    tree: str = ""
    env: dict[str, str] = {}

    @property
    def places(self) -> dict[str, str]:
        """The values of ``{suite}``, ``{python}`` and ``{toolchain}`` here."""
        known = {"suite": self.suite, "toolchain": self.toolchain, "python": sys.executable}
        return {name: place for name, place in known.items() if place}

    def generalize(self, template: str) -> str:
        """The template with places in place of these paths."""
        for place in ("python", "suite"):
            path = self.places.get(place, "")
            if len(path) > 1:
                template = re.sub(re.escape(path) + PATH_END, f"{{{place}}}", template)
        return template


def site_variables(site: StepSite) -> dict[str, str]:
    """The environment that passes the site to a process."""
    return {VARIABLE: msgspec.json.encode(site).decode()}


def tell_site(site: StepSite) -> None:
    """Pass the site to all processes that this one starts from now on."""
    os.environ.update(site_variables(site))


def find_site(environ: Mapping[str, str] = os.environ) -> StepSite:
    """The site that the parent of this process has passed."""
    text = environ.get(VARIABLE)
    return msgspec.json.decode(text, type=StepSite) if text else StepSite()
