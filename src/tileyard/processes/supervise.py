"""Controls a worker for the engine: starts it, talks to it, ends it, confirms that it is gone.
Nothing runs in the background: the loop calls back when the keeper reports.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Final, NoReturn, Self, TypeVar, overload

import msgspec

from tileyard.base.clock import Countdown
from tileyard.base.errors import KeeperLostError, WireError, WorkerLostError, WorkerStartError
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, open_file
from tileyard.processes.async_wire import AsyncChannel
from tileyard.processes.keeper.tree import is_stopped, kill_marked
from tileyard.processes.keeper_line import Report, explain_refusal, keeper_argv
from tileyard.processes.records import Ended, LeaseRequest, Place, Verdict, WorkerCommand, judge_end
from tileyard.processes.wire import CHANNEL_VARIABLE, format_channel, open_pipes

__all__ = ["Ended", "LeaseRequest", "Place", "Worker", "WorkerCommand"]
GRACE_S: Final = 0.2
KEEPER_MARGIN_S: Final = 5.0
"""Seconds beyond its time after which a keeper is given up."""
MUTE_LIMIT_S: Final = 5.0
"""Seconds for which a worker may live on after it has closed its channel."""
CONFIRM_S: Final = 5.0
"""Seconds that a killed tree may take to vanish before its processes are reported as survivors."""
LOG_TAIL_BYTES: Final = 4096
HEARTBEAT_S: Final = 1.0
"""Seconds between looks at keeper and worker: a stopped keeper is continued, a worker stopped twice ended."""
STARTS: Final = 3
"""Number of starts of a worker whose keeper is killed during the start."""
STOPPED: Final = "it was stopped by a signal, and did not go on"
T = TypeVar("T")
log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(Report)
_lingering: list[subprocess.Popen[bytes]] = []
"""Keepers that outlive their reports: their trees would not die, or their devices are being probed."""


class Limit:
    """The time that something may take; ``reset`` restarts it."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float | None) -> None:
        self._timeout = timeout
        self._countdown = Countdown(None)
        self._timer: asyncio.TimerHandle | None = None
        self.reset(seconds)

    def reset(self, seconds: float | None) -> None:
        """Allow ``seconds`` from now on; None for no limit."""
        self._countdown = Countdown(seconds)
        # It is moved with each message, so it sets a timer only if the present one would be too late.
        wait_s, loop = self._countdown.wait_s(), asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + wait_s:
            self.stop()
            self._timer = loop.call_later(wait_s, self._look)

    def left_s(self) -> float:
        """The seconds that are left."""
        return self._countdown.left_s()

    def stop(self) -> None:
        """Stop counting."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop, wait_s = asyncio.get_running_loop(), self._countdown.wait_s()
        if wait_s:
            self._timer = loop.call_later(wait_s, self._look)
        else:
            self._timeout.reschedule(loop.time())


@contextlib.asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[Limit]:
    """Raise TimeoutError after ``seconds``, None for never; time in which this process is stopped is free."""
    async with asyncio.timeout(None) as timeout:
        limit = Limit(timeout, seconds)
        try:
            yield limit
        finally:
            limit.stop()


class KeeperLink:
    """A running keeper. ``started`` and ``ended`` are each answered once, never by an error: ``started`` is
    None once the worker runs, or why it cannot; ``leased`` likewise for an early worker's lease.
    """

    def __init__(
        self, command: WorkerCommand, env: Mapping[str, str], worker_fds: Sequence[int]
    ) -> None:
        """Start it on the loop, inheriting ``worker_fds``. Raises WorkerStartError, and starts nothing."""
        self.pid = 0
        self.lease = 0
        self.waiting: Callable[[Place], None] | None = None
        self.reason = ""
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[WorkerStartError | None] = self._loop.create_future()
        self.leased: asyncio.Future[WorkerStartError | None] = self._loop.create_future()
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self._command = command
        self._tree = secrets.token_hex(8)
        self._oom_kills = _count_oom_kills()
        self._log_start = 0
        self._unread = b""
        self._last: Report | None = None
        self._process = self._spawn(env, worker_fds)
        self._control, self._reports = _pipes_of(self._process)
        os.set_blocking(self._reports, False)
        self._loop.add_reader(self._reports, self._read_reports)
        self._was_stopped = False
        self._heartbeat = self._loop.call_later(HEARTBEAT_S, self._look)
        _lingering[:] = [process for process in _lingering if process.poll() is None]

    def tell_to_end(self, reason: str, grace_s: float, *, is_suspect: bool = False) -> None:
        """Have the tree ended, TERM first unless ``grace_s`` is 0. A further call can only hasten."""
        if not self.ended.done():
            self.reason = self.reason or reason
            self.go_on()
            order = f"kill {grace_s:f}\n"
            with contextlib.suppress(BrokenPipeError):  # then its report is on the way
                os.write(self._control, (f"probe\n{order}" if is_suspect else order).encode())

    def go_on(self) -> None:
        """Continue the keeper if it was stopped."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    def _look(self) -> None:
        if is_stopped(self._process.pid):
            self.go_on()
        was_stopped, self._was_stopped = self._was_stopped, bool(self.pid) and is_stopped(self.pid)
        if was_stopped and self._was_stopped:
            self.tell_to_end(STOPPED, 0.0)
        self._heartbeat = self._loop.call_later(HEARTBEAT_S, self._look)

    def ask_for_lease(self, memory_bytes: int) -> None:
        """Have the keeper of an early worker take its lease, and limit the worker to this much memory."""
        if not self.ended.done():
            self._command = msgspec.structs.replace(self._command, memory_bytes=memory_bytes)
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control, f"lease {memory_bytes}\n".encode())

    def give_up(self) -> None:
        """Kill the keeper itself, because it does not answer. Its worker dies with it."""
        if not self.ended.done():
            self._process.kill()

    # ---- start ------------------------------------------------------------------------------

    def _spawn(self, env: Mapping[str, str], worker_fds: Sequence[int]) -> subprocess.Popen[bytes]:
        command = self._command
        options = [
            f"cwd={command.cwd}",
            f"memory={0 if command.early else command.memory_bytes}",
            f"cores={','.join(map(str, command.cores))}",
            f"pass={','.join(map(str, worker_fds))}",
            f"grace={command.grace_s:f}",
            f"confirm={CONFIRM_S:f}",
            *(["early=1"] if command.early else []),
            *(["fixed=1"] if command.fixed else []),
            *([f"command={command.title}"] if command.title else []),
        ]
        try:
            with _open_log(command.log) as log:
                self._log_start = os.fstat(log.fileno()).st_size
                return subprocess.Popen(
                    keeper_argv(self._tree, options, command.lease, command.argv),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    env=env,
                    pass_fds=worker_fds,
                    start_new_session=True,  # the engine's client interprets Ctrl-C
                )
        except OSError as error:
            raise WorkerStartError(f"cannot start {command.argv[0]}: {error}") from error

    # ---- reports ----------------------------------------------------------------------------

    def _read_reports(self) -> None:
        data = os.read(self._reports, 1 << 16)
        if not data:  # it is exiting
            self._process.wait()
            self._finish()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._take(_decoder.decode(line))

    def _take(self, report: Report) -> None:
        match report.event:
            case "waiting":
                if self.waiting is not None:
                    self.waiting(Place(position=report.position, holder=report.holder))
            case "locked":
                self.lease = report.leases[0]
                self.leased.set_result(None)
            case "quarantined":
                log.warning("put in quarantine: %s", report.text)
            case "started":
                self.pid = report.pid
                self.started.set_result(None)
            case _:
                self._last = report
                if report.lingers:
                    _lingering.append(self._process)
                    self._finish()

    def _finish(self) -> None:
        self._loop.remove_reader(self._reports)
        self._heartbeat.cancel()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            pipe.close()
        last = self._last
        for step in (self.started, self.leased):
            if not step.done():
                step.set_result(self._explain_refusal(last))
        command = self._command
        ended = Ended(memory_bytes=command.memory_bytes, reason=self.reason)
        if last is None:
            ended = msgspec.structs.replace(ended, survivors=tuple(kill_marked(self._tree)))
        elif last.event != "ended":
            ended = msgspec.structs.replace(ended, confirmed=True)
        else:
            ended = msgspec.structs.replace(
                ended,
                code=last.code,
                signal=last.signal,
                survivors=last.survivors,
                confirmed=not last.survivors,
                reason=self.reason if last.told else "",
                overdue=last.text,
                peak_rss_bytes=last.peak_rss_bytes,
                oom_kill=_count_oom_kills() > self._oom_kills,
                log_tail=_read_tail(command.log, self._log_start),
            )
        self.ended.set_result(ended)

    def _explain_refusal(self, last: Report | None) -> WorkerStartError:
        what = f"cannot start {self._command.argv[0]}"
        if last is None:
            return KeeperLostError(
                f"{what}: its keeper ended with status {self._process.returncode}",
                f"the log is {self._command.log}" if self._command.log else "",
            )
        if last.event == "ended":
            how = "was asked to stop" if last.told else "ended"
            return WorkerStartError(f"{what}: it {how} before it began")
        command = self._command
        details = {"cores": ",".join(map(str, command.cores)), "cwd": command.cwd}
        return explain_refusal(last, command.argv[0], command.lease, details)


