"""The submitter: runs one call of a foreign queue's client, follows its task, cancels it when
necessary. A separate worker, so that it can cancel within its keeper's grace when the engine dies.
"""

import asyncio
import codecs
import contextlib
import os
import re
import signal
import threading
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence

from tileyard.base.model import Record
from tileyard.devices.foreign import fill_cancel
from tileyard.processes.wire import Channel
from tileyard.workers.task_lines import LAST_LINES, Side

READ_BYTES = 1 << 16
NAME_LIMIT_S = 2.0
"""How long a client that is to be ended may take to print its task's name."""
POLL_S = 0.005
TERM_LIMIT_S = 2.0
"""Seconds that the client may take to obey TERM."""


class Asked(Record):
    """How to follow a task whose client only submits it, as in `ForeignQueue`: all with ``{job}``."""

    wait: tuple[str, ...]
    status: tuple[str, ...]
    ended: str
    output: tuple[str, ...]
    poll_s: float


class Submit(Record, tag="submit"):
    """Run the client, and follow its task if the client only submits. Answers: Printed, then SubmitEnded."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    cancel: tuple[str, ...] = ()
    job: str = ""
    cancel_limit_s: float = 10.0
    asked: Asked | None = None


class Cancel(Record, tag="cancel"):
    """Cancel the task and end the client. SubmitEnded follows."""


class Printed(Record, tag="printed"):
    """Output of the client."""

    side: Side
    text: str


class SubmitEnded(Record, tag="submit_ended"):
    """The client ended, with a code or by a signal; ``error``: why it did not start. ``job`` is the
    task's name if seen, ``cancelled`` the result of the cancel command, empty if none was run.
    """

    code: int | None = None
    signal: int | None = None
    error: str = ""
    job: str = ""
    cancelled: str = ""


SubmitterRequest = Submit | Cancel
SubmitterReply = Printed | SubmitEnded


class Submitter:
    """One call. ``stopping`` is set once the task is no longer wanted."""

    def __init__(self, channel: Channel, request: Submit) -> None:
        self._channel = channel
        self._request = request
        self._job = ""
        self._cancelled = ""
        self._was_told = False
        self._last_line_seen = False
        self._named = asyncio.Event()
        self._partial = {"stdout": "", "stderr": ""}
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Run the client to its end, or cancel it, and report how it ended."""
        asked = self._request.asked
        code = await self._run_client(self._request.argv)
        if asked is not None and code == 0 and not self.stopping.is_set():
            code = await self._ask(asked)
        # A client that ended by itself without a name submitted nothing: it was refused, or did not start.
        is_unknown = not self._job and (isinstance(code, str) or (code > 0 and self._is_named))
        if not (self._was_told or self._last_line_seen or is_unknown):
            self._cancelled = await self._cancel()  # a task may run on after its client has ended
        if isinstance(code, str):
            self._tell(SubmitEnded(error=code, job=self._job, cancelled=self._cancelled))
            return
        self._tell(
            SubmitEnded(
                code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
                job=self._job,
                cancelled=self._cancelled,
            )
        )

    async def _run_client(self, argv: Sequence[str]) -> int | str:
        process = await self._start(argv, PIPE)
        if isinstance(process, str):
            return process
        reading = [
            asyncio.create_task(self._forward(process.stdout, "stdout")),
            asyncio.create_task(self._forward(process.stderr, "stderr")),
        ]
        ending = asyncio.create_task(_wait(process))
        stopped = asyncio.create_task(self.stopping.wait())
        await asyncio.wait((ending, stopped), return_when=asyncio.FIRST_COMPLETED)
        if self.stopping.is_set():
            await self._wait_named(ending)
            self._cancelled = await self._cancel()
            await _end(process)
        stopped.cancel()
        code = await ending
        # Another process may still hold the client's pipes: the client's own end counts.
        await asyncio.wait(reading, timeout=TERM_LIMIT_S)
        for task in reading:
            task.cancel()
        _close(process)
        return code

    async def _ask(self, asked: Asked) -> int | str:
        """Follow a task that was submitted; return its own code, or why that is not known."""
        if not self._job:
            return f"{self._request.argv[0]} did not say how its task is called"
        code: int | str = 0
        if asked.wait:
            code = await self._run_client(fill_cancel(asked.wait, self._job))
        seen, decoder = 0, codecs.getincrementaldecoder("utf-8")("replace")
        while asked.status and not isinstance(code, str) and not self.stopping.is_set():
            state = (await self._read(fill_cancel(asked.status, self._job))).decode(
                errors="replace"
            )
            # After the state, so that nothing is missing once that is the last one.
            if asked.output:
                data = await self._read(fill_cancel(asked.output, self._job))
                text = decoder.decode(data[seen:])
                self._look_at("stdout", text)
                self._tell(Printed(side="stdout", text=text))
                seen = max(seen, len(data))
            if (match := re.search(asked.ended, state, re.MULTILINE)) is not None:
                return _read_code(match[1])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(asked.poll_s):
                    await self.stopping.wait()
        if self.stopping.is_set() and not self._cancelled:
            self._cancelled = await self._cancel()
        return code

    async def _read(self, argv: list[str]) -> bytes:
        """The output of a command of the queue's, in time; a failure is passed on, and calls repeat."""
        process = await self._start(argv, PIPE)
        if isinstance(process, str):
            self._tell(Printed(side="stderr", text=f"{process}\n"))
            return b""
        try:
            async with asyncio.timeout(self._request.cancel_limit_s):
                out, complaint = await process.communicate()
        except TimeoutError:
            process.kill()
            await _wait(process)
            _close(process)
            late = f"{argv[0]} took more than {self._request.cancel_limit_s:g} s to answer\n"
            self._tell(Printed(side="stderr", text=late))
            return b""
        if process.returncode:
            self._tell(Printed(side="stderr", text=complaint.decode(errors="replace")))
        return out

    async def _forward(self, stream: asyncio.StreamReader | None, side: Side) -> None:
        if stream is None:
            raise AssertionError("the client was started without pipes")
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while data := await stream.read(READ_BYTES):
            text = decoder.decode(data)
            self._look_at(side, text)
            self._tell(Printed(side=side, text=text))

    def _look_at(self, side: Side, text: str) -> None:
        """Find the task's name, and the last line of our own runner, in whole lines."""
        *lines, self._partial[side] = (self._partial[side] + text).split("\n")
        for line in lines:
            self._last_line_seen |= any(prefix in line for prefix in LAST_LINES)
            match = re.search(self._request.job, line) if self._request.job else None
            if match is not None and not self._job:
                self._job = match[1]
                self._named.set()

    async def _wait_named(self, ending: asyncio.Task[int]) -> None:
        """Give a client that has just submitted the time to print its task's name."""
        if self._is_named and self._request.cancel and not self._job:
            named = asyncio.create_task(self._named.wait())
            await asyncio.wait(
                (named, ending), timeout=NAME_LIMIT_S, return_when=asyncio.FIRST_COMPLETED
            )
            named.cancel()

    @property
    def _is_named(self) -> bool:
        return bool(self._request.job)

    async def _cancel(self) -> str:
        request = self._request
        if not request.cancel:
            return ""
        if self._is_named and not self._job:
            return "the task's name was not seen, so it could not be cancelled by name"
        self._was_told = True
        argv = fill_cancel(request.cancel, self._job)
        code = await self._run_cancel(argv)
        if code == -signal.SIGTERM:
            # When the engine dies, the keeper sends TERM to the whole tree, perhaps at this moment.
            code = await self._run_cancel(argv)
        return code if isinstance(code, str) else f"{' '.join(argv)} ended with code {code}"

    async def _run_cancel(self, argv: list[str]) -> int | str:
        process = await self._start(argv, DEVNULL)
        if isinstance(process, str):
            return process
        limit_s = self._request.cancel_limit_s
        try:
            async with asyncio.timeout(limit_s):
                return await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"{argv[0]} took longer than {limit_s:g} s"

    async def _start(self, argv: Sequence[str], output: int) -> Process | str:
        request = self._request
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                cwd=request.cwd,
                env=request.env,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
            )
        except OSError as error:
            return f"cannot run {argv[0]}: {error.strerror or error}"

    def _tell(self, reply: SubmitterReply) -> None:
        with contextlib.suppress(BrokenPipeError):  # the engine is gone; there is work left to do
            self._channel.send(reply)


