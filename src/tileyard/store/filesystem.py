"""Checks that a directory is on a file system of this host, where SQLite's locks and shared memory work."""

import re
from pathlib import Path

from tileyard.base.errors import HomeError

MOUNTS = Path("/proc/self/mounts")

NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
    }
)
"""Types of ``/proc/mounts`` on which a WAL database would corrupt or fail."""


def find_filesystem(path: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system of ``path``, which need not exist, by its last mount; empty if unknown."""
    try:
        table = mounts.read_text()
    except OSError:
        return ""
    resolved = path.resolve()
    best, found = -1, ""
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_unescape(fields[1]))
        depth = len(point.parts)
        if depth >= best and resolved.is_relative_to(point):
            best, found = depth, fields[2]
    return found


def require_local(home: Path, mounts: Path = MOUNTS) -> None:
    """Raise HomeError if ``home`` is on a network file system."""
    kind = find_filesystem(home, mounts)
    if kind in NETWORK:
        raise HomeError(
            f"{home} lies on a network file system ({kind}), where the store would corrupt",
            hint="set TILEYARD_HOME to a directory on a local disk",
        )


def _unescape(text: str) -> str:
    """Decode blanks and backslashes, which the kernel writes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
