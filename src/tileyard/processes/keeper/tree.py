"""Reads from the kernel which processes descend from which, and signals them safely."""

import ctypes
import os

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Container

# the same on every Linux that this runs on (MIPS and Alpha have other signal numbers)
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGCONT, SIGSTOP = 1, 2, 9, 13, 15, 17, 18, 19
SIGXFSZ = 25
SYS_PIDFD_SEND_SIGNAL = 424
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def go_on_with_parent_gone() -> None:
    """If this process is stopped when its parent or starting thread ends, have the kernel continue it."""
    libc.prctl(PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0)


def signal_set(*numbers: int) -> ctypes.Array[ctypes.c_uint64]:
    """A ``sigset_t`` with these signals."""
    mask = (ctypes.c_uint64 * 16)()
    for number in numbers:
        mask[0] |= 1 << (number - 1)
    return mask


def read_process(pid: int, file: str) -> bytes:
    """A file of ``/proc/<pid>``, empty if the process is gone or we may not read it."""
    try:
        fd = os.open(f"/proc/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    data = b""
    try:
        while part := os.read(fd, 1 << 16):
            data += part
    except OSError:
        pass  # it has just ended
    os.close(fd)
    return data


def parent_of(pid: int) -> int:
    """The parent's pid, or 0 if there is no such process."""
    text = read_process(pid, "stat")
    return int(text.rpartition(b")")[2].split()[1]) if text else 0


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal. One that a debugger holds does not count."""
    return read_process(pid, "stat").rpartition(b")")[2].split()[:1] == [b"T"]


def all_pids() -> list[int]:
    """Every process that this one can see."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def descendants_of(root: int, spared: "Container[int]" = ()) -> list[tuple[int, int]]:
    """``(pid, parent)`` of all processes below ``root``, parents first, without ``spared`` and below."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        children.setdefault(parent_of(pid), []).append(pid)
    found: list[tuple[int, int]] = []
    level = [root]
    while level:
        pairs = [
            (child, parent)
            for parent in level
            for child in children.get(parent, [])
            if child not in spared
        ]
        found += pairs
        level = [child for child, _ in pairs]
    return found


def signal_child(pid: int, parent: int, number: int) -> None:
    """Signal ``pid`` if it is still a child of ``parent`` or of this process. A pidfd and then a
    look at the parent exclude a reused pid.
    """
    try:
        if parent == os.getpid():
            os.kill(pid, number)
            return
        handle = os.pidfd_open(pid)
    except OSError:
        return
    if parent_of(pid) in (parent, os.getpid()):
        libc.syscall(SYS_PIDFD_SEND_SIGNAL, handle, number, None, 0)
    os.close(handle)


def start_of(pid: int) -> int:
    """When a process started, in the kernel's ticks since boot; 0 if there is none."""
    text = read_process(pid, "stat")
    return int(text.rpartition(b")")[2].split()[19]) if text else 0


def session_of(pid: int) -> int:
    """The session that a process is in, 0 if there is none."""
    text = read_process(pid, "stat")
    return int(text.rpartition(b")")[2].split()[3]) if text else 0


def ancestors_of(pid: int) -> list[int]:
    """The parent, its parent and so on, as far as this process may look."""
    found = []
    while (pid := parent_of(pid)) > 0 and pid not in found:
        found.append(pid)
    return found


def kill_marked(tree: str) -> list[int]:
    """Send SIGKILL to all processes that carry this tree's token, if visible; return them."""
    found = []
    for pid in all_pids():
        parent = parent_of(pid)
        if pid != os.getpid() and carries(read_process(pid, "environ"), tree):
            signal_child(pid, parent, SIGKILL)
            found.append(pid)
    return found


def carries(variables: bytes, tree: str, part: str = "") -> bool:
    """Whether an environment is of this tree, and names ``part`` if given: a copied token harms nobody."""
    token = tree.encode()
    if not token or token not in variables:
        return False
    if token not in split_variable(variables, b"TILEYARD_TREE="):
        return False
    return not part or os.fsencode(part) in split_variable(variables, b"TILEYARD_PARTS=")


def split_variable(variables: bytes, name: bytes) -> list[bytes]:
    """The items of a list in an environment, outer leases first."""
    for variable in variables.split(b"\0"):
        if variable.startswith(name):
            return variable[len(name) :].split(b":")
    return []
