"""A foreign queue that works, and that fails in every way that such queues do.

A server (``serve``) gives devices to tasks in the order in which they came; clients leave requests
in a folder and follow files there, as real ones follow a server's streams. What goes wrong with
task number N is said in ``faults/N``, or in ``faults/all``. Only the standard library is used.

    fake_queue.py serve DIR DEVICE...
    fake_queue.py task-submit DIR [--device auto] [--devices N] [--max-time S] [--timeout S] [--env N=V]... --run CMD
    fake_queue.py srun DIR [--time=MIN] [--export=NAMES] COMMAND...
    fake_queue.py enqueue DIR [as task-submit]
    fake_queue.py status DIR JOB
    fake_queue.py output DIR JOB
    fake_queue.py cancel DIR JOB
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

POLL_S = 0.01
OWN_LIMIT_S = 2.5
"""When the queue ends a task that has the fault ``limit``, whatever was asked for."""
BASE = ("HOME", "LANG", "TMPDIR")
REJECTED, INTERRUPTED, FAILED = 126, 137, 1


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
            elif "reject" in faults:
                finish(task, REJECTED)
            elif self.can_start(task) and "hang" not in faults:
                self.start(task, faults)
            return
        process, device, until = self.running[task]
        if "half" in faults and (task / "out").read_text().count("TILEYARD_CASE {") >= 2:
            (task / "cancel").touch()
        if "server-dies" in faults and "TILEYARD_CASE" in (task / "out").read_text():
            os.killpg(process.pid, signal.SIGKILL)
            os._exit(1)
        if (task / "cancel").exists() or time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        code = process.poll()
        if code is not None:
            del self.running[task]
            self.free += device.split(",")
            finish(task, INTERRUPTED if code < 0 else code)

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
        if "append" in faults:
            argv = [*argv[:-1], f"{argv[-1]} --device {device}"]
        base = {name: os.environ[name] for name in BASE if name in os.environ}
        variable = {} if "no-device" in faults else {request["variable"]: device}
        with (task / "out").open("wb") as out, (task / "err").open("wb") as err:
            process = subprocess.Popen(
                argv,
                cwd="/",
                env={**base, **environment, **variable},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
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
        draft = self.task / "draft"
        draft.write_text(json.dumps(request))
        draft.rename(self.task / "request")
        tell(folder / "waiting", self.task.name)
        self.done = {"out": 0, "err": 0}

    def follow(self) -> int:
        """Hand output on until the task has an exit code."""
        say(f"task {self.task.name} queued", sys.stderr)
        while not (self.task / "code").exists():
            if "late" not in self.faults:
                self.hand_on()
            if "client-dies" in self.faults and self.done["out"]:
                os.kill(os.getpid(), signal.SIGKILL)
            if time.monotonic() > self.until:
                say("gave up waiting", sys.stderr)
                return FAILED
            time.sleep(POLL_S)
        self.hand_on()
        if "complain" in self.faults:
            say("warning: the card is warm", sys.stderr)
        code = int((self.task / "code").read_text())
        return 0 if "swallow" in self.faults else FAILED if "fail" in self.faults else code

    def hand_on(self) -> None:
        """Whole lines that are new, with whatever this queue does to them."""
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            path = self.task / name
            text = path.read_bytes().decode() if path.exists() else ""
            text = text[: text.rfind("\n") + 1]
            lines, self.done[name] = text[self.done[name] :].splitlines(), len(text)
            for line in lines:
                self.print_line(line, stream)

    def print_line(self, line: str, stream: TextIO) -> None:
        """One line."""
        if "lose" in self.faults or ("lose-results" in self.faults and "RESULT" in line):
            return
        if "garble" in self.faults and "RESULT" in line:
            line = line[: len(line) // 2] + line[len(line) // 2 + 7 :]
        if "decorate" in self.faults:
            line = f"[12:00:00 node7] 0: {line}\r"
        for _ in range(2 if "duplicate" in self.faults else 1):
            say(line, stream)


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
    options: dict[str, list[str]] = {}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        options.setdefault(name, []).append(value)
    if "TASK_DEVICE" in os.environ:
        say("task-submit: nested submission is refused", sys.stderr)
        return REJECTED
    request = {
        "argv": ["/bin/sh", "-c", options["--run"][0]],
        "env": dict(pair.split("=", 1) for pair in options.get("--env", [])),
        "limit_s": float(options["--max-time"][0]),
        "devices": int(options.get("--devices", ["1"])[0]),
        "variable": "TASK_DEVICE",
    }
    client = Client(folder, request, float(options["--timeout"][0]))
    if sys.argv[1] == "enqueue":
        say(f"task {client.task.name} queued", sys.stdout)
        return 0
    return client.follow()


def status(folder: Path, arguments: list[str]) -> int:
    """Say how far a task is."""
    code = folder / "tasks" / arguments[0] / "code"
    say(f"state=ended exit={code.read_text()}" if code.exists() else "state=alive", sys.stdout)
    return 0


def output(folder: Path, arguments: list[str]) -> int:
    """Print what a task has printed, so far as its lines are whole."""
    path = folder / "tasks" / arguments[0] / "out"
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
    }
    client = Client(folder, request, float("inf"))

    def end(_number: int, _frame: object) -> None:
        (client.task / "cancel").touch()
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, end)
    return client.follow()


def command_of(arguments: list[str]) -> str:
    """The first argument that is not an option."""
    return next(argument for argument in arguments if not argument.startswith("--"))


def cancel(folder: Path, arguments: list[str]) -> int:
    """Take a task out of the queue, or end it."""
    (folder / "tasks" / arguments[0] / "cancel").touch()
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
