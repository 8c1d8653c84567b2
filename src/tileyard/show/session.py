"""Carries out verbs for the command line: progress and Ctrl-C."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tileyard.base.events import Event
from tileyard.base.settings import Settings
from tileyard.service.client import RunClient
from tileyard.service.verbs import ResultT, Verb
from tileyard.show.console import Console, silence
from tileyard.show.progress import Layout, Progress

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore(_event: Event) -> None:
    """Ignore the event."""


class Carry(Protocol):
    """Runs a verb to its end as its caller likes, and returns its result; ``hear`` gets each event first."""

    def __call__(
        self,
        verb: Verb[ResultT],
        settings: Settings,
        layout: Layout,
        hear: Callable[[Event], None] = ignore,
    ) -> ResultT:
        """Run it. Raises TileyardError if it is invalid, and if it was ended at once."""
        ...


def run_shown(
    client: RunClient[ResultT],
    console: Console,
    layout: Layout,
    hear: Callable[[Event], None],
) -> ResultT:
    """Run to the end, with progress on a console."""
    with Progress(console, layout) as progress:

        def listen(event: Event) -> None:
            hear(event)
            progress(event)

        return client.run(listen)


def carry_on(console: Console) -> Carry:
    """A function that carries out verbs and shows them on a console."""

    def carry(
        verb: Verb[ResultT],
        settings: Settings,
        layout: Layout,
        hear: Callable[[Event], None] = ignore,
    ) -> ResultT:
        return carry_out(verb, settings, console, layout, hear)

    return carry


def carry_out(
    verb: Verb[ResultT],
    settings: Settings,
    console: Console,
    layout: Layout,
    hear: Callable[[Event], None] = ignore,
) -> ResultT:
    """Run a verb to its end, with progress on the console; return its result. ``hear`` gets each
    event before it is shown, the first one before anything is run.
    """
    client = RunClient(verb, settings)
    with stop_on_interrupt(client):
        return run_shown(client, console, layout, hear)


@contextlib.contextmanager
def stop_on_interrupt(client: RunClient[Any]) -> Iterator[None]:
    """Ctrl-C once: finish what runs; twice, SIGTERM or SIGHUP: end all at once. Ignored signals stay so."""
    pressed = 0

    def press(number: int, _frame: object) -> None:
        nonlocal pressed
        pressed += 1
        if number == signal.SIGHUP:
            for stream in (sys.stdout, sys.stderr):
                if stream.isatty():
                    silence(stream)
        client.stop(now=pressed > 1 or number != signal.SIGINT)

    before = {number: signal.getsignal(number) for number in STOPPING}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, press)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
