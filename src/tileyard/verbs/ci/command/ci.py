"""``tileyard ci``: suites as jobs of a CI run; nothing is built and nothing is run."""

from pathlib import Path
from typing import Annotated

import typer

from tileyard.base.errors import UsageError
from tileyard.show.typed import AsJson, TimesFile, typed
from tileyard.show.values import read_names, read_texts
from tileyard.verbs.test.options import (
    EXPECTED_TIMES,
    ParameterValues,
    PolicyName,
    Selected,
    Skipped,
    SlotsOption,
)

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Durations = Annotated[list[Path] | None, typer.Option(metavar="FILE|DIR", help=EXPECTED_TIMES)]


@app.callback()
def ci() -> None:
    """Find what CI jobs do twice, and cut a suite into jobs."""


@app.command()
def duplicates(  # noqa: PLR0913 - options, by keyword only
    selections: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR|JOB=SELECTION]...",
            help="Workflows, or what a job runs: SUITE[:POLICY][@ON][?TEXT,...], as in sim=a.toml:smoke.",
            show_default=False,
        ),
    ] = None,
    *,
    jobs_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also read jobs from this file.")
    ] = None,
    independent: Annotated[
        list[str] | None, typer.Option(metavar="JOB", help="Never drop checks of this job.")
    ] = None,
    durations: Durations = None,
    fail: Annotated[bool, typer.Option("--fail", help="Exit with 1 for duplicates.")] = False,
    json: AsJson = False,
) -> int:
    """List work that several jobs do, on identical content or according to their workflows, and the time that
    dropping it saves.

    Without arguments and --jobs-file the workflows of the repository are read.
    --durations also takes the times of steps, as GitHub's API lists jobs.
    One job keeps each check, chosen so that the least work is left, in the fewest jobs; among equals, the
    one named first. Content counts, not names.

    Exit status: 0, 1 for duplicates with --fail, 2 for bad usage.
    """
    from tileyard.verbs.ci.command.session import find

    found = find(
        jobs_file,
        tuple(selections or ()),
        tuple(independent or ()),
        tuple(durations or ()),
        as_json=json,
    )
    return 1 if fail and found.duplicates else 0


@app.command()
@typed
def matrix(  # noqa: PLR0913 - options, by keyword only
    suite: Annotated[
        Path, typer.Argument(metavar="SUITE", help="suite.toml, a folder, or a file of kernels.")
    ],
    *,
    policy: PolicyName,
    select: Selected,
    skip: Skipped,
    parameters: ParameterValues,
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of jobs.")] = None,
    max_time: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Maximum time of a job; there are as many jobs as that needs."
        ),
    ] = "",
    slots: Annotated[int | None, SlotsOption("Number of cases that run at once; by default 1.")],
    setup: Annotated[
        str, typer.Option(metavar="TIME", help="Time that a job needs before its first case.")
    ] = "0s",
    on: Annotated[
        str, typer.Option(metavar="TARGET|CLASS", help="Target of kernels or class of devices.")
    ] = "",
    durations: Durations = None,
    times: TimesFile = None,
    changed_files: Annotated[
        str,
        typer.Option(
            metavar="FILE|-",
            help="Only cases that depend on the files that this one lists, one per line.",
        ),
    ] = "",
    root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder that the changed files are relative to."),
    ] = None,
    always: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="All cases depend on these files.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="No case depends on these files.")
    ] = None,
    jobs_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Decide which commands of the jobs in this file run."),
    ] = None,
    github_output: Annotated[
        bool,
        typer.Option(
            "--github-output", help="Append matrix, jobs, cases, commands to $GITHUB_OUTPUT."
        ),
    ] = False,
    json: AsJson = False,
) -> int:
    """Cut a suite into jobs of the same expected time, for `strategy.matrix` of GitHub Actions.

    Each job's `arguments` are those of `tileyard test SUITE`. With --changed-files only cases run whose
    steps name a changed file; the others are counted.

    Exit status: 0, also where no case is touched; 2 for bad usage and where no case is selected.
    """
    from tileyard.show.words import parse_duration_s
    from tileyard.verbs.ci.command.session import cut
    from tileyard.verbs.test.options import Wish

    if (jobs is None) == (not max_time):
        raise UsageError(
            "give the number of jobs with --jobs, or the longest time of one with --max-time"
        )
    if not changed_files and (always or ignore or root):
        raise UsageError(
            "--always, --ignore and --root say more of --changed-files, which is missing"
        )
    cut(
        suite=suite,
        parameters=read_texts(parameters, "--set"),
        wish=Wish(policy=policy, select=read_names(select), skip=read_names(skip)),
        jobs=jobs or 0,
        max_s=parse_duration_s(max_time) if max_time else 0.0,
        slots=slots or 1,
        setup_s=parse_duration_s(setup),
        on=on,
        durations=tuple(durations or ()),
        times=times,
        changed_files=changed_files,
        root=root,
        always=tuple(always or ()),
        ignore=tuple(ignore or ()),
        commands=jobs_file,
        tells_github=github_output,
        as_json=json,
    )
    return 0
