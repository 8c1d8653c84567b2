"""Determines what a function's compile step depends on, so that its result can be kept.

A function counts like a step of a suite in Python, whose scripts are the modules of the code that it and
its values consist of: their imports, programs, libraries and variables (``workers/step_identity.py``). Its
arguments, the globals that it names, and places count too, because builds may name places.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tileyard.artifacts.digests import (
    FileDigests,
    find_files,
    find_heard_variables,
    find_named_variables,
)
from tileyard.artifacts.footprint import Footprint, describe_changes, find_footprint, keep_footprint
from tileyard.artifacts.objects import ObjectStore, canonical_json, digest_parts
from tileyard.base.errors import TileyardError
from tileyard.base.model import Digest, Record, Step
from tileyard.frontend.closure import examine
from tileyard.pytest_plugin.far_records import Declared, FunctionStep
from tileyard.targets.command.given import give
from tileyard.workers.step_identity import StepIdentities, Surroundings

RECIPE = "2"
"""Version of the key format; a change to this module that changes the content of keys raises it."""
PASSED_ON = ("TMPDIR",)
"""Variables that a function gets although no key covers them."""
CONFTEST = "conftest.py"


class Identity(Record):
    """What a step's result depends on, and the variables that it gets. It has no key if there are doubts."""

    footprint: Footprint
    env: dict[str, str] = {}

    @property
    def key(self) -> Digest:
        """The key of the result; empty if there is none."""
        return Digest("") if self.problem else self.footprint.key("compile step")

    @property
    def problem(self) -> str:
        """Why there is no key."""
        return "; ".join(self.footprint.doubts)


def doubt(problem: str) -> Identity:
    """The identity of a step that has no key."""
    return Identity(footprint=Footprint(doubts=[problem]))


class StepReader:
    """Identifies steps, in a copy made for it. ``home`` is the data directory."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = dict(environ)
        self._digests = FileDigests()
        self._identities = StepIdentities(self._digests, ObjectStore(home / "objects"))

    def identify(self, step: FunctionStep) -> Identity:
        """Identify one step that has declarations."""
        if step.declared is None:
            return doubt("it declares none of inputs, runs, env")
        try:
            return self._identify(step, step.declared)
        except TileyardError as error:
            return doubt(str(error))
        except OSError as error:
            return doubt(f"{error.filename}: {error.strerror}")

    def _identify(self, step: FunctionStep, declared: Declared) -> Identity:
        places = (str(declared.root), str(self._home), str(Path.cwd()), os.uname().machine)
        stated = (declared.inputs, declared.runs, declared.env)
        found = Footprint(
            parts={
                "recipe": RECIPE,
                "what is declared": digest_parts(canonical_json(stated)),
                "places": digest_parts(*places),
            }
        )
        for name, value in (("function", step.function), ("arguments", step.values)):
            found.add(examine(value, name, has_sources=True))
        files = [file for file in map(Path, found.code) if file.suffix == ".py" and file.is_file()]
        if not files:
            found.doubt("its function is not in the tree")
        for pattern in declared.inputs:
            if not any(find_files(declared.root, pattern)):
                found.doubt(f"inputs {pattern!r}: there is no such file")
            found.put(f"inputs {pattern}", self._digests.digest(declared.root, [pattern]))
        if found.doubts:
            return Identity(footprint=found)
        asked = _as_step(declared, files)
        around = Surroundings(places={}, cwd=str(Path.cwd()), suite=str(declared.root), env={})
        use = self._identities.identify(asked, around, self._environ)
        # Imported modules may have read variables already, whatever the function gets.
        named = find_heard_variables(self._environ)
        named |= find_named_variables(use.code, self._environ)
        found.add(use)
        found.put_variables(named)
        passed_on = {name: self._environ[name] for name in PASSED_ON if name in self._environ}
        own = dict(text.split("=", 1) for text in declared.env if "=" in text)
        env = {**passed_on, **give(self._environ, asked), **named, **own}
        return Identity(footprint=found, env=env)


def describe_change(step: FunctionStep, now: Identity, objects: ObjectStore) -> str:
    """Why the kept result of a step is not the requested one."""
    before = find_footprint(_name(step), objects)
    if before is None:
        return "it was not kept before"
    changed = describe_changes(before, now.footprint, objects)
    return f"changed: {', '.join(changed)}" if changed else "what was kept is damaged or gone"


def note_identity(step: FunctionStep, identity: Identity, objects: ObjectStore) -> None:
    """Record what a kept step depends on."""
    keep_footprint(identity.footprint, _name(step), objects)


def _name(step: FunctionStep) -> Digest:
    root = step.declared.root if step.declared is not None else ""
    return digest_parts("step", str(root), step.id)


def _as_step(declared: Declared, sources: Sequence[Path]) -> Step:
    """The step of a suite with the imports of these files and of each ``conftest.py`` above them."""
    folders = {folder for file in sources for folder in file.parents}
    above = sorted(folder for folder in folders if folder.is_relative_to(declared.root))
    beside = [folder / CONFTEST for folder in above if (folder / CONFTEST).is_file()]
    files = dict.fromkeys(map(str, (*sources, *beside)))
    places = (place or str(Path.cwd()) for place in sys.path)
    texts = [text for text in declared.env if "=" in text]
    return Step(
        argv=tuple(map(_as_is, (sys.executable, *files))),
        env={
            "PYTHONPATH": _as_is(os.pathsep.join(places)),
            **{name: _as_is(text) for name, text in (one.split("=", 1) for one in texts)},
        },
        inherits=tuple(name for name in declared.env if "=" not in name),
        runs=declared.runs if declared.runs is None else tuple(map(_as_is, declared.runs)),
    )


def _as_is(text: str) -> str:
    """A text in which a step fills in nothing."""
    return text.replace("{", "{{").replace("}", "}}")
