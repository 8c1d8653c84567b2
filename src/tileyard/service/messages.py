"""The messages between a client and the engine process, over the engine's standard streams."""

from tileyard.base.events import Event
from tileyard.base.model import Record
from tileyard.workers.protocol import AuthorReply, AuthorRequest


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


class Question(Record, tag="question"):
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
EngineMessage = Happened | Question | Heard | Refused | Ended
