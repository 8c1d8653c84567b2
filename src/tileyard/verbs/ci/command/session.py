"""Reads suites, jobs and times for ``tileyard ci``, and prints the results."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tileyard.base.errors import UsageError
from tileyard.base.model import Digest
from tileyard.base.wording import shorten_path
from tileyard.show.console import Console
from tileyard.show.opening import load_settings, present, print_json, read_run_times
from tileyard.store.base import RunTime
from tileyard.verbs.ci.plan.jobs import (
    Check,
    CiJob,
    DraftJob,
    Matrix,
    MatrixRequest,
    Wanted,
    add_selections,
    decide_commands,
    list_checks,
    make_matrix,
    read_jobs,
)
from tileyard.verbs.ci.plan.jobs_duplicates import Duplicates, Spot, find_duplicates
from tileyard.verbs.ci.plan.workflow_duplicates import (
    find_in_workflows,
    identify_label,
    list_unseen,
    make_jobs,
    name_keepers,
    read_step_times,
)
from tileyard.verbs.ci.plan.workflow_work import GUESSES_S
from tileyard.verbs.ci.view import print_duplicates, print_matrix
from tileyard.verbs.test.command.listing import read_whole
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.plan.budget import Bounds, expect_all, look_ahead, target_of
from tileyard.verbs.test.plan.content import Change, Contents, find_root, parse_changed
from tileyard.verbs.test.plan.durations import learn_imported
from tileyard.verbs.test.plan.imports import read_times
from tileyard.verbs.test.plan.lanes import read_memory
from tileyard.verbs.test.plan.reading import NOTHING
from tileyard.verbs.test.result.result import Expected, Suite
from tileyard.verbs.test.view.words import write_atomically


class _Yard:
    """Suites, each read once, and the known times of their cases."""

    def __init__(self, durations: Sequence[Path], parameters: Mapping[str, str] = NOTHING) -> None:
        self._parameters = parameters
        self.settings = load_settings()
        self.imported = [time for path in durations for time in read_times(path)]
        self._suites: dict[Path, Suite] = {}

    @cached_property
    def times(self) -> Sequence[RunTime]:
        """The recorded times of all suites; empty if there is no store yet."""
        return read_run_times()

    def read(self, path: Path) -> Suite:
        """The suite of a file or folder. Raises UsageError."""
        path = path.resolve()
        if path not in self._suites:
            if not path.exists():
                raise UsageError(f"there is no suite {path}")
            self._suites[path] = read_whole(path, self.settings, self._parameters)
        return self._suites[path]

    def expect_by(
        self, suite: Suite, wanted: Wanted, times: Sequence[RunTime]
    ) -> dict[str, Expected]:
        """Expected time of each case of a suite for a job that runs it, by these times."""
        imported = learn_imported(self.imported, suite.cases)
        return expect_all(
            suite,
            times,
            wanted.find_classes(times),
            lambda case: target_of(case, wanted.kernels),
            imported,
        )


# ---- duplicates -------------------------------------------------------------------------------


def find(
    file: Path | None,
    arguments: tuple[str, ...],
    independent: tuple[str, ...],
    durations: tuple[Path, ...],
    *,
    as_json: bool,
) -> Duplicates:
    """Find and print what jobs do twice. Raises UsageError for an invalid job."""
    paths, selections = _split_arguments(arguments, has_jobs=file is not None)
    steps = {path: read_step_times(path) for path in durations}
    yard = _Yard([path for path, known in steps.items() if known is None])
    times = {key: seconds for known in steps.values() for key, seconds in (known or {}).items()}
    read = find_in_workflows(paths, times, yard.imported)
    drafts = {} if file is None else read_jobs(file)
    unseen = tuple(name for name in independent if name not in {job.name for job in read.jobs})
    if drafts or selections or unseen or not read.jobs:
        drafts = add_selections(drafts, selections, unseen)
    folders = [Path(yard.read(Path(w.suite)).folder) for d in drafts.values() for w in d.wanted]
    folders += [Path(d.command.cwd) for d in drafts.values() if d.command is not None]
    contents = Contents(find_root(folders or [Path.cwd()]))
    told = [f for f in read.findings if f.kind == "label" and f.together and not f.because]
    labels = {one.what: one.identity for one in told}
    completed = [_complete(draft, yard, contents, labels) for draft in drafts.values()]
    seen = make_jobs(read.jobs, read.work, read.findings)
    completed += [replace(job, is_independent=job.name in independent) for job in seen]
    found = find_duplicates(completed)
    named = name_keepers(read.findings, found.duplicates)
    named = tuple(replace(one, spots=_shorten(one.spots)) for one in named)
    hidden = list_unseen(read.work, read.findings) if len(completed) > 1 else ()
    found = replace(found, findings=(*named, *read.copies), unseen=_shorten(hidden))
    present(found, as_json, print_duplicates)
    return found


def _shorten(spots: Sequence[Spot]) -> tuple[Spot, ...]:
    """The places with paths that mean the same on the machine that reads them."""
    return tuple(replace(spot, where=shorten_path(spot.where)) for spot in spots)


def _split_arguments(
    arguments: Sequence[str], *, has_jobs: bool
) -> tuple[list[Path], tuple[str, ...]]:
    """Workflows, and the selections of jobs; with neither, and no file of jobs, the repository's own."""
    paths = [
        text
        for text in arguments
        if Path(text).is_dir() or (text.endswith((".yml", ".yaml")) and "=" not in text)
    ]
    folder = find_root([Path.cwd()]) / ".github" / "workflows"
    if not arguments and not has_jobs and folder.is_dir():
        paths = [str(folder)]
    return list(map(Path, paths)), tuple(text for text in arguments if text not in paths)


