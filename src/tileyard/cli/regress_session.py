"""One comparison in time as the command line shows it: what the sides are, progress, table, exit status."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.cli.opening import load_settings, present
from tileyard.cli.session import carry_out
from tileyard.cli.static_session import parse_side
from tileyard.errors import UsageError
from tileyard.model import Limits, Side
from tileyard.modes import make_folder
from tileyard.regress import recorded
from tileyard.regress.timed import Regression
from tileyard.report.console import Console
from tileyard.report.regress import print_regression
from tileyard.report.regress_markdown import render_comment
from tileyard.report.study_progress import StudyLayout
from tileyard.report.suite_files import write_atomically
from tileyard.service.environments import PREFIX
from tileyard.service.revisions import Project
from tileyard.service.sides import HERE, side_variables
from tileyard.service.verbs import StartRegress
from tileyard.settings import Settings
from tileyard.targets.registry import make_target
from tileyard.wording import count_of


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks for: see ``StartRegress`` and the options' help."""

    base: str
    head: str
    files: tuple[str, ...]
    select: tuple[str, ...] = ()
    target: str
    devices: tuple[str, ...]
    margin: float
    case_s: float
    budget_s: float | None
    all_configs: bool
    clean: bool
    queue_limit_s: float
    run_s: float
    build_s: float
    compile_workers: int | None


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A side, and its files with the kernels that are meant."""

    side: Side
    files: tuple[tuple[str, str], ...]


def show(result: Regression, summary: str, *, as_json: bool) -> int:
    """Print a result, write it to the file ``summary`` if that is given, and return the exit status."""
    present(result, as_json, print_regression)
    if summary:
        write_atomically(Path(summary), [render_comment(result).encode()])
    return result.exit_status


def run(asked: Asked, console: Console) -> Regression:
    """Build and time both sides, with progress on the console."""
    settings = load_settings()
    make_target(asked.target, settings.plugins)  # refuses what there is not, at once
    work = settings.make_home() / "tmp"
    make_folder(work)
    with tempfile.TemporaryDirectory(prefix="regress-", dir=work) as scratch:
        base, head = (
            _find(named, asked, settings, Path(scratch)) for named in (asked.base, asked.head)
        )
        for file in asked.files:
            name = file.partition("::")[0]
            if not any(Path(own).name == Path(name).name for own, _ in (*base.files, *head.files)):
                raise UsageError(f"neither side has a file {name}")
        start = StartRegress(
            base=base.side,
            head=head.side,
            base_files=base.files,
            head_files=head.files,
            target=asked.target,
            margin=asked.margin,
            case_s=asked.case_s,
            budget_s=asked.budget_s,
            all_configs=asked.all_configs,
            devices=asked.devices,
            limits=Limits(run_s=asked.run_s, build_s=asked.build_s),
            compile_workers=asked.compile_workers,
            queue_limit_s=asked.queue_limit_s,
        )
        layout = StudyLayout(tells_ends=False)  # pairs are told of when they are decided
        return carry_out(start, settings, console, layout)


def judge_sides(base: str, head: str, margin: float) -> Regression:
    """What the numbers of two files say, one for each side."""
    found = recorded.pair_sides(recorded.read_side(Path(base)), recorded.read_side(Path(head)))
    return recorded.judge_reports(found, (base, head), margin)


def judge_reports(files: Sequence[str], margin: float) -> Regression:
    """What reports say that have both sides, all of these files in their order."""
    found = [report for file in files for report in recorded.read_reports(Path(file))]
    numbered = [
        msgspec.structs.replace(report, name=str(number)) for number, report in enumerate(found, 1)
    ]
    name = f"in {count_of(len(found), 'report')} of {', '.join(files)}"
    return recorded.judge_reports(numbered, (name, name), margin)


def _find(named: str, asked: Asked, settings: Settings, scratch: Path) -> _Found:
    """The side that is called so. Raises UsageError."""
    files = []
    for text in asked.files:
        file, _, kernel = text.partition("::")
        files.append((Path(file).absolute(), kernel))
    project = Project.of(files[0][0]) or Project.of(Path.cwd() / "any")
    if named == HERE:
        return _as_found(Side(name=name_working_tree(project, asked)), files)
    commit = _find_commit(named, project)
    if project is not None and commit:
        folder = project.check_out(commit, settings.home)
        moved = [(move_into(folder, file, project.root), kernel) for file, kernel in files]
        label = f"{named} ({commit[:10]})"
        return _as_found(Side(name=label, variables=project.variables(folder)), moved)
    side = parse_side(named)
    variables = side_variables(side, scratch, is_plain=bool(side.python)) if side.python else {}
    return _as_found(msgspec.structs.replace(side, variables=variables), files)


def name_working_tree(project: Project | None, asked: Asked) -> str:
    """What the working tree is called. Raises UsageError where it has changes and must not have any."""
    label = project.describe_changes() if project else "working tree"
    if asked.clean and " with changes " in label:
        raise UsageError(f"--clean: {label}", "commit them, or name a revision")
    return label


def _as_found(side: Side, files: list[tuple[Path, str]]) -> _Found:
    return _Found(
        side=side, files=tuple((str(file), kernel) for file, kernel in files if file.is_file())
    )


def _find_commit(named: str, project: Project | None) -> str:
    """The commit of a revision; empty where it is something else."""
    if project is None or named.startswith(PREFIX) or "=" in named or Path(named).exists():
        return ""
    try:
        return project.find(named)
    except UsageError:
        raise UsageError(
            f"{named} is neither a git revision of {project.root}, nor a Python, nor pass options KEY=VALUE,...",
            f"{HERE} stands for the working tree",
        ) from None


def move_into(folder: Path, file: Path, root: Path) -> Path:
    """Where a file of the project ``root`` is in a checkout of it. Raises UsageError for one of another project."""
    try:
        return folder / file.resolve().relative_to(root.resolve())
    except ValueError:
        raise UsageError(f"{file} is not in the project {root}") from None
