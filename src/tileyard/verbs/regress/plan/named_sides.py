"""The two sides of a comparison as the command line names them: the environment and the files of kernels."""

import contextlib
import hashlib
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.artifacts.bundles import read_manifest
from tileyard.artifacts.copying import scratch_folder
from tileyard.artifacts.pins import hold
from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.model import Side
from tileyard.base.modes import make_folder
from tileyard.base.settings import Settings
from tileyard.base.wording import shorten_path
from tileyard.frontend.declare import PIPELINE
from tileyard.service.revision import find_revision, read_revision
from tileyard.show.values import parse_pairs, parse_value
from tileyard.verbs.regress.plan.revisions import FOLDER, SHORT, Project, is_kept
from tileyard.verbs.regress.plan.sides import HERE, RUN, find_side

PREFIX = "pip:"
INSTALL_LIMIT_S = 1800.0
_NAME = "environment"
BUNDLE = ".tyb"
"""The ending of a bundle's name as a side."""


def find_environment(requirements: Sequence[str], home: Path) -> Path:
    """The Python of an environment with these requirements; all other packages are those installed here. It
    stays while the caller pins ``home``. Raises UsageError with pip's message.
    """
    wanted = sorted(filter(None, (one.strip() for one in requirements)))
    if not wanted or any(one.startswith("-") for one in wanted):
        raise UsageError(
            f"{PREFIX}{','.join(requirements)} names no requirement", "pip:tilelang==0.1.14"
        )
    here = sysconfig.get_path("purelib")
    digest = hashlib.sha256("\0".join((sys.version, here, *wanted)).encode()).hexdigest()[:20]
    folder = home / FOLDER / f"pip-{digest}"
    if not is_kept(folder, home):
        make_folder(folder.parent)
        with scratch_folder(folder.parent, "tmp-") as scratch:
            draft = scratch / _NAME
            _make(draft, wanted, Path(here))
            try:
                draft.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster
                    raise
    return folder / "bin" / "python"


def _make(folder: Path, requirements: Sequence[str], here: Path) -> None:
    _run(
        [sys.executable, "-P", "-m", "venv", "--without-pip", str(folder)],
        "no environment can be made",
    )
    (packages,) = folder.glob("lib/python3*/site-packages")
    # After its own: other packages are found where they are.
    (packages / "here.pth").write_text(f"{here}\n")
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-P", "-m", "pip", "--python", python, "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-input", "--", *requirements]
    _run([*pip, *options], f"{PREFIX}{','.join(requirements)} cannot be installed")
    if (here / "nvidia").is_dir() and not (packages / "nvidia").exists():
        (packages / "nvidia").symlink_to(
            here / "nvidia"
        )  # libraries are looked for beside TileLang


