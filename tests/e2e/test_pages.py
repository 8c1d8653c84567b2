"""The commands that pages show do what the pages say: those marked ``run`` are run, page by page."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.lab_queue import serve_queue
from tests.pages.blocks import PAGES, Step, list_blocks, list_steps
from tests.reduction.planted import IMPORT, PLANTED
from tests.samples import sampled

pytestmark = pytest.mark.slow

SAMPLE = [
    ROOT / "docs/how-to" / name
    for name in ("look-inside-a-kernel.md", "borrow-from-several-hosts.md")
]
RUN = [page for page in PAGES if any("run" in block.words for block in list_blocks(page))]

PROJECT = ROOT / "tests" / "pages" / "project"
SCRIPT = "my_gpu_script.py"
COPIES = {
    "kernels.py": ("bench/kernels.py",),
    SCRIPT: ("example_gemm.py", "test_gemm.py", "bench/example.py"),
}
"""Files of the project that pages know by several names."""
FASTER = (("T.serial(4)", "T.serial(1)"), ("seq 20000", "seq 2000"))
"""What edits made slower after version 1.2."""
VARIABLES = {
    "GITHUB_BASE_REF": "main",
    "GITHUB_SHA": "0123456789abcdef0123456789abcdef01234567",
    "SHA": "0123456789abcdef0123456789abcdef01234567",
    "SUITE": "suite.toml",
}
PROGRAMS = {
    "npu-smi": "exit 0",
    "pytest": f'exec {sys.executable} -m pytest "$@"',
    "python": f'exec {sys.executable} "$@"',
    "tileyard": f'exec {sys.executable} -m tileyard "$@"',
}
ALLOWED = (
    (re.compile(r"\d{8}-\d{4}-[0-9a-f]{4}(\.\d+)?"), "RUN"),
    (re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "HASH"),
    (re.compile(r"[-+]?\d[\d.,]*"), "#"),
    (re.compile(r"# ?(?:ns|us|ms|s|min)\b(?: # s\b)?"), "#s"),
    (re.compile(r"\b(\w+?)s\b"), r"\1"),
    (re.compile(r"\s+"), " "),
)
"""What may differ between a page and a run: numbers with their units and plurals, ids, and space."""


def prepare(folder: Path, page: Path) -> None:
    """A project with a history of two versions, and the files that the page shows."""
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    for name in ("examples", "benchmarks/spaces"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "tests" / "data").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "data" / "st_long_tail.csv", folder / "tests" / "data")
    pipelines = (ROOT / "examples" / "pipelines.py").read_text("utf-8")
    wrong = {
        "my_pipeline.py": pipelines.replace("T.ptx_wait_group(2)", "T.ptx_wait_group(3)"),
        "pipeline.py": (ROOT / "tests" / "sync" / "public.py").read_text("utf-8"),
        "attention.py": PLANTED["wait too weak"].text().replace(IMPORT, "import tilelang\n"),
    }
    for name, text in wrong.items():
        (folder / name).write_text(text, encoding="utf-8")
    for place in (".", "old", "new"):
        (folder / place / "install" / "bin").mkdir(parents=True)
        shutil.copy("/bin/true", folder / place / "install" / "bin" / "true")
    if page.name == "bring-a-suite.md":
        shutil.copytree(ROOT / "tests" / "suites" / "ptoas_like", folder, dirs_exist_ok=True)
    for block in list_blocks(page):
        for name in block.words:
            if "." in name:
                (folder / name).write_text(block.text, encoding="utf-8")
    shown = page.read_text("utf-8")
    for source, names in COPIES.items():
        for name in names:
            if name in shown:
                (folder / name).parent.mkdir(exist_ok=True)
                shutil.copy(folder / source, folder / name)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    files = [*folder.rglob("kernels.py"), folder / "suite.toml"]
    slower = {file: file.read_text("utf-8") for file in files}
    for version, edit in (("v1.2", make_faster), ("v1.3", str)):
        for file, text in slower.items():
            file.write_text(edit(text), encoding="utf-8")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", version)
        git(folder, "tag", version)
    git(folder, "update-ref", "refs/remotes/origin/main", "v1.2")


def make_faster(text: str) -> str:
    """A file as it was before it became slower."""
    for old, new in FASTER:
        text = text.replace(old, new)
    return text


def git(folder: Path, *arguments: str) -> None:
    """Run git as nobody in particular."""
    identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


class Shell:
    """Runs commands of a page in its project."""

    def __init__(self, cli: CommandLine, programs: Path) -> None:
        for name, text in PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._cli = cli
        self._extra = {"PATH": path, "GITHUB_OUTPUT": str(programs / "output"), **VARIABLES}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command; one of ours in a copy of a process that has imported much of what it needs."""
        words = shlex.shlex(command, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        if any(set(word) <= set("<>|&;") for word in words) or not command.startswith("tileyard "):
            return self._run_shell(command)
        written = self._run_shell(f"printf '%s\\0' {command}").stdout.split("\0")
        return self._cli.run(*written[1:-1], **self._extra)

    def _run_shell(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self._cli.cwd,
            env=self._cli.environment(self._extra),
            capture_output=True,
            text=True,
            check=False,
        )


def normalize(line: str) -> str:
    """A line without what may differ."""
    for pattern, by in ALLOWED:
        line = pattern.sub(by, line)
    return line.strip()


def missing(shown: Sequence[str], printed: Iterable[str]) -> list[str]:
    """The shown lines that were not printed; ``...`` is anything."""
    lines = [normalize(line) for line in printed]
    patterns = {
        line: re.compile(".*".join(re.escape(normalize(part)) for part in line.split("...")))
        for line in shown
        if line.strip(" .")
    }
    return [line for line, one in patterns.items() if not any(map(one.fullmatch, lines))]


def complain(step: Step, done: subprocess.CompletedProcess[str], statuses: set[int]) -> str:
    """How a command did not do what its page says, empty where it did."""
    printed = done.stdout + done.stderr
    if done.returncode not in statuses:
        return f"exit status {done.returncode}\n{printed}"
    if lost := missing(step.shown, printed.splitlines()):
        return "\n".join(["not printed:", *lost, "printed:", printed])
    return ""


def follow(page: Path, shell: Shell) -> Iterator[str]:
    """Do what a page says, and yield what went otherwise."""
    for block in list_blocks(page):
        if "run" not in block.words:
            continue
        statuses = {0, *(int(word) for word in block.words if word.isdigit())}
        for step in list_steps(block):
            if problem := complain(step, shell.run(step.command), statuses):
                yield f"{block.place}: {step.command}: {problem}"


@pytest.mark.timeout(3600)  # a page may have an hour of a busy machine
@pytest.mark.parametrize("page", sampled(RUN, SAMPLE), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, knowing: CommandLine, tmp_path: Path
) -> None:
    """Each in its turn, in a project that has the files that the page speaks of; numbers aside."""
    prepare(knowing.cwd, page)
    core = str(min(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        if "queue:lab" in page.read_text("utf-8"):
            stack.enter_context(
                serve_queue(
                    knowing.cwd, core, device="cpu:cores={device}", identity="one core", cases=8
                )
            )
        problems = list(follow(page, Shell(knowing, tmp_path)))
    assert not problems, "\n\n".join(problems)
