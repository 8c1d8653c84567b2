"""Shows the progress of a suite: counts, slots, the time left, and the running cases that end last."""

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import ConsoleOptions
from rich.text import Text

from tileyard.base.model import Outcome, Trial
from tileyard.base.wording import count_of
from tileyard.show.progress import list_hosts
from tileyard.show.view import DOUBT, Judged, Running, RunView
from tileyard.show.words import clean_line, format_case, format_seconds, outcome_style, why
from tileyard.verbs.test.view.words import ALIKE, Rerun, count_alike

OUTCOME_WIDTH = 14
TAIL_ROWS = 8
BAR_WIDTH = 24
MIN_NAME = 8
OTHER_LINES = 6
"""Lines that the view needs beside its tail, and one for the prompt."""


class SuiteLayout:
    """Names a case by its id. It ticks, because the end of a run can be one silent case."""

    redraw_s = 0.5
    heartbeat_s = 30.0
    tick_s = 1.0

    def __init__(self, home: Path, rerun: Rerun, *, is_verbose: bool = False) -> None:
        """Logs are below ``home``; ``rerun`` gives the command for a single case. If it ``is_verbose``, cases
        that passed have a line, too.
        """
        self._home = home
        self._rerun = rerun
        self._is_verbose = is_verbose

    def title(self, view: RunView) -> Text:
        """Title, and the numbers of cases and slots."""
        about = view.about
        counts = count_of(about.cases, "case")
        if about.devices:  # nothing is run where a bundle is made
            counts += f"  {count_of(len(about.devices), 'slot')}"
        return Text.assemble((clean_line(about.title), "bold"), f"  {counts}  run {about.run}")

    def end(self, view: RunView, judged: Judged, *, is_live: bool) -> Text | None:
        """A failure, its log and how to run it again: one line in a log, three on a terminal."""
        trial, verdict = judged.trial, judged.verdict
        case, outcome = trial.case, trial.outcome
        if verdict == "flaky":
            passed = f"{clean_line(case)}: {outcome} at attempt {trial.attempt}"
            return Text.assemble((f"{'flaky':<{OUTCOME_WIDTH}}", "yellow"), passed)
        if verdict == "passed" and self._is_verbose:
            return _tell_passed(trial)
        if verdict in ("passed", "not_run"):
            return None
        shown = count_alike(trial) - 1
        if judged.alike >= shown and not self._is_verbose:
            return _tell_alike(trial) if judged.alike == shown == ALIKE - 1 else None
        remark = "failed, will be tried again" if verdict == "retried" else ""
        if not remark and case in view.spared:
            remark = "in quarantine, does not gate"
        line = Text.assemble(
            (f"{outcome:<{OUTCOME_WIDTH}}", "yellow" if remark else outcome_style(outcome)),
            (format_case(case, trial.attempt), "bold"),
            f": {why(trial)}",
            f" ({remark})" if remark else "",
        )
        gap = "\n" + " " * OUTCOME_WIDTH if is_live else "  "
        if trial.log:
            line.append(f"{gap}log: {clean_line(str(self._home / trial.log))}", style="dim")
        if verdict != "retried":
            line.append(f"{gap}rerun: {clean_line(self._rerun(case))}", style="dim")
        return line

    def draw(self, view: RunView, now_s: float, options: ConsoleOptions) -> Text:
        """A view of the console's size, if that has room for more than its frame: one text of lines padded
        and cut here, as tables would cost four times as much.
        """
        width, height = options.size
        hosts = list_hosts(view, height - OTHER_LINES - 1)
        rows = max(1, min(TAIL_ROWS, height - OTHER_LINES - len(hosts)))
        running = view.running(now_s)
        counts = _counts(view) or [Text("nothing has ended yet", style="dim")]
        lines = [self.title(view), _bar(view, now_s, options.ascii_only), Text("  ").join(counts)]
        lines.append(Text("  ").join(_slots(view)))
        lines += [*hosts, *_tail(running[:rows], width)]
        if (hidden := len(running) - rows) > 0:
            lines.append(Text(f"  and {hidden} more with less time left", style="dim"))
        for line in lines:
            line.truncate(width, overflow="crop" if options.ascii_only else "ellipsis")
        drawn = Text("\n").join(lines)
        drawn.no_wrap = True
        return drawn

    def state(self, view: RunView, now_s: float) -> Text:
        """The same in one line, with the case that has the most time left."""
        elapsed = format_seconds(now_s - view.begun_s)
        parts = [Text(f"{elapsed}: {view.ended}/{count_of(view.about.cases, 'case')}")]
        parts += _counts(view) + _slots(view)
        if left := _say_left(view, now_s):
            parts.append(Text(left))
        for last in view.running(now_s)[:1]:
            case = format_case(last.case.id, last.case.attempt)
            parts.append(Text(f"longest: {case}, {_when(last)}"))
        return Text("; ").join(parts)


