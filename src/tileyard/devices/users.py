"""Users by name."""

import pwd


def name_user(uid: int) -> str:
    """A user's name, or the number where this host knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