def _pipes_of(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("a keeper was started without its pipes")
    return process.stdin.fileno(), process.stdout.fileno()


def _count_oom_kills() -> int:
    """Number of processes this kernel killed for lack of memory, containers included; 0 if unknown."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(text.partition("\noom_kill ")[2].partition("\n")[0] or 0)


def _open_log(path: str) -> BinaryIO:
    """The file for all output of a worker: a null file if there is no log, or it cannot be opened."""
    if path:
        with contextlib.suppress(OSError):  # a full disk concerns the log, not the worker
            make_folder(Path(path).parent)
            return open(path, "ab", opener=open_file)
    return Path(os.devnull).open("ab")


def _read_tail(log: str, start: int) -> str:
    if not log:
        return ""
    try:
        with Path(log).open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


class Worker(contextlib.AbstractAsyncContextManager["Worker"]):
    """A started worker. An ``async with`` on it ends it, at the latest, at the end of the block."""

    def __init__(self, command: WorkerCommand, keeper: KeeperLink, channel: AsyncChannel) -> None:
        """Use ``start`` instead."""
        self.command = command
        self._keeper = keeper
        self._channel = channel
        keeper.ended.add_done_callback(lambda _: channel.finish())

    @classmethod
    async def start(
        cls,
        command: WorkerCommand,
        *,
        lock_limit_s: float | None = None,
        waiting: Callable[[Place], None] | None = None,
    ) -> Self:
        """Start a worker; return once it has its devices and runs; an early one has none yet.
        ``waiting`` gets its place in the queue. Raises TimeoutError after ``lock_limit_s``,
        WorkerStartError; nothing is left then, or if cancelled.
        """
        limit = Countdown(lock_limit_s)
        for left in reversed(range(STARTS)):
            with open_pipes() as (ours, theirs):
                env = {**command.env, CHANNEL_VARIABLE: format_channel(*theirs)}
                keeper = KeeperLink(command, env, (*theirs, *command.fds))
            keeper.waiting = waiting
            worker = cls(command, keeper, AsyncChannel(*ours))
            try:
                await worker._wait_for(keeper.started, limit.left_s())
            except KeeperLostError:
                if not left:
                    raise
            else:
                break
        return worker

    async def take_lease(
        self,
        memory_bytes: int,
        *,
        limit_s: float | None = None,
        waiting: Callable[[Place], None] | None = None,
    ) -> None:
        """Wait until an early worker has its devices, with this memory limit. Raises as ``start`` does."""
        self._keeper.waiting = waiting
        self._keeper.ask_for_lease(memory_bytes)
        await self._wait_for(self._keeper.leased, limit_s)

    async def _wait_for(
        self, step: asyncio.Future[WorkerStartError | None], limit_s: float | None
    ) -> None:
        """Wait for the keeper; end the worker if it refuses, takes too long, or this call is cancelled."""
        is_done = False
        try:
            async with time_limit(limit_s):
                refusal = await asyncio.shield(step)
            if refusal is not None:
                raise refusal
            is_done = True
        finally:
            if not is_done:
                await self.kill("it was not wanted any more")

    async def judge_silence(
        self, error: TimeoutError | WorkerLostError, limit: str
    ) -> tuple[Verdict, Ended]:
        """The verdict when no answer came: a worker past its ``limit`` is ended, else it was lost."""
        if isinstance(error, TimeoutError):
            ended = await self.kill("time limit", is_suspect=True)
            return judge_end(ended, limit=limit), ended
        ended = await self.ended()
        return judge_end(ended), ended

    @property
    def pid(self) -> int:
        """The pid of the leader of the worker's session."""
        return self._keeper.pid

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or its keeper has given it up."""
        return self._keeper.ended.done()

    @property
    def lease(self) -> int:
        """The number of its lease, 0 if it has none. Per device it only grows."""
        return self._keeper.lease

    async def send(self, record: Record) -> None:
        """Send one message, waiting for room. Raises WorkerLostError once the worker has ended."""
        try:
            await self._channel.send(record)
        except BrokenPipeError:
            await self._raise_lost()

    @overload
    async def receive(self, kind: type[T]) -> T: ...
    @overload
    async def receive(self, kind: UnionType) -> Any: ...  # noqa: ANN401 - the caller names the union again
    async def receive(self, kind: type[T] | UnionType) -> Any:
        """The next message of this kind, or of one of a union. Raises WorkerLostError once all is
        received and the worker has ended, which a wrong message or a closed channel causes:
        ``ended`` is answered then.
        """
        try:
            message = await self._channel.receive(kind)
        except WireError as error:
            await self.kill(f"it sent what cannot be read: {error.message}")
            raise WorkerLostError(
                f"{self._name()} sent what cannot be read: {error.message}"
            ) from error
        if message is None:
            await self._raise_lost()
        return message

    async def ended(self) -> Ended:
        """Wait for the end of the whole tree, by itself or by ``kill``."""
        ended = await asyncio.shield(self._keeper.ended)
        self._channel.finish()  # the callback may be due only after this task
        return ended

    async def kill(
        self, reason: str, grace_s: float = GRACE_S, *, is_suspect: bool = False
    ) -> Ended:
        """End the whole tree and wait until that is confirmed, or known to fail: TERM, and KILL
        after ``grace_s``. The first ``reason`` counts; repeats can only hasten the end.
        ``is_suspect``: probe its devices before their next use.
        """
        self._keeper.tell_to_end(reason, grace_s, is_suspect=is_suspect)
        try:
            async with time_limit(grace_s + CONFIRM_S + KEEPER_MARGIN_S):
                return await self.ended()
        except TimeoutError:
            self._keeper.give_up()
            return await self.ended()

    async def __aexit__(self, *_: object) -> None:
        await self.kill("it was not wanted any more")

    async def _raise_lost(self) -> NoReturn:
        try:
            async with time_limit(MUTE_LIMIT_S):
                await self.ended()
        except TimeoutError:
            await self.kill("it closed its channel and went on")
        raise WorkerLostError(f"{self._name()} ended before it answered")

    def _name(self) -> str:
        return f"worker {self.pid} ({' '.join(self.command.argv[:3])})"
