"""Holds the file that receives all output of a runner, which moves each case's output to its log."""

import logging
import secrets
import shutil
from pathlib import Path

from tileyard.base.modes import make_folder, open_file

GENERAL = "logs/runner.log"
"""The log for output that belongs to no case."""

log = logging.getLogger(__name__)


class RunnerOutput:
    """The output of one runner, in a file of its own below ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.path = home / "logs" / f"runner-{secrets.token_hex(4)}.log"

    def close(self, rest: str = GENERAL) -> None:
        """Append what is left to a log below ``home`` and remove the file, if possible. Repeatable."""
        try:
            with self.path.open("rb") as output:
                if self.path.stat().st_size:
                    path = self._home / rest
                    make_folder(path.parent)
                    with open(path, "ab", opener=open_file) as file:
                        shutil.copyfileobj(output, file)
            self.path.unlink()
        except FileNotFoundError:
            pass  # it never began
        except OSError as error:
            log.warning("what a runner printed stays in %s: %s", self.path, error)
