"""``tileyard trials`` lists recorded trials, and carries them from one data directory to another; ``tileyard
show`` shows one.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tileyard.show.kernel_options import PrintedOption
from tileyard.show.typed import AsJson, Rows, Subject, typed
from tileyard.show.values import FilePath

if TYPE_CHECKING:
    from tileyard.base.model import Trial


app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def trials(  # noqa: PLR0913 - each option of the command is a parameter
    context: typer.Context,
    *,
    kernel: Annotated[
        str, typer.Option(help="Only trials of this kernel, or program's testcase.")
    ] = "",
    run: Annotated[str, typer.Option(help="Only trials of this run.")] = "",
    outcome: Annotated[str, typer.Option(help="Only trials with this outcome.")] = "",
    rows: Rows = 30,
    json: AsJson = False,
) -> int:
    """List recorded trials, newest first.

    Those of cases that did not run, as after Ctrl-C, are listed with --outcome not_run, --run or --json.
    """
    if context.invoked_subcommand is not None:
        return 0
    from tileyard.show.opening import open_store, parse_outcome, present
    from tileyard.store.trials import TrialQuery
    from tileyard.verbs.tune.plan.deciding import add_deciding, find_deciding
    from tileyard.verbs.tune.view.trials import print_trials

    wanted = parse_outcome(outcome) if outcome else None
    was_run = not (outcome or run or json)
    query = TrialQuery(kernel=kernel, run=run, outcome=wanted, was_run=was_run, limit=rows)
    with open_store() as (store, _):
        found = store.list_trials(query)
        deciding = find_deciding(store, found)
    if found or json:
        present([add_deciding(one, deciding) for one in found], json, print_trials, deciding)
    else:
        asked = {"of": kernel, "in run": run, "that ended as": outcome}
        which = "".join(f" {word} {value}" for word, value in asked.items() if value)
        print(f"no trials{which}", file=sys.stderr)
    return 0


@app.command("export")
@typed
def export(
    subject: Subject = "",
    *,
    output: Annotated[FilePath, PrintedOption("The file to write.")],
    form: Annotated[
        Literal["trials", "space", "t4"],
        typer.Option(
            "--as",
            help="A file for tileyard trials import; a study's configs with their times, as a space for "
            "tune --replay; or the same as T4, which other tuners read.",
        ),
    ] = "trials",
) -> int:
    """Write recorded trials, and the winners of their studies, into a file for tileyard trials import.

    With --as space or t4 the configs of a study are written, each with its outcome, time and cost, and
    what its binary is known to need. Several studies, of other arguments, targets or kinds of devices, get a
    file each: NAME-1.jsonl, NAME-2.jsonl and so on. A file whose name ends with .gz is compressed.

    Exit status: 0 they were written, 2 there are none, or bad usage.
    """
    from tileyard.base.errors import UsageError
    from tileyard.show.opening import open_store, write_or_print
    from tileyard.store.choices import encode_trials, list_choices
    from tileyard.store.trials import TrialQuery

    if not output or (output == "-" and form != "trials"):
        raise UsageError("name the file to write with -o")
    with open_store() as (store, home):
        found = store.list_trials(TrialQuery(run=subject, limit=0))
        found = found or store.list_trials(TrialQuery(kernel=subject, limit=0))
    if not found:
        what = f"of {subject} " if subject else ""
        raise UsageError(f"no trial {what}is recorded in {home}")
    if form != "trials":
        return _export_spaces(found, home, Path(output), is_t4=form == "t4")
    write_or_print(output, encode_trials(reversed(found), list_choices(home)))
    return 0


def _export_spaces(found: "Sequence[Trial]", home: Path, output: Path, *, is_t4: bool) -> int:
    """Write the spaces of these trials, the newest first, and say what each file holds."""
    from tileyard.artifacts.objects import ObjectStore
    from tileyard.base.errors import UsageError
    from tileyard.base.wording import count_of
    from tileyard.show.words import format_config
    from tileyard.verbs.tune.plan.recorded.files import write_space
    from tileyard.verbs.tune.plan.recorded.studies import list_spaces

    spaces = list_spaces(found, ObjectStore(home / "objects"))
    if not spaces:
        raise UsageError("none of these trials is a config of a study that was timed")
    for number, space in enumerate(spaces, start=1):
        name, dot, ends = output.name.partition(".")
        several = output.with_name(f"{name}-{number}{dot}{ends}")
        file = output if len(spaces) == 1 else several
        write_space(space, file, is_t4=is_t4)
        of = (space.name, format_config(space.header.arguments), space.header.target)
        print(f"{file}: {count_of(len(space.configs), 'config')} of {', '.join(filter(None, of))}")
    return 0


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file that tileyard trials export wrote.")
    ],
) -> int:
    """Import trials that were recorded elsewhere; those that are here already are skipped.

    Exit status: 0 they are here now, 2 bad usage; then nothing was imported.
    """
    from tileyard.base.wording import count_of
    from tileyard.show.opening import load_settings, read_file
    from tileyard.store.choices import decode_trials, import_trials
    from tileyard.store.trials import open_store

    found, choices = decode_trials(read_file(file), file)
    home = load_settings().make_home()
    with open_store(home) as store:
        fresh = import_trials(home, store, found, choices)
    known = f", {len(found) - len(fresh)} were here already" if len(found) > len(fresh) else ""
    print(f"{count_of(len(fresh), 'trial')} imported into {home}{known}")
    return 0


def show(
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="The trial's id, or the beginning of it.")
    ],
    *,
    brief: Annotated[
        bool, typer.Option("--brief", help="Leave out the Program and the generated code.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Show one trial: its record, its log, its Program and the generated code."""
    from tileyard.show.opening import open_store, present
    from tileyard.verbs.tune.plan.deciding import add_deciding, find_deciding
    from tileyard.verbs.tune.view.trials import print_trial

    with open_store() as (store, home):
        found = store.get_trial(trial)
        shown = add_deciding(found, find_deciding(store, [found]))
    present(shown, json, print_trial, home, source=not brief, deciding=shown.finals)
    return 0
