"""What is the same for all steps of a run, as every process that runs steps finds it.

It is passed in one variable, so that no path of it is part of what is kept: equal suites in two places
have equal keys. A toolchain's variables are for steps alone: our own processes must not load its libraries.
"""

import os
import sys
from collections.abc import Mapping

import msgspec

from tileyard.model import Record

VARIABLE = "TILEYARD_STEPS"


class StepSite(Record):
    """Where a suite and its toolchain lie, and the variables that the latter's programs need.

    Both folders are empty where there is none. ``tree`` is the digest of the toolchain, a part of the keys of what its steps make.
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
        """The template with places instead of these paths."""
        for place in ("suite", "python"):
            path = self.places.get(place, "")
            if len(path) > 1:
                template = template.replace(path, f"{{{place}}}")
        return template


def site_variables(site: StepSite) -> dict[str, str]:
    """The environment of a process that is to find it."""
    return {VARIABLE: msgspec.json.encode(site).decode()}


def tell_site(site: StepSite) -> None:
    """Let the processes that this one starts from now on find it."""
    os.environ.update(site_variables(site))


def find_site(environ: Mapping[str, str] = os.environ) -> StepSite:
    """What the parent of this process has passed on."""
    text = environ.get(VARIABLE)
    return msgspec.json.decode(text, type=StepSite) if text else StepSite()
