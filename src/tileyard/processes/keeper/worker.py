"""Reads what the keeper must start, and turns a fork of the keeper into that program."""

import ctypes
import errno
import os
import resource

from .deciding import Choice, Wish
from .quarantine import name_part
from .report import RefusedError
from .tree import PR_SET_PDEATHSIG, SIGKILL, SIGPIPE, SIGXFSZ, libc, signal_set

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ADDR_NO_RANDOMIZE = 0x0040000
SIG_SETMASK = 2
OOM_PREFERENCE = b"500"
"""If memory is short, the kernel ends a worker rather than the engine."""

LEAST_MEMORY_BYTES = 64 << 20
DEVICES = "TILEYARD_DEVICES"
"""The variable with the whole names of the devices of a lease, as in ``cuda:0,cuda:1``."""


class Device:
    """A suitable device: the option ``choice``, and the options that follow up to the next one."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        one = dict(pairs)
        self.name = one["choice"]
        self.locks = [value for key, value in pairs if key == "lock"]
        self.cores = parse_numbers(one.get("device-cores", ""))
        self.env = [split_pair(value) for key, value in pairs if key == "env"]
        self.mask = one.get("mask", "")
        self.probe = [value for key, value in pairs if key == "probe"]
        self.probe_limit_s = float(one.get("probe-limit", "0"))

    @property
    def choice(self) -> Choice:
        """The device in the queue's terms."""
        return Choice(self.name, tuple(map(name_part, self.locks)))


class Options:
    """The parsed command line."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.environment = environment
        end = arguments.index("--")
        pairs = [split_pair(argument) for argument in arguments[:end]]
        starts = [index for index, (key, _) in enumerate(pairs) if key == "choice"]
        bounds = [*starts, end]
        one = dict(pairs[: bounds[0]])
        self.argv = arguments[end + 1 :]
        self.command = one.get("command", " ".join(self.argv))
        self.devices = [Device(pairs[a:b]) for a, b in zip(starts, bounds[1:], strict=True)]
        self.count = int(one.get("count", "1"))
        self.priority = int(one.get("priority", "0"))
        self.job = one.get("job", "")
        self.parent = int(one["parent"])
        self.tree = one["tree"]
        self.outer = tuple(token for token in one.get("outer", "").split(":") if token)
        self.cwd = one["cwd"]
        self.control = int(one.get("control", "0"))
        self.reports = int(one.get("reports", "1"))
        self.is_plain = "plain" in one
        self.is_early = "early" in one
        self.is_step = "step" in one
        self.is_fixed = "fixed" in one
        self.is_starters = "starters" in one
        self.memory_bytes = int(one.get("memory", "0"))
        self.cores = parse_numbers(one.get("cores", ""))
        self.pass_fds = parse_numbers(one.get("pass", ""))
        self.grace_s = float(one["grace"])
        self.confirm_s = float(one["confirm"])

    @property
    def wish(self) -> Wish:
        """The devices in the queue's terms."""
        return Wish(tuple(device.choice for device in self.devices), self.count)


def split_pair(argument: str) -> tuple[str, str]:
    """Split ``KEY=VALUE``."""
    key, _, value = argument.partition("=")
    return key, value


def parse_numbers(text: str) -> list[int]:
    """``0,1`` as numbers."""
    return [int(part) for part in text.split(",") if part]


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
    """In the child: prepare all, then run the worker's program. Raises RefusedError with the step."""
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


def spawn_step(options: Options, environment: dict[str, str]) -> int:
    """Start a program in a session, without code of ours between; return its pid. Raises RefusedError."""
    step = "cwd"
    try:
        os.chdir(options.cwd)
        step = "argv"
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if (
            options.memory_bytes
        ):  # from its first page on; a keeper itself could not start it with less
            least = max(options.memory_bytes, LEAST_MEMORY_BYTES)
            resource.setrlimit(resource.RLIMIT_AS, (lower(least, hard), hard))
        pid = os.posix_spawn(
            find_program(options.argv[0], environment),
            options.argv,
            environment,
            setsid=True,
            setsigmask=(),
            setsigdef=(SIGPIPE, SIGXFSZ),
        )
        if options.memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            limit_memory(pid, options.memory_bytes)
    except OSError as error:
        raise RefusedError(step, error.errno or 0) from error
    return pid


def find_program(name: str, environment: dict[str, str]) -> str:
    """A program's path, searched along ``PATH`` if it is a bare name. Raises OSError if there is none."""
    if "/" in name:
        return name
    number = errno.ENOENT
    for folder in environment.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            number = errno.EACCES
    raise OSError(number, name)


def limit_memory(pid: int, memory_bytes: int) -> None:
    """Limit the address space of a process of this user, 0: this one, unless it is lower already."""
    limit = lower(memory_bytes, resource.prlimit(pid, resource.RLIMIT_AS)[1])
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


def lower(limit: int, hard: int) -> int:
    """A limit that is not above an existing one, which may be infinite."""
    return limit if hard < 0 else min(limit, hard)


def fix_addresses() -> None:
    """Have the next program use the same addresses each time; ignored if that is forbidden."""
    current = libc.personality(0xFFFFFFFF)
    if current >= 0:
        libc.personality(current | ADDR_NO_RANDOMIZE)


def prefer_for_oom() -> None:
    """Have the kernel choose this process first when memory is short; ignored if that is forbidden."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(OOM_PREFERENCE)
    except OSError:
        pass


def make_environment(options: Options, held: list[Device], numbers: list[int]) -> dict[str, str]:
    """The worker's environment: the keeper's, marks of this tree and leases around it, devices' variables."""
    environment = dict(options.environment)
    environment.update(
        variables_of((device.name, dict(device.env), device.mask) for device in held)
    )
    parts = [part for device in held for part in device.choice.parts]
    for name, items in (("TILEYARD_TREE", [options.tree]), ("TILEYARD_PARTS", parts)):
        above = environment.get(name)
        environment[name] = ":".join([above, *items] if above else items)
    if held:
        environment["TILEYARD_LEASE"] = ",".join(map(str, numbers))
    else:
        environment.setdefault("TILEYARD_LEASE", "0")
    return environment


def variables_of(devices: "Iterable[tuple[str, Mapping[str, str], str]]") -> dict[str, str]:
    """The variables by which programs find devices: name, own ones, and mask, whose rest is
    numbered from 0. If two devices set the same variable, it lists both.
    """
    found: dict[str, str] = {}
    for device, own, mask in devices:
        place = found[mask].count(",") + 1 if mask in found else 0
        number = str(place) if mask else short_name(device)
        for name, text in {"TASK_DEVICE": number, DEVICES: device, **own}.items():
            found[name] = f"{found[name]},{text}" if name in found else text
    return found


def short_name(device: str) -> str:
    """``1`` for ``cuda:1``; a name that does not end in an index stays unchanged."""
    index = device.rpartition(":")[2]
    return index if index.isascii() and index.isdecimal() else device
