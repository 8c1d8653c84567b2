"""The program ``tileyard``: ``lease`` and ``exec`` have fast paths; everything else goes to ``main``."""

import os
import sys
from typing import TYPE_CHECKING

from tileyard.cli.arguments import asks_for_help, has_folder
from tileyard.show.guarding import INTERRUPTED, guarded, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from tileyard.base.settings import Settings
    from tileyard.verbs.exec.plan.grounds import Studied, StudyOrder
    from tileyard.workers.protocol import AuthorReply, AuthorRequest


def run() -> None:
    """Run one command and exit with its status."""
    open_streams()
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:  # during an import: commands handle it themselves
        sys.exit(INTERRUPTED)


def _run(arguments: list[str]) -> int:
    if not has_folder() and not asks_for_help(arguments):
        return say("the working directory no longer exists (change to one that does)", 2)
    if arguments[:1] == ["exec"]:  # the process becomes the script's own
        from tileyard.verbs.exec.command import run_exec

        return run_exec(arguments[1:], _run_study)
    with guarded():
        if arguments[:1] == ["lease"]:  # typer and its imports would double the cost of a lease
            from tileyard.verbs.lease.command import run_lease

            return run_lease(arguments[1:])
        from tileyard.cli.main import main

        return main(arguments)


def _run_study(
    settings: "Settings", order: "StudyOrder", answer: "Callable[[AuthorRequest], AuthorReply]"
) -> "Studied":
    """The study of a script's tuner; imported only for a script that has one."""
    from tileyard.api.chain_study import FOR_SCRIPTS, run_study

    return run_study(settings, order, answer, FOR_SCRIPTS)


def open_streams() -> None:
    """Open closed standard streams on nothing: otherwise the next file would become one of them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
