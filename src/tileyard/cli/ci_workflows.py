"""Workflows, and the times of their steps, read for ``tileyard ci duplicates``."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tileyard.decoding import decode_json
from tileyard.errors import UsageError
from tileyard.model import Record
from tileyard.suite.content import find_root
from tileyard.suite.imports import ImportedTime
from tileyard.suite.jobs_duplicates import Finding
from tileyard.suite.workflow_duplicates import find_copies, find_repeated
from tileyard.suite.workflow_work import Work, find_work
from tileyard.suite.workflows import WorkflowJob, list_workflows, read_workflow

StepTimes = dict[tuple[str, str], float]
"""Seconds by the names of job and step."""


class _Step(Record):
    name: str
    started_at: datetime | None = None
    completed_at: datetime | None = None


class _Job(Record):
    name: str
    steps: tuple[_Step, ...] = ()


class _Page(Record):
    jobs: tuple[_Job, ...]


def split_arguments(
    arguments: Sequence[str], *, has_jobs: bool
) -> tuple[list[Path], tuple[str, ...]]:
    """Workflows, and what jobs run; without both, and where no file has jobs, the repository's own workflows."""
    paths = [text for text in arguments if Path(text).is_dir() or (text.endswith((".yml", ".yaml")) and "=" not in text)]  # fmt: skip
    folder = find_root([Path.cwd()]) / ".github" / "workflows"
    if not arguments and not has_jobs and folder.is_dir():
        paths = [str(folder)]
    return list(map(Path, paths)), tuple(text for text in arguments if text not in paths)


def read_step_times(path: Path) -> StepTimes | None:
    """Seconds of each step, as ``gh api .../actions/runs/ID/jobs`` prints them; None where the file is something else."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None  # the next reader says so
    if not text.startswith(("{", "[")) or '"jobs"' not in text:
        return None
    try:
        pages = decode_json(text if text.startswith("[") else f"[{text}]", tuple[_Page, ...])
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is no list of jobs as GitHub gives it: {error}") from error
    rows = ((job.name, step) for page in pages for job in page.jobs for step in job.steps)
    return {
        (job, step.name): max(0.0, (step.completed_at - step.started_at).total_seconds())
        for job, step in rows
        if step.started_at and step.completed_at
    }


def find_in_workflows(
    paths: Sequence[Path], steps: StepTimes, imported: Sequence[ImportedTime]
) -> tuple[list[WorkflowJob], list[Work], list[Finding], list[Finding]]:
    """The jobs of workflows, what they do, what of that they do twice, and trees that are copies."""
    tops = {path: _find_top(path.resolve()) for path in paths}
    files = [(file, tops[path]) for path in paths for file in list_workflows(path)]
    read = [(job, top) for file, top in files for job in read_workflow(file, top)]
    work = settle_times([one for job, top in read for one in find_work(job, top, steps)], imported)
    jobs = [job for job, _ in read]
    copies = [one for top in dict.fromkeys(tops.values()) for one in find_copies(top)]
    return jobs, work, find_repeated(jobs, work), copies


def _find_top(path: Path) -> Path:
    """The top of the checkout that a workflow belongs to."""
    if (path / ".github").is_dir():
        return path
    place = next((one.parent for one in path.parents if one.name == ".github"), None)
    return place or find_root([path if path.is_dir() else path.parent])


def settle_times(work: Sequence[Work], imported: Sequence[ImportedTime]) -> list[Work]:
    """The work, with times of cases, as from JUnit files, or with the mean of what is the same, in place of guesses."""
    known: dict[tuple[str, str], list[float]] = {}
    for one in work:
        if not one.is_guess:
            known.setdefault((one.kind, one.subject), []).append(one.seconds)
    settled = []
    for one in work:
        files = {test.partition("::")[0].removesuffix(".py").replace("/", ".") for test in one.tests.ids}  # fmt: skip
        total_s = sum(case.seconds for case in imported if any(f"{case.testcase}.".startswith(f"{file}.") for file in files))  # fmt: skip
        means = known.get((one.kind, one.subject), [one.seconds])
        if one.is_guess:
            seconds = total_s or sum(means) / len(means)
            one = replace(one, seconds=seconds, is_guess=not total_s)  # noqa: PLW2901 - the same, settled
        settled.append(one)
    return settled
