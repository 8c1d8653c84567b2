"""What a run's event log adds to its result."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from tileyard.base.errors import HomeError
from tileyard.show.timeline import Timeline, fold_run
from tileyard.show.view import RunView
from tileyard.store.events import read_events, run_file


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The state of a run in the data directory ``home`` after all its events, and its timeline; they may be
    gone.
    """

    home: Path
    view: RunView = field(default_factory=RunView)
    timeline: Timeline | None = None

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What was asked, and when, if that is recorded."""
        about = self.view.about
        if not about.run:
            return ()
        begun = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(about.at))
        return (("asked", about.title), ("begun", begun))


def read_log(home: Path, run: str) -> RunLog:
    """The log of a run; an empty one if it is gone or cannot be read."""
    try:
        timeline, view = fold_run(read_events(run_file(home, run)))
    except HomeError:
        return RunLog(home=home)
    return RunLog(home=home, view=view, timeline=timeline)
