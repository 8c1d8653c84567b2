"""Identifies what a step uses outside of its suite: programs, libraries, modules and variables, by content.

A step that states which programs it ``runs`` vouches for that list and its ``inputs``, and leaves no doubt
about them. The programs and libraries that others start or load are searched for in their files, and what
cannot be seen there leaves a doubt: their cases are not proven.
"""

import os
import re
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tileyard.artifacts.digests import FileDigests, InstalledPackages, digest_started, is_file
from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.objects import ObjectStore, digest_parts
from tileyard.artifacts.program_files import PYTHON, ProgramFiles, find_by_name
from tileyard.base.decoding import decode_json
from tileyard.base.errors import TileyardError
from tileyard.base.model import PLACES, Record, Step
from tileyard.processes.steps import Printed, StepOrder, describe_kind, insist_on
from tileyard.targets.command.given import BY_VALUE, fill, fill_argv, find_deciding, give
from tileyard.workers.python_imports import (
    PROBE,
    Found,
    ImportReader,
    PythonCall,
    PythonSite,
    read_call,
)

NOWHERE = "/-"
"""A folder that does not exist, in place of folders that are made when a step runs."""
VOUCH = "say with `runs` which programs the step starts"
END = r"[^\s\"'`:;,|&<>(){}]+"
"""The characters of a path within a longer text."""
STARTED = ("sitecustomize", "usercustomize")
"""Modules that every interpreter imports if it finds them."""
VERSION_S = 60.0
"""Seconds that a command which prints a version may take."""
MOST_BYTES = 1 << 20
NOT_VOUCHED = re.compile(r"(ba|da|z|k)?sh|env|busybox|perl|ruby|node|lua|java|make")
"""Programs that run what they are given: their version does not identify that."""


class Surroundings(Record):
    """Where a step would run: places, working directory, suite's folder; ``env``: what it gets besides."""

    places: dict[str, str]
    cwd: str
    suite: str
    env: dict[str, str]


class StepIdentities:
    """Identifies steps; usable from any thread. Version commands and interpreters are asked once."""

    def __init__(self, digests: FileDigests, objects: ObjectStore) -> None:
        self.digests = digests
        self.programs = ProgramFiles(digests)
        self.installed = InstalledPackages(objects)
        self._printed: dict[tuple[object, ...], tuple[str, str]] = {}
        self._alone: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)
        self._imported: dict[tuple[object, ...], Found] = {}

    def identify(self, step: Step, around: Surroundings, environ: Mapping[str, str]) -> Footprint:
        """What a step uses if it gets variables of ``environ``. Raises BindError."""
        look = _Look(self, step, around, environ)
        found, faults = look.footprint, look.faults
        try:
            look.at_all()
            if step.inherits_all:
                faults.append("with `inherit = true` it gets every variable")
            if step.runs is None:
                faults += [f"{text}; {VOUCH}" for text in found.doubts]
            if not faults:  # a step with faults may write the files that it names
                look.at_named_files()
        except OSError as error:
            faults.append(f"{error.filename}: {error.strerror}")
        found.doubts.clear()
        found.doubt(*faults)
        return found

    def ask(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: str) -> tuple[str, str]:
        """The output of a command, or what is wrong with it."""
        key = (argv, tuple(sorted(env.items())), cwd)
        with self._alone[key]:  # other commands can run meanwhile
            if key not in self._printed:
                self._printed[key] = ask_command(argv, env, cwd)
            return self._printed[key]

    def find_imports(self, call: PythonCall, files: Sequence[Path], reader: ImportReader) -> Found:
        """The imports of a call of Python."""
        key = (call.code, call.modules, tuple(files), reader.places)
        if key not in self._imported:
            self._imported[key] = reader.read(call.code, files, (*call.modules, *STARTED))
        return self._imported[key]


