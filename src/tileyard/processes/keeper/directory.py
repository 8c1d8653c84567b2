"""Reads and writes the lock directory of a host: requests that wait, leases that are held.
``requests/`` has a file per waiting request, ``leases/`` one per part of a leased device: ``PART.NUMBER``.
The number is the time since the host started, at the grant. A record stays when its lease ends, says whether
that was clean, and is removed by its user after a later lease. Decisions are made under the directory's lock,
for a millisecond; a decision without it is detected: a lease counts only if no other of its parts is visible.
"""

import fcntl
import os
import time

from .deciding import Choice, Wish
from .files import (
    FILE_MODE,
    Seen,
    close_all,
    escape,
    format_lines,
    is_locked,
    open_directory,
    open_folders,
    open_seen,
    publish,
    remove,
    remove_drafts,
    unescape,
)
from .quarantine import Quarantines
from .turns import Asked, put_in_order

MAX_DIGITS = 15
"""Most digits of a lease number: for a longer one a host would have to run for thirty years."""
MAX_PRIORITY = 1000
MAX_COMMAND = 400  # characters; enough for people to recognise it
HELD, ENDED = b"held ", b"ended"
TURN = "turn"
TURNS_NS = 3600 * 10**9
"""Nanoseconds for which the turn of a job is remembered."""


class Request:
    """The content of a waiting request; the kernel records since when it waits."""

    def __init__(self, name: str, seen: Seen) -> None:
        """Raises ValueError or KeyError if the file does not contain a request with this name."""
        pairs = seen.read()
        one = dict(pairs)
        if one["request"] != name:
            raise ValueError("a second name of another request")
        self.name = name
        self.pid = int(one["pid"])
        self.command = unescape(one["command"])
        choices = [value.split(" ") for key, value in pairs if key == "choice"]
        self.wish = Wish(
            tuple(Choice(unescape(c[0]), tuple(map(unescape, c[1:]))) for c in choices),
            max(1, int(one["count"])),
        )


