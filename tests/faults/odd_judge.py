"""A judge with a fault: dies over its first question, never answers, or takes its time.

``TILEYARD_ODD_JUDGE`` is the fault; ``TILEYARD_ODD_NOTE`` names a file to which each question adds a line.
"""

import os
import signal
import sys
import time
from pathlib import Path

from tileyard.workers import judge
from tileyard.workers.protocol import CaseToJudge, Judged


class OddJudge(judge.Judge):
    """Notes what it was asked, and does what the environment says."""

    def judge(self, case: CaseToJudge) -> Judged:
        """The verdict, unless the fault comes first."""
        note, fault = Path(os.environ["TILEYARD_ODD_NOTE"]), os.environ["TILEYARD_ODD_JUDGE"]
        is_first = not note.exists()
        with note.open("a") as file:
            file.write("asked\n")
        if fault == "die" or (fault == "die once" and is_first):
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hang":
            signal.pause()
        if fault == "slow":
            time.sleep(0.05)
        return super().judge(case)


if __name__ == "__main__":
    judge.Judge = OddJudge  # type: ignore[misc]  # for the main program below
    judge.main(sys.argv[1])
