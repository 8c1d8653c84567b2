"""Names of runs."""

import secrets
import time
from pathlib import Path

from tileyard.store.base import Store, TrialQuery
from tileyard.store.events import begin_run_file


def claim_run_name(home: Path, store: Store) -> str:
    """A unique name among all runs of ``home``, past and future; names sort by time.

    Year, month and day, hour and minute, four random digits. The name is claimed by the creation of the
    run's event stream, also against other processes. Raises HomeError if that cannot be created.
    """
    while True:
        name = f"{time.strftime('%Y%m%d-%H%M')}-{secrets.token_hex(2)}"
        # A garbage collection may have removed the stream of a run that has trials.
        if begin_run_file(home, name) and not store.list_trials(TrialQuery(run=name, limit=1)):
            return name
