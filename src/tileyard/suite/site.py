"""Where a suite is run, and how much of the machine its steps may use."""

from dataclasses import dataclass
from pathlib import Path

from tileyard.targets.command.step_site import StepSite


@dataclass(frozen=True, kw_only=True)
class SuiteSite:
    """Where a suite is run. ``toolchain`` is the digest of the toolchain that its steps use, empty for none.

    ``threads`` is how many threads a golden or check step may use, ``lanes`` how many run at once.
    """

    home: Path
    run: str
    folder: Path
    cores: tuple[int, ...]
    lanes: int
    threads: int
    toolchain: str = ""

    def generalize(self, template: str) -> str:
        """A template without the place of this suite, so that an equal one elsewhere has equal keys."""
        return StepSite(suite=str(self.folder)).generalize(template)