def _read_code(text: str) -> int | str:
    if text.strip().isdecimal():
        return int(text)
    return f"the queue says that the task ended with {text!r}"


async def _wait(process: Process) -> int:
    """Its code. asyncio's own ``wait`` waits for its pipes too, which what it has started may hold."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        handle = os.pidfd_open(process.pid)
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
    while process.returncode is None:  # noqa: ASYNC110 - asyncio has no event for it
        await asyncio.sleep(POLL_S)
    return process.returncode


def _close(process: Process) -> None:
    """asyncio leaves the pipes of an ended process open as long as another process holds them."""
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way


async def _end(process: Process) -> None:
    """Send TERM, and KILL if that does not help."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(TERM_LIMIT_S):
            await _wait(process)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _serve(channel: Channel, request: Submit) -> None:
    submitter = Submitter(channel, request)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, submitter.stopping.set)

    def listen() -> None:
        channel.receive(SubmitterRequest)  # a Cancel, or the engine's end
        with contextlib.suppress(RuntimeError):  # the loop may have ended
            loop.call_soon_threadsafe(submitter.stopping.set)

    threading.Thread(target=listen, daemon=True).start()
    await submitter.run()


def main() -> None:
    """Serve the engine that started this process with one call."""
    channel = Channel.inherited()
    request = channel.receive(SubmitterRequest)
    if isinstance(request, Submit):
        asyncio.run(_serve(channel, request))
    os._exit(0)  # the thread may still wait for the engine


if __name__ == "__main__":
    main()
