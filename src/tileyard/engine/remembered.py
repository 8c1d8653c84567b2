"""Remembers the answers of an author: while what they depend on is unchanged, the author is not asked."""

import contextlib
from pathlib import Path

import msgspec

from tileyard.artifacts.keys import digest_bytes, digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HOST_FAULTS, HomeError
from tileyard.base.model import Digest, Record
from tileyard.engine.authors import TracedAuthor
from tileyard.frontend.footprint import (
    Footprint,
    describe_surroundings,
    identify_file,
    is_current,
)
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import (
    AuthorReply,
    CheckSync,
    DescribeKernels,
    Failed,
    Golden,
    MakeGolden,
)
from tileyard.workers.question import AnswerT, Question

RECORD_KIND = "answer"
RECIPE = "4"
"""The version of the records and how they are made; a change that makes old records wrong raises it."""


class Remembered(Record):
    """A reply, and the blob with the footprint on which it depends."""

    reply: AuthorReply
    footprint: Digest


class RememberedAuthor:
    """The author of one file, whose process is started at the first new question. An answer and its
    printed text are used again while its footprint is current; failures and goldens without
    identity are not kept. Without ``recall`` all but checks of a kernel is asked again, and kept.
    """

    def __init__(
        self, author: TracedAuthor, file: Path, objects: ObjectStore, *, recall: bool
    ) -> None:
        self.cores = author.cores
        self._author = author
        self._file = str(file)
        self._objects = objects
        self._recall = recall
        self._environ = worker_environment(threads=len(author.cores))
        self._content = identify_file(self._file)
        # The part of all keys that is not a question: the file and its environment.
        surroundings = describe_surroundings(self._environ)
        self._place = digest_parts(self._file, self._content, str(author.cores), *surroundings)
        self._current: dict[Digest, bool] = {}
        self._kept: list[tuple[Record, AuthorReply, Footprint]] = []

    async def begin(self) -> None:
        """Start the process ahead of its first question, if that will be a new one."""
        if self._find(DescribeKernels()) is None:
            await self._author.begin()

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """The known answer, or else the author's."""
        known = self._find(request)
        if known is not None:
            return request.check(known)
        reply = await self._author.ask(request, limit_s)
        footprint = self._author.footprint
        if footprint is not None and self._may_keep(reply, footprint):
            self._kept.append((request, reply, footprint))  # type: ignore[arg-type]  # an author's reply
        self._write()
        return reply

    async def close(self) -> None:
        """End the author's process, if there is one."""
        self._write()
        await self._author.close()

    # ---- inside -----------------------------------------------------------------------------

    def _may_keep(self, reply: object, footprint: Footprint) -> bool:
        """Whether it is known what the answer depends on, including the file's present content."""
        if isinstance(reply, Failed) or (isinstance(reply, Golden) and not reply.is_identified):
            return False
        return footprint.is_settled and footprint.files.get(self._file) == self._content

    def _find(self, request: Record) -> AuthorReply | None:
        if not (self._recall or isinstance(request, CheckSync)):
            return None
        try:
            data = self._objects.get_record(RECORD_KIND, self._key(request))
            if data is None:
                return None
            known = msgspec.msgpack.decode(data, type=Remembered)
            if not self._is_current(known.footprint):
                return None
            if isinstance(known.reply, Golden):
                for digest in (*known.reply.inputs, *known.reply.outputs):
                    self._objects.path(digest)
        except (msgspec.DecodeError, RecursionError, *HOST_FAULTS):
            return None
        return known.reply

    def _is_current(self, footprint: Digest) -> bool:
        """Checked once per run: what holds at its beginning holds for all of it."""
        if footprint not in self._current:
            data = self._objects.get_bytes(footprint)
            decoded = msgspec.msgpack.decode(data, type=Footprint)
            self._current[footprint] = is_current(decoded, self._environ)
        return self._current[footprint]

    def _write(self) -> None:
        """Write the kept answers once the home exists: a request that is refused leaves no trace."""
        if not self._objects.root.parent.is_dir():
            return
        with contextlib.suppress(HomeError):  # the next run asks again for what cannot be kept
            for request, reply, footprint in self._kept:
                blob = self._objects.put_bytes(msgspec.msgpack.encode(footprint, order="sorted"))
                data = msgspec.msgpack.encode(Remembered(reply=reply, footprint=blob))
                self._objects.put_record(RECORD_KIND, self._key(request), data)
        self._kept.clear()

    def _key(self, request: Record) -> Digest:
        if isinstance(request, MakeGolden):  # what is made anew answers later questions, too
            request = msgspec.structs.replace(request, anew=False)
        # Not JSON, which has neither NaN nor infinity.
        question = digest_bytes(msgspec.msgpack.encode(request, order="sorted"))
        return digest_parts(RECORD_KIND, RECIPE, self._place, question)
