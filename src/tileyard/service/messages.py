"""What a client and the engine process say to each other, over the engine's standard streams."""

from tileyard.model import Event, Record
from tileyard.tuning.request import StudyResult, TuneRequest
from tileyard.workers.protocol import AuthorReply, AuthorRequest


class StartTune(Record, tag="start_tune"):
    """Begin a tuning run. ``file`` is empty where the client itself is the author."""

    request: TuneRequest
    target: str
    device: str
    file: str
    reuse: bool
    overlap: bool = True


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


class Refused(Record, tag="refused"):
    """The run could not begin or go on, for a reason that the user can act on."""

    code: str
    message: str
    hint: str
    exit_status: int


class StudyEnded(Record, tag="study_ended"):
    """The tuning run is over."""

    result: StudyResult


ClientMessage = StartTune | Answer | Stop
EngineMessage = Happened | Question | Refused | StudyEnded
