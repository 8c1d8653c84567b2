"""A comparison of the programs of a suite as the command line asks for it: which revisions of it the sides are."""

from pathlib import Path

from tileyard.cli.opening import load_settings
from tileyard.cli.regress_session import Asked
from tileyard.cli.session import carry_out
from tileyard.cli.sides import find_suites
from tileyard.cli.values import refuse_unused
from tileyard.errors import UsageError
from tileyard.regress.timed import Regression
from tileyard.report.console import Console
from tileyard.report.study_progress import StudyLayout
from tileyard.service.verbs import StartRegress
from tileyard.targets.registry import COMMAND


def find_suite(files: tuple[str, ...]) -> str:
    """The suite of programs that is asked for, empty for files of kernels. Raises UsageError where it is not alone."""
    suites = [file for file in files if _is_suite(file)]
    if suites and len(files) > 1:
        raise UsageError(f"{suites[0]} is a suite, and one suite is compared alone")
    return suites[0] if suites else ""


def _is_suite(file: str) -> bool:
    """A folder, also one that is there in a revision alone, or a TOML file."""
    path = Path(file.partition("::")[0])
    return path.suffix == ".toml" or path.is_dir() or not (path.suffix or path.exists())


def run_suite(asked: Asked, suite: str, console: Console) -> Regression:
    """Build and time the programs of both sides, with progress on the console."""
    refuse_unused(
        "with a suite of programs",
        {"--all-configs": asked.all_configs, "--fail-on": asked.gate.limits},
    )
    settings = load_settings()
    home = settings.make_home()
    with find_suites((asked.base, asked.head), suite, home, clean=asked.clean) as found:
        (base, base_path), (head, head_path) = found
        start = StartRegress(
            base=base,
            head=head,
            base_files=(),
            head_files=(),
            target=COMMAND,
            gate=asked.gate,
            case_s=asked.case_s,
            budget_s=asked.budget_s,
            suite=(str(base_path), str(head_path)),
            select=asked.select,
            devices=asked.devices,
            compile_workers=asked.compile_workers,
            queue_limit_s=asked.queue_limit_s,
        )
        return carry_out(start, settings, console, StudyLayout(tells_ends=False))
