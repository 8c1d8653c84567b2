"""The progress of a run in a notebook: one updated output. The only module that imports IPython."""

from collections import deque
from typing import Any

from IPython.display import DisplayHandle
from rich.console import Group, RenderableType
from rich.text import Text

from tileyard.show.console import render

LINES = 10
"""Maximum number of lines shown above the view: notes, and cases that failed. Earlier ones are counted."""
WIDTH = 100
"""Width of the output, in characters."""


class NotebookView:
    """Draws a view below the last lines: started, updated and stopped like ``rich.live.Live``."""

    def __init__(self) -> None:
        self._handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]  # IPython's
        self._lines: deque[Text] = deque(maxlen=LINES)
        self._added = 0
        self._drawn: RenderableType = ""

    def start(self) -> None:
        """Open the output."""
        self._handle.display(self._bundle(), raw=True)

    def add(self, line: Text) -> None:
        """Put a line above the view."""
        self._lines.append(line)
        self._added += 1
        self.update(self._drawn)

    def update(self, drawn: RenderableType, *, refresh: bool = True) -> None:
        """Replace the view with a new one."""
        self._drawn = drawn
        if refresh:
            self._handle.update(self._bundle(), raw=True)

    def stop(self) -> None:
        """Leave the last drawing in place."""

    def _bundle(self) -> dict[str, str]:
        earlier = self._added - len(self._lines)
        head = [Text(f"{earlier} earlier lines", style="dim")] if earlier else []
        shown = Group(*head, *self._lines, self._drawn)
        return render(WIDTH, lambda console: console.print(shown))
