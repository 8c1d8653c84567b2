"""Lock files: who holds one decides the kernel, by flock; the content is the number of the lease.

A file holds ``NUMBER TREE`` in fixed width, rewritten in place: the number of the last lease, which
only grows, and the token of its tree while it is held. A token that is still there when the lock is
granted says that the last keeper was killed before its tree was gone.
"""

import fcntl
import os
import stat

from .report import RefusedError

MAX_LEASE = 10**18


class Lock:
    """One lock file, which must exist. Closing it, or dying, gives the lock back."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = self._open()

    def _open(self) -> int:
        fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(fd)
            raise RefusedError("planted", 0)
        return fd

    def try_take(self) -> bool:
        """Lock the file, unless someone else has it; one that was replaced is opened anew."""
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            there = os.stat(self.path, follow_symlinks=False)
            if os.path.samestat(os.fstat(self.fd), there):
                return True
            os.close(self.fd)
            self.fd = self._open()

    def read(self) -> tuple[int, str]:
        """The number of the last lease, and the token of its tree if that may not be gone."""
        text = os.pread(self.fd, 64, 0).decode(errors="replace").strip()
        if not text:
            return 0, ""
        number, _, tree = text.partition(" ")
        if not number.isdecimal() or int(number) >= MAX_LEASE:
            raise RefusedError("number", 0)
        return int(number), tree.strip()

    def write(self, number: int, tree: str) -> None:
        """Replace the record. It never grows, so a full disk can only refuse the first one."""
        os.pwrite(self.fd, f"{number:020d} {tree:<31}\n".encode(), 0)

    def close(self) -> None:
        """Give the lock back."""
        os.close(self.fd)
