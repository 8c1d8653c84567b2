"""Shows a run's progress: a view, redrawn a few times a second on a terminal or notebook, else
plain lines. Failed cases are printed as they end. A layout defines lines and view of a kind of run.
"""

import threading
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tileyard.base.clock import Clock
from tileyard.base.events import (
    DeviceAwaited,
    Event,
    HostJoined,
    HostLost,
    Note,
    RunStarted,
    describe_joined,
    describe_lost,
)
from tileyard.base.wording import count_of
from tileyard.show.view import Judged, RunView
from tileyard.show.words import clean_line

if TYPE_CHECKING:
    from tileyard.show.notebook import NotebookView

HOLDER_LENGTH = 160
"""Characters shown of a holder and its command."""
MOST_HOSTS = 6
"""Most hosts with a line of their own."""
SHARE, SLOWEST_S = 4, 300.0
"""The share of a run's time after which a line is printed again, and the longest time without one."""


class Layout(Protocol):
    """How the progress of one kind of run looks: a view at most every ``redraw_s``, lines without a
    terminal every ``heartbeat_s``, longer in long runs; on events, and every ``tick_s`` if not 0.
    """

    redraw_s: float
    heartbeat_s: float
    tick_s: float

    def title(self, view: RunView) -> Text:
        """The run as a whole; empty if that has no line."""
        ...

    def end(self, view: RunView, judged: Judged, *, is_live: bool) -> Text | None:
        """The end of an attempt, None if it is not shown."""
        ...

    def state(self, view: RunView, now_s: float) -> Text:
        """The state in a line."""
        ...

    def draw(self, view: RunView, now_s: float, options: ConsoleOptions) -> RenderableType:
        """The state as it is redrawn on a terminal."""
        ...


def list_hosts(view: RunView, room: int) -> list[Text]:
    """A line on each of several other hosts, one on all of them if they are many or there is no ``room``."""
    hosts = view.hosts
    if len(hosts) < 2 or room < 1:
        return []
    if len(hosts) > min(MOST_HOSTS, room):
        busy, devices = (
            sum(getattr(use, name) for use in hosts.values()) for name in ("busy", "devices")
        )
        building = sum(use.building for use in hosts.values())
        line = Text(
            f"{len(hosts)} hosts: {busy}/{count_of(devices, 'device')} busy, {building} building"
        )
        return [line.append(f", {len(view.lost)} lost", style="yellow") if view.lost else line]
    width = max(map(len, hosts))
    lines = []
    for name, use in hosts.items():
        line = Text.assemble((f"  {name:<{width}}", "cyan"))
        if name in view.lost:
            line.append(f"  lost: {clean_line(view.lost[name].why)}", style="yellow")
        else:
            line.append(
                f"  {use.busy}/{use.devices} busy  {use.building} building  {use.ended} ended"
            )
        lines.append(line)
    return lines


class Progress:
    """A listener. Use as a context manager around the run, then call it with every event."""

    def __init__(self, console: Console, layout: Layout, clock: Clock | None = None) -> None:
        self._console = console
        self._layout = layout
        self._clock = clock or Clock()
        self._view = RunView()
        self._live: Live | NotebookView | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._ticking = threading.Thread(target=self._keep_ticking, name="progress", daemon=True)
        self._shown_s = float("-inf")

    def __enter__(self) -> Self:
        if self._console.is_jupyter:
            from tileyard.show.notebook import NotebookView

            self._live = NotebookView()
        elif self._console.is_terminal:
            self._live = Live("", console=self._console, auto_refresh=False, transient=True)
        if self._live is not None:
            self._live.start()
        if self._layout.tick_s:
            self._ticking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._ticking.is_alive():
            self._ticking.join()
        if self._live is not None:
            if self._view.about.run:  # a terminal's view is erased, a notebook's stays
                now_s = self._clock.monotonic_s()
                title, state = self._layout.title(self._view), self._layout.state(self._view, now_s)
                self._live.update(Group(title, state))
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Process an event, and show its effects."""
        with self._lock:
            self._view.take(event, self._clock.monotonic_s())
            line = self._say()
            if line is not None:
                self._print(line)
            self._show()

    def tick(self) -> None:
        """Show the state, if it is time to, although nothing happened."""
        with self._lock:
            self._show()

    def _keep_ticking(self) -> None:
        while not self._over.wait(self._layout.tick_s):
            self.tick()

    def _say(self) -> Text | None:
        """The lines for the last event's change. A terminal's view shows some of it."""
        is_live = self._live is not None
        match self._view.changed:
            case Judged() as judged:
                return self._layout.end(self._view, judged, is_live=is_live)
            case Note(text=text, level=level):
                return Text(clean_line(text), style="yellow" if level == "warning" else "")
            case HostLost() as lost:
                return Text(clean_line(describe_lost([lost])[0]), style="yellow")
            case HostJoined() as joined:
                return Text(clean_line(describe_joined(joined)))
            case RunStarted():
                self._shown_s = float("-inf") if is_live else self._view.begun_s
                return None if is_live else self._layout.title(self._view) or None
            case DeviceAwaited(device=device, holder=holder) if not is_live:
                who = clean_line(holder, HOLDER_LENGTH) or "somebody else"
                return Text(f"waiting for {device}, held by {who}")
            case _:
                return None

    def _show(self) -> None:
        now_s = self._clock.monotonic_s()
        layout, live = self._layout, self._live
        slower_s = min((now_s - self._view.begun_s) / SHARE, SLOWEST_S)
        period_s = max(layout.heartbeat_s, slower_s) if live is None else layout.redraw_s
        if now_s - self._shown_s < period_s or not self._view.about.run:
            return
        self._shown_s = now_s
        if live is None:
            self._print(layout.state(self._view, now_s))
        else:
            live.update(layout.draw(self._view, now_s, self._console.options), refresh=True)

    def _print(self, line: Text) -> None:
        if self._live is None or isinstance(self._live, Live):
            self._console.print(line, soft_wrap=True, highlight=False)
        else:
            self._live.add(line)
