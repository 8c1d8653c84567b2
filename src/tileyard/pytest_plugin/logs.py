"""The files in which a test's process leaves what it had to say when it died."""

from pathlib import Path
from typing import Final

TAIL_BYTES: Final = 4096
STACK_BYTES: Final = 1 << 16
CALLERS: Final = ("/_pytest/", "/pluggy/", "/tileyard/pytest_plugin/")
"""What the innermost frame that is not the user's has in its path."""


def out_log(log: Path) -> Path:
    """Where its stdout goes; its stderr goes to ``log``."""
    return log.with_suffix(".out")


def stack_log(log: Path) -> Path:
    """Where a copy says where it was when it died of a signal."""
    return log.with_suffix(".stack")


def take_tail(path: Path, size: int = TAIL_BYTES, *, keep: bool = False) -> str:
    """The end of a file that is not needed any more, unless it is to be kept and not empty."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    if not (data and keep):
        path.unlink()
    return data[-size:].decode("utf-8", "replace").replace("\0", "").strip()


def cut_stack(text: str) -> str:
    """The user's frames: up to those of pytest, or of this module, which called them."""
    kept = []
    for line in text.splitlines():
        if any(part in line for part in CALLERS):
            break
        kept.append(line)
    return "\n".join(kept)
