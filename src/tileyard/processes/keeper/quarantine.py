"""Keeps devices out of use: statements in ``quarantine/`` of the lock directory.
A statement is a file ``PART`` or ``PART@ANYTHING``, owned by who put the device there, with JSON:
``device``, ``reason``, ``since`` (seconds since the epoch), ``by`` (a pid), ``by_hand``. It counts
for all devices with the part. Anybody may state or lift: others, who cannot remove it in a sticky
directory, add ``PART@lifted.ANYTHING``, whose ``lifts`` names statements by inode and change time;
so touching one makes it count again, and no unseen one is lifted.
"""

import os
import stat
import time

from .files import open_directory, open_folders, remove

MAX_BYTES = 1 << 14
LIFTED = "lifted."
PROBES = "probes."
"""The start of the second part of a file name that is not a statement."""


class Quarantine:
    """Why a device is out of use, by whom: a person if ``by_hand``. ``token`` lifts this statement alone."""

    def __init__(self, name: str, status: os.stat_result, facts: dict[str, object]) -> None:
        self.name = name
        self.uid = status.st_uid
        self.token = f"{status.st_ino}:{status.st_ctime_ns}"
        self.device = str(facts.get("device") or name)
        self.reason = str(facts.get("reason") or "its quarantine file cannot be read")
        since, by = facts.get("since"), facts.get("by")
        self.since = float(since) if isinstance(since, int | float) else status.st_ctime
        self.by = by if isinstance(by, int) else 0
        self.by_hand = facts.get("by_hand") is True


class Quarantines:
    """The open folder of all statements on a host's devices."""

    def __init__(self, folder: int) -> None:
        """Takes ownership of the descriptor; -1 is a folder that does not exist, and contains nothing."""
        self.folder = folder

    def __enter__(self) -> "Quarantines":  # noqa: PYI034 - typing would cost 5 ms
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder. Harmless when repeated."""
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1

    # ---- reading ------------------------------------------------------------------------------

    def find(self, part: str, *, lifted: bool = False) -> list[Quarantine]:
        """The statements on one part that count, or ``lifted`` ones: people's first, then by time.
        Links, pipes and other parts' files say nothing; one that cannot be understood counts.
        """
        statements: list[Quarantine] = []
        lifts: set[object] = set()
        for name, rest in self.list_files(part):
            if rest.startswith(PROBES):
                continue
            status, data = self.read(name)
            if status is None:
                continue
            facts = parse_facts(data)
            if facts.get("part", part) != part:
                continue  # a second name of a statement about another part
            if rest.startswith(LIFTED):
                named = facts.get("lifts")
                lifts.update(map(str, named) if isinstance(named, list) else ())
            else:
                statements.append(Quarantine(name, status, facts))
        found = [one for one in statements if (one.token in lifts) == lifted]
        return sorted(found, key=lambda one: (not one.by_hand, one.since))

    def list_parts(self) -> set[str]:
        """All parts that are in quarantine."""
        stems = {name.partition("@")[0] for name in self._list_names()}
        return {stem for stem in stems if self.find(stem)}

    def list_files(self, part: str) -> list[tuple[str, str]]:
        """``(name, text after PART@)`` of all files about one part, the oldest name first."""
        about = [name.partition("@") for name in sorted(self._list_names())]
        return [(f"{first}{at}{rest}", rest) for first, at, rest in about if first == part]

    def read(self, name: str) -> tuple[os.stat_result | None, bytes]:
        """Status and content; no status if the file is gone or is not a plain file."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self.folder)
        except PermissionError:
            return self._stat_plain(name), b""
        except OSError:
            return None, b""
        try:
            status = os.fstat(fd)
            return (status, os.read(fd, MAX_BYTES)) if stat.S_ISREG(status.st_mode) else (None, b"")
        finally:
            os.close(fd)

    def _stat_plain(self, name: str) -> os.stat_result | None:
        """The status of an unreadable file, if it is a plain one."""
        try:
            status = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        except OSError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def _list_names(self) -> list[str]:
        return os.listdir(self.folder) if self.folder >= 0 else []

    # ---- writing ------------------------------------------------------------------------------

    def state(self, part: str, facts: dict[str, object]) -> None:
        """State that a part is sick, even if others already have. Raises OSError."""
        try:
            self.write(part, facts)
        except FileExistsError:  # another user's, or one that was lifted
            self.write(f"{part}@{os.urandom(6).hex()}", facts)

    def renew(self, statement: Quarantine) -> None:
        """Renew a statement of this user, so that no earlier lift or probe counts against it."""
        facts: dict[str, object] = {
            "device": statement.device,
            "reason": statement.reason,
            "since": statement.since,
            "by_hand": statement.by_hand,
        }
        self.write(f"{statement.name.partition('@')[0]}@{os.urandom(6).hex()}", facts)
        self.remove_own(statement.name, statement.uid)

    def lift(self, part: str) -> None:
        """Let a part be used again. Raises OSError if that cannot be recorded."""
        kept = []
        for statement in self.find(part):
            try:
                os.unlink(statement.name, dir_fd=self.folder)
            except FileNotFoundError:
                pass
            except PermissionError:
                kept.append(statement.token)
        if kept:
            self.write(f"{part}@{LIFTED}{os.urandom(6).hex()}", {"lifts": kept})
        self._remove_leftovers(part)

    def _remove_leftovers(self, part: str) -> None:
        """Remove, where allowed, statements that were lifted and lifts of statements that are gone."""
        for statement in self.find(part, lifted=True):
            self.remove_own(statement.name, statement.uid)
        tokens = {one.token for one in self.find(part, lifted=True)}
        for name, rest in self.list_files(part):
            status, data = self.read(name) if rest.startswith(LIFTED) else (None, b"")
            named = parse_facts(data).get("lifts")
            if status is not None and tokens.isdisjoint(named if isinstance(named, list) else ()):
                self.remove_own(name, status.st_uid)

    def remove_own(self, name: str, uid: int) -> None:
        """Remove a file that is this user's, or anyone's if this user is root."""
        if os.geteuid() in (0, uid):
            remove(self.folder, name)

    def write(self, name: str, facts: dict[str, object]) -> None:
        """Make a new file that everyone can read. Raises FileExistsError if there is one, OSError."""
        import json  # costs the keeper 5 ms, and such a file is rare

        part = name.partition("@")[0]
        data = json.dumps({**facts, "part": part, "by": os.getpid()}).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o644, dir_fd=self.folder)
        try:
            os.fchmod(fd, 0o644)  # separate, since open applies the umask
            os.write(fd, data)  # an empty file, on a full disk, still counts
        finally:
            os.close(fd)


