"""Finds workflows, each with a unique name, and what their jobs do, with measured times."""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tileyard.base.decoding import decode_json
from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.verbs.ci.plan.jobs_duplicates import Finding
from tileyard.verbs.ci.plan.workflow_duplicates import find_copies, find_repeated
from tileyard.verbs.ci.plan.workflow_work import StepTimes, Work, find_work
from tileyard.verbs.ci.plan.workflows import WorkflowJob, read_workflow
from tileyard.verbs.test.plan.content import find_root
from tileyard.verbs.test.plan.imports import ImportedTime


class InWorkflows(Record):
    """The jobs of workflows, their work, the repeated work, and trees of tests that are ``copies``."""

    jobs: tuple[WorkflowJob, ...]
    work: tuple[Work, ...]
    findings: tuple[Finding, ...]
    copies: tuple[Finding, ...]


class _Step(Record):
    name: str
    started_at: datetime | None = None
    completed_at: datetime | None = None


class _Job(Record):
    name: str
    workflow_name: str
    steps: tuple[_Step, ...] = ()


class _Page(Record):
    jobs: tuple[_Job, ...]


def find_in_workflows(
    paths: Sequence[Path], steps: StepTimes, imported: Sequence[ImportedTime]
) -> InWorkflows:
    """Read the workflows of these files and folders, each once. Raises UsageError."""
    files = {file.resolve(): file for path in paths for file in list_workflows(path)}
    tops = {file: _find_top(given.parent.resolve()) for file, given in files.items()}
    names = _name_workflows(files)
    read = [
        (job, top)
        for file, top in tops.items()
        for job in read_workflow(files[file], top, names[file])
    ]
    work = [one for job, top in read for one in find_work(job, top, steps)]
    work = _settle_times(work, imported)
    jobs = tuple(job for job, _ in read)
    return InWorkflows(
        jobs=jobs,
        work=tuple(work),
        findings=tuple(find_repeated(jobs, work)),
        copies=tuple(one for top in dict.fromkeys(tops.values()) for one in find_copies(top)),
    )


def list_workflows(path: Path) -> list[Path]:
    """The workflows of a folder, or a file itself. Raises UsageError if there is none."""
    if not path.is_dir():
        return [path]
    inner = path / ".github" / "workflows"
    path = inner if inner.is_dir() else path
    files = sorted(one for one in path.iterdir() if one.suffix in (".yml", ".yaml"))
    if not files:
        raise UsageError(f"{path}: holds no workflow *.yml")
    return files


def read_step_times(path: Path) -> StepTimes | None:
    """Seconds of each step, as ``gh api .../actions/runs/ID/jobs`` prints them; None for other files."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None  # the next reader reports it
    if not text.startswith(("{", "[")) or '"jobs"' not in text:
        return None
    try:
        pages = decode_json(text if text.startswith("[") else f"[{text}]", tuple[_Page, ...])
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is not a list of jobs as GitHub gives it: {error}") from error
    rows = ((job, step) for page in pages for job in page.jobs for step in job.steps)
    return {
        (job.workflow_name, job.name, step.name): max(
            0.0, (step.completed_at - step.started_at).total_seconds()
        )
        for job, step in rows
        if step.started_at and step.completed_at
    }


def _name_workflows(files: Collection[Path]) -> dict[Path, str]:
    """A name for each file: its stem, or its path below the common folder if several have the same stem."""
    stems = Counter(file.stem for file in files)
    shared = [file for file in files if stems[file.stem] > 1]
    top = os.path.commonpath([file.parent for file in shared]) if shared else ""
    paths = {file: file.relative_to(top).as_posix() for file in shared}
    short = {file: path.replace(".github/workflows/", "") for file, path in paths.items()}
    names = short if len({*short.values()}) == len(short) else paths
    return {file: names.get(file, file.stem) for file in files}


def _find_top(folder: Path) -> Path:
    places = (one.parent for one in (folder, *folder.parents) if one.name == ".github")
    return next(places, None) or find_root([folder])


def _settle_times(work: Sequence[Work], imported: Sequence[ImportedTime]) -> list[Work]:
    """The work with times for guesses: those of cases, as from JUnit files, or the mean of equal work."""
    known: dict[tuple[str, str], list[float]] = {}
    for one in work:
        if not one.is_guess:
            known.setdefault((one.kind, one.subject), []).append(one.seconds)
    settled = []
    for one in work:
        files = {
            test.partition("::")[0].removesuffix(".py").replace("/", ".") for test in one.tests.ids
        }
        total_s = sum(
            case.seconds
            for case in imported
            if any(f"{case.testcase}.".startswith(f"{file}.") for file in files)
        )
        means = known.get((one.kind, one.subject), [one.seconds])
        if one.is_guess:
            seconds = total_s or sum(means) / len(means)
            one = replace(one, seconds=seconds, is_guess=not total_s)  # noqa: PLW2901 - the same, settled
        settled.append(one)
    return settled
