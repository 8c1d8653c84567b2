"""Runs a user's command under a lease, as if called directly, and ends it as a tree. It has its own
session and the caller's standard streams and signals. No asyncio: it is slow to import.
"""

import errno
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from tileyard.base.clock import Countdown
from tileyard.base.errors import UsageError
from tileyard.devices.reprobing import Reprobing
from tileyard.processes.keeper.tree import kill_marked
from tileyard.processes.keeper_line import PYTHON, Report, explain_refusal, keeper_argv
from tileyard.processes.records import LeaseRequest, LeaseStatus, Limits, State

GRACE_S: Final = 5.0
"""Seconds that a command past its limit has to end by itself after TERM."""
CONFIRM_S: Final = 5.0
STATES: Final = {
    "sick": State.DEVICE_SICK, "nested": State.NESTED, "argv": State.NOT_RUN, "priority": State.NOT_RUN
}  # fmt: skip
TO_GROUP: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
"""Signals that a terminal sends to all of its foreground processes."""
ENDING: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP})
PASSED_ON: Final = (
    *ENDING, signal.SIGWINCH, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT
)  # fmt: skip


@contextmanager
def heed_signals() -> Iterator[int]:
    """Yields a descriptor to read signals' numbers from, in place of their effect; ignored ones stay so."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.getsignal(number) for number in PASSED_ON}
    wakeup = signal.set_wakeup_fd(write_end)
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        yield read_end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(read_end)
        os.close(write_end)


class WrappedCommand:
    """One command under a lease. ``tell`` gets every change of its status, the last one included.
    While it waits, ``reprobing`` looks after devices in quarantine.
    """

    def __init__(
        self,
        argv: Sequence[str],
        lease: LeaseRequest,
        limits: Limits,
        tell: Callable[[LeaseStatus], None],
        *,
        reprobing: Reprobing,
    ) -> None:
        self.status = LeaseStatus(state=State.WAITING)
        self._argv = argv
        self._lease = lease
        self._limits = limits
        self._tell = tell
        self._reprobing = reprobing
        self._look_at: float | None = None
        self._asked = self._locked = self._started = self._over = 0.0
        self._end: State | None = None
        self._interrupt = 0
        self._pending: list[signal.Signals] = []
        self._last: Report | None = None
        self._tree = os.urandom(8).hex()  # secrets takes 7 ms to load
        self._limit = Countdown(None)
        self._control = self._reports = -1
        self._unread = b""
        self._decoder = msgspec.json.Decoder(Report)

    def run(self) -> LeaseStatus:
        """Run it to its end. Call this from the main thread, at most once."""
        with heed_signals() as wakeup:
            self._asked = time.monotonic()
            self._limit = Countdown(self._limits.queue_s)
            keeper = self._spawn()
            self._change(State.WAITING)
            while self._wait(wakeup):
                pass
            if self._last is None:
                os.waitpid(keeper, 0)
        self._stop_looking()
        self._over = time.monotonic()
        os.close(self._control)
        os.close(self._reports)
        self._conclude()
        return self.status

    def _spawn(self) -> int:
        control_out, self._control = os.pipe()
        self._reports, reports_in = os.pipe()
        os.set_blocking(self._reports, False)
        for fd in (control_out, reports_in):
            os.set_inheritable(fd, True)
        options = [
            f"cwd={os.getcwd()}",  # noqa: PTH109 - bytes and all
            f"grace={GRACE_S:f}",
            f"confirm={CONFIRM_S:f}",
            f"control={control_out}",
            f"reports={reports_in}",
            "plain=1",
        ]
        try:
            return os.posix_spawn(
                PYTHON[0],
                keeper_argv(self._tree, options, self._lease, self._argv),
                os.environ,
                setsid=True,
                setsigmask=(),
            )
        finally:
            os.close(control_out)
            os.close(reports_in)

    # ---- waiting ------------------------------------------------------------------------------

    def _wait(self, wakeup: int) -> bool:
        """Wait for an event and handle it; False once no more will come."""
        waiting = select.poll()
        waiting.register(self._reports, select.POLLIN)
        waiting.register(wakeup, select.POLLIN)
        rests = [rest_s for rest_s in (self._enforce_limits(), self._look()) if rest_s is not None]
        rest_s = min(rests, default=None)
        ready = [fd for fd, _ in waiting.poll(None if rest_s is None else rest_s * 1000)]
        if self._reports in ready and not self._read_reports():
            return False
        if wakeup in ready:
            # only after what was reported before: a process that signals a command has seen it start
            self._read_reports()
            for number in os.read(wakeup, 4096):
                self._heed(signal.Signals(number))
        return self._last is None

    def _read_reports(self) -> bool:
        """Process the keeper's reports so far; False once it is gone."""
        while True:
            try:
                data = os.read(self._reports, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(self._decoder.decode(line))

    def _enforce_limits(self) -> float | None:
        """Seconds until the running limit is checked again, None if there is none."""
        if self._end is not None or self._limit.left_s() == math.inf:
            return None
        if wait_s := self._limit.wait_s():
            return wait_s
        self._end = State.MAX_TIME if self._locked else State.QUEUE_TIMEOUT
        self._order(f"probe\nkill {GRACE_S:f}" if self._locked else "withdraw")
        return None

    def _look(self) -> float | None:
        """Seconds until something else is due, None for never."""
        if self._look_at is None:
            return None
        if self._look_at <= time.monotonic():
            self._reprobing.look()
            self._look_at = time.monotonic() + self._reprobing.every_s
        return self._look_at - time.monotonic()

    def _stop_looking(self) -> None:
        self._look_at = None
        self._reprobing.stop()

    def _heed(self, number: signal.Signals) -> None:
        if number == signal.SIGTSTP:
            self._order("stop")
            os.kill(os.getpid(), signal.SIGSTOP)
            self._order("continue")
        elif number == signal.SIGCONT:
            self._order("continue")
        elif self._started:
            self._order(f"signal{'-group' if number in TO_GROUP else ''} {number:d}")
        elif self._locked:
            self._pending.append(number)
        elif number in ENDING:
            self._interrupt = self._interrupt or number
            self._end = self._end or State.INTERRUPTED
            self._order("kill 0")

    def _order(self, text: str) -> None:
        with suppress(BrokenPipeError):  # then its report is on the way
            os.write(self._control, f"{text}\n".encode())

    # ---- reports ------------------------------------------------------------------------------

    def _take(self, report: Report) -> None:
        match report.event:
            case "waiting":
                self._look_at = self._look_at or time.monotonic()
                self._change(State.WAITING, place=report.position, holder=report.holder)
            case "quarantined":
                self._change(self.status.state, message=report.text)
            case "locked":
                self._locked = time.monotonic()
                if self._end is State.QUEUE_TIMEOUT:  # granted before the keeper read the order
                    self._end = None
                self._limit = Countdown(None)
                self._stop_looking()
                names = [self._lease.choices[index].name for index in report.choices]
                leases = dict(zip(names, report.leases, strict=True))
                self._change(State.RUNNING, leases=leases, place=0, holder="", message="")
            case "started":
                self._started = time.monotonic()
                self._limit = Countdown(self._limits.run_s)
                for number in self._pending:
                    self._heed(number)
            case _:
                self._last = report

    def _change(self, state: State, **facts: object) -> None:
        now = self._over or time.monotonic()
        self.status = msgspec.structs.replace(
            self.status,
            state=state,
            waited_s=round((self._locked or now) - self._asked, 6),
            held_s=round(now - self._locked, 6) if self._locked else 0.0,
            **facts,
        )
        self._tell(self.status)

    def _conclude(self) -> None:
        last, limits = self._last, self._limits
        if last is None:
            kill_marked(self._tree)
            self._change(
                State.KEEPER_LOST, message="its keeper was killed, and the command with it"
            )
        elif step := last.refused_step:
            error = explain_refusal(last, self._argv[0], self._lease, {})
            code = None
            if step == "argv":  # what a shell would answer
                code = 127 if last.errno == errno.ENOENT else 126
            elif step == "priority":
                code = UsageError.exit_status
            self._change(STATES.get(step, State.NO_DEVICE), message=str(error), code=code)
        elif self._end is State.QUEUE_TIMEOUT:
            name = " or ".join(device.name for device in self._lease.choices[:4])
            when = f"within {limits.queue_s:g} s" if limits.queue_s else "is free"
            held = f", held by {self.status.holder}" if self.status.holder else ""
            self._change(State.QUEUE_TIMEOUT, message=f"no {name} {when}{held}")
        elif self._end is State.MAX_TIME and last.told:
            text = f"the command ran longer than {limits.run_s:g} s and was ended"
            self._change(State.MAX_TIME, message=text)
        elif last.text:
            self._change(State.MAX_TIME, message=f"{last.text}: the command was ended")
        elif self._end is State.INTERRUPTED:
            self._change(
                State.INTERRUPTED, signal=self._interrupt, message="interrupted while waiting"
            )
        else:
            text = " ".join(map(str, last.survivors))
            message = f"processes that could not be ended: {text}" if text else ""
            self._change(State.ENDED, code=last.code, signal=last.signal, message=message)
