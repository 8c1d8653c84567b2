"""Finds the useful work in the steps of a job: builds of trees, runs of tests, other commands.

Steps that only prepare a runner are ignored: checkouts, packages, caches, artifacts.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from tileyard.base.model import Record
from tileyard.targets.command.given import PATH_END
from tileyard.verbs.ci.plan.shell_commands import ShellCommand, join_path, read_script
from tileyard.verbs.ci.plan.workflow_expressions import fill, holds
from tileyard.verbs.ci.plan.workflow_tests import (
    Tests,
    find_script,
    list_files,
    list_scripts,
    read_ctest,
    read_pytest,
    read_unittest,
)
from tileyard.verbs.ci.plan.workflows import WorkflowJob, WorkflowStep

StepTimes = Mapping[tuple[str, str, str], float]
"""Seconds by the names of workflow, job and step, as GitHub reports them."""
Kind = Literal["build", "tests", "command", "label"]
GUESSES_S: Mapping[Kind, float] = {"build": 600.0, "tests": 300.0, "label": 300.0, "command": 60.0}
"""Seconds assumed for a step that was not measured."""
_QUIET = frozenset(
    """
    . : [ [[ apt apt-get awk basename break brew cat ccache chmod chown cmake command
    compgen conan conda continue cp curl cut date declare df dirname dnf du echo ensurepip
    env exit export false find free gh git git-lfs grep hash head id jq kill ln local ls
    lscpu mkdir mktemp mv nproc npm npu-smi nvidia-smi pip pipx pnpm poetry popd printf ps
    pushd pwd python_version read readarray readlink realpath return rm rmdir rsync rustup
    sccache sed set shopt sleep sort source sudo systemctl tail tar task-submit tee test
    touch tr trap true type ulimit uname uniq unlink unset unzip update-alternatives uv venv
    wait wc wget which whoami xargs yarn yum zip
    """.split()  # noqa: SIM905 - a list of words, not of quotes
)
_TOOLS = re.compile(
    r"(cargo|go|bazel|meson|mvn|gradlew?|npm|yarn|pnpm)(?: run)? "
    r"(?:(build|compile|package|assemble)|test|nextest|verify)\b"
)
_UNTOLD = re.compile(
    r"(?:LD_|DYLD_)?(?:LIBRARY_)?PATH|PYTHONPATH|PYTHONUNBUFFERED|HOME"
    r"|(?:GITHUB|RUNNER|CCACHE|PIP)_\w+"
)
"""Variables that do not distinguish commands."""
_PLACE = re.compile(r"\w*(PATH|DIR|ROOT|HOME|PREFIX|WORKSPACE|BIN|SITE)")
_COMPILING = re.compile(
    r"(HOST)?(CC|CXX|FC|LD|AR)|\w*FLAGS|(CMAKE|CARGO|RUST)_(?!\w*LAUNCHER)\w+|MACOSX_\w+"
)
"""Variables that say how something is built, wherever they are set."""
_PREPARING = re.compile(
    r"actions/|github/|\./|.*(cache|artifact|checkout|setup|login|release|paths-filter)"
)
_REMOTE = re.compile(r"(?:https?://|git@|ssh://)[^/:]*[/:](.*?)(?:\.git)?/?")
_PIP_VALUES = frozenset(
    """
    -r -c --target -t --prefix -w --wheel-dir -f --find-links --python --index-url -i
    """.split()  # noqa: SIM905 - a list of words, not of quotes
)


NO_TESTS = Tests(ids=())


class Work(Record):
    """What a step does to a ``subject``: the same text is the same tree or command. ``details`` are shown if
    they differ; ``own`` of ``env`` are set for it alone. Files ``named`` decide which variables matter;
    ``versions`` are of languages; ``built`` are earlier trees of the job, and how. Unless it ``is_seen`` it
    may run unknown tests.
    """

    kind: Kind
    subject: str
    job: str
    where: str
    command: str
    platform: str
    details: dict[str, str] = {}
    env: dict[str, str] = {}
    own: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    built: dict[str, dict[str, str]] = {}
    tests: Tests = NO_TESTS
    conditions: tuple[str, ...] = ()
    seconds: float = 0.0
    is_guess: bool = True
    is_seen: bool = True


@dataclass
class _Tracer:
    """A job, followed from step to step. The same tree has the same name in every job, wherever it is."""

    job: WorkflowJob
    root: str
    env: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)
    """Other paths of the repository that is at the root."""
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each folder with another checkout: its repository and commit."""
    trees: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """For each build folder: its tree, and how it was configured."""
    versions: dict[str, str] = field(default_factory=dict)
    built: dict[str, dict[str, str]] = field(default_factory=dict)

    def trace(self, times: StepTimes) -> Iterator[Work]:
        """All work, step by step; a step's time is divided among its work."""
        for step in self.job.steps:
            if any(holds(self._fill(one), {}) is False for one in step.conditions):
                continue
            self.env = {name: self._fill(text) for name, text in self.env.items()}
            found = list(self._action(step) if step.uses else self._run(step))
            if step.is_foreign:  # its script is not for a shell
                command = ShellCommand([], "", 0)
                found = [self._work("command", step.name, step, command, is_seen=False)]
            if step.does:
                found = [self._work("label", step.does, step, ShellCommand([], "", 0))]
            key = (self.job.workflow_name, self.job.title, step.name)
            seconds = times.get(key, step.seconds)
            for work in found:
                total_s = seconds or GUESSES_S[work.kind]
                yield replace(work, seconds=total_s / len(found), is_guess=not seconds)

    def _run(self, step: WorkflowStep) -> Iterator[Work]:
        folder = self._settle(join_path(self.root, self._fill(step.cwd)))
        own = {name: self._fill(text) for name, text in step.env.items()}
        script = read_script(self._fill(step.run), self.env | own, folder)
        for one in script.commands:
            env = {name: self._settle(text) for name, text in (own | one.env).items()}
            argv = list(map(self._settle, one.argv))
            cwd = self._settle(one.cwd)
            yield from self._command(ShellCommand(argv, cwd, one.line, env, one.conditions), step)
        self.env |= script.exports
        self.outputs |= {f"steps.{step.id}.outputs.{k}": v for k, v in script.outputs.items()}

    def _action(self, step: WorkflowStep) -> Iterator[Work]:
        name = step.uses.partition("@")[0]
        options = {key: self._fill(text) for key, text in step.options.items()}
        path, other = join_path(self.root, options.get("path", "")), options.get("repository", "")
        if name == "actions/checkout" and other and "github." not in other:
            self.sources[path] = (other.lower(), options.get("ref", ""))
        elif name == "actions/checkout" and path != self.root and "sparse-checkout" not in options:
            self.aliases.append(path)
        elif re.search(r"(^|/)setup-", name):
            self.versions |= {key: text for key, text in options.items() if key.endswith("version")}
        elif name == "docker/build-push-action":
            words = ["docker", "build", "-f", options.get("file", ""), options.get("context", ".")]
            yield from self._command(ShellCommand(words, self.root, 0), step)
        elif ".github/workflows/" in name or not _PREPARING.match(name):
            argv = [step.uses, *(f"{key}={text}" for key, text in sorted(options.items()))]
            command, is_seen = ShellCommand(argv, self.root, 0), ".github/workflows/" not in name
            yield self._work("command", shlex.join(argv), step, command, is_seen=is_seen)

    def _command(self, command: ShellCommand, step: WorkflowStep) -> Iterator[Work]:
        name, words = _name(command.argv)
        if name == "git":
            self._git(words, command.cwd)
        elif tests := self._find_tests(name, words, command.cwd) or self._find_declared(command):
            named = tuple(one.partition("::")[0] for one in tests.ids)
            ids = tuple(map(self._name_tree, tests.ids))
            tests = replace(tests, ids=ids)
            yield self._work("tests", " ".join(ids), step, command, tests=tests, named=named)
        elif found := self._find_build(name, words, command):
            work = self._work("build", found[0], step, command, found[1])
            self.built[work.subject] = work.details
            yield work
        elif not step.is_setup and _is_work(name, words):
            plain = ["python", *words] if name == "python" else command.argv
            subject = shlex.join(map(self._name_tree, [*plain, "in", command.cwd]))
            paths = [self._join(command.cwd, word) for word in command.argv]
            named = tuple(path for path in paths if Path(path).is_file())
            is_seen = _is_tool(command.argv[0], words[0] if name == "python" else name)
            yield self._work("command", subject, step, command, named=named, is_seen=is_seen)

    def _work(  # noqa: PLR0913 - of one step
        self,
        kind: Kind,
        subject: str,
        step: WorkflowStep,
        command: ShellCommand,
        details: Mapping[str, str] | None = None,
        tests: Tests = NO_TESTS,
        named: tuple[str, ...] = (),
        is_seen: bool = True,
    ) -> Work:
        file, _, line = step.where.rpartition(":")
        env = {k: v for k, v in (self.env | command.env).items() if not _UNTOLD.fullmatch(k)}
        shown = dict(details or {})
        if kind == "build":
            shown |= {k: env[k] for k in env if k in command.env or _COMPILING.fullmatch(k)}
        shown |= {"runs-on": self.job.runs_on, "container": self.job.container}
        shown["versions"] = ", ".join(f"{k}={v}" for k, v in sorted(self.versions.items()))
        given = (*step.conditions, *command.conditions)
        conditions = (" ".join(self._fill(one).split()) for one in given)
        return Work(
            kind=kind,
            subject=subject,
            job=self.job.name,
            where=f"{file}:{step.run_line + command.line if step.run and command.argv else line}",
            command=self._shorten(shlex.join(command.argv)) or step.name,
            platform=_name_platform(self.job.runs_on),
            details={key: self._shorten(text) for key, text in shown.items() if text},
            env=env,
            own=tuple(command.env),
            named=named,
            versions=dict(self.versions),
            built=dict(self.built),
            tests=tests,
            is_seen=is_seen and tests.is_seen,
            conditions=tuple(one for one in conditions if holds(one, {}) is None),
        )

    # ---- tests and builds -----------------------------------------------------------------------

    def _find_tests(self, name: str, words: list[str], cwd: str) -> Tests | None:
        options = dict(pairwise(words))
        if name in ("pytest", "py.test"):
            return None if "--collect-only" in words else read_pytest(words, cwd)
        if name == "unittest":
            return read_unittest(words, cwd)
        if name == "ctest" and "--version" not in words:
            folder = self._join(cwd, options.get("--test-dir", "."))
            return self._read_ctest(words, folder)
        if name in ("lit", "llvm-lit", "lit.py"):
            return Tests(ids=tuple(self._join(cwd, one) for one in words if one[:1] != "-"))
        if name in ("ninja", "make", "cmake") and (targets := _targets(name, words)):
            folder = self._join(cwd, _folder(name, words))
            tree = self.trees.get(folder, (folder,))[0]
            if targets == ["test"] and folder in self.trees:
                return self._read_ctest((), folder)
            if all(re.match(r"check|test", target) for target in targets):
                ids = tuple(f"target {one} of {self._name_tree(tree)}" for one in targets)
                return Tests(ids=ids, is_seen=False)
        if name == "python" and words and re.match(r"(.*/)?(test_\w+|\w+_test)\.py$", words[0]):
            return Tests(ids=(self._join(cwd, words[0]),), variant=tuple(words[1:]))
        tool = _TOOLS.match(" ".join((name, *words)))
        if (tool and not tool[2]) or name in ("tox", "nox"):
            plain = tuple(word for word in words if not word.startswith("-"))
            is_seen = name in ("cargo", "go")
            return Tests(ids=(f"{name} in {self._name_tree(cwd)}",), variant=plain, is_seen=is_seen)
        return None

    def _read_ctest(self, words: Sequence[str], folder: str) -> Tests:
        """The tests of a build folder. One that no known command made is of the nearest tree above it."""
        above = (str(one) for one in Path(folder).parents if (one / "CMakeLists.txt").is_file())
        tree, flags = self.trees.get(folder) or (next(above, folder), {})
        return read_ctest(words, tree, flags, lambda argv, cwd: self._find_tests(*_name(argv), cwd))

    def _find_declared(self, command: ShellCommand) -> Tests | None:
        """A script that the checkout declares as a test of ctest, run by itself."""
        script = find_script(command.argv, command.cwd)
        if not script or script not in list_scripts(self.root):
            return None
        after = [self._join(command.cwd, word) for word in command.argv].index(script) + 1
        return Tests(ids=(script,), variant=tuple(command.argv[after:]))

    def _find_build(
        self, name: str, words: list[str], command: ShellCommand
    ) -> tuple[str, dict[str, str]] | None:
        """The tree that a command builds, and how; configuring alone is not a build."""
        cwd, options = command.cwd, dict(pairwise(words))
        if name in ("ninja", "make") or (name == "cmake" and "--build" in words):
            folder, targets = self._join(cwd, _folder(name, words)), _targets(name, words)
            is_known = folder in self.trees
            builds = not targets or not {*targets} <= {"install", "clean"}
            if is_known and not builds and name != "cmake":
                return None
            tree, details = self.trees.get(folder, (folder, {}))
            said = "" if is_known or not targets else f": {' '.join(targets)}"
            return f"{self._name_tree(tree)}{said}", details | {"targets": " ".join(targets)}
        if name == "cmake" and words and not re.match(r"-[EP]$|--(install|version)", words[0]):
            joined = {word[:2]: word[2:] for word in words if re.match(r"-[SB].", word)}
            plain = [
                word
                for before, word in pairwise(("", *words))
                if not re.fullmatch(r"-\S+", word)
                and not re.fullmatch(r"-[SBGCDAT]|--preset", before)
            ]
            tree = options.get("-S") or joined.get("-S") or (plain or ["."])[0]
            into = self._join(cwd, options.get("-B") or joined.get("-B") or ".")
            env = {key: text for key, text in command.env.items() if not _UNTOLD.fullmatch(key)}
            self.trees[into] = (self._join(cwd, tree), env | _flags(words) | {"into": into})
            return None
        if name == "pip" or command.argv[1:3] == ["-m", "build"]:
            return self._pip(words if name == "pip" else ["wheel", *(words or ["."])], cwd)
        if name in ("docker", "podman") and "build" in words[:2]:
            context = self._join(cwd, words[-1])
            file = options.get("-f") or options.get("--file") or f"{context}/Dockerfile"
            file = self._join(cwd, file)
            return f"image {self._name_tree(file)} of {self._name_tree(context)}", _flags(words)
        tool = _TOOLS.match(" ".join((name, *words)))
        return (f"{self._name_tree(cwd)} by {name}", _flags(words)) if tool and tool[2] else None

    def _pip(self, words: list[str], cwd: str) -> tuple[str, dict[str, str]] | None:
        """A build of a local tree that has something to compile, or of which a wheel is made."""
        verb = words[0] if words else ""
        for before, word in pairwise(words if verb in ("install", "wheel") else ()):
            if (
                before in _PIP_VALUES
                or not re.match(r"[./$]|[^-].*/|\w+$", word)
                or word.endswith((".whl", ".txt"))
            ):
                continue
            path = self._join(cwd, re.sub(r"\[[^\]]*\]$", "", word))
            is_path = not re.fullmatch(r"\w+", word) or (verb == "wheel" and Path(path).is_dir())
            if is_path and (verb == "wheel" or self._is_compiled(path)):
                found = re.search(r"build-dir=(\S+)", " ".join(words))
                into = found[1] if found else ""
                if into:
                    self.trees[self._join(cwd, into)] = (path, {})
                return self._name_tree(path), {"by": f"pip {verb}", "into": into}
        return None

    def _is_compiled(self, path: str) -> bool:
        """Whether there is something to compile; unknown for what is not in this checkout."""
        if not path.startswith(self.root) or any(path.startswith(one) for one in self.sources):
            return True
        names = ("CMakeLists.txt", "meson.build", "Cargo.toml", "WORKSPACE", "MODULE.bazel")
        setup = Path(path, "setup.py")
        return any(Path(path, name).exists() for name in names) or (
            setup.is_file() and "ext_modules" in setup.read_text(encoding="utf-8", errors="replace")
        )

    # ---- checkouts ------------------------------------------------------------------------------

    def _git(self, words: list[str], cwd: str) -> None:
        """Record where other checkouts are, and at which commit."""
        while words[:1] == ["-C"]:
            cwd, words = self._join(cwd, words[1]), words[2:]
        verb, *plain = [word for word in words if not word.startswith("-")] or [""]
        name, ref = self.sources.get(cwd, ("", ""))
        if verb == "clone" and (url := next(filter(_REMOTE.fullmatch, plain), "")):
            folder = [*plain, Path(url).stem][plain.index(url) + 1]
            options = dict(pairwise(words))
            ref = options.get("--branch") or options.get("-b") or ""
            self.sources[self._join(cwd, folder)] = (_name_repository(url), ref)
        elif verb == "remote" and len(plain) == 3:
            self.sources[cwd] = (_name_repository(plain[2]), ref)
        elif name and verb in ("fetch", "checkout", "reset", "switch") and plain:
            self.sources[cwd] = (name, ref if plain[-1] in ("FETCH_HEAD", "origin") else plain[-1])

    def _name_tree(self, path: str) -> str:
        """A path relative to its checkout, the same in every job; other words unchanged."""
        for folder in sorted(self.sources, key=len, reverse=True):
            if path == folder or path.startswith(f"{folder}/"):
                name, ref = self.sources[folder]
                return f"{name}@{_name_ref(ref)}:{path[len(folder) + 1 :]}".rstrip(":")
        return "." if path == self.root else path.removeprefix(f"{self.root}/")

    def _join(self, folder: str, path: str) -> str:
        return self._settle(join_path(folder, path))

    def _settle(self, text: str) -> str:
        """A text in which the repository is at the root, wherever it was checked out to."""
        for path in self.aliases:
            text = re.sub(re.escape(path) + PATH_END, self.root, text)
        return text

    def _fill(self, text: str) -> str:
        return fill(text, {f"env.{name}": value for name, value in self.env.items()} | self.outputs)

    def _shorten(self, text: str) -> str:
        return text.replace(f"{self.root}/", "").replace(self.root, ".")


def find_work(job: WorkflowJob, root: Path, times: StepTimes) -> list[Work]:
    """The work of a job in the checkout whose top is ``root``. Steps without times get guesses."""
    env = {"GITHUB_WORKSPACE": str(root), **job.env}
    return list(_Tracer(job=job, root=str(root), env=env).trace(times))


def is_place(work: Work, variable: str) -> bool:
    """Whether a variable tells where something is."""
    return "/" in work.env.get(variable, "") or _PLACE.fullmatch(variable) is not None


def matters(work: Work, variable: str) -> bool:
    """Whether a variable may change what a command does: its files mention it, or it was set for it alone."""
    texts = [text for path in work.named for text in _read_texts(path)]
    return any(variable in text for text in texts) if texts else variable in work.own


@lru_cache(maxsize=1024)
def _read_texts(path: str) -> tuple[str, ...]:
    files = filter(Path.is_file, map(Path, list_files(path)))
    return tuple(file.read_text(encoding="utf-8", errors="replace") for file in files)


def _name(argv: Sequence[str]) -> tuple[str, list[str]]:
    """A program by its name alone, with the other words; a Python module counts as a program."""
    words = list(argv[1:])
    name = re.sub(r"(?<=^python)[\d.]+$|(?<=^pip)[\d.]+$|\.exe$", "", Path((*argv, "")[0]).name)
    if re.search(r"PYTHON\w*\}?$", (*argv, "")[0]):
        name = "python"
    if name == "python" and "-m" in words[:3]:
        return _name(words[words.index("-m") + 1 :])
    if name == "uv" and words[:1] == ["pip"]:
        return "pip", words[1:]
    if name in ("uv", "poetry", "pipx", "hatch", "coverage") and words[:1] == ["run"]:
        return _name([word for word in words[1:] if word != "-m"])
    if name in ("bash", "sh") and words and not words[0].startswith("-"):
        return Path(words[0]).name, words[1:]
    return name, words


def _folder(name: str, words: Sequence[str]) -> str:
    joined = next((word[2:] for word in words if re.match("-C.", word)), ".")
    return dict(pairwise(words)).get("--build" if name == "cmake" else "-C", joined)


def _targets(name: str, words: Sequence[str]) -> list[str]:
    if name == "cmake":
        rest = words[words.index("--target") + 1 :] if {"--target", "--build"} <= {*words} else []
        return shlex.split(shlex.join(rest).partition(" -")[0])
    return [
        word
        for before, word in pairwise(("", *words))
        if before not in ("-C", "-j", "-f", "-k", "-l") and not re.match(r"-|.*(=|\$\()", word)
    ]


def _flags(words: Sequence[str]) -> dict[str, str]:
    """``-DNAME=VALUE`` and the options that set how."""
    found = {}
    for before, word in pairwise(("", *words)):
        whole = f"-D{word}" if before == "-D" else word
        if said := re.fullmatch(r"(?:-D)?(\w+)(?::\w+)?=(.*)|-D(\w+)", whole):
            found[said[1] or said[3]] = said[2] or ""
        elif before in ("-G", "-C", "--preset"):
            found[before] = word
        elif word.startswith("--") and "=" in word:
            found[word.partition("=")[0]] = word.partition("=")[2]
    return found


def _is_work(name: str, words: Sequence[str]) -> bool:
    if not name or name in _QUIET or re.match(r"-|.*\$", name) or "--version" in words:
        return False
    return name != "python" or (bool(words) and not words[0].startswith("-"))


def _is_tool(path: str, program: str) -> bool:
    """Whether a program is an installed tool, so neither a script or module nor something that was built."""
    return "." not in program and ("/" not in path or re.search(r"bin/[^/]+$", path) is not None)


def _name_platform(runs_on: str) -> str:
    """``linux x64`` and the like, from the labels of runners."""
    words = runs_on.lower()
    system = next((name for name in ("windows", "macos") if name in words), "linux")
    arm = r"arm64|aarch64|-arm\b|macos-(?:1[4-9]|[2-9]\d|latest)(?!-intel|\d|-large)"
    return f"{system} {'arm64' if re.search(arm, words) else 'x64'}"


def _name_repository(url: str) -> str:
    found = _REMOTE.fullmatch(url)
    return (found[1] if found else url).lower()


def _name_ref(text: str) -> str:
    """A commit, tag or branch; if a command looks it up, the text that it asks for."""
    found = re.fullmatch(r"\$\(git ls-remote \S+ (?:\S+ )*?(\S+?)(?: \|.*)?\)", text, re.DOTALL)
    name = found[1].strip("\"'") if found else text
    return re.sub(r"^(refs/(heads|tags)/|origin/)", "", name) or "HEAD"
