"""A tuning run on the command line: progress, result, exit status."""

from tileyard.show.console import Console
from tileyard.show.opening import load_settings, present
from tileyard.show.session import carry_out
from tileyard.verbs.tune.options.tune import StartTable, StartTune
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.verbs.tune.view.study import print_study
from tileyard.verbs.tune.view.table import print_dispatch


def run(start: StartTune, *, as_json: bool) -> int:
    """Carry out the run, show it, and return the exit status."""
    settings = load_settings()
    result = carry_out(start, settings, Console(stderr=as_json), StudyLayout())
    present(result, as_json, print_study, settings.home)
    return result.exit_status


def run_table(start: StartTable, *, as_json: bool) -> int:
    """The same for many shapes."""
    settings = load_settings()
    result = carry_out(start, settings, Console(stderr=as_json), StudyLayout())
    present(result, as_json, print_dispatch, settings.home)
    return result.exit_status
