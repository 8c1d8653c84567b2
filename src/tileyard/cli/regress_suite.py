"""A comparison of the programs of a suite as the command line asks for it: which revisions of it the sides are."""

from pathlib import Path

from tileyard.cli.opening import load_settings
from tileyard.cli.regress_session import Asked, move_into, name_working_tree
from tileyard.cli.session import carry_out
from tileyard.cli.values import refuse_unused
from tileyard.errors import UsageError
from tileyard.model import Side
from tileyard.regress.timed import Regression
from tileyard.report.console import Console
from tileyard.report.study_progress import StudyLayout
from tileyard.service.revisions import SHORT, Project
from tileyard.service.sides import HERE
from tileyard.service.verbs import StartRegress
from tileyard.settings import Settings
from tileyard.targets.registry import COMMAND


def find_suite(files: tuple[str, ...]) -> str:
    """The suite of programs that is asked for, empty for files of kernels. Raises UsageError where it is not alone."""
    suites = [file for file in files if _is_suite(file)]
    if suites and len(files) > 1:
        raise UsageError(f"{suites[0]} is a suite, and one suite is compared alone")
    return suites[0] if suites else ""


def _is_suite(file: str) -> bool:
    """A folder, also one that is there in a revision alone, or a TOML file."""
    path = Path(file)
    return path.suffix == ".toml" or path.is_dir() or not (path.suffix or path.exists())


def run_suite(asked: Asked, suite: str, console: Console) -> Regression:
    """Build and time the programs of both sides, with progress on the console."""
    refuse_unused("with a suite of programs", {"--all-configs": asked.all_configs})
    settings = load_settings()
    path = Path(suite).absolute()
    project = Project.of(path)
    if project is None:
        raise UsageError(f"{suite} is in no git repository, so there are no revisions to compare")
    sides = [_find(named, path, project, asked, settings) for named in (asked.base, asked.head)]
    there = [place.exists() for _, place in sides]
    if not any(there):
        raise UsageError(f"neither side has a suite {suite}")
    if not all(there):
        raise UsageError(f"{sides[there.index(False)][0].name} has no suite {suite}")
    (base, base_path), (head, head_path) = sides
    start = StartRegress(
        base=base,
        head=head,
        base_files=(),
        head_files=(),
        target=COMMAND,
        margin=asked.margin,
        case_s=asked.case_s,
        budget_s=asked.budget_s,
        suite=(str(base_path), str(head_path)),
        select=asked.select,
        devices=asked.devices,
        compile_workers=asked.compile_workers,
        queue_limit_s=asked.queue_limit_s,
    )
    settings.make_home()
    return carry_out(start, settings, console, StudyLayout(tells_ends=False))


def _find(
    named: str, path: Path, project: Project, asked: Asked, settings: Settings
) -> tuple[Side, Path]:
    """A side, with the variables that its steps get, and where its suite lies. Raises UsageError."""
    if named == HERE:
        return Side(name=name_working_tree(project, asked)), path
    try:
        commit = project.find(named)
    except UsageError:
        raise UsageError(
            f"{named} is no git revision of {project.root}",
            f"a suite is compared between revisions, and {HERE} stands for the working tree",
        ) from None
    settings.make_home()
    folder = project.check_out(commit, settings.home)
    side = Side(name=f"{named} ({commit[:SHORT]})", variables=project.step_variables(folder))
    return side, move_into(folder, path, project.root)
