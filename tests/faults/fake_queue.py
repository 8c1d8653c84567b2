"""A foreign queue that works, and that fails in every way that such queues do.

A server (``serve``) gives devices to tasks in the order in which they came; clients leave requests
in a folder and follow files there, as real ones follow a server's streams. What goes wrong with
task number N is said in ``faults/N``, or in ``faults/all``. Only the standard library is used.

``task-submit`` has the manners of the public client of that name (pypto-tools/npu-taskqueue): it prints a
task's id on stderr, hands on all that a task prints on stdout, appends ``--device`` to the command, and ends
with 1 for a refusal and for its own time-out, which takes back a waiting task and leaves a running one.
``--cancel`` takes waiting tasks only, ``--kill`` both; a killed task ends with 143, or 137 if it did not
obey. A task that runs too long gets a line in its output, and ends with 130, with which the lock on its card
ends, or with 137. TERM has the client end its task.

    fake_queue.py serve DIR DEVICE...
    fake_queue.py task-submit DIR [--device auto] [--device-num N] [--max-time S] [--timeout S] [--env N=V]...
        --run CMD
    fake_queue.py task-submit DIR --cancel|--kill ID
    fake_queue.py srun DIR [--time=MIN] [--export=NAMES] COMMAND...
    fake_queue.py enqueue DIR [as task-submit]
    fake_queue.py status DIR JOB
    fake_queue.py output DIR JOB
    fake_queue.py cancel DIR JOB
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

POLL_S = 0.01
OWN_LIMIT_S = 2.5
"""When the queue ends a task with the fault ``limit``, whatever was asked for, as sites have own limits."""
BASE = ("HOME", "LANG", "TMPDIR")
GRACE_S = 3.0
"""How long a killed task may take to obey TERM."""
KILL_WAIT_S = 5.0
"""How long a client waits for a task's end that it has asked for."""
INTERRUPTED, LIMITED, FAILED = 137, 130, 1
NAMES_DEVICE = re.compile(r"[|;]|&&|\$TASK_DEVICE|--devices?\b")
"""A command to which ``--device`` is not appended: it names the device itself, or is a compound one."""
NAME = "task_20260714_103015_"


