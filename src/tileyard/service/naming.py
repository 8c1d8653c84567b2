"""Names of runs."""

import secrets
import time


def new_run_name() -> str:
    """A short name that sorts by time: month, day, hour, minute, and four random digits."""
    return f"{time.strftime('%m%d-%H%M')}-{secrets.token_hex(2)}"
