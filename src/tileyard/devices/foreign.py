"""Devices of an existing queue, as task-submit or srun: checks its TOML table and fills the templates; the
queues of this site, and what this host knows of them unasked: clients, and our tasks.
"""

import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tileyard.artifacts.objects import digest_parts
from tileyard.base.clock import LONGEST_S
from tileyard.base.errors import UsageError
from tileyard.base.model import Device, Record
from tileyard.base.settings import Settings, read_tables
from tileyard.devices.base import class_of
from tileyard.devices.declared import declaration_files
from tileyard.targets.command import given

QUEUE_KIND: Final = "queue"
MARGIN_S: Final = 30.0
"""Seconds added to a queue's own limits before a call to it is abandoned."""
INHERITED: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
ALWAYS: Final = ("TILEYARD_HOME", "TILEYARD_CONFIG", "TILEYARD_PLUGINS", given.VARIABLE)
"""Variables by which the far side finds the declarations and plugins of this side, and what steps share."""
SUBMISSION_VARIABLE: Final = "TILEYARD_SUBMISSION"
"""Set on the far side: a process with it already runs on a device of a queue."""

ABOVE_ZERO: Final = (
    "slots",
    "cases",
    "devices",
    "queue_limit_s",
    "task_limit_s",
    "margin_s",
    "cancel_limit_s",
    "poll_s",
)

OF_TASKS: Final = ("cancel", "wait", "status", "output")
"""The fields with commands about a submitted task."""

ExitMeaning = Literal["rejected", "interrupted", "timed_out"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z_]+)(?::([^{}]*))?\}|[{}]")
_TEXTS = frozenset(
    {
        "shell_command",
        "env_names",
        "queue_limit_s",
        "run_limit_s",
        "run_limit_min",
        "limit_s",
        "devices",
    }
)
_SPLICES = frozenset({"command", "env"})