def _run(argv: Sequence[str], failing: str) -> None:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ToolMissingError(f"{failing}: it takes longer than {INSTALL_LIMIT_S:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        why = (lines or done.stderr.splitlines() or ["no word of why"])[-1]
        raise UsageError(f"{failing}: {why.removeprefix('ERROR: ')}")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A side with the variables of its revision, and its files with the selected kernels."""

    side: Side
    files: tuple[tuple[str, str], ...]


def is_stored(named: str) -> bool:
    """Whether a side is already built: a bundle or a recorded run."""
    is_bundle = Path(named).suffix == BUNDLE
    return named.startswith(RUN) or (is_bundle and not is_toolchain(named))


def is_toolchain(named: str) -> bool:
    """Whether a side is the bundle of a toolchain. Raises BundleError for a file that is not a bundle."""
    path = Path(named)
    return path.suffix == BUNDLE and path.is_file() and read_manifest(path).kind == "toolchain"


def refuse_toolchains(named: Iterable[str]) -> None:
    """Raise UsageError for a toolchain if no suite is compared."""
    for name in filter(is_toolchain, named):
        raise UsageError(f"{name} is a toolchain, and steps of a suite use one", "name a suite")


def _find_bundle(named: str) -> Side:
    """The side of a bundle or a recorded run. Raises BundleError for a file that is not a bundle."""
    if named.startswith(RUN):
        return Side(name=named, revision=named, stored=named)
    manifest, path = read_manifest(Path(named)), str(Path(named).absolute())
    commit = manifest.commit
    label = f"{named} ({commit[:SHORT]})" if commit else named
    side = Side(name=label, revision=commit or named)
    if manifest.kind == "toolchain":
        return msgspec.structs.replace(side, toolchain=path)
    return msgspec.structs.replace(side, stored=path)


@contextlib.contextmanager
def find_sides(
    named: tuple[str, str],
    files: Sequence[str],
    settings: Settings,
    *,
    clean: bool = False,
    scripts: bool = False,
) -> Iterator[tuple[Found, Found]]:
    """Both sides of ``FILE[::NAME]``: a revision is read from git, an environment made if needed; a side that
    is built has no files. No garbage is collected meanwhile. Raises UsageError, with ``clean`` also for a
    changed working tree. With ``scripts`` a revision's variables are those of its programs.
    """
    refuse_toolchains(named)
    kernels = _choose_files(files)
    with hold(settings.home / "objects"):
        base, head = (
            Found(side=_find_bundle(name), files=())
            if is_stored(name)
            else _find(name, kernels, settings, clean=clean, scripts=scripts)
            for name in named
        )
        there = {Path(own).name for own, _ in (*base.files, *head.files)}
        for file, _ in kernels:
            if file.name not in there:
                raise UsageError(f"neither side has a file {shorten_path(str(file))}")
        yield base, head


def _choose_files(files: Sequence[str]) -> list[tuple[Path, str]]:
    """The named files, each once by whatever path, and once for every NAME that no other one contains."""
    split = [(Path(file), name) for file, _, name in (text.partition("::") for text in files)]
    named = {(file.resolve(), name): (file.absolute(), name) for file, name in split}
    return [
        own
        for (file, name), own in named.items()
        if not any(
            (file, whole) in named for whole in ("", name.partition("/")[0]) if whole != name
        )
    ]


@contextlib.contextmanager
def find_suites(
    named: tuple[str, str], suite: str, home: Path, *, clean: bool
) -> Iterator[list[tuple[Side, Path]]]:
    """Both sides of a suite of programs, each a revision, the working tree (also with a toolchain) or already
    built, and the suite's path. Raises UsageError.
    """
    path = Path(suite).absolute()
    project = Project.of(path)
    if project is None and not all(
        name == HERE or is_stored(name) or is_toolchain(name) for name in named
    ):
        raise UsageError(f"{suite} is in no git repository, so there are no revisions to compare")
    with hold(home / "objects"):
        found = [_find_suite(name, path, project, home, clean=clean) for name in named]
        there = [bool(side.stored) or place.exists() for side, place in found]
        if not any(there):
            raise UsageError(f"neither side has a suite {suite}")
        if not all(there):
            raise UsageError(f"{found[there.index(False)][0].name} has no suite {suite}")
        yield found


def _find_suite(
    named: str, path: Path, project: Project | None, home: Path, *, clean: bool
) -> tuple[Side, Path]:
    """A side, with the variables of its steps, and the path of its suite."""
    if is_stored(named):
        return _find_bundle(named), path
    if is_toolchain(named):
        _describe_working_tree(project, clean=clean)
        return _find_bundle(named), path
    if project is None or named == HERE:
        return _describe_working_tree(project, clean=clean), path
    try:
        commit = project.find(named)
    except UsageError:
        raise UsageError(
            f"{named} is not a git revision of {project.root}",
            f"a suite is compared between revisions, and {HERE} is the working tree",
        ) from None
    folder = project.check_out(commit, home)
    name = f"{named} ({commit[:SHORT]})"
    side = Side(name=name, revision=commit, variables=project.step_variables(folder))
    return side, _move(path, project.root, folder)


def _find(
    named: str, files: list[tuple[Path, str]], settings: Settings, *, clean: bool, scripts: bool
) -> Found:
    project = Project.of(files[0][0]) or Project.of(Path.cwd() / "any")
    if named == HERE:
        return _as_found(_describe_working_tree(project, clean=clean), files)
    commit = _find_commit(named, project)
    if project is None or not commit:
        side = _parse_side(named, settings)
        return _as_found(msgspec.structs.replace(side, revision=side.name), files)
    folder = project.check_out(commit, settings.home)
    moved = [(_move(file, project.root, folder), kernel) for file, kernel in files]
    label = f"{named} ({commit[:SHORT]})"
    variables = project.step_variables(folder) if scripts else project.variables(folder)
    return _as_found(Side(name=label, revision=commit, variables=variables), moved)


def _describe_working_tree(project: Project | None, *, clean: bool) -> Side:
    find = read_revision if clean else find_revision
    revision = find(project.root) if project else ""
    commit, _, changes = revision.partition(" ")
    label = f"working tree, {commit[:SHORT]} {changes}".strip() if commit else "working tree"
    if clean and changes:
        raise UsageError(f"--clean: {label}", "commit them, or name a revision")
    return Side(name=label, revision=revision or label)


def _as_found(side: Side, files: list[tuple[Path, str]]) -> Found:
    return Found(
        side=side, files=tuple((str(file), kernel) for file, kernel in files if file.is_file())
    )


def _find_commit(named: str, project: Project | None) -> str:
    """The commit of a revision; empty if it is something else."""
    if project is None or named.startswith(PREFIX) or "=" in named or Path(named).exists():
        return ""
    try:
        return project.find(named)
    except UsageError:
        raise UsageError(
            f"{named} is neither a git revision of {project.root}, nor a Python, nor pass "
            f"options KEY=VALUE,...",
            f"{HERE} is the working tree",
        ) from None


def _move(file: Path, root: Path, folder: Path) -> Path:
    """The path of a project's file in a checkout. Raises UsageError for one of another project."""
    try:
        return folder / file.resolve().relative_to(root.resolve())
    except ValueError:
        raise UsageError(f"{file} is not in the project {root}") from None


def _parse_side(named: str, settings: Settings) -> Side:
    """Pass options, maybe with ``pipeline=NAME``, if no file has that name; else packages or a Python."""
    if named.startswith(PREFIX):
        packages = named.removeprefix(PREFIX).split(",")
        python = find_environment(packages, settings.make_home())
        return Side(name=named, python=str(python))
    if "=" not in named or Path(named).exists():
        return find_side(named)
    options = parse_pairs(named.split(","), "pass option")
    pipeline = options.pop(PIPELINE, "")
    values = {key: parse_value(text) for key, text in options.items()}
    return Side(name=named, pass_options=values, pipeline=pipeline)
