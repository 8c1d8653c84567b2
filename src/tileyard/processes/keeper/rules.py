"""Root's settings for leases, in one line of a file of the lock directory that only its owner can write."""

import os

from .files import MAX_BYTES, escape, open_seen, unescape

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Iterable

SETTINGS = "settings"
KEEP_DAYS = 30
"""Days for which leases are logged if root has set none."""


class Rules:
    """``lease_s``: the longest lease by class of devices, "" for all others, 0 for any length.
    ``priority``: the highest one of users other than root, None for any. ``keep_days``: for how long
    the log keeps a lease, 0 for no log. ``log``: its folder, empty for the one in the lock directory.
    """

    def __init__(self, text: str = "") -> None:
        """Read the line; a word that is none of a setting, such as a later version's, is ignored."""
        self.lease_s: dict[str, float] = {}
        self.priority: int | None = None
        self.keep_days = KEEP_DAYS
        self.log = ""
        for word in text.split():
            name, _, value = word.partition("=")
            name, _, kind = name.partition(":")
            try:
                if name == "lease_s":
                    self.lease_s[kind] = float(value)
                elif name == "priority":
                    self.priority = int(value)
                elif name == "keep_days":
                    self.keep_days = int(value)
                elif name == "log":
                    self.log = unescape(value)
            except ValueError:
                pass

    def format(self) -> str:
        """The line."""
        words = [f"keep_days={self.keep_days}"]
        if self.log:
            words.append(f"log={escape(self.log)}")
        if self.priority is not None:
            words.append(f"priority={self.priority}")
        for kind, limit_s in sorted(self.lease_s.items()):
            words.append(f"lease_s:{kind}={limit_s:g}" if kind else f"lease_s={limit_s:g}")
        return " ".join(words)

    def find_limit_s(self, devices: "Iterable[str]") -> float:
        """The longest lease of these devices together, 0 for any length."""
        kinds = {name.partition(":")[0] for name in devices}
        limits = [self.lease_s.get(kind, self.lease_s.get("", 0.0)) for kind in kinds]
        return min(filter(None, limits), default=0.0)


def read_rules(root: int) -> Rules:
    """The settings of an open lock directory; those of nobody if its owner has made none."""
    seen = open_seen(root, SETTINGS)
    if seen is None:
        return Rules()
    try:
        is_owners = seen.uid == os.fstat(root).st_uid
        return Rules(os.read(seen.fd, MAX_BYTES).decode("ascii", "replace") if is_owners else "")
    finally:
        os.close(seen.fd)
