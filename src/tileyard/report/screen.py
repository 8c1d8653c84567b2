"""Where the progress of a run is shown: one view that is redrawn on a terminal, else lines, one below another."""

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text


class Screen:
    """A console with at most one view, which stays below whatever is said."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None

    @property
    def is_live(self) -> bool:
        """There is a view. Else whoever wants to be heard has to say it."""
        return self._live is not None

    def open(self, view: RenderableType = "") -> None:
        """Begin with this view, if the console is a terminal."""
        if self.console.is_terminal:
            self._live = Live(view, console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def close(self) -> None:
        """Take the view away; what was said stays."""
        if self._live is not None:
            self._live.stop()

    def say(self, text: Text) -> None:
        """A line, whatever its length."""
        console = self._live.console if self._live is not None else self.console
        console.print(text, soft_wrap=True, highlight=False)

    def show(self, view: RenderableType) -> None:
        """Redraw, if there is a view."""
        if self._live is not None:
            self._live.update(view, refresh=True)
