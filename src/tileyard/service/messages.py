"""What a client and the engine process say to each other, over the engine's standard streams."""

from tileyard.model import Event, Record
from tileyard.tuning.request import StudyResult, TuneRequest
from tileyard.workers.protocol import AuthorReply, AuthorRequest


class StartTune(Record, tag="start_tune"):
    """Begin a tuning run. ``file`` is empty where the client itself is the author.

    ``devices`` are names, none for all devices of the target's class. ``compile_workers`` and
    ``group_size`` are as in a yard; a case waits for a device for ``queue_limit_s``.
    """

    request: TuneRequest
    target: str
    file: str
    reuse: bool
    devices: tuple[str, ...] = ()
    overlap: bool = True
    compile_workers: int | None = None
    group_size: int | None = None
    queue_limit_s: float = 1800.0


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
