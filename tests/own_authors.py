"""The command line in the test's own process, with authors in it, too: TileLang is imported once for all.

For what commands say and print of kernels. That an author is a process of its own, which may end, and what
a shell sees of a command, one test of each verb's looks at.
"""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.in_process import run_here

from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.errors import TileyardError
from tileyard.base.model import Side
from tileyard.verbs.check.command import checking
from tileyard.verbs.look import view as look_session
from tileyard.verbs.passes import view as passes_session
from tileyard.verbs.reduce.command import session as reduce_session
from tileyard.verbs.trace.view import block as block_session
from tileyard.workers.author import Author, describe_failure
from tileyard.workers.protocol import AnswerT, AuthorReply, Failed, Question

OPENED = (checking, look_session, passes_session, reduce_session, block_session)
"""Who opens an author of a file."""


class OwnAuthor:
    """What ``WorkerAuthor`` is, but in this process. What was ``answered`` about the same files is known."""

    footprint = None

    def __init__(
        self, file: Path, home: Path, cores: tuple[int, ...], answered: dict[object, AuthorReply]
    ) -> None:
        self.cores = cores
        self._file = file.absolute()
        self._objects = ObjectStore(home / "objects")
        self._answered = answered
        beside = sorted(self._file.parent.glob("*.py"))
        self._texts = tuple((path, path.read_text(encoding="utf-8")) for path in beside)
        self._author: Author | None = None

    async def begin(self) -> None:
        """Do nothing yet."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Answer it, or know the answer."""
        key = (self._file, self._texts, type(request), canonical_json(request))
        if key not in self._answered:
            self._answered[key] = self._answer(request)
        reply = self._answered[key]
        return reply if isinstance(reply, Failed) else request.check(reply)

    def _answer(self, request: Any) -> AuthorReply:  # noqa: ANN401 - any question
        try:
            if self._author is None:
                self._author = Author.of_file(self._file, self._objects)
        except TileyardError as error:
            return describe_failure(error, request)
        return self._author.answer(request)

    async def close(self) -> None:
        """Nothing was started."""


@dataclass
class OwnCommandLine(CommandLine):
    """Runs commands that only ask an author, each as if it were the first."""

    answered: dict[object, AuthorReply] = field(default_factory=dict)

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with pytest.MonkeyPatch.context() as patched:
            for opened in OPENED:
                patched.setattr(opened, "WorkerAuthor", self._open)
            return run_here(arguments, self.cwd, self.environment(extra))

    def _open(self, file: Path, home: Path, cores: tuple[int, ...], side: Side) -> OwnAuthor:
        assert side == Side(name="")
        return OwnAuthor(file, home, cores, self.answered)