class ForeignQueue(Record, forbid_unknown_fields=True):
    """One ``[[queue]]`` table.
    ``submit`` and ``cancel`` are argument lists with placeholders, run without a shell. ``device`` is
    tileyard's name on the far side; ``{device}`` in it is what the queue put into ``device_variable``. If
    ``submit`` does not wait for its task, ``wait`` does, or ``status`` is called every ``poll_s`` until the
    regular expression ``ended`` finds the exit code as its group; ``output`` prints what the task printed.
    ``identity`` describes the silicon. ``job`` is a regular expression whose group is the task's name in
    ``submit``'s output, for ``{job}`` in ``cancel``; without that, TERM to the submitting process cancels.
    ``slots``: most tasks in the queue; ``cases``: most cases per task; ``queue_limit_s``: longest wait for a
    device; ``task_limit_s``: longest task. ``inherit`` names variables that are passed on, ``environment``
    gives further ones. ``python`` is the far side's, empty for this one; ``prologue`` is text for bash that
    sets variables there. ``streams``: output comes immediately. ``exit_codes`` and ``messages`` (regular
    expressions for stderr) are the client's own. ``probe`` is for a device that a case crashed or hung on.
    ``margin_s``: time that a call may take beyond its limits; ``cancel_limit_s`` limits ``cancel``.
    """

    name: str
    submit: tuple[str, ...]
    device: str
    identity: str
    device_variable: str = "TASK_DEVICE"
    devices: int = 1
    prologue: str = ""
    cancel: tuple[str, ...] = ()
    job: str = ""
    slots: int = 1
    cases: int = 16
    queue_limit_s: float = 86_400.0
    task_limit_s: float = 3600.0
    inherit: tuple[str, ...] = INHERITED
    environment: dict[str, str] = {}
    python: str = ""
    streams: bool = True
    exit_codes: dict[int, ExitMeaning] = {}
    messages: dict[ExitMeaning, str] = {}
    probe: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    ended: str = ""
    output: tuple[str, ...] = ()
    poll_s: float = 2.0
    margin_s: float = MARGIN_S
    cancel_limit_s: float = 10.0

    def make_devices(self) -> tuple[Device, ...]:
        """One device per slot, for the engine. They own no cores and no locks."""
        return tuple(
            Device(
                name=f"{QUEUE_KIND}:{self.name}" + (f"/{slot}" if self.slots > 1 else ""),
                kind=QUEUE_KIND,
                identity=self.identity,
            )
            for slot in range(self.slots)
        )

    def pick_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that are sent with a task."""
        inherited = {name: environ[name] for name in (*ALWAYS, *self.inherit) if name in environ}
        return {**inherited, **self.environment}


def decode_queues(tables: object, source: str) -> tuple[ForeignQueue, ...]:
    """The queues of the ``queue`` tables of a TOML file. Raises UsageError, naming ``source``."""
    try:
        queues = msgspec.convert(tables, tuple[ForeignQueue, ...], str_keys=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: [[queue]]: {error}") from error
    names = [queue.name for queue in queues]
    for queue in queues:
        try:
            _check(queue)
        except ValueError as error:
            raise UsageError(f"{source}: queue {queue.name!r}: {error}") from error
        if names.count(queue.name) > 1:
            raise UsageError(f"{source}: queue {queue.name!r} is declared twice")
    return queues


def fill_submit(
    queue: ForeignQueue, command: Sequence[str], environment: Mapping[str, str], run_limit_s: float
) -> list[str]:
    """The arguments of one call of ``submit``; without a place for variables, ``env`` sets them."""
    pairs = [f"{name}={value}" for name, value in environment.items()]
    if not _takes_environment(queue.submit):
        command = ["env", *pairs, *command]
    texts = {
        "shell_command": shlex.join(command),
        "env_names": ",".join(environment),
        "queue_limit_s": _whole(queue.queue_limit_s),
        "run_limit_s": _whole(run_limit_s),
        "run_limit_min": _whole(run_limit_s / 60),
        "limit_s": _whole(queue.queue_limit_s + run_limit_s),
        "devices": str(queue.devices),
    }
    filled: list[str] = []
    for part in queue.submit:
        match = _PLACEHOLDER.fullmatch(part)
        if match is not None and match[1] == "command":
            filled += command
        elif match is not None and match[1] == "env":
            filled += _splice_pairs(pairs, match[2] or "")
        else:
            filled.append(part.format_map(texts))
    return filled


def fill_cancel(template: Sequence[str], job: str) -> list[str]:
    """The arguments of one call of ``cancel``."""
    return [part.format(job=job) for part in template]


def digest_environment(environment: Mapping[str, str]) -> str:
    """A checksum over names and values, for the far side to compare with what arrived there."""
    flat = [text for name in sorted(environment) for text in (name, environment[name])]
    return digest_parts("environment", *flat)


def refuse_nesting(queue: ForeignQueue, environ: Mapping[str, str]) -> None:
    """Raise UsageError if this process is on a device of a queue: waiting for a second one may never end."""
    for variable in (SUBMISSION_VARIABLE, queue.device_variable):
        if variable and environ.get(variable):
            raise UsageError(
                f"queue {queue.name!r} cannot be asked from inside a task: {variable} is set",
                "name the device itself, or unset the variable if this is not a task",
            )


def refuse_several(queue: ForeignQueue, count: int, needy: str) -> None:
    """Raise UsageError if so many devices are needed at once, and ``submit`` cannot ask for several."""
    if count > 1 and not any("{devices}" in part for part in queue.submit):
        raise UsageError(
            f"{needy} needs {count} devices, and `submit` of queue {queue.name!r} has no {{devices}}",
            "add it there, with the option that gives the client their number",
        )


# ---- templates --------------------------------------------------------------------------------


def _check(queue: ForeignQueue) -> None:
    if not _NAME.fullmatch(queue.name):
        raise ValueError("its name is not made of letters, digits, '_', '.' and '-'")
    if not queue.submit or not queue.submit[0]:
        raise ValueError("`submit` is empty")
    if not queue.identity.strip():
        raise ValueError("`identity` is empty: say what silicon it is")
    for field in ABOVE_ZERO:
        if not 0 < getattr(queue, field) <= LONGEST_S:
            raise ValueError(f"`{field}` is not above 0 and at most {LONGEST_S:.0f}")
    given = [queue.device_variable] if queue.device_variable else []
    for name in (*queue.inherit, *queue.environment, *given):
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a variable")
    used = _placeholders(queue.submit, _TEXTS, _SPLICES, "submit")
    if not used & {"command", "shell_command"}:
        raise ValueError("`submit` has neither {command} nor {shell_command}")
    for field in OF_TASKS:
        names = _placeholders(getattr(queue, field), frozenset({"job"}), frozenset(), field)
        if "job" in names and not queue.job:
            raise ValueError(f"`{field}` has {{job}}, but `job` does not say how to find it")
        if field != "cancel" and getattr(queue, field) and "job" not in names:
            raise ValueError(f"`{field}` has no {{job}}")
    _placeholders(queue.probe, frozenset({"device"}), frozenset(), "probe")
    said = {f"messages.{meaning}": text for meaning, text in queue.messages.items()}
    for field, text in {"job": queue.job, "ended": queue.ended, **said}.items():
        try:
            groups = re.compile(text).groups
        except re.error as error:
            raise ValueError(f"`{field}` is not a regular expression: {error}") from error
        if text and field not in said and groups != 1:
            raise ValueError(f"`{field}` has not exactly one group")
    if bool(queue.status) != bool(queue.ended):
        raise ValueError("`status` and `ended` go together: what is asked, and the exit code in it")
    if queue.output and not queue.status:
        raise ValueError("`output` goes with `status`, after which it is asked")
    if _placeholders((queue.device,), frozenset({"device"}), frozenset(), "device"):
        if not queue.device_variable:
            raise ValueError("`device` has {device}, but `device_variable` is empty")
    elif not queue.device:
        raise ValueError("`device` is empty")


def _placeholders(
    template: Sequence[str], texts: frozenset[str], splices: frozenset[str], field: str
) -> set[str]:
    """The names of all placeholders. Raises ValueError for unknown or misplaced ones."""
    found: set[str] = set()
    for part in template:
        for match in _PLACEHOLDER.finditer(part):
            text, name = match[0], match[1]
            if text in ("{{", "}}"):
                continue
            if name is None:
                raise ValueError(f"`{field}` has a lone {text!r} in {part!r}: write it twice")
            if name in splices and text != part:
                raise ValueError(
                    f"`{field}`: {text} must be an argument of its own, not a part of {part!r}"
                )
            if name not in texts | splices or (match[2] is not None and name != "env"):
                known = ", ".join(f"{{{known}}}" for known in sorted(texts | splices))
                raise ValueError(f"`{field}` has an unknown {text}; there are {known}")
            found.add(name)
    return found


def _splice_pairs(pairs: Sequence[str], option: str) -> list[str]:
    """``--env`` puts an option before each pair; ``--env=`` joins option and pair."""
    if option.endswith("="):
        return [option + pair for pair in pairs]
    return [text for pair in pairs for text in ((option, pair) if option else (pair,))]


def _takes_environment(template: Sequence[str]) -> bool:
    return any(
        match[1] in ("env", "env_names")
        for part in template
        for match in _PLACEHOLDER.finditer(part)
    )


def _whole(number: float) -> str:
    """Rounded up: a limit must not become shorter in transit."""
    return str(-int(-number // 1))


def name_device(template: str, given: str) -> str:
    """tileyard's name for the device that the queue calls ``given``."""
    return template.format(device=given)


