"""Where a suite is run, and how much of the machine its steps may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SuiteSite:
    """Where a suite is run. ``places`` and ``env`` come from a toolchain that it uses, if any.

    ``threads`` is how many threads a golden or check step may use, ``lanes`` how many run at once.
    """

    home: Path
    run: str
    folder: Path
    cores: tuple[int, ...]
    lanes: int
    threads: int
    places: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
