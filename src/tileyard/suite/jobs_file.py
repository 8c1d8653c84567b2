"""The file that says which jobs a CI run has, so that what several of them do can be found.

[jobs.simulator]
select = ["suites/reduce.toml:smoke", "suites/cast.toml?rowsum,colsum"]
on = "sim"
setup_s = 90

[jobs.wheel]
independent = true
argv = ["python", "-m", "build"]
inputs = ["pyproject.toml", "src"]
seconds = 300
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tileyard.errors import UsageError
from tileyard.model import Record
from tileyard.suite.files.places import Document, Place
from tileyard.suite.files.tables import Seconds, Strict, Text, Time, decode
from tileyard.suite.jobs import Wanted, parse_selection
from tileyard.targets.command.records import Step
from tileyard.workers.file_digests import find_problem


class JobTable(Strict):
    """One ``[jobs.NAME]``."""

    select: tuple[Text, ...] = ()
    on: str = ""
    toolchain: str = ""
    independent: bool = False
    setup_s: Time = 0.0
    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    inputs: tuple[Text, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    seconds: Seconds | None = None


class JobsTable(Strict):
    """The file itself."""

    jobs: dict[str, object] = {}


class DraftJob(Record):
    """A job as it was asked for. ``where`` is what messages about it begin with.

    ``command`` is what it runs besides cases, with absolute inputs, and ``seconds`` what that takes, 0
    where nobody says. ``on`` is what it runs on.
    """

    name: str
    where: str
    wanted: tuple[Wanted, ...] = ()
    is_independent: bool = False
    setup_s: float = 0.0
    on: str = ""
    command: Step | None = None
    seconds: float = 0.0


def read_jobs(path: Path) -> dict[str, DraftJob]:
    """The jobs of a file by their names. Raises UsageError that names file, line and key."""
    document = Document(path.absolute())
    top = Place(document=document)
    table = decode(document.table, JobsTable, top)
    if not table.jobs:
        top.fail("has no job", "write one as [jobs.NAME]")
    return {name: _read_job(name, raw, top / "jobs" / name) for name, raw in table.jobs.items()}


def add_selections(
    jobs: dict[str, DraftJob], given: tuple[str, ...], independent: tuple[str, ...]
) -> dict[str, DraftJob]:
    """The jobs, with what the command line says of them and of others. Raises UsageError."""
    jobs = dict(jobs)
    for text in given:
        name, equals, selection = text.partition("=")
        if not (name and equals and selection):
            raise UsageError(f"{text!r} is not of the form JOB=SELECTION")
        job = jobs.get(name, DraftJob(name=name, where=text))
        jobs[name] = replace(job, wanted=(*job.wanted, parse_selection(selection)))
    for name in independent:
        if name not in jobs:
            raise UsageError(f"--independent {name}: there is no such job")
        jobs[name] = replace(jobs[name], is_independent=True)
    if not jobs:
        raise UsageError("no job is named", "write JOB=SUITE:POLICY, or give a file with --jobs")
    return jobs


def _read_job(name: str, raw: object, place: Place) -> DraftJob:
    table = decode(raw, JobTable, place)
    if table.argv is None:
        for key in ("inputs", "env", "cwd", "seconds"):
            if getattr(table, key):
                (place / key).fail("belongs to a command, which needs `argv`")
        if not table.select and not table.independent:
            place.fail("runs nothing", "give it `select`, or `argv` and `inputs`")
    return DraftJob(
        name=name,
        where=place.where,
        wanted=tuple(
            _read_wanted(text, table, place / "select" / number)
            for number, text in enumerate(table.select)
        ),
        is_independent=table.independent,
        setup_s=table.setup_s,
        on=" ".join((table.on, table.toolchain)).strip(),
        command=_read_command(table, place),
        seconds=table.seconds or 0.0,
    )


def _read_wanted(text: str, table: JobTable, place: Place) -> Wanted:
    """A selection, whose suite is found from the file's folder."""
    try:
        wanted = parse_selection(str(place.document.folder / text))
    except UsageError as error:
        place.fail(error.message, error.hint)
    if not Path(wanted.suite).exists():
        place.fail(f"there is no suite {wanted.suite}")
    return replace(wanted, on=wanted.on or table.on, toolchain=table.toolchain)


def _read_command(table: JobTable, place: Place) -> Step | None:
    """A job's command. What it names as its inputs has to be there: nothing else tells it apart."""
    if table.argv is None:
        return None
    folder = place.document.folder
    if not table.inputs:
        place.fail("names no `inputs`, so nothing says what the command's result depends on")
    for number, text in enumerate(table.inputs):
        if problem := find_problem(folder / text):
            (place / "inputs" / number).fail(problem)
        if not _is_there(folder / text):
            (place / "inputs" / number).fail(f"there is no file like {folder / text}")
    return Step(
        argv=table.argv,
        env=table.env,
        inputs=tuple(str(folder / text) for text in table.inputs),
        cwd=str(folder / table.cwd),
    )


def _is_there(pattern: Path) -> bool:
    base = Path(pattern.anchor)
    return pattern.exists() or any(True for _ in base.glob(str(pattern.relative_to(base))))
