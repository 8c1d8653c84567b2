"""The verb ``regress``: what its options ask to compare, and the files that show the result."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.base.wording import install_extra
from tileyard.show.carrying import Carry
from tileyard.show.kernel_options import read_limits
from tileyard.show.options import complete, fill, list_given, read_options
from tileyard.show.values import refuse_unused
from tileyard.targets.registry import DEFAULT_TARGET
from tileyard.verbs.regress.command.comparing import (
    judge_reports,
    judge_sides,
    read_gate,
    run,
)
from tileyard.verbs.regress.options.regress import RegressOptions
from tileyard.verbs.regress.options.scripts import read_measure
from tileyard.verbs.regress.options.start import RegressRequest
from tileyard.verbs.regress.plan.named_sides import is_stored, refuse_toolchains
from tileyard.verbs.regress.result.gate import Gate
from tileyard.verbs.regress.result.limits import parse_limits
from tileyard.verbs.regress.result.timed import Regression
from tileyard.verbs.regress.view.markdown import render_comment
from tileyard.verbs.test.view.files import write_atomically

FOR_KERNELS = ("select", "reports", "target", "all_configs", "fail_on")
"""Options without effect on scripts."""
FOR_RUNS = ("reports", "fail_over", "devices", "margin", "each", "budget", "png", "exec")
"""Options without effect where nothing is run."""


class Reports:
    """The files that show a result: a comment, and a picture."""

    def __init__(self, given: RegressOptions) -> None:
        """Raises UsageError if pictures cannot be drawn."""
        self._comment, self._png = given.get("comment"), given.get("png")
        self._render = None if self._png is None else _load_figure()

    def write(self, result: Regression) -> None:
        """Write the requested files."""
        if self._comment is not None:
            write_atomically(Path(self._comment), [render_comment(result).encode()])
        if self._png is not None and self._render is not None:
            write_atomically(Path(self._png), [self._render(result)])


def _load_figure() -> Callable[[Regression], bytes]:
    """Imported here because the imports take half a second that nothing else needs."""
    try:
        from tileyard.verbs.regress.view.figure import render_png
    except ImportError as error:
        raise UsageError(f"--png takes matplotlib: {error}", install_extra("png")) from None
    return render_png


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
        target=options["target"] or usual,
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
