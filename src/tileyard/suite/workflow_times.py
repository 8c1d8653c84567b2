"""How long steps of workflows took, as ``gh api .../actions/runs/ID/jobs`` tells of it."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from tileyard.decoding import decode_json
from tileyard.errors import UsageError
from tileyard.model import Record
from tileyard.suite.imports import ImportedTime
from tileyard.suite.workflow_work import Work

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


def read_step_times(path: Path) -> StepTimes | None:
    """The mean time of each step of one page or several; None where the file is something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None  # whoever reads it next says so
    if not text.lstrip().startswith(("{", "[")) or '"jobs"' not in text:
        return None
    try:
        is_list = text.lstrip().startswith("[")
        pages = decode_json(text, tuple[_Page, ...]) if is_list else (decode_json(text, _Page),)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is no list of jobs as GitHub gives it: {error}") from error
    found: dict[tuple[str, str], list[float]] = {}
    for page in pages:
        for job in page.jobs:
            for step in job.steps:
                if step.started_at and step.completed_at:
                    seconds = (step.completed_at - step.started_at).total_seconds()
                    found.setdefault((job.name, step.name), []).append(max(0.0, seconds))
    return {key: sum(those) / len(those) for key, those in found.items()}


def time_tests(work: Sequence[Work], imported: Sequence[ImportedTime]) -> list[Work]:
    """The work, tests with the times of their cases where these are known, as from JUnit files."""
    seconds: dict[str, float] = {}
    for time in imported:
        seconds[time.testcase] = seconds.get(time.testcase, 0.0) + time.seconds
    found = []
    for one in work:
        modules = {test.partition("::")[0].removesuffix(".py").replace("/", ".") for test in (one.tests.ids if one.tests else ())}  # fmt: skip
        total_s = sum(s for name, s in seconds.items() if any(name == m or name.startswith(f"{m}.") for m in modules))  # fmt: skip
        is_known = one.is_guess and total_s > 0
        found.append(
            msgspec.structs.replace(one, seconds=total_s, source="measured") if is_known else one
        )
    return found
