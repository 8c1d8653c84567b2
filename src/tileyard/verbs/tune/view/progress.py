"""The progress of tuning and of builds: lanes for building and running, and a line for each config; and that
of replays.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import ConsoleOptions, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tileyard.base.events import RepetitionStarted, RunStarted, is_final, is_meeting
from tileyard.base.model import Outcome
from tileyard.base.wording import count_of, shorten_path
from tileyard.measure.statistics import is_clearly_slower
from tileyard.show.console import Console
from tileyard.show.progress import Progress, list_hosts
from tileyard.show.view import Judged, RunView
from tileyard.show.words import (
    clean_line,
    format_config,
    format_measured,
    format_rate,
    format_seconds,
    format_time,
    outcome_style,
)
from tileyard.verbs.tune.view.compiled import name_end

BAR_WIDTH = 24
GAP = Text("   ")
OTHER_LINES = 7
"""Lines of the view beside those of hosts, one for the prompt, and what may be wrapped."""


class StudyLayout:
    """Names a case by its config. Without ``tells_ends``, the code that shows the result reports ends."""

    redraw_s = 0.1
    heartbeat_s = float("inf")
    tick_s = 0.0

    def __init__(self, *, tells_ends: bool = True) -> None:
        self._tells_ends = tells_ends

    def title(self, view: RunView) -> Text:
        """Title, target and devices."""
        about = view.about
        devices = ", ".join(
            f"{device.name} ({count_of(len(device.cores), 'core')})"
            if device.cores
            else device.name
            for device in about.devices
        )
        return Text.assemble(
            (about.title, "bold"),
            f"  target {about.target}",
            f"  device {devices}" if devices else "",
            f"  run {about.run}",
        )

    def end(self, view: RunView, judged: Judged, *, is_live: bool) -> Text | None:
        """Outcome, config and time; on a terminal, of finals and further checks, only failures. Of alike
        failures and of cases not reached only the first has a line: the result counts them.
        """
        trial = judged.trial
        is_check = trial.control and trial.measurement is None
        is_further = is_final(trial) or is_meeting(trial) or is_check
        is_known = is_live or trial.reused or trial.outcome is Outcome.SKIPPED or is_further
        if not self._tells_ends or (judged.verdict == "passed" and is_known):
            return None
        if judged.alike or (judged.verdict == "not_run" and view.counts[Outcome.NOT_RUN] > 1):
            return None
        line = Text.assemble(
            (f"{name_end(trial):<14}", outcome_style(trial.outcome)),
            f"{trial.shape}: " if trial.shape else "",
            f"{trial.batch.rpartition('/')[2]}: "
            if trial.batch != trial.case or trial.control
            else "",
            format_config(trial.config),
        )
        if trial.measurement is not None:
            median_ns = trial.measurement.median_ns
            line.append(f"  {format_measured(trial.measurement)}")
            if rate := format_rate(view.about.flops, median_ns):
                line.append(f"  {rate} GFLOP/s")
            if is_clearly_slower(trial.measurement):
                line.append("  clearly slower, abandoned", style="dim")
        if trial.message:
            line.append(f"  {trial.message}", style="dim")
        return line

    def draw(self, view: RunView, now_s: float, options: ConsoleOptions) -> Table:
        """Title, lanes, other hosts if there is room, and the best config so far."""
        lanes = Table.grid(padding=(0, 2))
        ended = view.ended - view.further["ended"]
        lanes.add_row(*_lane("building", ended + len(view.ready), view, view.building))
        if view.about.devices or view.started_s:
            lanes.add_row(*_lane("running", ended, view, view.started_s))
        grid = Table.grid()
        grid.add_row(self.title(view))
        grid.add_row(lanes)
        for line in list_hosts(view, options.size.height - OTHER_LINES):
            line.truncate(options.size.width)
            grid.add_row(line)
        for line in _fill(_list_facts(view, now_s), options.size.width):
            grid.add_row(line)
        return grid

    def state(self, view: RunView, now_s: float) -> Text:
        """The elapsed and the remaining time, what was lost, and the best config so far."""
        return GAP.join(_list_facts(view, now_s))


class ReplayLayout:
    """How many repetitions have ended, and which one is under way. It ticks: one may take minutes."""

    redraw_s = 0.1
    heartbeat_s = 30.0
    tick_s = 1.0

    def title(self, view: RunView) -> Text:
        """None: the result has it."""
        return Text()

    def end(self, view: RunView, judged: Judged, *, is_live: bool) -> Text | None:
        """No case ends."""
        return None

    def draw(self, view: RunView, now_s: float, options: ConsoleOptions) -> Table:
        """The state after a bar, in as many lines as it needs."""
        room = options.size.width - BAR_WIDTH - 2
        grid = Table.grid(padding=(0, 2))
        bar = ProgressBar(view.about.cases, view.repeated.total(), width=BAR_WIDTH)
        grid.add_row(bar, Group(*_fill(self._list_facts(view, now_s), room)))
        return grid

    def state(self, view: RunView, now_s: float) -> Text:
        """The repetitions that have ended, the elapsed and the remaining time, strategy and space."""
        return GAP.join(self._list_facts(view, now_s))

    def _list_facts(self, view: RunView, now_s: float) -> Iterator[Text]:
        yield Text(f"{view.repeated.total()}/{count_of(view.about.cases, 'repetition')}")
        yield Text(format_seconds(now_s - view.begun_s) + _say_left(view.pace_left_s(now_s)))
        if (now := view.repetition) is not None:
            yield Text(f"{now.strategy} on {clean_line(shorten_path(now.file))}")


@contextmanager
def show_replays(left: Counter[str]) -> Iterator[Callable[[str, str], None]]:
    """Show on stderr how far replays are; the function is called with strategy and file of each repetition
    that begins, of those ``left``.
    """
    left = left.copy()
    with Progress(Console(stderr=True), ReplayLayout()) as progress:
        progress(RunStarted(title="replay", run="replay", cases=left.total()))

        def begin(strategy: str, file: str) -> None:
            progress(RepetitionStarted(strategy=strategy, file=file, left=dict(left)))
            left[strategy] -= 1

        yield begin


def _say_left(left_s: float | None) -> str:
    return "" if left_s is None else f", about {format_seconds(left_s)} left"


def _list_facts(view: RunView, now_s: float) -> Iterator[Text]:
    """What a line says of a run, each fact by itself."""
    spent = format_seconds(now_s - view.begun_s)
    if (pairs := view.pairs) is not None:
        spent += f"   {pairs.decided} decided, {pairs.undecided} undecided{_say_left(pairs.left_s)}"
    else:
        spent += _say_left(view.pace_left_s(now_s))
    yield Text(spent, style="dim")
    if view.study is not None and view.study.expected_gain is not None:
        yield Text(f"expected gain {100 * view.study.expected_gain:.2g} %", style="dim")
    if known := view.reused - view.further["reused"]:
        yield Text(f"{known} known already", style="dim")
    if further := view.further["planned"]:
        yield Text(f"{view.further['ended']} of {further} finals and checks", style="dim")
    if losses := view.losses:
        yield Text(", ".join(f"{count} {why}" for why, count in losses.items()), style="dim")
    if view.awaited:
        yield Text(f"waiting for {', '.join(view.awaited)}", style="yellow")
    for best in view.best.values():
        if best.shape:  # one of many shapes, whose times cannot be compared
            continue
        median_ns = best.measurement.median_ns if best.measurement is not None else 0.0
        rate = format_rate(view.about.flops, median_ns)
        where = f" on {best.device}" if len(view.best) > 1 else ""
        yield Text.assemble(
            (f"best{where} {format_time(median_ns)}", "bold"),
            (f"  {rate} GFLOP/s  " if rate else "  ", "dim"),
            (format_config(best.config), "dim"),
        )


def _fill(facts: Iterable[Text], width: int) -> list[Text]:
    """Lines of at most this width, in which no fact is broken; one that is too long is cut."""
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + GAP.cell_len + fact.cell_len <= width:
            lines[-1] = GAP.join([lines[-1], fact])
        else:
            fact.truncate(width, overflow="ellipsis")
            lines.append(fact)
    return lines


def _lane(
    name: str, done: int, view: RunView, now: Iterable[str]
) -> tuple[Text, ProgressBar, Text, Text]:
    total = max(view.about.cases, view.planned - view.further["planned"], 1)
    cases = [view.open[key].case for key in now]
    current = [format_config(case.config) or case.id for case in cases]
    return (
        Text(name, style="cyan"),
        ProgressBar(total=total, completed=min(done, total), width=BAR_WIDTH),
        Text(f"{min(done, total)}/{total}"),
        Text("  |  ".join(current), style="dim", no_wrap=True, overflow="ellipsis"),
    )
