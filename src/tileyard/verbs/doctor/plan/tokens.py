"""Checks that two sides, as a host and a container, see the same locks: one writes a token, the other reads
it. The token states the writer's kernel (boot id), directory (inode and device) and user, so that the reader
can report the difference.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.settings import Settings
from tileyard.devices.base import read_boot_id
from tileyard.devices.locks import explaining, prepare_directory
from tileyard.devices.occupancy import open_directory
from tileyard.processes.keeper.files import remove
from tileyard.verbs.doctor.plan.findings import Finding, Level

SUBJECT = "same locks"
PREFIX = "token-"


class Token(Record):
    """Facts that one side saw of itself. ``name`` is that of the file that it left."""

    name: str
    boot: str
    device: int
    inode: int
    uid: int

    def format(self) -> str:
        """The token as one word, for the other side."""
        return f"{self.name}.{self.boot}.{self.device:x}.{self.inode:x}.{self.uid}"


def parse_token(text: str) -> Token:
    """The token of this word. Raises UsageError if it is not one."""
    try:
        name, boot, device, inode, uid = text.strip().split(".")
        if not name.isalnum():
            raise ValueError(name)
        return Token(
            name=name, boot=boot, device=int(device, 16), inode=int(inode, 16), uid=int(uid)
        )
    except ValueError:
        raise UsageError(
            f"{text!r} is not a token",
            "take the one that `tileyard doctor --lock-token write` printed",
        ) from None


def write_token(settings: Settings) -> Token:
    """Leave a file in the lock directory for the other side, in place of this user's earlier ones. Raises
    UsageError if the directory cannot be used.
    """
    prepare_directory(settings.lock_dir)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open_directory(settings.lock_dir) as directory, explaining(settings.lock_dir):
        for name in os.listdir(directory.requests):  # noqa: PTH208 - a descriptor
            seen = os.stat(name, dir_fd=directory.requests, follow_symlinks=False)
            if name.startswith(PREFIX) and seen.st_uid == os.geteuid():
                remove(directory.requests, name)
        status = os.fstat(directory.root)
        token = Token(
            name=secrets.token_hex(8),
            boot=read_boot_id(),
            device=status.st_dev,
            inode=status.st_ino,
            uid=os.geteuid(),
        )
        os.close(os.open(f"{PREFIX}{token.name}", flags, dir_fd=directory.requests))
    return token


def compare_token(settings: Settings, token: Token, boot: str) -> Iterator[Finding]:
    """Compare what this side, whose boot id is ``boot``, sees with what the other side left."""
    folder = settings.lock_dir
    try:
        here = folder.stat()
        left = (folder / "requests" / f"{PREFIX}{token.name}").lstat()
    except FileNotFoundError:
        yield _differ(
            f"this side does not find the other side's token in {folder}", _explain(folder, token)
        )
        return
    if boot != token.boot:
        yield _differ(
            f"{folder} is shared, but another kernel runs the other side: it knows nothing of the "
            "locks that are held here",
            "share devices within one kernel only; give each virtual machine devices of its own",
        )
    elif here.st_ino != token.inode or not stat.S_ISREG(left.st_mode):
        yield _differ(
            f"{folder} holds the token, but is another directory than the other side's",
            "mount the directory itself, and not a copy of it",
        )
    else:
        yield Finding(
            subject=SUBJECT,
            level=Level.OK,
            message=f"both sides see {folder} (inode {here.st_ino}) under one kernel",
        )
        if left.st_uid != token.uid:
            yield Finding(
                subject=SUBJECT,
                level=Level.WARN,
                message=f"the other side's user {token.uid} is user {left.st_uid} here",
                todo="leases are safe; names of users that are shown mean something on one side only",
            )


def compare_hosts(settings: Settings, token: Token, boot: str) -> Iterator[Finding]:
    """As ``compare_token``, if this side may be another host, whose devices have locks of their own."""
    if boot == token.boot or (settings.lock_dir / "requests" / f"{PREFIX}{token.name}").exists():
        yield from compare_token(settings, token, boot)
    else:
        message = f"{settings.lock_dir} has its own, as every host"
        yield Finding(subject=SUBJECT, level=Level.OK, message=message)


def _explain(folder: Path, token: Token) -> str:
    if folder.exists() and folder.stat().st_ino == token.inode:
        return "it is the same directory; write a new token and read that one"
    return f"mount the other side's lock directory at {folder}, or set TILEYARD_LOCK_DIR to it"


def _differ(message: str, todo: str) -> Finding:
    return Finding(subject=SUBJECT, level=Level.FAIL, message=message, todo=todo)