def parse_facts(data: bytes) -> dict[str, object]:
    """The content of a quarantine file, empty if it is not JSON of the right shape."""
    import json

    try:
        facts = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


# ---- devices, by their lock files --------------------------------------------------------------


def open_quarantines(locks: list[str] | tuple[str, ...]) -> Quarantines:
    """The folder for a device with these lock files of one directory. Raises RefusedError if that
    cannot be trusted, OSError if it cannot be used.
    """
    if not locks:
        return Quarantines(-1)
    path = os.path.dirname(locks[0])
    try:
        root = open_directory(path)
    except FileNotFoundError:
        return Quarantines(-1)
    try:
        return Quarantines(*open_folders(root, path, ("quarantine",)))
    finally:
        os.close(root)


def name_part(lock: str) -> str:
    """The part of a device that a lock file belongs to."""
    return os.path.basename(lock).removesuffix(".lock")


def find_quarantine(locks: list[str] | tuple[str, ...]) -> Quarantine | None:
    """The first statement that keeps the device with these lock files out of use, if any."""
    with open_quarantines(locks) as quarantines:
        for lock in locks:
            if found := quarantines.find(name_part(lock)):
                return found[0]
    return None


def put_in_quarantine(locks: list[str] | tuple[str, ...], device: str, reason: str) -> None:
    """Keep everyone from using a device, if nobody does yet. Raises OSError if that cannot be recorded."""
    with open_quarantines(locks) as quarantines:
        sick = [lock for lock in locks if not quarantines.find(name_part(lock))]
    state_again(sick, device, reason)


def state_again(
    locks: list[str] | tuple[str, ...], device: str, reason: str, *, by_hand: bool = False
) -> None:
    """State that a device is sick, even if others already have. Raises OSError as above."""
    facts: dict[str, object] = {"device": device, "reason": reason, "since": time.time()}
    if by_hand:
        facts["by_hand"] = True
    with open_quarantines(locks) as quarantines:
        for lock in locks:
            quarantines.state(name_part(lock), facts)


def lift_quarantine(locks: list[str] | tuple[str, ...]) -> None:
    """Let a device be used again. Raises OSError if that cannot be recorded."""
    with open_quarantines(locks) as quarantines:
        for lock in locks:
            quarantines.lift(name_part(lock))