class Server:
    """Gives each task a device, runs it in a session of its own and keeps what it prints."""

    def __init__(self, folder: Path, devices: list[str]) -> None:
        self.folder = folder
        self.free = list(devices)
        self.running: dict[Path, tuple[subprocess.Popen[bytes], str, float]] = {}

    def serve(self) -> None:
        """Until it is killed, or dies of a task's fault."""
        (self.folder / "ready").touch()
        while True:
            for task in sorted((self.folder / "tasks").iterdir(), key=lambda path: int(path.name)):
                if not (task / "code").exists() and (task / "request").exists():
                    self.look_after(task)
            time.sleep(POLL_S)

    def look_after(self, task: Path) -> None:
        """Move one task on."""
        faults = faults_of(self.folder, task)
        if task not in self.running:
            if (task / "cancel").exists():
                finish(task, INTERRUPTED)
            elif self.can_start(task) and "hang" not in faults:
                self.start(task, faults)
            return
        process, device, until = self.running[task]
        begun = (task / "out").read_text().count("TILEYARD_CASE {")
        if ("killed" in faults and begun) or ("half" in faults and begun > 1):
            (task / "cancel").touch()
        if "server-dies" in faults and "TILEYARD_CASE" in (task / "out").read_text():
            os.killpg(process.pid, signal.SIGKILL)
            os._exit(1)
        now = time.monotonic()
        if (task / "cancel").exists() and until > now:
            until = now
            self.running[task] = process, device, until
        code = process.poll()
        limited = task / "limited"
        if now >= until and code is None:
            if not (limited.exists() or (task / "cancel").exists()):
                limited.touch()
                with (task / "out").open("a") as out:
                    out.write("[taskqueue] 任务超时 (自动终止)\n")
            with contextlib.suppress(ProcessLookupError):
                late = now > until + GRACE_S
                os.killpg(process.pid, signal.SIGKILL if late else signal.SIGTERM)
        if code is not None:
            with contextlib.suppress(ProcessLookupError):  # what it has left
                os.killpg(process.pid, signal.SIGKILL)
            del self.running[task]
            self.free += device.split(",")
            code = 128 - code if code < 0 else code
            finish(task, LIMITED if limited.exists() and code != INTERRUPTED else code)

    def can_start(self, task: Path) -> bool:
        """Whether all devices are free that a task asks for."""
        return len(self.free) >= json.loads((task / "request").read_text())["devices"]

    def start(self, task: Path, faults: set[str]) -> None:
        """Run a task on the next device, with the environment of the request and nothing else."""
        request = json.loads((task / "request").read_text())
        environment = dict(request["env"])
        if "truncate" in faults:
            environment = {name: value[:40] for name, value in environment.items()}
        if "drop-variable" in faults:
            environment.pop("COLOUR", None)
        count = request["devices"]
        device, self.free = ",".join(self.free[:count]), self.free[count:]
        argv = request["argv"]
        is_simple = request["appends"] and not NAMES_DEVICE.search(argv[-1])
        if is_simple and "no-device" not in faults:
            argv = [*argv[:-1], f"{argv[-1]} --device {device}"]
        base = {name: os.environ[name] for name in BASE if name in os.environ}
        variable = {} if faults & {"no-device", "unset"} else {request["variable"]: device}
        with (task / "out").open("ab") as out:
            process = subprocess.Popen(
                argv,
                cwd="/",
                env={**base, **environment, **variable},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (task / "pid").write_text(str(process.pid))
        tell(self.folder / "started", task.name)
        limit_s = OWN_LIMIT_S if "limit" in faults else request["limit_s"]
        self.running[task] = process, device, time.monotonic() + limit_s


class Client:
    """Submits one task and follows it."""

    def __init__(self, folder: Path, request: dict[str, object], wait_s: float) -> None:
        self.folder = folder
        self.until = time.monotonic() + wait_s
        self.task = new_task(folder)
        self.faults = faults_of(folder, self.task)
        if "reject" in self.faults:
            finish(self.task, FAILED)
            say("错误: no such card", sys.stderr)
            raise SystemExit(FAILED)
        draft = self.task / "draft"
        draft.write_text(json.dumps(request))
        draft.rename(self.task / "request")
        tell(folder / "waiting", self.task.name)
        self.done = 0
        self.has_begun = False

    def follow(self) -> int:
        """Hand output on until the task has an exit code."""
        say(f"submitted {NAME}{self.task.name}", sys.stderr)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self.leave)
        while not (self.task / "code").exists():
            if "late" not in self.faults:
                self.hand_on()
            if "client-dies" in self.faults and self.has_begun:
                os.kill(os.getpid(), signal.SIGKILL)
            if time.monotonic() > self.until or self.is_hasty:
                say("错误: 等待超时", sys.stderr)
                if not (self.task / "pid").exists():
                    end_task(self.task)
                return FAILED
            time.sleep(POLL_S)
        self.hand_on()
        if "complain" in self.faults:
            say("warning: the card is warm", sys.stderr)
        code = int((self.task / "code").read_text())
        return 0 if "swallow" in self.faults else FAILED if "fail" in self.faults else code

    @property
    def is_hasty(self) -> bool:
        """Whether it takes its time for over, while its task waits or while that runs."""
        return "hasty" in self.faults or ("hasty-later" in self.faults and self.has_begun)

    def leave(self, number: int, _frame: object) -> None:
        """End the task, as nobody waits for it any more."""
        end_task(self.task)
        raise SystemExit(128 + number)

    def hand_on(self) -> None:
        """Whole lines that are new, with whatever this queue does to them."""
        path = self.task / "out"
        text = path.read_bytes().decode() if path.exists() else ""
        text = text[: text.rfind("\n") + 1]
        lines, self.done = text[self.done :].splitlines(), len(text)
        for line in lines:
            self.has_begun |= "TILEYARD_CASE {" in line
            self.print_line(line)

    def print_line(self, line: str) -> None:
        """One line."""
        if "lose" in self.faults or ("lose-results" in self.faults and "RESULT" in line):
            return
        if "garble" in self.faults and "RESULT" in line:
            line = line[: len(line) // 2] + line[len(line) // 2 + 7 :]
        if "decorate" in self.faults:
            line = f"[12:00:00 node7] 0: {line}\r"
        for _ in range(2 if "duplicate" in self.faults else 1):
            say(line, sys.stdout)


def end_task(task: Path) -> None:
    """Have a task ended, and wait a while for it."""
    (task / "cancel").touch()
    until = time.monotonic() + KILL_WAIT_S
    while not (task / "code").exists() and time.monotonic() < until:
        time.sleep(POLL_S)


def tell(path: Path, text: str) -> None:
    """Wake whoever waits for this, if anybody does."""
    if path.is_fifo():
        path.write_text(text)


def say(line: str, stream: TextIO) -> None:
    """Print a line at once."""
    stream.write(line + "\n")
    stream.flush()


def new_task(folder: Path) -> Path:
    """The folder of the next task."""
    number = 1
    while True:
        task = folder / "tasks" / str(number)
        try:
            task.mkdir()
        except FileExistsError:
            number += 1
        else:
            return task


def faults_of(folder: Path, task: Path) -> set[str]:
    """What goes wrong with this task."""
    names = (folder / "faults" / task.name, folder / "faults" / "all")
    return {word for path in names if path.exists() for word in path.read_text().split()}


def finish(task: Path, code: int) -> None:
    """Say how a task ended."""
    (task / "draft-code").write_text(str(code))
    (task / "draft-code").rename(task / "code")


def submit(folder: Path, arguments: list[str]) -> int:
    """The client that takes the command as one string, and the environment as options."""
    if arguments[0] in ("--cancel", "--kill"):
        return end(folder, *arguments)
    options: dict[str, list[str]] = {}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        options.setdefault(name, []).append(value)
    if "TASK_DEVICE" in os.environ:
        say("错误: nested submission", sys.stderr)
        return FAILED
    is_real = sys.argv[1] == "task-submit"
    request = {
        "argv": ["/bin/sh", "-c", options["--run"][0]],
        "env": dict(pair.split("=", 1) for pair in options.get("--env", [])),
        "limit_s": float(options["--max-time"][0]),
        "devices": int(options.get("--device-num", ["1"])[0]),
        "variable": "TASK_DEVICE",
        "appends": is_real,
    }
    client = Client(folder, request, float(options["--timeout"][0]))
    if is_real:
        return client.follow()
    say(f"submitted {NAME}{client.task.name}", sys.stdout)
    return 0


def end(folder: Path, how: str, name: str) -> int:
    """Take a task back, or end it; only ``--kill`` ends one that runs."""
    task = task_of(folder, name)
    if (task / "code").exists():
        return 0
    if how == "--cancel" and (task / "pid").exists():
        say("it runs already: use --kill", sys.stderr)
        return FAILED
    end_task(task)
    return 0


def task_of(folder: Path, name: str) -> Path:
    """The folder of the task with this id."""
    return folder / "tasks" / name.removeprefix(NAME)


def status(folder: Path, arguments: list[str]) -> int:
    """Say how far a task is."""
    code = task_of(folder, arguments[0]) / "code"
    say(f"state=ended exit={code.read_text()}" if code.exists() else "state=alive", sys.stdout)
    return 0


def output(folder: Path, arguments: list[str]) -> int:
    """Print what a task has printed, so far as its lines are whole."""
    path = task_of(folder, arguments[0]) / "out"
    text = path.read_text() if path.exists() else ""
    sys.stdout.write(text[: text.rfind("\n") + 1])
    return 0


def srun(folder: Path, arguments: list[str]) -> int:
    """The client that takes an argument list, and passes on named variables of its own."""
    options = [argument for argument in arguments if argument.startswith("--")]
    named = dict(
        option.split("=", 1) for option in options[: arguments.index(command_of(arguments))]
    )
    names = [name for name in named.get("--export", "").split(",") if name in os.environ]
    request = {
        "argv": arguments[arguments.index(command_of(arguments)) :],
        "env": {name: os.environ[name] for name in names},
        "limit_s": float(named["--time"]) * 60,
        "devices": 1,
        "variable": "SLURM_DEVICE",
        "appends": False,
    }
    return Client(folder, request, float("inf")).follow()


def command_of(arguments: list[str]) -> str:
    """The first argument that is not an option."""
    return next(argument for argument in arguments if not argument.startswith("--"))


def cancel(folder: Path, arguments: list[str]) -> int:
    """Take a task out of the queue, or end it."""
    (task_of(folder, arguments[0]) / "cancel").touch()
    return 0


def main() -> int:
    """Do one of these things."""
    verb, folder, arguments = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if verb == "serve":
        Server(folder, arguments).serve()
    verbs = {
        "task-submit": submit,
        "enqueue": submit,
        "srun": srun,
        "cancel": cancel,
        "status": status,
        "output": output,
    }
    return verbs[verb](folder, arguments)


if __name__ == "__main__":
    sys.exit(main())
