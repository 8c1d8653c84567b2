"""Live progress of a run: two lanes, building and running; plain lines where there is no terminal.

It draws only when something happened, at most ten times a second: a redraw costs CPU time that
belongs to the kernel being timed.
"""

from collections import Counter
from types import TracebackType
from typing import Self, assert_never

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tileyard.clock import Clock, SystemClock
from tileyard.events import (
    BuildEnded,
    BuildStarted,
    CaseEnded,
    CasePlanned,
    CaseStarted,
    DeviceAsked,
    DeviceAwaited,
    DeviceLeased,
    DeviceReleased,
    Event,
    Note,
    RunEnded,
    RunStarted,
)
from tileyard.model import WELL, Case, Outcome, Trial
from tileyard.report.screen import Screen
from tileyard.report.words import (
    format_config,
    format_rate,
    format_seconds,
    format_time,
    outcome_style,
)

REDRAW_S = 0.1
BAR_WIDTH = 24


class Progress:
    """A listener. Use as a context manager around the run, then call it with every event.

    Without ``tells_ends``, how cases ended is left to who shows the result.
    """

    def __init__(
        self, console: Console, clock: Clock | None = None, *, tells_ends: bool = True
    ) -> None:
        self._screen = Screen(console)
        self._tells_ends = tells_ends
        self._clock = clock or SystemClock()
        self._drawn_s = 0.0
        self._started_s = self._clock.monotonic_s()
        self._title = Text()
        self._expected = 0
        self._flops = 0.0
        self._cases: dict[str, Case] = {}
        self._built: set[str] = set()
        self._building: dict[str, None] = {}
        self._running: dict[str, None] = {}
        self._awaited: dict[str, None] = {}
        self._ended: Counter[str] = Counter()
        self._reused = 0
        self._best: Trial | None = None

    def __enter__(self) -> Self:
        self._screen.open(self._draw())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._screen.close()

    def __call__(self, event: Event) -> None:
        """Take in an event and redraw if it is time to."""
        match event:
            case RunStarted():
                self._begin(event)
            case CasePlanned(case=case):
                self._cases[case.id] = case
            case BuildStarted(case=case_id):
                self._building[case_id] = None
            case BuildEnded(case=case_id):
                self._building.pop(case_id, None)
                self._built.add(case_id)
            case DeviceAwaited(device=device, holder=holder):
                self._wait(device, holder)
            case DeviceLeased(device=device) | DeviceReleased(device=device):
                self._awaited.pop(device, None)
            case DeviceAsked():
                pass
            case CaseStarted(case=case_id):
                self._running[case_id] = None
            case CaseEnded(trial=trial):
                self._end(trial)
            case Note(text=text, level=level):
                self._screen.say(Text(text, style="yellow" if level == "warning" else ""))
            case RunEnded():
                pass
            case _:
                assert_never(event)
        self._redraw()

    def _begin(self, event: RunStarted) -> None:
        self._started_s = self._clock.monotonic_s()
        self._expected, self._flops = event.cases, event.flops
        for counted in (self._cases, self._built, self._ended):  # of the run before this one
            counted.clear()
        self._reused = 0
        devices = ", ".join(
            f"{device.name} ({len(device.cores)} cores)" if device.cores else device.name
            for device in event.devices
        )
        self._title = Text.assemble(
            (event.title, "bold"),
            f"  target {event.target}",
            f"  device {devices}" if devices else "",
            f"  run {event.run}",
        )
        if not self._screen.is_live:
            self._screen.say(self._title)

    def _wait(self, device: str, holder: str) -> None:
        if not self._screen.is_live and device not in self._awaited:
            self._screen.say(Text(f"waiting for {device}, held by {holder or 'somebody else'}"))
        self._awaited[device] = None

    def _end(self, trial: Trial) -> None:
        self._running.pop(trial.case, None)
        self._building.pop(trial.case, None)
        self._built.add(trial.case)
        self._ended[trial.case] += 1
        self._reused += trial.reused
        if trial.measurement is not None and trial.outcome in WELL:
            best = self._best.measurement if self._best is not None else None
            if best is None or trial.measurement.median_ns < best.median_ns:
                self._best = trial
        failed = trial.outcome not in WELL
        is_news = not (self._screen.is_live or trial.reused or trial.outcome is Outcome.SKIPPED)
        if self._tells_ends and (failed or is_news):
            self._screen.say(self._line(trial))

    def _line(self, trial: Trial) -> Text:
        line = Text.assemble(
            (f"{trial.outcome:<14}", outcome_style(trial.outcome)),
            f"{trial.batch}: " if trial.batch != trial.case else "",
            format_config(trial.config),
        )
        if trial.measurement is not None:
            median_ns = trial.measurement.median_ns
            line.append(f"  {format_time(median_ns)}")
            if rate := format_rate(self._flops, median_ns):
                line.append(f"  {rate} GFLOP/s")
            if trial.measurement.abandoned:
                line.append("  clearly slower, abandoned", style="dim")
        if trial.message:
            line.append(f"  {trial.message}", style="dim")
        return line

    def _redraw(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._screen.is_live and now_s - self._drawn_s >= REDRAW_S:
            self._drawn_s = now_s
            self._screen.show(self._draw())

    def _draw(self) -> Table:
        total = max(self._expected, len(self._cases), 1)
        lanes = Table.grid(padding=(0, 2))
        lanes.add_row(*self._lane("building", len(self._built), total, self._building))
        lanes.add_row(*self._lane("running", len(self._ended), total, self._running))
        grid = Table.grid()
        grid.add_row(self._title)
        grid.add_row(lanes)
        grid.add_row(self._foot())
        return grid

    def _lane(
        self, name: str, done: int, total: int, now: dict[str, None]
    ) -> tuple[Text, ProgressBar, Text, Text]:
        current = [format_config(self._cases[case].config) for case in now if case in self._cases]
        return (
            Text(name, style="cyan"),
            ProgressBar(total=total, completed=done, width=BAR_WIDTH),
            Text(f"{done}/{total}"),
            Text("  |  ".join(current), style="dim", no_wrap=True, overflow="ellipsis"),
        )

    def _foot(self) -> Text:
        foot = Text(format_seconds(self._clock.monotonic_s() - self._started_s), style="dim")
        if self._reused:
            foot.append(f"   {self._reused} known already")
        if self._awaited:
            foot.append(f"   waiting for {', '.join(self._awaited)}", style="yellow not dim")
        if self._best is not None and self._best.measurement is not None:
            median_ns = self._best.measurement.median_ns
            rate = format_rate(self._flops, median_ns)
            foot.append(f"   best {format_time(median_ns)}", style="bold not dim")
            foot.append(f"  {rate} GFLOP/s  " if rate else "  ")
            foot.append(format_config(self._best.config))
        return foot
