"""The client's side: starts the engine process, hands on its events, answers its questions.

Nothing here touches the caller's event loop, signal handlers or process state.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import assert_never

import msgspec

from tileyard.errors import EngineLostError, InterruptedRunError, TileyardError
from tileyard.events import Event
from tileyard.processes.launch import EngineProcess, start_engine_process
from tileyard.regress.static import SideBuild
from tileyard.service.messages import (
    Answer,
    CompileEnded,
    Ended,
    EngineMessage,
    Happened,
    Question,
    Refused,
    Start,
    StartCompile,
    StartTune,
    StaticEnded,
    Stop,
    StudyEnded,
    SuiteEnded,
)
from tileyard.settings import Settings
from tileyard.suite.result import SuiteResult
from tileyard.tuning.request import CompileResult, StudyResult
from tileyard.workers.protocol import AuthorReply, AuthorRequest

AnswerQuestion = Callable[[AuthorRequest], AuthorReply]
Listener = Callable[[Event], None]
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class RunClient:
    """One run in an engine process of its own.

    ``answer`` is the author, where the user's code lives in this process and not in a file. ``variables``
    are for the environment of the engine, which runs in the Python ``python``.
    """

    _kept = "what was measured is recorded; the same command goes on from there"
    """What to do after a run that came to no end."""

    def __init__(
        self,
        start: Start,
        settings: Settings,
        answer: AnswerQuestion | None = None,
        *,
        python: str = sys.executable,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        self._python = python
        self._variables = variables
        self._start = start
        self._settings = settings
        self._answer = answer
        self._engine: EngineProcess | None = None
        self._stops: list[Stop] = []
        self._ended_now = False

    def follow(self, listen: Listener) -> Ended:
        """Run to the end and return what it came to.

        Raises what the engine refused, as a TileyardError, InterruptedRunError if it was ended
        by ``stop`` with ``now``, or EngineLostError if it died. Leaving
        early, by an exception of ``listen`` or Ctrl-C, ends the engine and all its workers.
        """
        argv = (self._python, "-P", "-m", "tileyard.service.process")
        env = {**os.environ, **self._settings.environment(), **self._variables}
        with start_engine_process(argv, env) as engine, contextlib.ExitStack() as ending:
            self._engine = engine
            ending.callback(self._forget)  # its channel's numbers may soon be another's
            engine.channel.send(self._start)
            for stop in self._stops:
                engine.channel.send(stop)
            while True:
                message: EngineMessage | None = engine.channel.receive(EngineMessage)
                match message:
                    case Happened(event=event):
                        listen(event)
                    case Question(number=number, request=request):
                        engine.channel.send(Answer(number=number, reply=self._reply(request)))
                    case Refused():
                        raise _refusal(message)
                    case StudyEnded() | SuiteEnded() | CompileEnded() | StaticEnded():
                        return message
                    case None:
                        raise _lost(engine.close(), self._kept, is_asked=self._ended_now)
                    case _:
                        assert_never(message)

    def stop(self, *, now: bool) -> None:
        """Finish what runs and start nothing new; or, with ``now``, end everything at once."""
        self._ended_now = self._ended_now or now
        if self._engine is None:
            self._stops.append(Stop(now=now))
        else:
            # One that is ending, or has ended, needs no telling.
            with contextlib.suppress(OSError):
                self._engine.channel.send(Stop(now=now))

    def _forget(self) -> None:
        self._engine = None

    def _reply(self, request: AuthorRequest) -> AuthorReply:
        if self._answer is None:
            raise AssertionError(f"the engine asked a client without an author for {request}")
        return self._answer(request)


class StudyClient(RunClient):
    """One tuning run; before it the configs are built for the other targets that it names."""

    def __init__(
        self, start: StartTune, settings: Settings, answer: AnswerQuestion | None = None
    ) -> None:
        super().__init__(start, settings, answer)
        self._builds = [
            CompileClient(_also_build(start, target), settings, answer)
            for target in dict.fromkeys(start.also_build)
        ]

    def run(self, listen: Listener) -> StudyResult:
        """Run to the end and return the result. Raises as ``follow``.

        What a target refuses altogether is raised before anything is measured.
        """
        built = tuple(build.run(listen) for build in self._builds)
        ended = self.follow(listen)
        if not isinstance(ended, StudyEnded):
            raise AssertionError(f"a tuning run came to {ended}")
        return msgspec.structs.replace(ended.result, also_built=built)

    def stop(self, *, now: bool) -> None:
        """As of any run, also before it: builds that have not begun are not begun."""
        for build in self._builds:
            build.stop(now=now)
        super().stop(now=now)


class CompileClient(RunClient):
    """One build of a kernel's configs."""

    _kept = "what was built is kept; the same command goes on from there"

    def run(self, listen: Listener) -> CompileResult:
        """Run to the end and return the result. Raises as ``follow``."""
        ended = self.follow(listen)
        if not isinstance(ended, CompileEnded):
            raise AssertionError(f"a build of configs came to {ended}")
        return ended.result


class StaticClient(RunClient):
    """One build of all kernels of a file, for a comparison."""

    _kept = "the same command begins again"

    def run(self, listen: Listener) -> SideBuild:
        """Run to the end and return the result. Raises as ``follow``."""
        ended = self.follow(listen)
        if not isinstance(ended, StaticEnded):
            raise AssertionError(f"a build for a comparison came to {ended}")
        return ended.result


class SuiteClient(RunClient):
    """One run of a suite."""

    _kept = "what has ended is recorded; --changed any leaves out what passed with the same content"

    def run(self, listen: Listener) -> SuiteResult:
        """Run to the end and return the result. Raises as ``follow``."""
        ended = self.follow(listen)
        if not isinstance(ended, SuiteEnded):
            raise AssertionError(f"a run of a suite came to {ended}")
        return ended.result


def _also_build(start: StartTune, target: str) -> StartCompile:
    return StartCompile(
        request=start.request,
        target=target,
        file=start.file,
        all_configs=True,
        reuse=start.reuse,
        compile_workers=start.compile_workers,
    )


def _refusal(refused: Refused) -> TileyardError:
    """The engine's error, as the class that its code names."""
    known = {kind.code: kind for kind in TileyardError.__subclasses__()}
    return known.get(refused.code, TileyardError)(refused.message, refused.hint)


def _lost(code: int, hint: str, *, is_asked: bool) -> TileyardError:
    if is_asked and code == 0:
        return InterruptedRunError(
            "the run was ended",
            hint,
        )
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
    return EngineLostError(
        f"the engine process ended {how} before the run was over",
        hint,
    )
