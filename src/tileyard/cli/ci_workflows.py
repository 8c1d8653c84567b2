"""Workflows read for ``tileyard ci duplicates``."""

from collections.abc import Sequence
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.suite.content import find_root
from tileyard.suite.imports import ImportedTime
from tileyard.suite.jobs_duplicates import Finding
from tileyard.suite.workflow_duplicates import find_repeated
from tileyard.suite.workflow_times import StepTimes, read_step_times, time_tests
from tileyard.suite.workflow_work import Work, find_work, settle_costs
from tileyard.suite.workflows import WorkflowJob, list_workflows, read_workflow


def split_arguments(
    arguments: Sequence[str], *, has_jobs: bool
) -> tuple[list[Path], tuple[str, ...]]:
    """Workflows, and what jobs run; without both, and where no file has jobs, the repository's own workflows."""
    paths = [Path(text) for text in arguments if _is_workflow(text)]
    if not arguments and not has_jobs:
        folder = find_root([Path.cwd()]) / ".github" / "workflows"
        paths = [folder] if folder.is_dir() else []
    return paths, tuple(text for text in arguments if not _is_workflow(text))


def read_all_step_times(files: Sequence[Path]) -> tuple[StepTimes, list[Path]]:
    """The times of steps, and the files that say something else."""
    times = {path: read_step_times(path) for path in files}
    steps = {key: seconds for one in times.values() for key, seconds in (one or {}).items()}
    return steps, [path for path, one in times.items() if one is None]


def _is_workflow(text: str) -> bool:
    return Path(text).is_dir() or (text.endswith((".yml", ".yaml")) and "=" not in text)


def find_top(path: Path) -> Path:
    """The top of the checkout that a workflow belongs to."""
    path = path.resolve()
    if (path / ".github").is_dir():
        return path
    place = next((one for one in path.parents if one.name == ".github"), None)
    folder = path if path.is_dir() else path.parent
    return find_root([folder]) if place is None else place.parent


def look_into(
    paths: Sequence[Path], steps: StepTimes, imported: Sequence[ImportedTime]
) -> tuple[list[WorkflowJob], list[Work], list[Finding]]:
    """The jobs of workflows, what they do, and what of that they do twice."""
    jobs: list[WorkflowJob] = []
    work: list[Work] = []
    for path in paths:
        top = find_top(path)
        for file in list_workflows(path):
            read = read_workflow(file, top)
            jobs += read
            work += [one for job in read for one in find_work(job, top, steps)]
    work = settle_costs(time_tests(work, imported))
    return jobs, work, find_repeated(jobs, work)


def list_time_files(path: Path) -> list[Path]:
    """A file, or of a folder its JUnit files. Raises UsageError where it has none."""
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.xml"))
    if not files:
        raise UsageError(f"{path}: holds no JUnit file *.xml")
    return files