def _complete(
    draft: DraftJob, yard: _Yard, contents: Contents, labels: Mapping[str, Digest]
) -> CiJob:
    """A job with all its checks. Raises UsageError that names the job whose selection is wrong."""
    checks: dict[tuple[str, str], Check] = {}
    for wanted in draft.wanted:
        suite = yard.read(Path(wanted.suite))
        expecting = partial(yard.expect_by, suite, wanted)
        wish = Wish(policy=wanted.policy, select=wanted.select)
        bounds = Bounds(slots=len(yard.settings.cores))
        try:
            outlook = look_ahead(suite, wish, expecting, bounds, yard.times)
        except UsageError as error:
            raise UsageError(f"{draft.where}: {error.message}", error.hint) from error
        cases = outlook.selection.cases
        # Overlapping selections of a job are one run of the cases that both name.
        for check in list_checks(cases, Path(suite.folder), wanted, outlook.expected, contents):
            checks[check.name, check.identity] = check
    if draft.command is not None:
        command = Check(
            identity=contents.identify_command(draft.command, draft.on),
            name=" ".join(draft.command.argv),
            seconds=draft.seconds,
            is_guess=not draft.seconds,
        )
        checks[command.name, command.identity] = command
    if draft.does:
        seconds = draft.seconds or GUESSES_S["label"]
        label = Check(
            identity=labels.get(draft.does, identify_label(draft.does)),
            name=draft.does,
            seconds=seconds,
            is_guess=not draft.seconds,
        )
        checks[label.name, label.identity] = label
    return CiJob(
        name=draft.name,
        checks=tuple(checks.values()),
        is_independent=draft.is_independent,
        setup_s=draft.setup_s,
    )


# ---- matrix -----------------------------------------------------------------------------------


def cut(  # noqa: PLR0913 - options, by keyword only
    *,
    suite: Path,
    parameters: Mapping[str, str],
    wish: Wish,
    jobs: int,
    max_s: float,
    slots: int,
    setup_s: float,
    on: str,
    durations: tuple[Path, ...],
    times: Path | None,
    changed_files: str,
    root: Path | None,
    always: tuple[str, ...],
    ignore: tuple[str, ...],
    commands: Path | None,
    tells_github: bool,
    as_json: bool,
) -> None:
    """Make and print a matrix; 0 and empty values request nothing. Raises UsageError for invalid requests."""
    yard = _Yard(durations, parameters)
    output = _find_output() if tells_github else None
    read = yard.read(suite)
    expected = yard.expect_by(read, Wanted(suite=read.path, on=on), yard.times)
    shared = times or _only(durations)
    change = None
    if changed_files:
        change = Change(
            root=(root or find_root([Path(read.folder)])).resolve(),
            files=parse_changed(_read_names(changed_files)),
            always=always,
            ignore=ignore,
        )
    made = make_matrix(
        read,
        MatrixRequest(
            wish=wish,
            jobs=jobs,
            max_s=max_s,
            slots=slots,
            setup_s=setup_s,
            startup_s=read_memory(yard.settings.home, read.remembered_as).startup_s,
            durations="" if shared is None else str(shared),
            change=change,
        ),
        expected,
    )
    if commands is not None:
        drafts = read_jobs(commands).values()
        made = replace(made, commands=decide_commands(drafts, change, commands.resolve()))
    if times is not None:
        seconds = {case: one.seconds for case, one in expected.items()}
        write_atomically(times, (msgspec.json.format(msgspec.json.encode(seconds)), b"\n"))
    if output is not None:
        _tell_github(output, made)
    if as_json:
        print_json({"matrix": msgspec.Raw(made.github.encode()), "details": made})
    else:
        print_matrix(Console(), made)


def _only(durations: tuple[Path, ...]) -> Path | None:
    if len(durations) > 1 or any(path.is_dir() for path in durations):
        raise UsageError(
            "jobs need one file of times, and --durations names several",
            "have it written with --times FILE",
        )
    return durations[0] if durations else None


def _read_names(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    return data.decode("utf-8", "surrogateescape")


def _find_output() -> Path:
    name = os.environ.get("GITHUB_OUTPUT", "")
    if not name:
        raise UsageError(
            "GITHUB_OUTPUT is not set: no file to write the matrix to",
            "--github-output is for steps of GitHub Actions; --json prints it",
        )
    return Path(name)


def _tell_github(path: Path, made: Matrix) -> None:
    """Write the outputs of a step. A matrix is one line of JSON, so no name in it can end its line."""
    lines = f"matrix={made.github}\njobs={len(made.jobs)}\ncases={made.cases}\n"
    if made.commands is not None:
        touched = [one.job for one in made.commands if one.is_touched]
        lines += f"commands={json.dumps(touched)}\n"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(lines)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