def next_number() -> int:
    """The number of a lease that begins now: microseconds since the host started, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class LeaseRecord:
    """The record of a lease of one part: held while ``is_live``, and how it ended after that.
    ``pid`` and ``start`` are the holder's (its container's numbers), ``session`` the tree's or 0,
    ``since`` in seconds since the epoch, ``changed_ns`` the kernel's time of the last write. An
    unreadable one is neither live nor clean.
    """

    def __init__(self, part: str, number: int, seen: Seen) -> None:
        self.part = part
        self.number = number
        self.uid = seen.uid
        self.changed_ns = seen.ctime_ns
        self.is_live = self.is_clean = self.is_ours = False
        self.device = self.command = self.tree = ""
        self.pid = self.start = self.session = self.process_space = 0
        self.since = 0.0
        try:
            pairs = dict(seen.read())
            if pairs["lease"] != f"{escape(part)}.{number}":
                return  # a second name of another record
            self.device = unescape(pairs["device"])
            self.command = unescape(pairs["command"])
            self.tree = pairs["tree"]
            self.pid, self.start = int(pairs["pid"]), int(pairs["start"])
            self.session, self.process_space = int(pairs["session"]), int(pairs["space"])
            self.since = float(pairs["since"])
            self.is_clean = "ended" in pairs
        except (ValueError, KeyError):
            return
        self.is_ours = True
        self.is_live = is_locked(seen.fd)
        self.is_clean = self.is_clean and not self.is_live


def mark_session(fd: int, session: int) -> None:
    """Add the session of the leased tree to a record of our own."""
    os.pwrite(fd, b"session %010d" % session, len(HELD) + 1)


def mark_ended(fd: int) -> None:
    """Note in a record of our own that nothing is left of its tree. Needs no room on the disk."""
    os.pwrite(fd, ENDED, 0)


class LockDirectory:
    """An open lock directory; answers last only under ``try_lock``. ``asked``: requests of the last list."""

    def __init__(self, path: str) -> None:
        """Raises RefusedError if it cannot be trusted, OSError if it cannot be used."""
        self.path = path
        self.root = open_directory(path)
        try:
            self.requests, self.leases, stated = open_folders(self.root, path)
        except BaseException:
            os.close(self.root)
            raise
        self.quarantines = Quarantines(stated)
        self.asked: dict[str, Asked] = {}
        self._parsed: dict[str, Request] = {}
        self._dead: set[str] = set()
        self._with_drafts: set[int] = set()

    def close(self) -> None:
        """Close it; this also ends the lock."""
        self.quarantines.close()
        close_all([self.root, self.requests, self.leases])

    # ---- the lock on the directory ------------------------------------------------------------

    def try_lock(self) -> bool:
        """Prevent others from deciding; False if somebody is deciding now."""
        try:
            fcntl.flock(self.root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Let others decide."""
        fcntl.flock(self.root, fcntl.LOCK_UN)

    # ---- content ------------------------------------------------------------------------------

    def list_requests(self, new: Asked | None = None) -> list[Asked]:
        """All requests in order but those found dead, and a ``new`` one that is not in the directory yet."""
        names = set(self._list(self.requests))
        self._dead &= names
        for name in self.asked.keys() - names:
            del self.asked[name]
            self._parsed.pop(name, None)
        for name in names - self.asked.keys() - self._dead:
            try:
                status = os.stat(name, dir_fd=self.requests, follow_symlinks=False)
                self.asked[name] = Asked(name, status.st_uid, status.st_ctime_ns, MAX_PRIORITY)
            except (OSError, ValueError):
                pass  # it has just gone, or is not one of ours
        waiting = [*self.asked.values(), *([new] if new is not None else [])]
        jobs = {(one.uid, one.job) for one in waiting}
        return put_in_order(waiting, self._read_turns() if len(jobs) > 1 else {})

    def has_request(self, name: str) -> bool:
        """Whether this request, alive or not, is in the directory."""
        return os.access(name, os.F_OK, dir_fd=self.requests, follow_symlinks=False)

    def note_turn(self, job: str, pool: str) -> None:
        """Remember that a job has had its turn now."""
        name = f"{TURN}.{os.geteuid()}.{job}.{pool}"
        try:
            now_ns = time.time_ns()  # the kernel's own times of two turns in a row may be equal
            os.utime(name, ns=(now_ns, now_ns), dir_fd=self.leases, follow_symlinks=False)
        except FileNotFoundError:
            self._read_turns()  # which removes old ones
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                fd = os.open(name, flags, FILE_MODE, dir_fd=self.leases)
                os.utime(fd, ns=(now_ns, now_ns))
                os.close(fd)
            except OSError:
                pass  # then the job had no turn, as far as others know
        except OSError:
            pass

    def _read_turns(self) -> dict[tuple[int, str, str], int]:
        """The last turns of users, jobs and pools; removes this user's old and future ones."""
        found = {}
        oldest_ns = time.time_ns() - TURNS_NS
        for name in self._list(self.leases):
            kind, *words = name.split(".")
            if kind != TURN or len(words) != 3:
                continue
            try:
                status = os.stat(name, dir_fd=self.leases, follow_symlinks=False)
            except OSError:
                continue  # it has just gone
            if str(status.st_uid) != words[0]:
                continue  # others can say nothing about this user
            if oldest_ns < status.st_mtime_ns <= time.time_ns():
                found[status.st_uid, words[1], words[2]] = status.st_mtime_ns
            elif os.geteuid() in (status.st_uid, 0):
                remove(self.leases, name)
        return found

    def read_request(self, name: str) -> Request | None:
        """The request with this name if its owner lives. A dead one of this user is removed."""
        seen = open_seen(self.requests, name)
        if seen is None:
            return None
        try:
            if not is_locked(seen.fd):
                self._dead.add(name)
                self.asked.pop(name, None)
                if os.geteuid() in (seen.uid, 0):
                    remove(self.requests, name)
                return None
            if name not in self._parsed:
                self._parsed[name] = Request(name, seen)
            return self._parsed[name]
        except (ValueError, KeyError):
            return None
        finally:
            os.close(seen.fd)

    def list_numbers(self) -> dict[str, list[int]]:
        """The numbers of all records by part, highest first."""
        numbers: dict[str, list[int]] = {}
        for name in self._list(self.leases):
            part, _, number = name.rpartition(".")
            if part and number.isascii() and number.isdecimal() and len(number) <= MAX_DIGITS:
                numbers.setdefault(part, []).append(int(number))
        for several in numbers.values():
            several.sort(reverse=True)
        return numbers

    def read_records(self, part: str, numbers: list[int]) -> list[LeaseRecord]:
        """The records of a part with these numbers; links, pipes and vanished files are omitted."""
        records = []
        for number in numbers:
            seen = open_seen(self.leases, f"{part}.{number}")
            if seen is not None:
                records.append(LeaseRecord(part, number, seen))
                os.close(seen.fd)
        return records

    def _list(self, folder: int) -> list[str]:
        names = os.listdir(folder)
        if any(name[0] == "." for name in names):
            self._with_drafts.add(folder)
        return names

    # ---- our own files ----------------------------------------------------------------------

    def remove_leftovers(self) -> None:
        """Remove the unfinished files of this user's killed processes."""
        for folder in self._with_drafts:
            remove_drafts(folder, os.listdir(folder))

    def add_request(self, name: str, wish: Wish, command: str) -> int:
        """Publish a request; return the descriptor that keeps it alive. Raises OSError."""
        pairs = [
            ("request", name),
            ("pid", str(os.getpid())),
            ("command", escape(command[:MAX_COMMAND])),
            ("count", str(wish.count)),
        ]
        pairs += [("choice", " ".join(map(escape, (c.device, *c.parts)))) for c in wish.choices]
        return publish(self.requests, name, format_lines(pairs), is_unique=True)

    def add_record(self, part: str, number: int, facts: list[tuple[str, str]]) -> int:
        """Take a part; return the descriptor that keeps the lease alive. Raises FileExistsError, OSError."""
        # state and session come first, with a fixed width, so that they can be overwritten
        head = HELD + b"\nsession %010d\n" % 0
        lines = format_lines([("lease", f"{escape(part)}.{number}"), *facts])
        return publish(self.leases, f"{part}.{number}", head + lines)

    def has_rivals(self, parts: dict[str, str], number: int, known: dict[str, list[int]]) -> bool:
        """Whether another lease of one of the parts exists that is not among the ``known`` numbers."""
        numbers = self.list_numbers()
        rivals = (
            record
            for part in parts
            for record in self.read_records(
                part, sorted({*numbers.get(part, [])} - {number, *known.get(part, [])})
            )
        )
        return any(one.is_live or (one.is_ours and one.number > number) for one in rivals)
