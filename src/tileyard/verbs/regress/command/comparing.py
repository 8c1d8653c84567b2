"""One comparison of two sides: the sides, how they are compared, and the gate."""

import datetime
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Side
from tileyard.base.modes import make_folder
from tileyard.base.places import Document, Place, Strict, Table, decode, decode_all
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.pages.opening import open_report
from tileyard.show.kernel_options import read_limits
from tileyard.show.opening import open_picture
from tileyard.show.options import complete, fill, list_given, read_options
from tileyard.show.session import Carry
from tileyard.show.values import refuse_unused
from tileyard.targets.registry import COMMAND, DEFAULT_TARGET, make_target, spell_target
from tileyard.verbs.regress.options.regress import RegressOptions, read_measure
from tileyard.verbs.regress.options.start import RegressRequest, StartRegress
from tileyard.verbs.regress.plan import recorded
from tileyard.verbs.regress.plan.named_sides import (
    find_sides,
    find_suites,
    is_stored,
    refuse_toolchains,
)
from tileyard.verbs.regress.plan.sides import probe_side, side_variables
from tileyard.verbs.regress.result import (
    BUILD,
    TELLING_ROUNDS,
    Allowance,
    CaseMargin,
    Gate,
    Regression,
    parse_limits,
    require_figures,
)
from tileyard.verbs.regress.view.regress import render_comment
from tileyard.verbs.test.view.words import write_atomically
from tileyard.verbs.tune.view.progress import StudyLayout

FOR_KERNELS = ("select", "reports", "target", "all_configs", "fail_on")
"""Options without effect on scripts."""
FOR_RUNS = ("reports", "fail_over", "devices", "hosts", "margin", "each", "budget", "png", "exec")
"""Options without effect where nothing is run."""


def run(asked: RegressRequest, settings: Settings, carry: Carry) -> Regression:
    """Build and time the kernels or the suite of both sides."""
    suite, case = ("", "") if asked.scripts else find_suite(asked.files)
    if suite:
        select = (*asked.select, case) if case else asked.select
        return _run_suite(msgspec.structs.replace(asked, select=select), suite, settings, carry)
    if not any(map(is_stored, (asked.base, asked.head))):
        refuse_unused("without a suite or a side that is built", {"--select": asked.select})
    if asked.target and not asked.scripts:
        make_target(asked.target, settings.plugins)  # refuses an unknown one at once
        require_figures(asked.gate.limits, asked.target)
    work = settings.make_home() / "tmp"
    make_folder(work)
    named = (asked.base, asked.head)
    finding = find_sides(named, asked.files, settings, clean=asked.clean, scripts=asked.scripts)
    with (
        finding as (base, head),
        tempfile.TemporaryDirectory(prefix="regress-", dir=work) as scratch,
    ):
        sides = (base.side, head.side)
        if asked.rounds:
            sides = _settle_builds(*sides, Path(scratch), settings)
            # A data directory that contains only precompiled headers.
            settings = msgspec.structs.replace(settings, home=Path(scratch))
        else:
            sides = (_settle(sides[0], Path(scratch)), _settle(sides[1], Path(scratch)))
        if asked.scripts:
            sides = (_settle_scripts(sides[0]), _settle_scripts(sides[1]))
        start = StartRegress(
            request=asked,
            base=sides[0],
            head=sides[1],
            base_files=base.files,
            head_files=head.files,
            target=asked.target,
            devices=asked.devices,
            hosts=asked.hosts,
            python_limit_s=asked.python_limit_s,
        )
        return carry(
            start, settings, StudyLayout(tells_ends=False)
        )  # a pair is announced when it is decided


def find_suite(files: Sequence[str]) -> tuple[str, str]:
    """The requested suite of programs and its case: empty for files of kernels, and for all cases. Raises
    UsageError if a suite is not the only file.
    """
    suites = [
        (suite, case)
        for suite, _, case in (file.partition("::") for file in files)
        if _is_suite(suite)
    ]
    if suites and len(files) > 1:
        raise UsageError(f"{suites[0][0]} is a suite, and one suite is compared alone")
    return suites[0] if suites else ("", "")


def _is_suite(file: str) -> bool:
    """A folder, also one that exists only in a revision, or a TOML file."""
    path = Path(file)
    return path.suffix == ".toml" or path.is_dir() or not (path.suffix or path.exists())


