"""``tileyard export`` and ``tileyard import``: carry studies' decisions to other homes and into code."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import PrintedOption
from tileyard.show.opening import read_file, write_or_print
from tileyard.show.typed import Subject
from tileyard.show.values import FilePath

BUNDLE_MAGIC = b"\x28\xb5\x2f\xfd"
"""The first bytes of a bundle, which is a zstd frame."""


def export(
    subject: Subject = "",
    *,
    output: Annotated[FilePath, PrintedOption("The file to write; by default it is printed.")],
    form: Annotated[
        Literal["json", "python"],
        typer.Option(help="A file for tileyard import, or a table to paste into code."),
    ] = "json",
    binaries: Annotated[
        bool,
        typer.Option(
            "--binaries", help="Write a bundle with the binaries, for machines without TileLang."
        ),
    ] = False,
) -> int:
    """Export the configs that won: by kernel, arguments, target and silicon, the latest of each.

    Without -o they are printed.

    Exit status: 0 they were written, 2 there are none, or bad usage.
    """
    from tileyard.show.opening import load_settings
    from tileyard.store.choices import as_python, encode_choices, list_choices

    if binaries and (form != "json" or output in (None, "-")):
        raise UsageError("--binaries writes a bundle: name the file with -o, without --form")
    home = load_settings().home
    found = [
        choice
        for choice in list_choices(home)
        if subject in ("", choice.kernel, choice.trial.rpartition(".")[0])
    ]
    if not found:
        what = f"of {subject} " if subject else ""
        raise UsageError(f"no winner {what}is recorded in {home}", "run tileyard tune first")
    if binaries:
        from tileyard.store.winners import pack_winners

        pack_winners(found, home, Path(output or ""))
        return 0
    text = as_python(found) + "\n" if form == "python" else encode_choices(found).decode()
    write_or_print(output or "-", text.encode())
    return 0


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that tileyard export wrote.")],
) -> int:
    """Import configs that won elsewhere, so that tileyard.tuned and Study.dispatch use them on the same
    silicon.

    The binaries of a bundle are imported, too.

    Exit status: 0 imported, 2 bad usage; then nothing was imported.
    """
    from tileyard.base.wording import count_of
    from tileyard.show.opening import load_settings
    from tileyard.store.choices import add_choices, decode_choices

    if read_file(file, len(BUNDLE_MAGIC)) == BUNDLE_MAGIC:
        from tileyard.store.winners import open_winners

        home = load_settings().make_home()
        choices = open_winners(Path(file), home)
    else:
        choices = decode_choices(read_file(file), file)
        home = load_settings().make_home()
    add_choices(home, choices)
    print(f"{count_of(len(choices), 'choice')} imported into {home}")
    return 0
