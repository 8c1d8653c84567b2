"""One comparison in time as the command line shows it: what the sides are, progress, table, exit status."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.cli.opening import load_settings, present
from tileyard.cli.session import carry_out
from tileyard.cli.sides import find_sides
from tileyard.errors import UsageError
from tileyard.model import Limits, Side
from tileyard.modes import make_folder
from tileyard.regress import recorded
from tileyard.regress.gate import CaseMargin, Gate
from tileyard.regress.static import BUILD
from tileyard.regress.timed import Allowance, Regression
from tileyard.report.console import Console
from tileyard.report.regress import print_regression
from tileyard.report.regress_markdown import render_comment
from tileyard.report.study_progress import StudyLayout
from tileyard.report.suite_files import write_atomically
from tileyard.service.sides import side_variables
from tileyard.service.verbs import StartRegress
from tileyard.suite.files.places import Document, Place, Table
from tileyard.suite.files.tables import Strict, decode, decode_all
from tileyard.targets.registry import make_target
from tileyard.wording import count_of


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks for: see ``StartRegress`` and the options' help."""

    base: str
    head: str
    files: tuple[str, ...]
    select: tuple[str, ...] = ()
    target: str
    devices: tuple[str, ...]
    gate: Gate
    case_s: float
    budget_s: float | None
    all_configs: bool
    clean: bool
    queue_limit_s: float
    run_s: float
    build_s: float
    compile_workers: int | None


class Shown:
    """How a result is shown: on the terminal, and as a comment or a picture in the files that are given."""

    def __init__(self, *, summary: str, png: Path | None, as_json: bool) -> None:
        """Raises UsageError where pictures cannot be drawn."""
        self._summary = summary
        self._png = png
        self._as_json = as_json
        self._render = None if png is None else _load_figure()

    def show(self, result: Regression) -> int:
        """Print and write a result, and return the exit status."""
        present(result, self._as_json, print_regression)
        if self._summary:
            write_atomically(Path(self._summary), [render_comment(result).encode()])
        if self._png is not None and self._render is not None:
            write_atomically(self._png, [self._render(result)])
        return result.exit_status


def _load_figure() -> Callable[[Regression], bytes]:
    """What draws pictures: half a second of imports that nothing else needs."""
    try:
        from tileyard.report.regress_figure import render_png
    except ImportError as error:
        raise UsageError(
            f"--png takes matplotlib: {error}", "pip install 'tileyard[png]'"
        ) from None
    return render_png


def run(asked: Asked, console: Console) -> Regression:
    """Build and time both sides, with progress on the console."""
    settings = load_settings()
    if asked.target:
        make_target(asked.target, settings.plugins)  # refuses what there is not, at once
    work = settings.make_home() / "tmp"
    make_folder(work)
    named = (asked.base, asked.head)
    with (
        find_sides(named, asked.files, settings.home, clean=asked.clean, takes_stored=True) as (
            base,
            head,
        ),
        tempfile.TemporaryDirectory(prefix="regress-", dir=work) as scratch,
    ):
        start = StartRegress(
            base=_settle(base.side, Path(scratch)),
            head=_settle(head.side, Path(scratch)),
            base_files=base.files,
            head_files=head.files,
            target=asked.target,
            gate=asked.gate,
            case_s=asked.case_s,
            select=asked.select,
            budget_s=asked.budget_s,
            all_configs=asked.all_configs,
            devices=asked.devices,
            limits=Limits(run_s=asked.run_s, build_s=asked.build_s),
            compile_workers=asked.compile_workers,
            queue_limit_s=asked.queue_limit_s,
        )
        layout = StudyLayout(tells_ends=False)  # pairs are told of when they are decided
        return carry_out(start, settings, console, layout)


def judge_sides(base: str, head: str, gate: Gate) -> Regression:
    """What the numbers of two files say, one for each side."""
    found = recorded.pair_sides(recorded.read_side(Path(base)), recorded.read_side(Path(head)))
    return recorded.judge_reports(found, (base, head), gate)


def judge_reports(files: Sequence[str], gate: Gate) -> Regression:
    """What reports say that have both sides, all of these files in their order."""
    found = [report for file in files for report in recorded.read_reports(Path(file))]
    numbered = [
        msgspec.structs.replace(report, name=str(number)) for number, report in enumerate(found, 1)
    ]
    name = f"in {count_of(len(found), 'report')} of {', '.join(files)}"
    return recorded.judge_reports(numbered, (name, name), gate)


def _settle(side: Side, scratch: Path) -> Side:
    """A side with its environment, where it has a Python of its own."""
    if not side.python:
        return side
    return msgspec.structs.replace(side, variables=side_variables(side, scratch, is_plain=True))


# ---- the gate ------------------------------------------------------------------------------------


class AllowFile(Strict):
    """The file of ``--allow``: margins of single cases, and what may be worse until a day."""

    allow: tuple[Table, ...] = ()
    margin: tuple[Table, ...] = ()


def read_gate(path: Path | None, asked: Gate) -> Gate:
    """The gate that is asked for, with what the file adds.

    Raises UsageError for a file of something else, for a limit within the margin, and for one of build times.
    """
    if asked.fail_over and asked.fail_over < asked.margin:
        raise UsageError(
            f"--fail-over {100 * asked.fail_over:g}% is less than the margin of {100 * asked.margin:g} %",
            "changes within the margin are noise: lower --margin as well",
        )
    if any(limit.metric == BUILD for limit in asked.limits):
        raise UsageError("--fail-on build takes several builds: tileyard static --repeat 5")
    if path is None:
        return asked
    top = Place(document=Document(path))
    table = decode(top.document.table, AllowFile, top)
    return msgspec.structs.replace(
        asked,
        allow=decode_all(table.allow, Allowance, top / "allow"),
        margins=decode_all(table.margin, CaseMargin, top / "margin"),
    )
