"""``tileyard lease`` with real processes: streams, signals, codes, and ends of every kind.

Waiting is on processes and on what they write, with a deadline that only a failure reaches.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from tileyard.devices.base import name_user
from tileyard.processes.keeper.deciding import Choice, Wish
from tileyard.processes.keeper.holding import LeaseFacts
from tileyard.processes.keeper.quarantine import put_in_quarantine
from tileyard.processes.keeper.ticket import Ticket

DEADLINE_S = 30.0
WORKER = str(Path(__file__).with_name("process_worker.py"))
DAEMON = f"""
import os, sys, time
sys.path.insert(0, {os.path.dirname(WORKER)!r})
from process_worker import start_daemon
print(os.getpid(), os.getppid(), start_daemon(), flush=True)
"""  # noqa: PTH120 - it is only text here

CARD = "echo $ASCEND_RT_VISIBLE_DEVICES"
"""Prints the cards of a lease."""

pytestmark = pytest.mark.slow


def reset_signals() -> None:
    """Begin with no signal ignored, however these tests were started: a shell could not trap it."""
    for name in ("INT", "QUIT", "HUP", "TERM", "USR1", "USR2", "TSTP"):
        signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_DFL)


class Started(subprocess.Popen[bytes]):
    """A process that is ended with its block, whatever became of it."""

    def __exit__(self, *error: object) -> None:
        self.kill()
        super().__exit__(None, None, None)


class Host:
    """A host with three declared devices and a lock directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.locks = folder / "locks"
        self.env = {
            **os.environ,
            "TILEYARD_HOME": str(folder / "home"),
            "TILEYARD_LOCK_DIR": str(self.locks),
            "TILEYARD_HOST_CONFIG": str(folder),
        }
        self.declare()
        self.started: list[Started] = []

    def declare(self, more: str = "") -> None:
        """Devices npu:0 to npu:2, with further keys for each."""
        tables = (f'[[device]]\nname = "npu:{n}"\nid = "card-{n}"\n{more}\n' for n in range(3))
        (self.folder / "devices.toml").write_text("".join(tables), encoding="utf-8")

    def start(self, *arguments: str | bytes) -> Started:
        """Begin ``tileyard lease``."""
        process = Started(
            [sys.executable, "-m", "tileyard", "lease", *arguments],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=reset_signals,
        )
        self.started.append(process)
        return process

    def run(
        self, *arguments: str | bytes, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        with self.start(*arguments) as process:
            out, err = process.communicate(stdin, DEADLINE_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def status(self, name: str = "status") -> dict[str, object]:
        """What a status file says."""
        decoded: dict[str, object] = json.loads((self.folder / name).read_bytes())
        return decoded

    def requests(self, count: int) -> None:
        """Wait until so many requests are waiting."""
        folder = self.locks / "requests"
        wait_until(lambda: len(list(folder.glob("[!.]*"))) == count)  # a draft is none yet


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again; the pipe that nobody writes to only passes the time."""
    read_end, write_end = os.pipe()
    for _ in range(int(DEADLINE_S / 0.01)):
        if condition():
            break
        select.select([read_end], [], [], 0.01)
    else:
        pytest.fail("it did not happen")
    os.close(read_end)
    os.close(write_end)


def read_line(stream: IO[bytes] | None) -> str:
    """The next line that a process writes."""
    assert stream is not None
    return stream.readline().decode().strip()


def read_until(stream: IO[bytes], expected: bytes) -> bool:
    """Read until this was there."""
    text = b""
    while expected not in text:
        if not select.select([stream], [], [], DEADLINE_S)[0]:
            return False
        text += stream.read(1024)
    return True


def gone(*pids: int) -> bool:
    """Wait until processes have ended; zombies have."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        ended = poll.poll(DEADLINE_S * 1000)
        os.close(handle)
        if not ended:
            return False
    return True


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host; nothing of it is left running."""
    host = Host(tmp_path)
    yield host
    for process in host.started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unsent input of a command that is gone
                    pipe.close()


# ---- as if it had been called directly --------------------------------------------------------


def test_the_command_finds_its_device_and_keeps_its_code(host: Host) -> None:
    """Streams pass straight through, the environment numbers devices by mask, the exit code is unchanged."""
    script = (
        'cat; echo "$TASK_DEVICE $ASCEND_RT_VISIBLE_DEVICES $TILEYARD_LEASE"; echo err >&2; exit 7'
    )
    done = host.run("--devices", "npu:1", "--", "sh", "-c", script, stdin=b"in\n")
    assert re.fullmatch(rb"in\n0 1 [1-9][0-9]*\n", done.stdout)
    assert done.stderr == b"err\n"
    assert done.returncode == 7


def test_several_devices_are_listed(host: Host) -> None:
    """In the order of preference, separated by commas."""
    done = host.run("--count", "2", "--devices", "npu", "--", "sh", "-c", CARD)
    assert done.stdout == b"0,1\n"


def test_the_command_line_arrives_byte_for_byte(host: Host) -> None:
    """Spaces, quotes, options of ours, empty arguments and bytes that are not text survive."""
    expected = [b"--count", b"a  b", b"", b"'\"$x`", b"\xff\xfe", b"--", b"new\nline", b"--help"]
    done = host.run("--", "sh", "-c", 'printf "%s\\0" "$@"', "sh", *expected)
    assert done.stdout.split(b"\0")[:-1] == expected


def test_a_signal_that_ends_the_command_is_in_its_code(host: Host) -> None:
    """128 + n, and the status file tells it from an exit code of that value."""
    done = host.run("--status-file", "status", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    status = host.status()
    assert (status["state"], status["signal"], status["code"]) == ("ended", 9, None)
    expected = {"npu:0"}
    assert status["leases"].keys() == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2"])
def test_signals_are_passed_on(host: Host, name: str) -> None:
    """A command that handles a signal decides itself what it means."""
    script = f"trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.01; done"
    with host.start("--", "sh", "-c", script) as process:
        assert read_line(process.stdout) == "ready"
        process.send_signal(signal.Signals[f"SIG{name}"])
        assert read_line(process.stdout) == "got"
        assert process.wait(DEADLINE_S) == 9


def test_ctrl_c_reaches_all_processes_of_the_command(host: Host) -> None:
    """A shell that waits for its child handles an interrupt only because the child gets it too."""
    with host.start("--", "sh", "-c", "trap 'exit 9' INT; echo ready; sleep 1000") as process:
        assert read_line(process.stdout) == "ready"
        (worker,) = psutil.Process(process.pid).children()[0].children()
        wait_until(lambda: [child.name() for child in worker.children()] == ["sleep"])
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 9


def test_a_stopped_command_goes_on(host: Host) -> None:
    """TSTP stops the caller and its whole tree, CONT continues both."""
    with host.start("--", "sh", "-c", "echo $$; read line; exit 3") as process:
        worker = int(read_line(process.stdout))
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: psutil.Process(worker).status() == psutil.STATUS_STOPPED)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        process.send_signal(signal.SIGCONT)
        process.communicate(b"line\n", DEADLINE_S)
        assert process.returncode == 3


def test_what_is_ignored_stays_ignored(host: Host) -> None:
    """``nohup`` in front of it works."""
    script = "trap '' HUP; exec \"$@\""
    argv = ["sh", "-c", script, "sh", sys.executable, "-m", "tileyard", "lease", "--"]
    inner = ["sh", "-c", "echo $$; read line; exit 5"]
    with subprocess.Popen(
        [*argv, *inner], env=host.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        worker = int(read_line(process.stdout))
        os.kill(process.pid, signal.SIGHUP)
        os.kill(worker, signal.SIGHUP)
        process.communicate(b"line\n", DEADLINE_S)
        assert process.returncode == 5


def test_a_user_command_keeps_core_dumps_and_its_place_before_the_oom_killer(host: Host) -> None:
    """What is right for workers is not for commands of others."""
    script = "ulimit -c; cat /proc/self/oom_score_adj"
    expected = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
    assert host.run("--", "sh", "-c", script).stdout == expected


def test_a_terminal_keeps_working(host: Host) -> None:
    """Ctrl-C there reaches the command, which reads from the terminal, sees its size and may draw."""
    script = "trap 'echo got; exit 9' INT; stty raw; stty -raw; stty size; read x; echo $x; read x"
    primary, secondary = os.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))

    def lead_session() -> None:
        reset_signals()
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = Started(
        [sys.executable, "-m", "tileyard", "lease", "--", "sh", "-c", script],
        cwd=host.folder,
        env=host.env,
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        preexec_fn=lead_session,
    )
    os.close(secondary)
    with process, os.fdopen(primary, "r+b", buffering=0) as terminal:
        assert read_until(terminal, b"24 80")
        terminal.write(b"typed\n")
        assert read_until(terminal, b"typed\r\ntyped")
        terminal.write(b"\x03")
        assert read_until(terminal, b"got")
        assert process.wait(DEADLINE_S) == 9


# ---- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--devices", "npu:9", "--", "true"], 69, r"there is no device 'npu:9'"),
        (["--devices", "npu", "--count", "4", "--", "true"], 69, r"4 devices are requested"),
        (["--", "/no/such"], 127, r"/no/such: its program cannot be run: No such file"),
        (["--", "/"], 126, r"/: its program cannot be run: Permission denied"),
        (["--status-file", "/no/such/file", "--", "true"], 2, r"cannot write /no/such/file"),
        (["--colour", "--", "true"], 2, r"'--colour' is not an option"),
    ],
)
def test_refusals_are_one_line(host: Host, arguments: list[str], code: int, message: str) -> None:
    """Each with a code of its own."""
    done = host.run(*arguments)
    assert done.returncode == code
    assert re.fullmatch(rf"tileyard: .*{message}.*\n", done.stderr.decode())


def test_waiting_too_long_has_its_own_code(host: Host) -> None:
    """The status file says which limit it was, and nothing is left in the queue."""
    with host.start("--devices", "npu:0", "--", "sh", "-c", "echo; read x") as holder:
        read_line(holder.stdout)
        done = host.run(
            "--devices", "npu:0", "--queue-limit", "50ms", "--status-file", "status", "--", "true"
        )
        status = host.status()
        at_once = host.run("--devices", "npu:0", "--queue-limit", "0s", "--", "true")
        holder.communicate(b"\n", DEADLINE_S)
    assert (
        (done.returncode, status["state"])
        == (at_once.returncode, "queue_timeout")
        == (75, "queue_timeout")
    )
    held = f"held by {name_user(os.geteuid())}, pid [0-9]+, sh -c echo; read x"
    expected = f"tileyard: waiting, number 1 in the queue, {held}\ntileyard: no npu:0 within 0.05 s, {held}\n"
    assert re.fullmatch(expected, done.stderr.decode())
    assert re.fullmatch(f"tileyard: no npu:0 is free, {held}\n", at_once.stderr.decode())
    assert list((host.locks / "requests").iterdir()) == []


@pytest.mark.parametrize("limit", ["0s", "1ms", "50ms", "100ms", "150ms"])
def test_a_grant_ends_the_queue_limit(host: Host, limit: str) -> None:
    """A free device is given however short the limit is, and what has started runs to its end."""
    done = host.run("--devices", "npu:0", "--queue-limit", limit, "--", "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


def test_running_too_long_has_its_own_code(host: Host) -> None:
    """The whole tree is ended, and the command is told first."""
    script = "trap 'echo told; exit 0' TERM; while :; do sleep 0.01; done"
    done = host.run("--run-limit", "2s", "--status-file", "status", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (124, b"told\n")
    assert host.status()["state"] == "max_time"


@pytest.mark.parametrize("clear", [[], ["env", "-i"]])
def test_a_nested_request_is_refused_at_once(host: Host, clear: list[str]) -> None:
    """By the environment, and by ancestry where that was wiped."""
    variables = (
        [f"{k}={v}" for k, v in host.env.items() if k.startswith("TILEYARD_")] if clear else []
    )
    inner = [
        *clear,
        *variables,
        sys.executable,
        "-m",
        "tileyard",
        "lease",
        "--devices",
        "npu:0",
        "--",
        "true",
    ]
    done = host.run("--devices", "npu:0", "--", *inner)
    assert done.returncode == 69
    expected = "cannot lease npu:0: this command already runs under a lease of npu:0"
    assert done.stderr.decode() == f"tileyard: {expected}\n"


def test_another_device_may_be_had_under_a_lease(host: Host) -> None:
    """Nesting itself is not a fault."""
    inner = [sys.executable, "-m", "tileyard", "lease", "--", "sh", "-c", CARD]
    assert host.run("--devices", "npu:0", "--", *inner).stdout == b"1\n"


def test_interrupting_the_wait_leaves_the_queue(host: Host) -> None:
    """Ctrl-C before the command began ends the request and nothing else."""
    with host.start("--devices", "npu:0", "--", "sh", "-c", "echo; read x") as holder:
        read_line(holder.stdout)
        with host.start("--devices", "npu:0", "--status-file", "status", "--", "true") as waiting:
            host.requests(1)
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(DEADLINE_S) == 130
        assert host.status()["state"] == "interrupted"
        assert list((host.locks / "requests").iterdir()) == []
        holder.communicate(b"\n", DEADLINE_S)


# ---- ends of every kind -----------------------------------------------------------------------


def test_a_daemon_is_gone_before_the_next_grant(host: Host) -> None:
    """A detached grandchild that closed all its files does not outlive the lease."""
    done = host.run("--devices", "npu:0", "--", sys.executable, "-c", DAEMON)
    daemon = int(done.stdout.split()[2])
    assert done.returncode == 0
    assert not psutil.pid_exists(daemon)


def test_a_killed_caller_ends_its_command(host: Host) -> None:
    """SIGKILL of ``tileyard lease`` ends the tree, daemon included, and the next one gets through."""
    program = DAEMON + "time.sleep(1000)"
    with host.start("--devices", "npu:0", "--", sys.executable, "-c", program) as first:
        worker, keeper, daemon = map(int, read_line(first.stdout).split())
        with host.start("--devices", "npu:0", "--", "sh", "-c", "echo $TILEYARD_LEASE") as second:
            host.requests(1)
            first.kill()
            assert read_line(second.stdout).isdecimal()
            assert gone(worker, keeper, daemon)
            assert second.wait(DEADLINE_S) == 0


def test_a_killed_keeper_is_cleaned_up_after(host: Host) -> None:
    """The caller says that it lost its keeper; the next holder starts once the daemon is gone."""
    program = DAEMON + "time.sleep(1000)"
    arguments = ["--devices", "npu:0", "--status-file", "status", "--"]
    with host.start(*arguments, sys.executable, "-c", program) as first:
        worker, keeper, daemon = map(int, read_line(first.stdout).split())
        os.kill(first.pid, signal.SIGSTOP)  # so that only the record knows of the daemon
        os.kill(keeper, signal.SIGKILL)
        assert gone(keeper, worker)
        assert psutil.pid_exists(daemon)
        script = f"grep -s State: /proc/{daemon}/status; echo $TILEYARD_LEASE"
        done = host.run("--devices", "npu:0", "--", "sh", "-c", script)
        assert re.fullmatch(rb"(State:\tZ .*\n)?[0-9]+\n", done.stdout)
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(DEADLINE_S) == 69
    assert host.status()["state"] == "keeper_lost"


def test_a_killed_command_is_told_by_its_signal(host: Host) -> None:
    """Whoever kills it, the caller answers as a shell would."""
    with host.start("--devices", "npu:0", "--", "sh", "-c", "echo $$; read x") as process:
        os.kill(int(read_line(process.stdout)), signal.SIGKILL)
        assert process.wait(DEADLINE_S) == 137


def test_a_device_that_fails_its_probe_is_given_to_nobody(host: Host) -> None:
    """After a crash it is probed before it is given on; others go on with another one."""
    host.declare('probe = ["sh", "-c", "echo all is lost; test \'{index}\' != 0"]')
    assert host.run("--devices", "npu:0", "--", "true").returncode == 0
    assert host.run("--devices", "npu:0", "--", "sh", "-c", "kill -9 $$").returncode == 137
    done = host.run("--devices", "npu:0", "--status-file", "status", "--", "true")
    assert done.returncode == 69
    assert b"its probe ended with code 1: all is lost" in done.stderr
    assert host.status()["state"] == "device_sick"
    assert host.run("--devices", "npu", "--", "sh", "-c", CARD).stdout == b"1\n"


def test_a_device_whose_keeper_was_killed_is_probed_before_it_is_used(host: Host) -> None:
    """Nobody has probed it after that end; the request goes on with another device."""
    with host.start("--devices", "npu:0", "--", "sh", "-c", "echo $PPID; read x") as process:
        os.kill(int(read_line(process.stdout)), signal.SIGKILL)
        assert process.wait(DEADLINE_S) == 69
    host.declare('probe = ["sh", "-c", "test \'{index}\' != 0"]')
    done = host.run("--devices", "npu", "--", "sh", "-c", CARD)
    assert done.stdout == b"1\n"
    assert b"put in quarantine: npu:0: its probe ended with code 1" in done.stderr


def hold_the_first(host: Host, more: str) -> Started:
    """Have npu:0 for as long as the process is not told to end, and npu:1 in quarantine."""
    host.declare(more)
    holder = host.start("--devices", "npu:0", "--", "sh", "-c", "echo held; read line")
    assert read_line(holder.stdout) == "held"
    put_in_quarantine([str(host.locks / "device-card-1.lock")], "npu:1", "its probe failed")
    return holder


def test_who_waits_has_a_sick_device_probed_and_waits_no_longer_for_it(host: Host) -> None:
    """The probe hangs; it is ended when the other device comes and the command begins."""
    note = host.folder / "note"
    holder = hold_the_first(host, f"probe = ['sh', '-c', 'echo $$ > {note}; exec sleep 1000']")
    wanted = ("--devices", "npu:0", "--devices", "npu:1")
    with host.start(*wanted, "--", "sh", "-c", f"{CARD}; read line") as waiter:
        wait_until(lambda: note.exists() and note.read_text(encoding="ascii").endswith("\n"))
        pid = int(note.read_text(encoding="ascii"))
        holder.communicate(b"now\n", DEADLINE_S)
        expected = "0"
        assert read_line(waiter.stdout) == expected
        assert gone(pid)
        waiter.communicate(b"now\n", DEADLINE_S)
    assert waiter.returncode == 0


def test_who_waits_gets_a_device_that_has_come_back(host: Host) -> None:
    """After three good probes, while the other device is still held."""
    hold_the_first(host, "probe = ['true']")
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tileyard.verbs.lease.command import Wanted, find_choices\n"
        "from tileyard.devices.reprobing import Reprobing\n"
        "from tileyard.processes.records import Limits\n"
        "from tileyard.devices.wrapping import WrappedCommand\n"
        "from tileyard.processes.records import LeaseRequest\n"
        "from tileyard.base.settings import read_settings\n"
        "choices = find_choices(Wanted(sys.argv[1:]), read_settings(os.environ, Path.cwd()))\n"
        "class Soon(Reprobing):\n"
        "    every_s = 0.05\n"
        "command = WrappedCommand(['sh', '-c', 'echo $ASCEND_RT_VISIBLE_DEVICES'], "
        "LeaseRequest(choices=choices),\n"
        "    Limits(), lambda status: None, reprobing=Soon(choices, 0.05))\n"
        "sys.exit(command.run().code)\n"
    )
    arguments = ("--devices", "npu:0", "--devices", "npu:1", "--", "true")
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=host.folder,
        env=host.env,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    expected = (b"1\n", b"", 0)
    assert (done.stdout, done.stderr, done.returncode) == expected


def test_a_hung_probe_is_a_failed_one(host: Host) -> None:
    """It is ended at its limit, and holds up nobody for longer."""
    host.declare('probe = ["sleep", "1000"]\nprobe_limit_s = 0.1')
    assert host.run("--devices", "npu:0", "--", "sh", "-c", "kill -9 $$").returncode == 137
    done = host.run("--devices", "npu:0", "--", "true")
    assert done.returncode == 69
    assert b"its probe took longer than 0.1 s" in done.stderr


def test_several_at_once_without_deadlock(host: Host) -> None:
    """Requests for one, two and three of three devices all get through, and never share."""
    script = (
        'set -e; for d in $(echo $ASCEND_RT_VISIBLE_DEVICES | tr , " "); do mkdir busy-$d; done; '
        'for d in $(echo $ASCEND_RT_VISIBLE_DEVICES | tr , " "); do rmdir busy-$d; done'
    )
    counts = ["2", "1", "3", "2", "1", "2"]
    running = [host.start("--count", count, "--", "sh", "-c", script) for count in counts]
    codes = []
    for process in running:
        process.communicate(timeout=DEADLINE_S)
        codes.append(process.returncode)
    assert codes == [0] * len(counts)


def test_priority_goes_first(host: Host) -> None:
    """The more urgent request gets the device, though it was made later."""
    device = ["--devices", "npu:0"]
    with host.start(*device, "--", "sh", "-c", "echo; read x") as holder:
        read_line(holder.stdout)
        plain = host.start(*device, "--", "sh", "-c", "echo $TILEYARD_LEASE")
        host.requests(1)
        urgent = host.start(*device, "--priority", "1", "--", "sh", "-c", "echo $TILEYARD_LEASE")
        host.requests(2)
        holder.communicate(b"\n", DEADLINE_S)
    assert int(read_line(urgent.stdout)) < int(read_line(plain.stdout))


# ---- the directory --------------------------------------------------------------------------


as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to be several users or to mount"
)


def test_turns_go_round_the_jobs(host: Host) -> None:
    """Three earlier requests of one job do not all go before another job's; more urgent ones do."""
    with host.start("--devices", "npu:0", "--", "sh", "-c", "echo held; read x") as holder:
        assert read_line(holder.stdout) == "held"
        started = []
        for job, priority in ("a0", "a0", "a0", "b0", "a1"):
            host.env["TILEYARD_JOB"] = job
            line = f"echo {job}{priority} >> order"
            arguments = ("--devices", "npu:0", "--priority", priority, "--", "sh", "-c", line)
            started.append(host.start(*arguments))
            host.requests(len(started))
        holder.communicate(b"x\n", DEADLINE_S)
        for process in started:
            process.communicate(timeout=DEADLINE_S)
    order = (host.folder / "order").read_text(encoding="ascii").split()
    assert order == ["a1", "b0", "a0", "a0", "a0"]  # the urgent turn was one of job a


@as_root
def test_a_full_disk_is_one_line(host: Host) -> None:
    """No lease is granted that cannot be written down, and one that is held ends as usual."""
    host.locks.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs", str(host.locks)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("may not mount a tmpfs here")
    try:
        with host.start("--devices", "npu:0", "--", "sh", "-c", "echo; read x") as holder:
            read_line(holder.stdout)
            with pytest.raises(OSError, match="No space"):
                fill(host.locks / "junk")
            for device in ("npu:0", "npu:1"):
                done = host.run("--devices", device, "--", "true")
                assert done.returncode == 69
                assert re.fullmatch(rb"tileyard: .*No space left on device\n", done.stderr)
            holder.communicate(b"\n", DEADLINE_S)
            assert holder.returncode == 0
        (host.locks / "junk").unlink()
        assert host.run("--devices", "npu:0", "--", "true").returncode == 0
    finally:
        subprocess.run(["umount", "-l", str(host.locks)], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as junk:
        while True:
            junk.write(b"x" * 512)


def as_nobody(step: Callable[[], object]) -> str:
    """Do something as another user, in a process of its own; what it raised, or its answer."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            answer = str(step())
        except BaseException as error:  # noqa: BLE001 - the child must end here, whatever it was
            answer = type(error).__name__
        os.write(write_end, answer.encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    answer = os.read(read_end, 1000).decode()
    os.close(read_end)
    return answer


@as_root
def test_nobody_can_release_or_imitate_anothers_lease(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Not by removing, rewriting, locking or unlocking what it consists of."""
    folder = Path("/tmp") / f"tileyard-test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)
    wish = Wish((Choice("gpu:0", ("gpu-a",)),))
    try:
        ticket = Ticket(str(folder), wish, LeaseFacts("root", "0123"))
        holding = ticket.try_take()
        ticket.close()
        assert holding is not None
        waiting = Ticket(str(folder), wish, LeaseFacts("root", "4567"))
        assert waiting.try_take() is None
        (record,) = (folder / "leases").iterdir()
        (request,) = (folder / "requests").iterdir()
        for path in (record, request):
            assert as_nobody(path.unlink) == "PermissionError"
            assert as_nobody(lambda path=path: path.rename(folder / "away")) == "PermissionError"
            assert as_nobody(lambda path=path: path.open("r+b")) == "PermissionError"

        def ask() -> str:
            ticket = Ticket(str(folder), wish, LeaseFacts("nobody", "89ab"))
            ticket._above = [1]  # this test's own process is not a lease above it
            answer = "waits" if ticket.try_take() is None else "granted"
            answer += f" {ticket.find_position()}"
            ticket.close()
            return answer

        assert as_nobody(ask) == "waits 2"
        holding.release()
        held = waiting.try_take()
        assert held is not None
        held.release()
        waiting.close()
        assert as_nobody(ask) == "granted 1"
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def leave_one_behind(folder: Path, wish: Wish) -> int:
    """A holder that is killed, and what it leaves in a session of its own: the pid of that."""
    read_end, write_end = os.pipe()
    holder = os.fork()
    if holder == 0:
        try:
            holding = Ticket(str(folder), wish, LeaseFacts("root", "0123")).try_take()
            left = os.fork()
            if left == 0:
                os.setsid()
                os.closerange(0, 1024)  # as a program of its own would not have the record open
                signal.pause()
            if holding is not None:
                holding.note_session(left)
            os.write(write_end, str(left).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(holder, 0)
    left = int(os.read(read_end, 100))
    os.close(read_end)
    os.close(write_end)
    return left


@as_root
def test_what_another_users_killed_holder_left_is_seen() -> None:
    """It cannot be ended, and its environment cannot be read; so the device cannot be used yet."""
    folder = Path("/tmp") / f"tileyard-test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)
    wish = Wish((Choice("gpu:0", ("gpu-a",)),))
    left = leave_one_behind(folder, wish)
    wait_until(lambda: os.getsid(left) == left)

    def look() -> str:
        ticket = Ticket(str(folder), wish, LeaseFacts("nobody", "89ab"))
        holding = ticket.try_take()
        assert holding is not None
        found = ticket.end_survivors(holding)
        holding.release(is_clean=not found)
        ticket.close()
        return str(left in found)  # other orphans of that user's are suspects as well

    try:
        assert as_nobody(look) == "True"
        os.kill(left, signal.SIGKILL)
        assert gone(left)
        assert as_nobody(look) == "False"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(folder)], check=True)
