"""The client's side: starts the engine process, passes on its events, answers its questions. Leaves
the caller's event loop, signal handlers and process state alone.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, assert_never

import msgspec

from tileyard.base.errors import EngineLostError, InterruptedRunError, TileyardError
from tileyard.base.events import Event
from tileyard.base.settings import Settings
from tileyard.processes.keeper.tree import descendants_of, signal_child
from tileyard.processes.keeper_line import JOB, find_job
from tileyard.processes.wire import CHANNEL_VARIABLE, Channel, format_channel, open_pipes
from tileyard.service.conversation import (
    Answer,
    ClientQuestion,
    Ended,
    EngineMessage,
    Happened,
    Heard,
    Refused,
    Stop,
)
from tileyard.service.opened import pack
from tileyard.service.verbs import ResultT, Verb
from tileyard.workers.protocol import AuthorReply, AuthorRequest

CLOSE_LIMIT_S = 30.0


@dataclass(frozen=True)
class EngineProcess(AbstractContextManager["EngineProcess"]):
    """A started engine. ``channel`` leads to it; leaving the ``with`` block lets it end."""

    process: subprocess.Popen[bytes]
    channel: Channel

    def go_on(self) -> None:
        """Continue the engine and all processes below it if they were stopped."""
        pid = self.process.pid
        if self.process.poll() is None:
            for child, parent in ((pid, os.getpid()), *descendants_of(pid)):
                signal_child(child, parent, signal.SIGCONT)

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> int:
        """Close the channel, wait for the engine's end, kill it after ``limit_s``; its workers end
        with it. Returns its exit code, or the negative signal number. Repeatable.
        """
        self.channel.close()
        self.go_on()
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __exit__(self, *_: object) -> None:
        self.close()


def start_engine_process(argv: Sequence[str], env: Mapping[str, str]) -> EngineProcess:
    """Start an engine in its own session, from any thread; stderr is the caller's. Raises OSError."""
    with open_pipes() as (ours, theirs):
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**env, CHANNEL_VARIABLE: format_channel(*theirs)},
            pass_fds=theirs,
            start_new_session=True,  # Ctrl-C reaches the client, which tells the engine
        )
    return EngineProcess(process, Channel(*ours))


AnswerQuestion = Callable[[AuthorRequest], AuthorReply]
Listener = Callable[[Event], None]

DEAF_S = 1.5
"""Seconds in which an engine must acknowledge the order to end at once, before it is killed."""


class RunClient(Generic[ResultT]):
    """One run of a verb, in its own engine process; ``answer`` is the author of code in this process."""

    def __init__(
        self, verb: Verb[ResultT], settings: Settings, answer: AnswerQuestion | None = None
    ) -> None:
        self._verb = verb
        self._settings = settings
        self._answer = answer
        self._engine: EngineProcess | None = None
        self._stops: list[Stop] = []
        self._ended_now = False
        self._giving_up: threading.Timer | None = None

    def run(self, listen: Listener) -> ResultT:
        """Run to the end and return the result. Raises the engine's TileyardError, InterruptedRunError after
        ``stop`` with ``now``, EngineLostError. Leaving early ends the engine and all its workers.
        """
        argv = (sys.executable, "-P", "-m", "tileyard.service.process")
        env = {**os.environ, **self._settings.environment(), JOB: find_job(os.environ)}
        with start_engine_process(argv, env) as engine, contextlib.ExitStack() as ending:
            self._engine = engine
            ending.callback(self._forget)  # its channel's numbers may soon be reused
            engine.channel.send(pack(self._verb))
            for stop in self._stops:
                engine.channel.send(stop)
            while True:
                message: EngineMessage | None = engine.channel.receive(EngineMessage)
                match message:
                    case Happened(event=event):
                        listen(event)
                    case ClientQuestion(number=number, request=request):
                        engine.channel.send(Answer(number=number, reply=self._reply(request)))
                    case Heard():
                        self._wait_longer()
                    case Refused(code=code, message=text, hint=hint):
                        raise TileyardError.by_code.get(code, TileyardError)(text, hint)
                    case Ended(result=result):
                        return msgspec.msgpack.decode(result, type=self._verb.result_type())
                    case None:
                        raise _lost(engine.close(), self._verb.kept, is_asked=self._ended_now)
                    case _:
                        assert_never(message)

    def stop(self, *, now: bool) -> None:
        """Finish what runs and start nothing new; or, with ``now``, end everything at once."""
        self._ended_now = self._ended_now or now
        if self._engine is None:
            self._stops.append(Stop(now=now))
        else:
            if now and self._giving_up is None:
                self._giving_up = threading.Timer(DEAF_S, self._engine.process.kill)
                self._giving_up.start()
            self._engine.go_on()
            # One that is ending, or has ended, needs no message.
            with contextlib.suppress(OSError):
                self._engine.channel.send(Stop(now=now))

    def _wait_longer(self) -> None:
        """The engine has acknowledged the order to end: it gets the time that it needs."""
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _forget(self) -> None:
        self._wait_longer()
        self._engine = None

    def _reply(self, request: AuthorRequest) -> AuthorReply:
        if self._answer is None:
            raise AssertionError(f"the engine asked a client without an author for {request}")
        return self._answer(request)


def _lost(code: int, hint: str, *, is_asked: bool) -> TileyardError:
    if is_asked and code in (0, -signal.SIGKILL):
        return InterruptedRunError(
            "the run was ended",
            hint,
        )
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
    return EngineLostError(
        f"the engine process ended {how} before the run was over",
        hint,
    )
