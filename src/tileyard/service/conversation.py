"""The engine process's side of the connection to its client: sends events, receives answers and stops."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from tileyard.base.errors import EngineLostError
from tileyard.base.events import Event
from tileyard.base.model import Record
from tileyard.processes.async_wire import AsyncChannel
from tileyard.workers.protocol import AnswerT, AuthorReply, AuthorRequest, Failed, Question


class Start(Record, tag="start"):
    """Begin a run of the Verb ``name`` in ``module``, from ``file`` if not our own, with these fields."""

    module: str
    name: str
    file: str
    fields: bytes


class Answer(Record, tag="answer"):
    """The client's own author answers question ``number``."""

    number: int
    reply: AuthorReply


class Stop(Record, tag="stop"):
    """Start nothing new; or, with ``now``, end everything at once."""

    now: bool = False


class Happened(Record, tag="happened"):
    """An event of the run."""

    event: Event


class ClientQuestion(Record, tag="question"):
    """A question to the client's own author."""

    number: int
    request: AuthorRequest


class Heard(Record, tag="heard"):
    """Everything is being ended, as requested."""


class Refused(Record, tag="refused"):
    """The run could not begin or continue, for a reason that the user can act on."""

    code: str
    message: str
    hint: str


class Ended(Record, tag="ended"):
    """The run is over: its result, as the verb's own type in msgpack."""

    result: bytes


ClientMessage = Start | Answer | Stop
EngineMessage = Happened | ClientQuestion | Heard | Refused | Ended


class Client(Protocol):
    """The client of a run, from the run's view."""

    def tell_event(self, event: Event) -> None:
        """Receive an event of the run."""
        ...

    async def ask(self, request: AuthorRequest) -> AuthorReply:
        """Answer a question about kernels that live in the client's process."""
        ...


class Conversation:
    """The connection to one client. ``tell`` never blocks; messages are written in order."""

    def __init__(self, channel: AsyncChannel) -> None:
        self._channel = channel
        self._outbox: asyncio.Queue[EngineMessage | None] = asyncio.Queue()
        self._questions: dict[int, asyncio.Future[AuthorReply]] = {}
        self._asked = 0

    async def wait_start(self) -> Start | None:
        """The client's request; None if the client left without one."""
        message = await self._channel.receive(ClientMessage)
        if message is None or isinstance(message, Start):
            return message
        raise AssertionError(f"a client began with {message}")

    def tell(self, message: EngineMessage) -> None:
        """Send a message as soon as there is room for it."""
        self._outbox.put_nowait(message)

    def tell_event(self, event: Event) -> None:
        """Send an event; a listener of the yard."""
        self.tell(Happened(event=event))

    async def ask(self, request: AuthorRequest) -> AuthorReply:
        """Send a question to the client's own author."""
        self._asked += 1
        answer: asyncio.Future[AuthorReply] = asyncio.get_running_loop().create_future()
        self._questions[self._asked] = answer
        self.tell(ClientQuestion(number=self._asked, request=request))
        return await answer

    async def write(self) -> None:
        """Write messages until ``finish``, or until the client is gone."""
        while (message := await self._outbox.get()) is not None:
            try:
                await self._channel.send(message)
            except BrokenPipeError:
                return

    def finish(self) -> None:
        """Close the outgoing messages."""
        self._outbox.put_nowait(None)

    async def read(self, stop: Callable[[Stop], None]) -> None:
        """Receive answers and stops; the client's end is a stop of everything."""
        while True:
            message: ClientMessage | None = await self._channel.receive(ClientMessage)
            match message:
                case None:
                    break
                case Answer(number=number, reply=reply):
                    self._questions.pop(number).set_result(reply)
                case Stop():
                    stop(message)
                case Start():
                    raise EngineLostError("the client asked for a second run in one conversation")
        stop(Stop(now=True))


class ClientAuthor:
    """The author in the client's own process: it may use all cores."""

    def __init__(self, conversation: Client, cores: tuple[int, ...]) -> None:
        self.cores = cores
        self._conversation = conversation

    async def begin(self) -> None:
        """The client is already running."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask, and wait as long as it takes: the caller's own process is never killed."""
        reply = await self._conversation.ask(request)  # type: ignore[arg-type]  # any question to an author
        return reply if isinstance(reply, Failed) else request.check(reply)

    async def close(self) -> None:
        """Nothing to close."""