class _Look:
    """One examination of one step, which may vouch for doubts of the footprint, and not for ``faults``."""

    def __init__(
        self, known: StepIdentities, step: Step, around: Surroundings, environ: Mapping[str, str]
    ) -> None:
        places = {**{name: f"{NOWHERE}/{name}" for name in PLACES}, **around.places}
        given = give(environ, step)
        self._known = known
        self._step = step
        self._suite = around.suite
        own = {name: fill(text, places) for name, text in step.env.items()}
        self._env = {**given, **around.env, **own}
        self._deciding = find_deciding(given, step)
        self._named = (*own.values(), *self._deciding.values())
        self._argv = fill_argv(step.argv, places)
        self._runs = [fill(name, places) for name in step.runs or ()]
        self._versions = [fill_argv(argv, places) for argv in step.versions]
        self._cwd = fill(step.cwd, places) or around.cwd
        self._stated: set[Path] = set()
        self.footprint = Footprint()
        self.faults: list[str] = []

    def at_all(self) -> None:
        """Add programs, libraries, modules and variables. Raises OSError."""
        step = self._step
        self.footprint.put_variables(self._deciding)
        for argv in self._versions:
            self._look_at_version(argv)
        self._look_for(self._argv[0], self._argv[1:])
        for name in self._runs:
            self._look_for(name)
        for name in step.inherits:
            text = self._deciding.get(name, "")
            path = find_by_name(text, self._env, self._cwd) if text else None
            if path is not None:  # a program that may start it has a doubt of its own
                doubts, faults = self.footprint.doubts.copy(), self.faults.copy()
                self._look_at(path, text, ())
                self.footprint.doubts, self.faults[:] = doubts, faults

    def at_named_files(self) -> None:
        """Add the files that its arguments and variables name, relative to where it runs. Raises OSError."""
        folder = f"{self._suite}{os.sep}"
        within = re.compile(re.escape(folder) + END)
        texts = (*self._argv[1:], *self._named)
        for name in sorted({n for text in texts for n in (text, *within.findall(text))}):
            if is_file(Path(self._cwd), name):
                path = Path(self._cwd, name)
                self.footprint.put(
                    f"file {self._show(path)}", self._known.digests.digest_file(path)
                )

    def _show(self, path: Path) -> str:
        return str(path.relative_to(self._suite) if path.is_relative_to(self._suite) else path.name)

    def _look_at_version(self, argv: tuple[str, ...]) -> None:
        shown = " ".join((Path(argv[0]).name, *argv[1:]))
        text, problem = self._known.ask(argv, self._env, "/")
        self.footprint.put(f"version {shown}", digest_parts(text))
        if problem:
            self.faults.append(f"`{shown}` {problem}")
        path = find_by_name(argv[0], self._env, self._cwd)
        if path is not None and not NOT_VOUCHED.fullmatch(path.resolve().name):
            self._stated.add(path.resolve())

    def _look_for(self, name: str, arguments: Sequence[str] = ()) -> None:
        path = find_by_name(name, self._env, self._cwd)
        if path is None:
            self.footprint.put(f"program {Path(name).name}", "")
            self.faults.append(f"there is no program {name}")
        else:
            self._look_at(path, name, arguments)

    def _look_at(self, path: Path, name: str, arguments: Sequence[str]) -> None:
        if path.resolve() in self._stated and not PYTHON.fullmatch(path.resolve().name):
            return
        program, interpreter = self._known.programs.look_at(
            path.resolve(), self._env, Path(name).name
        )
        if interpreter:
            self.footprint.add(program)
            first, *rest = interpreter
            self._look_for(first, (*rest, str(path), *arguments))
        elif PYTHON.fullmatch(path.resolve().name):
            self.footprint.add(Footprint(parts=program.parts))
            self._read_python(path, arguments)
        else:
            self.footprint.add(program)

    # ---- Python --------------------------------------------------------------------------------

    def _read_python(self, python: Path, arguments: Sequence[str]) -> None:
        call = read_call(arguments)
        if isinstance(call, str):
            self.footprint.doubt(call)
            return
        asked = (str(python), *call.options, "-c", PROBE)
        deciding = {n: t for n, t in self._env.items() if n == "PATH" or BY_VALUE.fullmatch(n)}
        printed, problem = self._known.ask(asked, deciding, "/")
        if problem:
            self.faults.append(f"{python.name} {problem}")
            return
        site = decode_json(printed.encode(), PythonSite)
        files = [Path(self._cwd, text) for text in call.files if is_file(Path(self._cwd), text)]
        if call.is_script and not files:
            self.footprint.doubt(f"there is no script {call.files[0]}")
            return
        is_safe = "PYTHONSAFEPATH" in self._env or {"-P", "-I"} & set(call.options)
        first = str(files[0].resolve().parent) if call.is_script else self._cwd
        reader = ImportReader(site, () if is_safe else (first,), Path(self._suite))
        found = self._known.find_imports(call, files, reader)
        self.footprint.add(found.footprint)
        if found.runs_arguments and any(
            is_file(Path(self._cwd), text) and not text.endswith(".py") for text in arguments
        ):
            self.footprint.doubt(
                "it runs an argument as code, and one is a file whose name does not end in .py"
            )
        self.footprint.put("Python", digest_parts(site.version))
        self.footprint.put("what Python starts with", digest_started(site.installed))
        if found.uses_installed:
            self.footprint.put("installed packages", self._known.installed.digest(site.installed))
        for file in map(Path, found.footprint.code):
            self.footprint.put(f"module {self._show(file)}", self._known.digests.digest_file(file))
            if file.suffix == ".so":
                self._known.programs.add_libraries(file, self._env, self.footprint)


def ask_command(argv: tuple[str, ...], env: Mapping[str, str], cwd: str) -> tuple[str, str]:
    """The output of a command, and what is wrong with it, empty if nothing is."""
    printed = Printed(MOST_BYTES)
    order = StepOrder(argv=argv, env=dict(env), cwd=cwd, log=os.devnull, limit_s=VERSION_S)
    try:
        end = insist_on(order, printed.data.clear, printed)
    except TileyardError as error:
        return "", error.message
    text = printed.data.decode("utf-8", "replace") + end.tail
    if end.refusal:
        return "", f"cannot be started: {end.refusal}"
    if not end.ok:
        return text, describe_kind(end, order)
    return text, "" if text.strip() else "prints nothing"