def _run_suite(asked: RegressRequest, suite: str, settings: Settings, carry: Carry) -> Regression:
    refuse_unused(
        "with a suite of programs",
        {
            "--static": asked.rounds,
            "--all-configs": asked.all_configs,
            "--fail-on": asked.gate.limits,
        },
    )
    home = settings.make_home()
    with find_suites((asked.base, asked.head), suite, home, clean=asked.clean) as found:
        (base, base_path), (head, head_path) = found
        start = StartRegress(
            request=asked,
            base=base,
            head=head,
            target=COMMAND,
            suite=(str(base_path), str(head_path)),
            devices=asked.devices,
            hosts=asked.hosts,
        )
        return carry(start, settings, StudyLayout(tells_ends=False))


def judge_sides(base: str, head: str, gate: Gate, noise_from: Sequence[str]) -> Regression:
    """Judge the numbers of two files, one for each side; the others are earlier ones of either."""
    refuse_toolchains((base, head))
    sides = [recorded.read_side(Path(file)) for file in (base, head)]
    if not any(any(side.values()) for side in sides):
        raise UsageError(f"neither {base} nor {head} has a benchmark with a time")
    noise = recorded.UNKNOWN
    if noise_from:
        earlier = [recorded.read_side(Path(file)) for file in noise_from]
        noise = recorded.find_noise(recorded.as_reports(earlier), recorded.as_reports(sides))
    return recorded.judge_reports(recorded.pair_sides(*sides), (base, head), gate, noise)


def judge_reports(files: Sequence[str], gate: Gate, noise_from: Sequence[str]) -> Regression:
    """Judge reports that have both sides, all of these files in their order; the others are earlier ones."""
    found = [report for file in files for report in recorded.read_reports(Path(file))]
    numbered = [
        msgspec.structs.replace(report, name=str(number)) for number, report in enumerate(found, 1)
    ]
    name = f"in {count_of(len(found), 'report')} of {', '.join(files)}"
    noise = recorded.UNKNOWN
    if noise_from:
        earlier = [report for file in noise_from for report in recorded.read_reports(Path(file))]
        noise = recorded.find_noise(earlier, found)
    return recorded.judge_reports(numbered, (name, name), gate, noise)


def _settle(side: Side, scratch: Path) -> Side:
    if not side.python:
        return side
    return msgspec.structs.replace(side, variables=side_variables(side, scratch, is_plain=True))


def _settle_scripts(side: Side) -> Side:
    """A side for scripts, which import the modules beside them. Raises UsageError for pass options."""
    if side.pass_options or side.pipeline:
        raise UsageError(f"{side.name} are pass options, and a script sets its own")
    variables = {n: text for n, text in side.variables.items() if n != "PYTHONSAFEPATH"}
    return msgspec.structs.replace(side, variables=variables)


def _settle_builds(base: Side, head: Side, scratch: Path, settings: Settings) -> tuple[Side, Side]:
    """Both sides with their environments, named with their TileLang; no earlier build is used."""
    is_plain = bool(base.python or head.python)
    if not is_plain:
        # Only sides that build as all other builds here do share caches with them: images of
        # compilers' memory fit only processes that have loaded the same libraries.
        caches = settings.home / "caches"
        make_folder(caches)
        (scratch / "caches").symlink_to(caches)

    def settle(name: str, side: Side) -> Side:
        variables = side_variables(side, scratch, is_plain=is_plain) | side.variables
        try:
            installed = probe_side(side, variables)
        except TileyardError as error:
            error.message = f"{name}: {error.message}"
            raise
        label = f"TileLang {installed.tilelang}{' of ' if side.python else ', '}{side.name}"
        return msgspec.structs.replace(side, name=label, variables=variables)

    return settle("base", base), settle("head", head)


# ---- the gate ------------------------------------------------------------------------------------


class AllowFile(Strict):
    """The file of ``--allow``: margins of single cases, and what may be worse until a day."""

    allow: tuple[Table, ...] = ()
    margin: tuple[Table, ...] = ()


def read_gate(path: Path | None, asked: Gate, timed_builds: int = 0) -> Gate:
    """The requested gate with the file's additions. Raises UsageError for another kind of file, a limit
    within the margin, and one of build times.
    """
    if asked.fail_over and asked.fail_over < asked.margin:
        raise UsageError(
            f"--fail-over {100 * asked.fail_over:g}% is less than the margin of {100 * asked.margin:g} %",
            "changes within the margin are noise: lower --margin as well",
        )
    if timed_builds < TELLING_ROUNDS and any(limit.metric == BUILD for limit in asked.limits):
        raise UsageError(
            f"a limit of build times takes --static --rebuilds {TELLING_ROUNDS} or more"
        )
    if path is None:
        return asked
    top = Place(document=Document(path))
    table = decode(top.document.table, AllowFile, top)
    return msgspec.structs.replace(
        asked,
        allow=decode_all(table.allow, Allowance, top / "allow"),
        margins=decode_all(table.margin, CaseMargin, top / "margin"),
    )


