"""The file that takes all a runner prints. The runner moves what a case said to that case's log."""

import logging
import secrets
import shutil
from pathlib import Path

from tileyard.modes import make_folder, open_file

GENERAL = "logs/runner.log"
"""Where things go that were said for no case."""

log = logging.getLogger(__name__)


class RunnerOutput:
    """The output of one runner, below ``home``: a file of its own, so that nobody else's is in it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.path = home / "logs" / f"runner-{secrets.token_hex(4)}.log"

    def close(self, rest: str = GENERAL) -> None:
        """Once the runner is gone: append what is left to a log below ``home``, and remove the file.

        Harmless when repeated. A rest that cannot be written elsewhere stays where it is.
        """
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
