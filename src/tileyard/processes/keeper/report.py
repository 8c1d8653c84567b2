"""Writes the keeper's reports to its starter: one JSON line per event, written by hand (json costs 5 ms)."""

import os

reports = 1
"""The descriptor for the lines."""


class RefusedError(Exception):
    """The worker cannot be started: ``step`` failed with errno ``number``, or 0; ``text`` is its object."""

    def __init__(self, step: str, number: int, text: str = "") -> None:
        super().__init__(step, number)
        self.step = step
        self.number = number
        self.text = text


def emit(event: str, **facts: int | str | list[int] | None) -> None:
    """Report an event."""
    items = "".join(f', "{name}": {format_fact(value)}' for name, value in facts.items())
    try:
        os.write(reports, f'{{"event": "{event}"{items}}}\n'.encode())
    except OSError:
        pass  # the engine is gone: the tree still has to end


def format_fact(value: int | str | list[int] | None) -> str:
    """A value as JSON. Bytes that are not text become question marks."""
    if isinstance(value, str):
        clean = value.encode("utf-8", "replace").decode()
        return (
            '"' + "".join(f"\\u{ord(c):04x}" if c < " " or c in '"\\' else c for c in clean) + '"'
        )
    return "null" if value is None else str(value)
