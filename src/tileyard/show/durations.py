"""Parses times as people write them, without loading what other options need."""

import re

from tileyard.base.clock import LONGEST_S
from tileyard.base.errors import UsageError

UNITS_S = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration_s(text: str, longest_s: float = LONGEST_S) -> float:
    """``90``, ``500ms``, ``60s``, ``5m`` or ``1h``, in seconds. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration such as 60s or 5m")
    seconds = float(match[1]) * UNITS_S[match[2] or ""]
    if seconds > longest_s:
        raise UsageError(f"{text[:40]!r} is too long: a duration has at most {longest_s:.0f} s")
    return seconds


def spell_duration(seconds: float) -> str:
    """Seconds as people write them: ``120s``, from five whole minutes on ``30m``."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:g}m" if minutes >= 5 and not rest else f"{seconds:g}s"
