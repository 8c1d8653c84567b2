"""What the keeper tells the engine: one JSON line per event, written by hand (json costs 5 ms)."""

import os


class RefusedError(Exception):
    """The worker cannot be started.

    ``step`` says which part failed, ``number`` is its errno or 0, ``pids`` are those in the way.
    """

    def __init__(self, step: str, number: int, pids: list[int] | None = None) -> None:
        super().__init__(step, number)
        self.step = step
        self.number = number
        self.pids = pids or []


def emit(event: str, **facts: int | list[int] | None) -> None:
    """Report an event; its facts are numbers, so that they need no quoting."""
    items = "".join(
        f', "{name}": {"null" if value is None else value}' for name, value in facts.items()
    )
    try:
        os.write(1, f'{{"event": "{event}"{items}}}\n'.encode())
    except OSError:
        pass  # the engine is gone: the tree still has to end
