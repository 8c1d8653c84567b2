"""Checks whether other users could have created, or could change, what is at a path."""

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

MAX_LINKS = 40
"""Most links that are followed on one path, as in the Linux kernel."""


def find_stranger(path: Path, *, is_way: bool = False) -> str:
    """Why ``path`` cannot be trusted, as a clause that names the place; empty if it can: only root
    and this user may write to folders on the way, links and itself. Folders above, with ``is_way``
    itself, may be sticky; a private group may write; missing parts are not judged.
    """
    here, rest, links = Path("/"), list(path.absolute().parts[1:]), 0
    while True:
        try:
            status = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            return f"{here} cannot be looked at ({error.strerror})"
        if status.st_uid not in (0, os.geteuid()):
            return f"{here} belongs to another user (uid {status.st_uid})"
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                return f"{here} is a circle of links"
            rest[:0] = Path(here.readlink()).parts
            here = here.parent
        elif _may_others_write(here, status) and not (
            (rest or is_way) and status.st_mode & stat.S_ISVTX
        ):
            return f"others may write to {here}"
        if not rest:
            return ""
        part = rest.pop(0)
        here = here.parent if part == ".." else here / part


def _may_others_write(path: Path, status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_alone_in(path, status.st_gid)


def _is_alone_in(path: Path, gid: int) -> bool:
    """Whether a group is this user's private group, and no access list gives its rights to others."""
    with contextlib.suppress(OSError):
        os.getxattr(path, "system.posix_acl_access")
        return False
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    is_private = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    return is_private and set(group.gr_mem) <= {user.pw_name}
