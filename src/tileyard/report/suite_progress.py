"""Live progress of a suite's run; plain lines where there is no terminal.

Failures are printed as they happen. Everything else is drawn a few times a second at most, or told once
in half a minute: a redraw costs CPU time that belongs to the cases. A thread of its own keeps
the view going while nothing happens, because the tail of a run can be one silent case.
"""

import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self, assert_never

from rich.console import Console
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
from tileyard.model import WELL, Outcome, Trial
from tileyard.report.screen import Screen
from tileyard.report.suite_forecast import Forecast
from tileyard.report.suite_live import Drawn, draw, say_state
from tileyard.report.suite_words import Rerun, format_case, say_why
from tileyard.report.words import clean_line, outcome_style
from tileyard.suite.records import is_retried, split_attempt
from tileyard.wording import count_of

REDRAW_S = 0.5
HEARTBEAT_S = 30.0
TICK_S = 1.0
OUTCOME_WIDTH = 14


class SuiteProgress:
    """A listener. Use as a context manager around the run, then call it with every event."""

    def __init__(
        self, console: Console, home: Path, rerun: Rerun, clock: Clock | None = None
    ) -> None:
        """Logs lie below ``home``; ``rerun`` gives the command that runs just one case."""
        self._screen = Screen(console)
        self._home = home
        self._rerun = rerun
        self._clock = clock or SystemClock()
        self._forecast = Forecast()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._ticking: threading.Thread | None = None
        self._shown_s = self._started_s = self._clock.monotonic_s()
        self._title = Text()
        self._counts: Counter[Outcome] = Counter()
        self._flaky = 0
        self._retries = 0
        self._spared: frozenset[str] = frozenset()
        self._failed: dict[str, Outcome] = {}
        self._again: set[str] = set()
        self._building: set[str] = set()
        self._awaited: dict[str, str] = {}
        self._is_stopped = False

    def __enter__(self) -> Self:
        self._screen.open()
        self._ticking = threading.Thread(target=self._keep_ticking, name="progress", daemon=True)
        self._ticking.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._ticking is not None:
            self._ticking.join()
        self._screen.close()

    def __call__(self, event: Event) -> None:
        """Take in an event, and show what there is to show."""
        with self._lock:
            self._take(event)
            self._show()

    def tick(self) -> None:
        """Show how far things are, if it is time to, although nothing happened."""
        with self._lock:
            self._show()

    def _keep_ticking(self) -> None:
        while not self._over.wait(TICK_S):
            self.tick()

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._begin(event)
            case CasePlanned(case=case):
                self._forecast.add(event)
                self._take_back(*split_attempt(case.id))
            case BuildStarted(case=case_id):
                self._building.add(case_id)
            case BuildEnded(case=case_id):
                self._building.discard(case_id)
            case DeviceAwaited(device=device, holder=holder):
                self._wait(device, holder)
            case DeviceLeased(device=device):
                self._awaited.pop(device, None)
                self._forecast.gain(device)
            case DeviceReleased(device=device):
                self._awaited.pop(device, None)
                self._forecast.gain(device)
                self._forecast.leave(device)
            case DeviceAsked():
                pass
            case CaseStarted(case=case_id, device=device):
                self._forecast.start(case_id, device, self._clock.monotonic_s())
            case CaseEnded(trial=trial):
                self._end(trial)
            case Note(text=text, level=level):
                self._screen.say(
                    Text(clean_line(text), style="yellow" if level == "warning" else "")
                )
            case RunEnded():
                pass
            case _:
                assert_never(event)

    def _begin(self, event: RunStarted) -> None:
        self._started_s = self._clock.monotonic_s()
        self._shown_s = self._started_s if not self._screen.is_live else float("-inf")
        slots = len(event.devices)
        self._forecast.begin(slots, event.cases, event.expected_s)
        self._retries, self._spared = event.retries, frozenset(event.spared)
        self._title = Text.assemble(
            (clean_line(event.title), "bold"),
            f"  {count_of(event.cases, 'case')}  {count_of(slots, 'slot')}  run {event.run}",
        )
        if not self._screen.is_live:
            self._screen.say(self._title)

    def _wait(self, device: str, holder: str) -> None:
        if not self._screen.is_live and device not in self._awaited:
            who = clean_line(holder) or "somebody else"
            self._screen.say(Text(f"waiting for {device}, held by {who}"))
        self._awaited[device] = holder
        self._forecast.lack(device)

    def _end(self, trial: Trial) -> None:
        self._building.discard(trial.case)
        self._forecast.end(trial)
        name, attempt = split_attempt(trial.case)
        self._again.discard(name)
        outcome = trial.outcome
        self._is_stopped = self._is_stopped or outcome is Outcome.NOT_RUN
        if not self._is_stopped and is_retried(outcome, attempt, self._retries):
            self._again.add(name)
            self._screen.say(self._line(trial, name, attempt, "failed, will be tried again"))
            return
        self._counts[outcome] += 1
        if outcome in WELL and attempt > 1:
            self._flaky += 1
            passed = f"{clean_line(name)}: {outcome} at attempt {attempt}"
            self._screen.say(Text.assemble((f"{'flaky':<{OUTCOME_WIDTH}}", "yellow"), passed))
        elif outcome not in WELL and outcome is not Outcome.NOT_RUN:
            self._failed[name] = outcome
            remark = "in quarantine, does not gate" if name in self._spared else ""
            self._screen.say(self._line(trial, name, attempt, remark))

    def _take_back(self, name: str, attempt: int) -> None:
        """A case is tried again although nobody had said so: it has no outcome yet."""
        if attempt > 1 and (outcome := self._failed.pop(name, None)) is not None:
            self._counts[outcome] -= 1
            self._again.add(name)

    def _line(self, trial: Trial, name: str, attempt: int, remark: str) -> Text:
        """What failed, where its log is and how to run it again: one line in a log, three on a terminal."""
        why = say_why(trial.message, trial.mismatch, trial.outcome)
        line = Text.assemble(
            (
                f"{trial.outcome:<{OUTCOME_WIDTH}}",
                "yellow" if remark else outcome_style(trial.outcome),
            ),
            (format_case(name, attempt), "bold"),
            f": {why}",
            f" ({remark})" if remark else "",
        )
        gap = "  " if not self._screen.is_live else "\n" + " " * OUTCOME_WIDTH
        if trial.log:
            line.append(f"{gap}log: {clean_line(str(self._home / trial.log))}", style="dim")
        if name not in self._again:
            line.append(f"{gap}rerun: {clean_line(self._rerun(name))}", style="dim")
        return line

    def _show(self) -> None:
        now_s = self._clock.monotonic_s()
        period_s = HEARTBEAT_S if not self._screen.is_live else REDRAW_S
        if now_s - self._shown_s < period_s or not self._title:
            return
        self._shown_s = now_s
        drawn = Drawn(
            title=self._title,
            elapsed_s=now_s - self._started_s,
            total=self._forecast.total,
            counts=self._counts,
            flaky=self._flaky,
            again=len(self._again),
            slots=self._forecast.slots,
            busy=self._forecast.busy,
            building=len(self._building),
            awaited=tuple(self._awaited),
            left_s=self._forecast.left_s(now_s),
            running=tuple(self._forecast.running(now_s)),
        )
        if self._screen.is_live:
            options = self._screen.console.options
            view = draw(drawn, *options.size, is_ascii=options.ascii_only)
            self._screen.show(view)
        else:
            self._screen.say(say_state(drawn))
