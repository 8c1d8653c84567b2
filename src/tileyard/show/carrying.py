"""How the caller wants a verb carried out."""

from collections.abc import Callable
from typing import Protocol

from tileyard.base.events import Event
from tileyard.base.settings import Settings
from tileyard.service.client import RunClient
from tileyard.service.verbs import ResultT, Verb
from tileyard.show.console import Console
from tileyard.show.progress import Layout, Progress


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
