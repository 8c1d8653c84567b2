"""The site shared by all steps of a run: suite, toolchain and variables, for processes that run steps. It is
in one variable, so that stored records have none of its paths: equal suites anywhere have equal keys. A
toolchain's variables are only for steps: our own processes must not load its libraries.
"""

import os
import sys
from collections.abc import Mapping

import msgspec

from tileyard.base.model import Record

VARIABLE = "TILEYARD_STEPS"


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
        for place in ("suite", "python"):
            path = self.places.get(place, "")
            if len(path) > 1:
                template = template.replace(path, f"{{{place}}}")
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
