"""``tileyard exec``: runs a Python script that was written for a GPU on the CPU.

Its arguments are parsed by hand: everything after the script belongs to the script.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tileyard.base.errors import TileyardError, ToolMissingError, UsageError
from tileyard.base.settings import Settings, read_settings
from tileyard.base.wording import install_extra
from tileyard.show.defaults import Setting, read_defaults
from tileyard.show.guarding import INTERRUPTED, escape, explain, say
from tileyard.verbs.exec.help import FORMS, OPTIONS, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tileyard.base.settings import Settings
    from tileyard.verbs.exec.plan.grounds import Studied, StudyOrder
    from tileyard.workers.protocol import AuthorReply, AuthorRequest

    RunStudy = Callable[[Settings, StudyOrder, Callable[[AuthorRequest], AuthorReply]], Studied]

    from tileyard.verbs.exec.plan.grounds import Studied, StudyOrder
    from tileyard.verbs.exec.plan.tally import Summary
    from tileyard.workers.protocol import AuthorReply, AuthorRequest, SyncChecked


class Wanted:
    """The parsed command line, with the defaults of omitted options. Raises UsageError if it is invalid."""

    def __init__(
        self, arguments: list[str], find_defaults: "Callable[[], Mapping[str, Setting]]" = dict
    ) -> None:
        self.tally = ""
        self.is_module = False
        self.is_help = False
        self.is_checked: bool | None = None
        self.argv: list[str] = []
        rest = list(arguments)
        while rest and rest[0].startswith("-") and not self.argv:
            self._take(rest)
        self.argv = self.argv or rest
        if not self.argv and not self.is_help:
            raise UsageError("there is no script to run", "write it after exec")
        defaults = {} if self.is_help else find_defaults()
        if "check-sync" in defaults and self.is_checked is None:
            self.is_checked = defaults["check-sync"].value is True
        self.tally = self.tally or (
            str(defaults["tally"].value) if "tally" in defaults else "plain"
        )

    def _take(self, rest: list[str]) -> None:
        option, equals, value = rest.pop(0).partition("=")
        if option in ("--help", "-h"):
            self.is_help = True
        elif option in ("--check-sync", "--no-check-sync") and not equals:
            self.is_checked = option == "--check-sync"
        elif option == "--tally":
            self.tally = value if equals else next(iter(rest), "")
            del rest[: 0 if equals else 1]
            if self.tally not in FORMS:
                raise UsageError(f"--tally is one of {', '.join(FORMS)}")
        elif option == "-m":
            if not rest:
                raise UsageError("-m needs a module")
            self.is_module, self.argv = True, list(rest)
        elif option == "--":
            if not rest:
                raise UsageError("there is no script to run", "write it after --")
            self.argv = list(rest)
        else:
            raise UsageError(f"{option!r} is not an option of tileyard exec")


def run_exec(arguments: list[str], study: "RunStudy") -> int:
    """Carry out the command line and return the exit status; SystemExit of the script passes through."""
    try:
        wanted = Wanted(arguments, find_defaults)
        if wanted.is_help:
            describe()
            return 0
        if not wanted.is_module and not Path(wanted.argv[0]).is_file():
            raise UsageError(f"there is no script {wanted.argv[0]}")
        settings = read_settings(os.environ, Path.cwd())
        settings.require_trusted(settings.home)  # now, rather than in the middle of the script
        # Threads of torch that wait by spinning keep cores from kernels; the variable is read at import.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:  # torch and TileLang with it: only where a script is run
            from tileyard.verbs.exec.plan.run import Helpers, run_script
        except ModuleNotFoundError as error:
            if error.name not in ("tilelang", "torch"):
                raise
            hint = install_extra("tilelang")
            raise ToolMissingError("tileyard exec needs TileLang", hint) from None

        checker = None
        if wanted.is_checked is not False:
            from tileyard.artifacts.objects import ObjectStore
            from tileyard.verbs.exec.plan.checking import KernelChecker

            asked = wanted.is_checked is True
            objects = ObjectStore(settings.home / "objects")
            checker = KernelChecker(objects, tell_checked if asked else tell_noted, asked)
        return run_script(
            wanted.argv,
            settings,
            partial(tell, wanted.tally),
            is_module=wanted.is_module,
            helpers=Helpers(study=partial(study, settings), checker=checker),
        )
    except TileyardError as error:
        return say(str(error), error.exit_status)
    except OSError as error:
        return explain(error)
    except KeyboardInterrupt:  # before the script began
        return INTERRUPTED


def find_defaults() -> "Mapping[str, Setting]":
    """The project's settings for this command. Raises UsageError."""
    return read_defaults(os.environ, Path.cwd(), {("exec",): OPTIONS}).of.get(("exec",), {})


def tell_checked(checked: "SyncChecked | str") -> None:
    """Print the findings of a kernel's check on stderr, or why there was no check."""
    from tileyard.show.words import make_visible
    from tileyard.verbs.check.view.findings import SyncReport, describe_check

    lines = (
        [checked]
        if isinstance(checked, str)
        else describe_check(SyncReport(file="?", kernels=(checked,)))
    )
    for line in lines:
        print(escape(make_visible(line)), file=sys.stderr)


def tell_noted(checked: "SyncChecked | str") -> None:
    """Print the findings of a check that nobody asked for on stderr, as notes, and what was not checked."""
    from tileyard.show.words import make_visible
    from tileyard.verbs.check.view.findings import describe_finding

    lines = (
        [checked]
        if isinstance(checked, str)
        else [describe_finding("?", one) for one in checked.findings]
    )
    for line in lines:
        print(escape(f"note: {make_visible(line)}"), file=sys.stderr)


def tell(form: str, summary: "Summary") -> None:
    """Print a summary on stderr in one line."""
    from tileyard.verbs.exec.plan.tally import summary_json, summary_line

    if form == "json":
        print(escape(summary_json(summary)), file=sys.stderr)
    elif form == "plain":
        for line in (*summary.notes, *summary.unsteady, summary_line(summary)):
            say(line, 0)
