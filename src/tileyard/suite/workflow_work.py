"""What the steps of a job do that is worth doing once: builds of trees, runs of tests, other commands.

What only prepares a runner is no work: checkouts, packages, caches, artifacts. One module because all of it follows
a job from step to step, with its variables, its checkouts and its build folders.
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

from tileyard.model import Record
from tileyard.suite.shell_commands import ShellCommand, join_path, read_script, unknown_names
from tileyard.suite.workflow_checkouts import Checkouts
from tileyard.suite.workflow_expressions import fill, holds
from tileyard.suite.workflow_programs import (
    BUILDERS,
    TESTERS,
    flags_of,
    folder_of,
    name_of,
    options_of,
    place_of,
    platform_of,
    targets_of,
)
from tileyard.suite.workflow_tests import (
    Tests,
    list_under,
    read_ctest,
    read_pytest,
    read_unittest,
)
from tileyard.suite.workflows import WorkflowJob, WorkflowStep

Kind = Literal["build", "tests", "command", "label"]
Source = Literal["measured", "said", "guessed"]
GUESSES_S: Mapping[Kind, float] = {"build": 600.0, "tests": 300.0, "label": 300.0, "command": 60.0}
"""What a step takes that nobody has measured."""
_QUIET = frozenset(['.', ':', '[', '[[', 'apt', 'apt-get', 'awk', 'basename', 'break', 'brew', 'cat', 'ccache', 'chmod', 'chown', 'command', 'compgen', 'conda', 'continue', 'cp', 'curl', 'cut', 'date', 'declare', 'df', 'dirname', 'dnf', 'du', 'echo', 'env', 'exit', 'export', 'false', 'find', 'free', 'gh', 'git', 'grep', 'hash', 'head', 'id', 'jq', 'kill', 'ln', 'local', 'ls', 'lscpu', 'mkdir', 'mktemp', 'mv', 'nproc', 'npu-smi', 'nvidia-smi', 'popd', 'printf', 'ps', 'pushd', 'pwd', 'python_version', 'read', 'readarray', 'readlink', 'realpath', 'return', 'rm', 'rmdir', 'rsync', 'sccache', 'sed', 'set', 'shopt', 'sleep', 'sort', 'source', 'sudo', 'systemctl', 'tail', 'tar', 'task-submit', 'tee', 'test', 'touch', 'tr', 'trap', 'true', 'type', 'ulimit', 'uname', 'uniq', 'unlink', 'unset', 'unzip', 'update-alternatives', 'wait', 'wc', 'wget', 'which', 'whoami', 'xargs', 'yum', 'zip'])  # fmt: skip
_COMPILED = ("CMakeLists.txt", "meson.build", "Cargo.toml", "WORKSPACE", "MODULE.bazel")
_UNTOLD = re.compile(
    r"(?:LD_|DYLD_)?(?:LIBRARY_)?PATH|PYTHONPATH|PYTHONUNBUFFERED|GITHUB_\w+|RUNNER_\w+|CCACHE_\w+|PIP_\w+|HOME"
)
"""Variables by which commands are not told apart."""


class Work(Record):
    """One thing that a step does. ``subject`` is what it is done to: the same text is the same tree, or command.

    ``details`` are shown where they differ; ``env`` are all variables, ``named`` the files whose text says
    which of these matter, ``versions`` the languages that were set up.
    """

    kind: Kind
    subject: str
    job: str
    where: str
    step: str
    command: str
    platform: str
    details: dict[str, str] = {}
    env: dict[str, str] = {}
    own: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    tests: Tests | None = None
    conditions: tuple[str, ...] = ()
    seconds: float = 0.0
    source: Source = "guessed"
    unknown: tuple[str, ...] = ()

    @property
    def is_guess(self) -> bool:
        """Whether nobody has measured it, though a comment may say what it takes."""
        return self.source != "measured"


@dataclass
class _Tracer:
    """A job, followed from step to step."""

    job: WorkflowJob
    root: str
    times: Mapping[tuple[str, str], float]
    env: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    checkouts: Checkouts = field(init=False)
    trees: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """For each build folder: its tree, and how it was configured."""
    versions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.checkouts = Checkouts(root=self.root)

    def trace(self) -> Iterator[Work]:
        """All work, step by step; a step's time is shared by what it does."""
        self.env = {"GITHUB_WORKSPACE": self.root, **self.job.env}
        for step in self.job.steps:
            if any(holds(self._fill(one), {}) is False for one in step.conditions):
                continue
            self.env = {name: self._fill(text) for name, text in self.env.items()}
            found = list(self._step(step))
            measured = self.times.get((self.job.title, step.name))
            seconds = step.seconds if measured is None else measured
            source: Source = (
                "measured" if measured is not None else "said" if step.seconds else "guessed"
            )
            for work in found:
                total_s = GUESSES_S[work.kind] if source == "guessed" else seconds
                yield replace(work, seconds=total_s / len(found), source=source)

    def _step(self, step: WorkflowStep) -> Iterator[Work]:
        own = {name: self._fill(text) for name, text in step.env.items()}
        env = self.env | own
        if step.does:
            # The script still sets variables of later steps.
            list(self._run(step, env, own))
            yield self._work("label", step.does, step, ShellCommand(argv=(), cwd="", line=0), env)
        elif step.uses:
            yield from self._action(step, env)
        else:
            yield from self._run(step, env, own)

    def _run(self, step: WorkflowStep, env: dict[str, str], own: dict[str, str]) -> Iterator[Work]:
        folder = join_path(self.root, self._fill(step.cwd))
        script = read_script(self._fill(step.run), env, self.checkouts.settle(folder))
        for command in script.commands:
            argv = tuple(map(self.checkouts.settle, command.argv))
            named = {
                name: self.checkouts.settle(text) for name, text in (own | command.env).items()
            }
            settled = ShellCommand(argv=argv, cwd=self.checkouts.settle(command.cwd), line=command.line, env=named)  # fmt: skip
            yield from self._command(settled, step, env | named)
        self.env |= script.exports
        for name, text in script.outputs.items():
            self.outputs[f"steps.{step.id}.outputs.{name}"] = text

    def _action(self, step: WorkflowStep, env: dict[str, str]) -> Iterator[Work]:
        name = step.uses.partition("@")[0]
        options = {key: self._fill(text) for key, text in step.options.items()}
        if name == "actions/checkout":
            self.checkouts.follow_action(options)
        elif "/setup-" in name or name.startswith("setup-"):
            self.versions += [
                f"{key}={text}" for key, text in sorted(options.items()) if key.endswith("version")
            ]
        elif name == "docker/build-push-action":
            context = self.checkouts.settle(join_path(self.root, options.get("context", ".")))
            file = self.checkouts.settle(
                join_path(self.root, options.get("file") or f"{context}/Dockerfile")
            )
            command = ShellCommand(argv=(step.uses,), cwd=self.root, line=0)
            subject = (
                f"image {self.checkouts.name_tree(file)} of {self.checkouts.name_tree(context)}"
            )
            yield self._work("build", subject, step, command, env, options)
        elif not re.match(
            r"actions/|github/|\./|.*(cache|artifact|checkout|setup|login|release|paths-filter)",
            name,
        ):
            said = [f"{key}={text}" for key, text in sorted(options.items())]
            command = ShellCommand(argv=(step.uses, *said), cwd=self.root, line=0)
            yield self._work("command", shlex.join(command.argv), step, command, env)

    # ---- commands -------------------------------------------------------------------------------

    def _command(
        self, command: ShellCommand, step: WorkflowStep, env: dict[str, str]
    ) -> Iterator[Work]:
        name, words = name_of(command.argv)
        if name == "git":
            self.checkouts.follow_git(list(words), command.cwd)
        elif tests := self._find_tests(name, words, command):
            ids = tuple(self.checkouts.name_tree(one, keep=True) for one in tests.ids)
            named = tuple(one.partition("::")[0] for one in tests.ids)
            shown = Tests(ids=ids, variant=tests.variant, select=tests.select)
            yield self._work("tests", " ".join(ids), step, command, env, tests=shown, named=named)
        elif found := self._find_build(name, words, command):
            yield self._work("build", found[0], step, command, env, found[1])
        elif not step.is_setup and self._is_work(name, words):
            named = tuple(
                path
                for word in command.argv
                if Path(path := self.checkouts.join(command.cwd, word)).is_file()
            )
            plain = ("python", *words) if name == "python" else command.argv
            subject = shlex.join(
                (
                    *(self.checkouts.name_tree(word, keep=True) for word in plain),
                    "in",
                    self.checkouts.name_tree(command.cwd),
                )
            )
            yield self._work("command", subject, step, command, env, named=named)

    def _work(  # noqa: PLR0913 - of one step
        self,
        kind: Kind,
        subject: str,
        step: WorkflowStep,
        command: ShellCommand,
        env: dict[str, str],
        details: Mapping[str, str] | None = None,
        tests: Tests | None = None,
        named: tuple[str, ...] = (),
    ) -> Work:
        file, _, line = step.where.rpartition(":")
        at = step.run_line + command.line if command.argv and step.run else int(line)
        text = shlex.join(command.argv).replace(f"{self.root}/", "").replace(self.root, ".")
        told = {key: text for key, text in env.items() if not _UNTOLD.fullmatch(key)}
        shown = dict(details or {})
        if kind == "build":
            shown |= {key: told[key] for key in command.env if key in told}
        shown |= {"runs-on": self.job.runs_on, "container": self.job.container}
        if self.versions:
            shown["versions"] = ", ".join(self.versions)
        return Work(
            kind=kind,
            subject=subject,
            job=self.job.name,
            where=f"{file}:{at}",
            step=step.name,
            command=text or step.name,
            platform=platform_of(self.job.runs_on),
            details={key: self._shorten(text) for key, text in shown.items() if text},
            env=told,
            own=tuple(command.env),
            named=named,
            versions=tuple(self.versions),
            tests=tests,
            conditions=tuple(
                " ".join(text.split())
                for one in step.conditions
                if holds(text := self._fill(one), {}) is None
            ),
            unknown=tuple(unknown_names(subject)),
        )

    def _find_tests(self, name: str, words: Sequence[str], command: ShellCommand) -> Tests | None:
        cwd = command.cwd
        rest = " ".join(words)
        match name:
            case "pytest" | "py.test":
                return None if "--collect-only" in words else read_pytest(words, cwd)
            case "unittest":
                return read_unittest(words, cwd)
            case "ctest" if "--version" not in words:
                options = options_of(words)
                folder = self.checkouts.join(cwd, options.get("--test-dir", "."))
                return read_ctest(words, self.trees.get(folder, (folder,))[0])
            case "lit" | "llvm-lit" | "lit.py":
                return Tests(
                    ids=tuple(
                        self.checkouts.join(cwd, word) for word in words if not word.startswith("-")
                    )
                )
            case "ninja" | "make" | "cmake" if targets := targets_of(name, words):
                folder = self.checkouts.join(cwd, folder_of(name, words))
                tree = self.trees.get(folder, (folder,))[0]
                if targets == ["test"] and folder in self.trees:
                    return read_ctest((), tree)
                if all(re.match(r"(check|test)", target) for target in targets):
                    tree = self.checkouts.name_tree(tree)
                    return Tests(ids=tuple(f"target {target} of {tree}" for target in targets))
            case "python" if words and re.fullmatch(
                r"test_\w+\.py|\w+_test\.py", Path(words[0]).name
            ):
                return Tests(ids=(self.checkouts.join(cwd, words[0]),), variant=tuple(words[1:]))
            case _ if any(
                rest == verb or rest.startswith(f"{verb} ") or not verb
                for verb in TESTERS.get(name, ())
            ):
                tree = self.checkouts.name_tree(self.checkouts.join(cwd, place_of(name, words)))
                plain = [
                    word
                    for word in words
                    if not word.startswith("-")
                    and Path(word).name not in (place_of(name, words), "Cargo.toml", "pom.xml")
                ]
                return Tests(ids=(f"{name} in {tree}",), variant=tuple(plain))
            case _:
                pass
        return None

    def _find_build(
        self, name: str, words: Sequence[str], command: ShellCommand
    ) -> tuple[str, dict[str, str]] | None:
        """What tree a command builds, and how; configuring alone is no build."""
        cwd = command.cwd
        rest = " ".join(words)
        match name:
            case "cmake":
                return self._cmake(words, command)
            case "ninja" | "make":
                folder = self.checkouts.join(cwd, folder_of(name, words))
                targets = targets_of(name, words)
                if targets and set(targets) <= {"install", "clean"} and folder in self.trees:
                    return None
                tree, details = self.trees.get(folder, (folder, {}))
                said = "" if folder in self.trees or not targets else f": {' '.join(targets)}"
                return f"{self.checkouts.name_tree(tree)}{said}", details | {
                    "targets": " ".join(targets)
                }
            case "pip":
                return self._pip(words, cwd)
            case "build" if command.argv[1:2] == ("-m",):
                plain = [word for word in words if not word.startswith("-")]
                return self.checkouts.name_tree(
                    self.checkouts.join(cwd, plain[0] if plain else ".")
                ), {"by": "python -m build"}
            case "python" if len(words) > 1 and Path(words[0]).name == "setup.py":
                tree = self.checkouts.name_tree(
                    self.checkouts.join(cwd, str(Path(words[0]).parent))
                )
                return (
                    (tree, {"by": rest})
                    if words[1].startswith(("build", "bdist", "install", "develop"))
                    else None
                )
            case "docker" | "podman" if words[:1] == ("build",) or words[:2] == ("buildx", "build"):
                options = options_of(words)
                context = self.checkouts.join(cwd, words[-1])
                file = self.checkouts.join(
                    cwd, options.get("-f") or options.get("--file") or f"{context}/Dockerfile"
                )
                return (
                    f"image {self.checkouts.name_tree(file)} of {self.checkouts.name_tree(context)}",
                    flags_of(words),
                )
            case _ if any(
                rest == verb or rest.startswith(f"{verb} ") for verb in BUILDERS.get(name, ())
            ):
                tree = self.checkouts.name_tree(self.checkouts.join(cwd, place_of(name, words)))
                return f"{tree} by {name}", flags_of(words)
            case _:
                pass
        return None

    def _cmake(
        self, words: Sequence[str], command: ShellCommand
    ) -> tuple[str, dict[str, str]] | None:
        cwd, options = command.cwd, options_of(words)
        if "--build" in options:
            folder = self.checkouts.join(cwd, options["--build"])
            tree, details = self.trees.get(folder, (folder, {}))
            return self.checkouts.name_tree(tree), details | {
                "targets": " ".join(targets_of("cmake", words))
            }
        if not words or words[0] in ("-E", "-P", "--install", "--version"):
            return None
        plain = [word for before, word in pairwise(("", *words)) if not word.startswith("-") and before not in ("-S", "-B", "-G", "-C", "-D", "-A", "-T", "--preset")]  # fmt: skip
        joined = {
            word[:2]: word[2:] for word in words if word[:2] in ("-S", "-B") and len(word) > 2
        }
        tree = self.checkouts.join(
            cwd, options.get("-S", joined.get("-S", plain[0] if plain else "."))
        )
        folder = self.checkouts.join(cwd, options.get("-B", joined.get("-B", ".")))
        told = {key: text for key, text in command.env.items() if not _UNTOLD.fullmatch(key)}
        self.trees[folder] = (tree, told | flags_of(words) | {"into": folder})
        return None

    def _pip(self, words: Sequence[str], cwd: str) -> tuple[str, dict[str, str]] | None:
        """A build of a local tree that has something to compile, or of which a wheel is made."""
        verb, *rest = words or ("",)
        if verb not in ("install", "wheel"):
            return None
        for before, word in pairwise(("", *rest)):
            path = self.checkouts.join(cwd, re.sub(r"\[[^\]]*\]$", "", word))
            if before in (
                "-r",
                "-c",
                "--target",
                "-t",
                "--prefix",
                "-w",
                "--wheel-dir",
                "-f",
                "--find-links",
                "--python",
                "--index-url",
                "-i",
            ):
                continue
            if (
                word.startswith("-")
                or word.endswith((".whl", ".txt"))
                or not (word.startswith((".", "/", "$")) or "/" in word)
            ):
                continue
            if verb == "wheel" or self._is_compiled(path):
                folder = re.search(r"build-dir=(\S+)", " ".join(rest))
                if folder:
                    self.trees[self.checkouts.join(cwd, folder[1])] = (path, {})
                into = {"into": folder[1]} if folder else {}
                return self.checkouts.name_tree(path), {"by": f"pip {verb}", **into}
        return None

    def _is_compiled(self, path: str) -> bool:
        if not path.startswith(self.root) or any(
            path.startswith(one) for one in self.checkouts.sources
        ):
            return True
        setup = Path(path, "setup.py")
        return any(Path(path, name).exists() for name in _COMPILED) or (
            setup.is_file() and "ext_modules" in setup.read_text(encoding="utf-8", errors="replace")
        )

    @staticmethod
    def _is_work(name: str, words: Sequence[str]) -> bool:
        if (
            name in _QUIET
            or not name
            or "$" in name
            or name.startswith("-")
            or "--version" in words
        ):
            return False
        if name in (
            "pip",
            "uv",
            "npm",
            "yarn",
            "pnpm",
            "venv",
            "ensurepip",
            "cmake",
            "conan",
            "rustup",
            "git-lfs",
            "pipx",
            "poetry",
        ):
            return False
        return name != "python" or bool(words and not words[0].startswith("-"))

    # ---- texts ----------------------------------------------------------------------------------

    def _fill(self, text: str) -> str:
        known = {f"env.{name}": value for name, value in self.env.items()}
        return fill(text, known | self.outputs)

    def _shorten(self, text: str) -> str:
        return text.replace(f"{self.root}/", "").replace(self.root, ".")


