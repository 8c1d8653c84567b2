"""``tileyard history``: how long cases take, what has changed, and what ``regress`` timed of a case."""

import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import USUAL_MARGIN, AnyTarget, Picture, SmallestChange
from tileyard.show.typed import AsJson, Rows, TimesFile
from tileyard.show.values import parse_share
from tileyard.show.words import parse_duration_s
from tileyard.verbs.test.options import ONLY_CLASS

if TYPE_CHECKING:
    from tileyard.store.base import Store


def history(  # noqa: PLR0913 - options, by keyword only
    case: Annotated[
        str | None,
        typer.Argument(
            metavar="CASE",
            help=(
                "Show what regress and the finals of tune timed of this case and those below it, run "
                "by run: a kernel, KERNEL/SHAPE/CONFIG, or KERNEL/ARG=VALUE,... of tune. Of others, "
                "their recorded trials."
            ),
        ),
    ] = None,
    *,
    tail: Annotated[
        bool, typer.Option("--tail", help="List the longest cases and those that have moved.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            metavar="DATE|TIME",
            help="Compare runs since a date, or since a time ago such as 7d, with earlier ones.",
        ),
    ] = "7d",
    target: AnyTarget,
    device_class: Annotated[str, typer.Option("--class", metavar="CLASS", help=ONLY_CLASS)] = "",
    rows: Rows = 10,
    times: TimesFile = None,
    margin: SmallestChange,
    png: Picture,
    json: AsJson = False,
) -> int:
    """Show how long cases take: the longest ones, their share, quantiles, and what has moved.

    A case has moved if its median differs by a fifth and the middle halves of its runs before and after
    do not touch; it needs three runs on each side. With --times a table is written instead of all
    that: testcase,case,seconds, which `tileyard test` and `tileyard plan` take with --durations.

    With a CASE, each run of `tileyard regress` is a point, with its revision, and so is each of `tileyard
    tune` with the time of its winner. Where the level of a series changes, the revisions between the last run
    before and the first run after can have caused it. Of a case that neither timed, as those of `tileyard
    test`, the trials are listed, newest first.
    """
    if case is not None:
        if tail or times is not None:
            raise UsageError("--tail and --times are for all cases, and not for one")
        share = parse_share(margin or USUAL_MARGIN, "--margin")
        figure = None if png is None else Path(png)
        return _show_case(case, target, device_class, share, figure, as_json=json)
    if png is not None:
        raise UsageError("--png draws a CASE")
    if times is not None:
        if tail or json:
            raise UsageError("--times writes a file, and leaves nothing to --tail and --json")
        return _export(times, target, device_class)
    from tileyard.base.clock import Clock
    from tileyard.show.opening import open_store, present
    from tileyard.verbs.test.plan.durations import ENDED, summarize_history
    from tileyard.verbs.test.view.plan import print_history

    since_s = _parse_since(since, Clock().wall_s())
    with open_store() as (store, home):
        recorded = store.list_case_times(ENDED, since_s, target, device_class)
        if not recorded:
            raise _refuse(store, home, target, device_class)
    found = summarize_history(recorded, since_s, rows)
    present(found, json, print_history, tail=tail)
    return 0


def _show_case(  # noqa: PLR0913 - what the command line asks for
    case: str, target: str, device_class: str, margin: float, png: Path | None, *, as_json: bool
) -> int:
    from tileyard.show.opening import open_picture, open_store, present
    from tileyard.store.base import TrialQuery
    from tileyard.verbs.regress.plan.history import collect_history, find_commit
    from tileyard.verbs.regress.plan.revisions import Project
    from tileyard.verbs.regress.plan.tuned import find_tuned, is_named
    from tileyard.verbs.regress.view.case_history import print_case_history
    from tileyard.verbs.tune.view.trials import print_trials

    draw = open_picture(png, "tileyard.verbs.regress.view.history_figure:render_history")
    with open_store() as (store, home):
        trials = store.list_trials(TrialQuery(case=case, target=target, limit=0))
        kernel = TrialQuery(kernel=case.partition("/")[0], target=target, limit=0)
        trials += [one for one in store.list_trials(kernel) if is_named(one, case)]
    if device_class:
        trials = [one for one in trials if one.device.partition(":")[0] == device_class]
    trials = sorted({one.id: one for one in trials}.values(), key=lambda one: -one.started_at)
    winners = find_tuned(home, case, trials[::-1])
    commits = {find_commit(one.revision) for one in trials} - {""}
    project = Project.of(Path.cwd() / "any") if commits else None
    order = project.sort_commits(commits) if project else ()
    found = collect_history(case, trials, margin, order, winners)
    if not found.series:
        if not trials:
            raise UsageError(
                f"no run of {case} is recorded in {home}",
                "give a case as `tileyard test --list` or the table of regress prints it, or its "
                "beginning up to a slash; or a kernel that was tuned",
            )
        if png is not None:
            raise UsageError(
                f"--png draws what regress and tune timed, and they did not time {case}"
            )
        present(trials, as_json, print_trials)
        return 0
    present(found, as_json, print_case_history)
    draw(found)
    return 0


def _export(file: Path, target: str, device_class: str) -> int:
    """Write the expected times of the cases in this store, as a run of the suites would use them."""
    from tileyard.show.opening import open_store, write_file
    from tileyard.verbs.test.plan.durations import tabulate

    with open_store() as (store, home):
        table = tabulate(store.list_run_times(target), device_class)
        if not table:
            raise _refuse(store, home, target, device_class)
    write_file(file, table.encode())
    return 0


def _refuse(store: "Store", home: Path, target: str, device_class: str) -> UsageError:
    from tileyard.store.base import TrialQuery

    last = store.list_trials(TrialQuery(target=target, was_run=True, limit=1))
    kernel = last[0].kernel if last and not device_class else ""
    on = f" on a device of class {device_class}" if device_class else ""
    return UsageError(
        f"no case of a suite came to its end in {home} yet"
        + (f" for {target}" if target else "")
        + on,
        f"tileyard history {kernel} shows the times of that kernel" if kernel else "",
    )


def _parse_since(text: str, now_s: float) -> float:
    """A date, or a time before now (``7d`` too), in seconds since the epoch."""
    if days := re.fullmatch(r"(\d{1,6})d", text, re.ASCII):
        return now_s - 86400.0 * int(days[1])
    if re.match(r"\d{4}-", text):
        try:
            return datetime.datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError) as error:
            raise UsageError(f"--since: {text[:40]!r} is not a date such as 2026-11-14") from error
    try:
        return now_s - parse_duration_s(text, now_s)
    except UsageError as error:
        raise UsageError(
            f"--since: {text[:40]!r} is neither a date such as 2026-11-14 nor a time such as 7d or 12h"
        ) from error
