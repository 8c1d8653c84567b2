"""From a fork of the keeper to a program of its own: the worker's, or a probe's."""

import ctypes
import os
import resource

from .options import Device, Options
from .report import RefusedError
from .tree import SIGKILL, SIGPIPE, SIGXFSZ, libc, signal_set

PR_SET_PDEATHSIG = 1
ADDR_NO_RANDOMIZE = 0x0040000
SIG_SETMASK = 2
OOM_PREFERENCE = b"500"
"""A kernel short of memory ends a worker rather than the engine."""


def start_program(argv: list[str], environment: dict[str, str], keeper: int) -> None:
    """In a child: run a program in its place, as the leader of a session that dies with the keeper."""
    libc.sigprocmask(SIG_SETMASK, ctypes.byref(signal_set()), None)
    for number in (SIGPIPE, SIGXFSZ):  # Python ignores them, which would be inherited
        libc.signal(number, None)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:  # it died before the line above
        os._exit(127)
    os.execvpe(argv[0], argv, environment)


def become_worker(options: Options, environment: dict[str, str], keeper: int) -> None:
    """In the child: make everything ready, then run the worker's program in its place.

    Raises RefusedError with the step that failed.
    """
    step = "session"
    try:
        os.setsid()
        step = "memory"
        if not options.is_plain:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # dumping a big worker takes seconds
            prefer_for_oom()
        if options.memory_bytes:
            limit_memory(0, options.memory_bytes)
        step = "cores"
        if options.cores:
            os.sched_setaffinity(0, options.cores)
        if options.is_fixed:
            fix_addresses()
        step = "cwd"
        os.chdir(options.cwd)
        step = "argv"
        if not options.is_plain:
            os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
            os.dup2(2, 1)
        start_program(options.argv, environment, keeper)
    except OSError as error:
        raise RefusedError(step, error.errno or 0) from error


def limit_memory(pid: int, memory_bytes: int) -> None:
    """Limit the address space of a process of this user, 0 for this one, if it is not limited more."""
    hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
    limit = memory_bytes if hard < 0 else min(memory_bytes, hard)
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


def fix_addresses() -> None:
    """Have the next program put everything where it was put before; where that is forbidden, never mind."""
    current = libc.personality(0xFFFFFFFF)
    if current >= 0:
        libc.personality(current | ADDR_NO_RANDOMIZE)


def prefer_for_oom() -> None:
    """Let the kernel choose this process first; where it may not be told so, never mind."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(OOM_PREFERENCE)
    except OSError:
        pass


def make_environment(options: Options, held: list[Device], numbers: list[int]) -> dict[str, str]:
    """The worker's environment: the keeper's, the marks of its tree, and how to find its devices.

    Where two devices set the same variable, it lists both. The marks of leases under which this one
    was taken stay, so that their next holders find this tree too.
    """
    environment = dict(os.environ)
    found: dict[str, str] = {}
    for device in held:
        for name, text in [*device.env, ("TASK_DEVICE", short_name(device.name))]:
            found[name] = f"{found[name]},{text}" if name in found else text
    environment.update(found if held else {})
    parts = [part for device in held for part in device.choice.parts]
    for name, items in (("TILEYARD_TREE", [options.tree]), ("TILEYARD_PARTS", parts)):
        above = environment.get(name)
        environment[name] = ":".join([above, *items] if above else items)
    if held:
        environment["TILEYARD_LEASE"] = ",".join(map(str, numbers))
    else:
        environment.setdefault("TILEYARD_LEASE", "0")
    return environment


def short_name(device: str) -> str:
    """``1`` for ``cuda:1``; a name that does not end in an index stays as it is."""
    index = device.rpartition(":")[2]
    return index if index.isascii() and index.isdecimal() else device
