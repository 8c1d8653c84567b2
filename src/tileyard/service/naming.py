"""Names of runs."""

import secrets
import time
from pathlib import Path

from tileyard.store.base import Store, TrialQuery
from tileyard.store.events import begin_run_file


def claim_run_name(home: Path, store: Store) -> str:
    """Claim a unique name among all runs of ``home`` by creating its event stream; names sort by
    time. It is year, month and day, hour and minute, four random digits. Raises HomeError.
    """
    while True:
        name = f"{time.strftime('%Y%m%d-%H%M')}-{secrets.token_hex(2)}"
        # A garbage collection may have removed the stream of a run that has trials.
        if begin_run_file(home, name) and not store.list_trials(TrialQuery(run=name, limit=1)):
            return name
