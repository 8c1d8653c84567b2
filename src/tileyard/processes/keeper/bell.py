"""Waiting for other processes' files in threads, so that a poll loop can wait for them too."""

import _thread
import os

from .files import open_seen, wait_unlocked


class Bell:
    """A descriptor that threads make readable until it is closed."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._guard = _thread.allocate_lock()
        self._is_open = True
        self._watched: set[str] = set()

    def ring(self) -> None:
        """Wake who waits for it; harmless from any thread, at any time."""
        with self._guard:
            if self._is_open:
                os.eventfd_write(self.fd, 1)

    def silence(self) -> None:
        """Take note of all that has rung."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """No more ringing."""
        with self._guard:
            if self._is_open:
                self._is_open = False
                os.close(self.fd)

    def ring_after(self, folder: int, name: str) -> None:
        """Ring when the owner of this file lets go of it, or at once if it has done so."""
        with self._guard:
            if name in self._watched:
                return
            self._watched.add(name)
        seen = open_seen(folder, name)
        fd = -1 if seen is None else seen.fd
        try:
            _thread.start_new_thread(self._wait, (name, fd))
        except RuntimeError:  # too many threads: the next look will tell
            if fd >= 0:
                os.close(fd)

    def _wait(self, name: str, fd: int) -> None:
        if fd >= 0:
            try:
                wait_unlocked(fd)
            except OSError:
                pass
            os.close(fd)
        with self._guard:
            self._watched.discard(name)
        self.ring()