class Reports:
    """The files that show a result: a comment, a picture, and a report."""

    def __init__(self, given: RegressOptions) -> None:
        """Raises UsageError if pictures cannot be drawn, or a file cannot be written."""
        self._comment = given.get("comment")
        describe = "tileyard.verbs.regress.view.page:describe_regression"
        self._report = open_report(given.get("report"), describe)
        self._draw = open_picture(given.get("png"), "tileyard.verbs.regress.view.figure:render_png")

    def write(self, result: Regression, home: Path) -> None:
        """Write the requested files."""
        if self._comment is not None:
            write_atomically(Path(self._comment), [render_comment(result).encode()])
        self._draw(result)
        self._report(result, home, result.run)


def _refuse_unused(options: RegressOptions) -> None:
    if not options["static"]:
        refuse_unused("without --static", {"--rebuilds": options["rebuilds"]})
        return
    refuse_unused("with --static", list_given(RegressOptions, options, FOR_RUNS))


def _read_gate(options: RegressOptions, values: Mapping[str, Any]) -> Gate:
    allow, fail_on = options["allow"], options["fail_on"]
    gate = Gate(
        margin=values["margin"],
        fail_over=values["fail_over"],
        limits=parse_limits(fail_on),
        today=datetime.datetime.now(tz=datetime.UTC).astimezone().date(),
        faults="all" if not options["static"] else "lost" if fail_on else "none",
    )
    return read_gate(None if allow is None else Path(allow), gate, timed_builds=options["rebuilds"])


def compare(
    sides: Sequence[str],
    files: Sequence[str],
    given: RegressOptions,
    settings: Settings,
    carry: Carry,
) -> Regression:
    """Compare base and head, or judge reports of other runs. Raises UsageError."""
    options = complete(RegressOptions, given)
    _refuse_unused(options)
    values = read_options(RegressOptions, options)
    fail_on = {"--fail-on": options["fail_on"]}
    measure = read_measure(files, values, list_given(RegressOptions, options, FOR_KERNELS))
    gate = _read_gate(options, values)
    reports, noise_from = values["reports"], values["noise_from"]
    if reports:
        refuse_unused("with --reports", {"BASE": sides, **fail_on})
        return judge_reports(reports, gate, noise_from)
    if len(sides) < 2:
        raise UsageError(
            "two sides are compared: BASE HEAD FILE...", "or reports of others: --reports FILE"
        )
    base, head = sides
    if not files:
        refuse_toolchains((base, head))
    stored = [side for side in (base, head) if is_stored(side)]
    if options["static"] and (stored or not files):
        raise UsageError("--static builds two sides of kernels: BASE HEAD FILE...")
    if stored:
        _refuse_of_stored(stored, files, options)
    elif not files:
        refuse_unused("on numbers of others", {**fail_on, "--exec": options["exec"]})
        return judge_sides(base, head, gate, noise_from)
    refuse_unused("but on numbers of others", {"--noise-from": noise_from})
    usual = "cuda:sm_90a" if options["static"] else "" if stored else DEFAULT_TARGET
    asked = fill(
        RegressRequest,
        values,
        base=base,
        head=head,
        files=tuple(files),
        scripts=options["exec"],
        measure=measure,
        rounds=options["rebuilds"] + 1 if options["static"] else 0,
        target=spell_target(options["target"] or usual),
        gate=gate,
        case_s=values["each"],
        limits=read_limits(values),
    )
    return run(asked, settings, carry)


def _refuse_of_stored(stored: Sequence[str], files: Sequence[str], options: RegressOptions) -> None:
    unused = {"--all-configs": options["all_configs"], "--exec": options["exec"]}
    refuse_unused("where a side is built already", unused)
    if len(stored) == 1 and not files:
        raise UsageError(
            f"{stored[0]} is built: name the FILEs or the suite of the other side, too"
        )
    if len(stored) == 2:
        refuse_unused("where both sides are built already", {"FILE": files})
