"""The messages between a client and the engine process, over the engine's standard streams."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any, Self

import msgspec

from tileyard.base.events import Event
from tileyard.base.model import Record
from tileyard.service.verbs import Verb
from tileyard.workers.protocol import AuthorReply, AuthorRequest


class Start(Record, tag="start"):
    """Begin a run: of the Verb called ``name`` in ``module``, with these fields.

    ``file`` is the file of the module, empty for one of Tileyard's own.
    """

    module: str
    name: str
    file: str
    fields: bytes

    @classmethod
    def of(cls, verb: Verb[Any]) -> Self:
        """The message for a verb."""
        kind = type(verb)
        own = kind.__module__.partition(".")[0] == __package__.partition(".")[0]
        file = "" if own else str(Path(sys.modules[kind.__module__].__file__ or "").absolute())
        return cls(
            module=kind.__module__,
            name=kind.__qualname__,
            file=file,
            fields=msgspec.msgpack.encode(verb),
        )

    def read(self) -> Verb[Any]:
        """The verb; its module is imported."""
        if self.file:
            spec = importlib.util.spec_from_file_location(self.module, self.file)
            if spec is None or spec.loader is None:
                raise ImportError(f"{self.file} is not a module")
            module = importlib.util.module_from_spec(spec)
            sys.modules[self.module] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(self.module)
        verb: Verb[Any] = msgspec.msgpack.decode(self.fields, type=getattr(module, self.name))
        return verb


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