def _tell_passed(trial: Trial) -> Text:
    """The run time of a case, or why it did not have to run."""
    told = f": {why(trial)}" if trial.message else f"  {format_seconds(trial.run_s)}"
    outcome = (f"{trial.outcome:<{OUTCOME_WIDTH}}", outcome_style(trial.outcome))
    return Text.assemble(outcome, clean_line(trial.case), (told, "dim"))


def _tell_alike(trial: Trial) -> Text:
    """The last line about cases that fail with the same message."""
    outcome = (f"{trial.outcome:<{OUTCOME_WIDTH}}", outcome_style(trial.outcome))
    text = (
        f": the same message as {ALIKE - 1} cases before; more of these are not shown until the end"
    )
    return Text.assemble(outcome, (format_case(trial.case, trial.attempt), "bold"), text)


def _counts(view: RunView) -> list[Text]:
    parts = [
        Text(f"{view.counts[outcome]} {outcome}", style=outcome_style(outcome))
        for outcome in Outcome
        if view.counts[outcome]
    ]
    if view.flaky:
        parts.append(Text(f"{len(view.flaky)} flaky", style="yellow"))
    if view.again:
        parts.append(Text(f"{len(view.again)} to be tried again", style="yellow"))
    return parts


def _slots(view: RunView) -> list[Text]:
    slots = count_of(len(view.about.devices), "slot")
    parts = [Text(f"{len(view.on_device)}/{slots} in use")] if view.about.devices else []
    if view.targets is not None and view.targets.built < view.targets.total:
        built = f"{view.targets.built}/{count_of(view.targets.total, 'target')} built"
        parts.append(Text(built))
    elif view.building:
        parts.append(Text(f"{len(view.building)} building"))
    if view.awaited:
        few = ", ".join(list(view.awaited)[:3]) + (", ..." if len(view.awaited) > 3 else "")
        parts.append(Text(f"waiting for {few}", style="yellow"))
    return parts


def _bar(view: RunView, now_s: float, is_ascii: bool) -> Text:
    """The share of cases that have ended, drawn and as figures."""
    ended, total = view.ended, view.about.cases
    done = BAR_WIDTH * min(ended, total) // max(total, 1)
    stroke = "=" if is_ascii else "\u2501"
    return Text.assemble(
        (stroke * done, "green"),
        ((" " if is_ascii else stroke) * (BAR_WIDTH - done), "bright_black"),
        f"  {ended}/{total}  ",
        (format_seconds(now_s - view.begun_s), "dim"),
        ("  " + _say_left(view, now_s), "bold"),
    )


def _tail(running: Sequence[Running], width: int) -> list[Text]:
    """One line per case; the names of cases are cut to fit."""
    names = [format_case(one.case.id, one.case.attempt) for one in running]
    times = [format_seconds(max(0.0, one.ran_s)) for one in running]
    ends = [_when(one) for one in running]
    device = max((cell_len(one.device) for one in running), default=0)
    ran = max(map(len, times), default=0)
    room = width - device - ran - max(map(len, ends), default=0) - 8
    name = max(MIN_NAME, min(room, max(map(cell_len, names), default=0)))
    return [
        Text.assemble(
            ("  " + set_cell_size(one.device, device), "cyan"),
            "  " + _fit(case, name),
            f"  {ran_s:>{ran}}  ",
            (end, "yellow" if one.left_s is not None and one.left_s < 0 else ""),
        )
        for one, case, ran_s, end in zip(running, names, times, ends, strict=True)
    ]


def _fit(name: str, width: int) -> str:
    """A name padded, or cut at its beginning: its end distinguishes it from its neighbours."""
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    while cell_len(name) > width - 1:
        name = name[1:]
    return set_cell_size(f"\u2026{name}", width)


def _when(one: Running) -> str:
    """The expected end of a running case."""
    if one.left_s is not None and one.left_s >= 0:
        return _left(one.left_s)
    limit = f"limit in {format_seconds(one.limit_s)}" if one.limit_s > 0 else "at its limit"
    return limit if one.left_s is None else f"{format_seconds(-one.left_s)} over, {limit}"


def _say_left(view: RunView, now_s: float) -> str:
    """The time left: a guess as long as too few cases, also of earlier runs, show how long they take."""
    left_s = view.left_s(now_s)
    is_guess = view.about.is_guess and view.measured < DOUBT and left_s is not None
    return _left(left_s) + (", a guess" if is_guess else "")


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f"about {format_seconds(left_s)} left"