PREFIX = f"{QUEUE_KIND}:"
SUBMITTER: Final = "tileyard.workers.submitter"
_SUBMITTER_WORDS: Final = ("-P", "-m", SUBMITTER)


def read_queues(settings: Settings) -> tuple[ForeignQueue, ...]:
    """All declared queues, in order; later files win. Raises UsageError with file, queue and field."""
    queues: dict[str, ForeignQueue] = {}
    for path in declaration_files(settings):
        declared = decode_queues(read_tables(path).get("queue", ()), str(path))
        queues.update({queue.name: queue for queue in declared})
    return tuple(queues.values())


def find_queue(name: str, settings: Settings) -> ForeignQueue:
    """The queue of ``queue:NAME``. Raises UsageError if there is none."""
    queues = {queue.name: queue for queue in read_queues(settings)}
    found = queues.get(name.removeprefix(PREFIX))
    if found is None or not is_queue(name):
        known = ", ".join(PREFIX + known for known in queues) or "none is declared"
        raise UsageError(f"there is no queue {name!r}", f"queues: {known}")
    return found


def is_queue(name: str) -> bool:
    """Whether this is the name of a queue rather than of a device of this host."""
    return name.startswith(PREFIX)


class QueueState(Record):
    """One declared queue: ``tool`` submits, if found. ``tasks`` counts those of this host's
    tileyards in the queue, waiting or running, but hidden users' and containers'.
    """

    name: str
    kind: str = msgspec.field(name="class")
    identity: str
    slots: int
    tool: str
    is_tool_found: bool
    tasks: int


def submitter_argv(queue: ForeignQueue) -> tuple[str, ...]:
    """The command of the process that submits a task and follows it to its end."""
    return (sys.executable, *_SUBMITTER_WORDS, queue.name)


def survey_queues(settings: Settings, root: Path = Path("/")) -> tuple[QueueState, ...]:
    """Every declared queue; quick, as none is asked. Raises UsageError for an invalid declaration."""
    queues = read_queues(settings)
    tasks = _count_tasks(root) if queues else Counter[str]()
    return tuple(
        QueueState(
            name=PREFIX + queue.name,
            kind=class_of(queue.device),
            identity=queue.identity,
            slots=queue.slots,
            tool=queue.submit[0],
            is_tool_found=shutil.which(queue.submit[0]) is not None,
            tasks=tasks[queue.name],
        )
        for queue in queues
    )


def _count_tasks(root: Path) -> Counter[str]:
    """By queue, the number of our processes that follow a task: one per task, until its end."""
    tasks: Counter[str] = Counter()
    for path in (root / "proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended, or is hidden
            continue
        if argv[1:4] == [*_SUBMITTER_WORDS] and len(argv) > 4:
            tasks[argv[4]] += 1
    return tasks
