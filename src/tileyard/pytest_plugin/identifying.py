"""Determines what a function's compile step depends on, by content, so that its result can be kept.
It counts like a Python step of a suite (``workers/step_identity.py``), with its arguments, globals
that it names, and places.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import TileyardError
from tileyard.base.model import Digest, Record, Step
from tileyard.frontend.closure import examine
from tileyard.frontend.footprint import HEARD_VARIABLES
from tileyard.pytest_plugin.records import Declared, FunctionStep
from tileyard.targets.command.given import give
from tileyard.workers.file_digests import FileDigests, find_files
from tileyard.workers.step_identity import StepIdentities, Surroundings

IDENTITY = "compile-step"
"""The kind of record that states what a step depended on when it was last kept."""
RECIPE = "1"
"""Version of the key format; a change to this module that changes the content of keys raises it."""
PASSED_ON = ("TMPDIR",)
"""Variables that a function gets although no key covers them."""
CONFTEST = "conftest.py"


class Identity(Record):
    """The key of a step's result, its parts and variables; ``problem``: why there is no key."""

    key: Digest = Digest("")
    parts: dict[str, str] = {}
    env: dict[str, str] = {}
    problem: str = ""


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
            return Identity(problem="it declares none of inputs, runs, env")
        try:
            return self._identify(step, step.declared)
        except TileyardError as error:
            return Identity(problem=str(error))
        except OSError as error:
            return Identity(problem=f"{error.filename}: {error.strerror}")

    def _identify(self, step: FunctionStep, declared: Declared) -> Identity:
        parts = {
            "recipe": RECIPE,
            "what is declared": digest_parts(canonical_json(_plain(declared))),
        }
        files: dict[Path, None] = {}
        for name, value in (("function", step.function), ("arguments", step.values)):
            found = examine(value, has_sources=True)
            if found.digest is None:
                return Identity(problem=f"its {name} cannot be told by content")
            parts[name] = found.digest
            files |= dict.fromkeys(sorted(filter(_is_source, map(Path, found.files))))
        if not files:
            return Identity(problem="its function is not in the tree")
        for pattern in declared.inputs:
            if not any(find_files(declared.root, pattern)):
                return Identity(problem=f"inputs {pattern!r}: there is no such file")
            parts[f"inputs {pattern}"] = self._digests.digest(declared.root, [pattern])
        places = (str(declared.root), str(self._home), str(Path.cwd()), os.uname().machine)
        parts["places"] = digest_parts(*places)
        asked = _as_step(declared, list(files))
        around = Surroundings(places={}, cwd=str(Path.cwd()), suite=str(declared.root), env={})
        use = self._identities.identify(asked, around, self._environ)
        if use.doubts:
            return Identity(problem="; ".join(use.doubts))
        named = self._find_named(use.modules)
        parts |= use.parts
        parts |= {f"variable {name}": digest_parts(text) for name, text in named.items()}
        passed_on = {name: self._environ[name] for name in PASSED_ON if name in self._environ}
        own = dict(text.split("=", 1) for text in declared.env if "=" in text)
        env = {**passed_on, **give(self._environ, asked), **named, **own}
        return Identity(
            key=digest_parts("compile step", canonical_json(parts)), parts=parts, env=env
        )

    def _find_named(self, modules: tuple[Path, ...]) -> dict[str, str]:
        """The variables that code of the tree names or libraries below it read, maybe when imported."""
        words: set[str] = set()
        for module in modules:
            words.update(re.findall(r"\w+", module.read_bytes().decode("utf-8", "replace")))
        return {
            name: text
            for name, text in self._environ.items()
            if name != "_" and (name in words or name.startswith(HEARD_VARIABLES))
        }


def describe_change(step: FunctionStep, now: Identity, objects: ObjectStore) -> str:
    """Why the kept result of a step is not the requested one."""
    data = objects.get_record(IDENTITY, _name(step))
    if data is None:
        return "it was not kept before"
    before = decode_json(data, dict[str, str])
    names = sorted(
        name for name in before.keys() | now.parts.keys() if before.get(name) != now.parts.get(name)
    )
    return f"changed: {', '.join(names)}" if names else "what was kept is damaged or gone"


def note_identity(step: FunctionStep, identity: Identity, objects: ObjectStore) -> None:
    """Record what a kept step depends on."""
    objects.put_record(IDENTITY, _name(step), canonical_json(identity.parts).encode())


def _name(step: FunctionStep) -> Digest:
    root = step.declared.root if step.declared is not None else ""
    return digest_parts("step", str(root), step.id)


def _plain(declared: Declared) -> tuple[object, ...]:
    return declared.inputs, declared.runs, declared.env


def _is_source(file: Path) -> bool:
    return file.suffix == ".py" and file.is_file()


def _as_step(declared: Declared, sources: Sequence[Path]) -> Step:
    """The step of a suite with the same imports as these files, and the ``conftest.py`` files above them."""
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