def find_work(job: WorkflowJob, root: Path, times: Mapping[tuple[str, str], float]) -> list[Work]:
    """What a job does. ``times`` are the seconds of steps, by the names of job and step."""
    return list(_Tracer(job=job, root=str(root), times=times).trace())


def settle_costs(work: Sequence[Work]) -> list[Work]:
    """The work, with what is known of it elsewhere in place of guesses: the mean of what is the same."""
    known: dict[tuple[str, str], list[float]] = {}
    for one in work:
        if one.source != "guessed":
            known.setdefault((one.kind, one.subject), []).append(one.seconds)
    found = []
    for one in work:
        those = known.get((one.kind, one.subject)) if one.source == "guessed" else None
        found.append(replace(one, seconds=sum(those) / len(those), source="said") if those else one)
    return found


def matters(work: Work, variable: str) -> bool:
    """Whether a variable may change what a command does: its files mention it, or it was set for it alone.

    Where something lies, as a path says, does not.
    """
    if "/" in work.env.get(variable, ""):
        return False
    texts = [text for path in work.named for text in _texts_of(path)]
    return any(variable in text for text in texts) if texts else variable in work.own


@lru_cache(maxsize=1024)
def _texts_of(path: str) -> tuple[str, ...]:
    files = [Path(file) for file in (list_under(path) if Path(path).is_dir() else [path])]
    return tuple(
        file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()
    )
