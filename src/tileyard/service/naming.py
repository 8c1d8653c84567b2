"""Names of runs."""

import secrets
import time
from pathlib import Path

from tileyard.store.base import Store, TrialQuery
from tileyard.store.events import begin_run_file


def claim_run_name(home: Path, store: Store) -> str:
    """A name that no other run of ``home`` has or will have; names sort by time.

    Year, month and day, hour and minute, four random digits. The name is claimed by the creation of
    the run's event stream, also against other processes. Raises HomeError where that cannot be made.
    """
    while True:
        name = f"{time.strftime('%Y%m%d-%H%M')}-{secrets.token_hex(2)}"
        # A collection of garbage may have removed the stream of a run that has trials.
        if begin_run_file(home, name) and not store.list_trials(TrialQuery(run=name, limit=1)):
            return name
