"""Remembers the answers of an author: while what they depend on is unchanged, the author is not asked."""

import contextlib
from pathlib import Path

import msgspec

from tileyard.artifacts.digests import digest_if_there
from tileyard.artifacts.footprint import Footprint, find_footprint, keep_by_key
from tileyard.artifacts.keys import digest_bytes, digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HOST_FAULTS, HomeError
from tileyard.base.model import Digest, Record
from tileyard.engine.authors import TracedAuthor
from tileyard.frontend.reads import describe_surroundings, is_current, read_digest
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
RECIPE = "5"
"""The version of the records and how they are made; a change that makes old records wrong raises it."""


class Remembered(Record):
    """A reply, and the key of the footprint on which it depends."""

    reply: AuthorReply
    footprint: Digest


class RememberedAuthor:
    """The author of one file, whose process is started at the first new question.

    An answer is used again while its footprint is current, and it is kept with what user code printed for
    it. Failures are not kept, nor are goldens without an identity of their own. Without ``recall``
    everything is asked again, and kept, except checks of a kernel, which depend on its text alone.
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
        self._content = digest_if_there(self._file)
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
        """Whether it is known what the answer depends on, with the present content of the file."""
        if isinstance(reply, Failed) or (isinstance(reply, Golden) and not reply.is_identified):
            return False
        return not footprint.doubts and read_digest(footprint, self._file) == self._content

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
        """Whether a footprint is current, checked once per run: what holds at first holds for all of it."""
        if footprint not in self._current:
            known = find_footprint(footprint, self._objects)
            self._current[footprint] = known is not None and is_current(known, self._environ)
        return self._current[footprint]

    def _write(self) -> None:
        """Write the kept answers once the home exists: a request that is refused leaves no trace."""
        if not self._objects.root.parent.is_dir():
            return
        with contextlib.suppress(HomeError):  # the next run asks again for what cannot be kept
            for request, reply, footprint in self._kept:
                known = keep_by_key(footprint, "author", self._objects)
                data = msgspec.msgpack.encode(Remembered(reply=reply, footprint=known))
                self._objects.put_record(RECORD_KIND, self._key(request), data)
        self._kept.clear()

    def _key(self, request: Record) -> Digest:
        if isinstance(request, MakeGolden):  # what is made anew answers later questions, too
            request = msgspec.structs.replace(request, anew=False)
        # Not JSON, which has neither NaN nor infinity.
        question = digest_bytes(msgspec.msgpack.encode(request, order="sorted"))
        return digest_parts(RECORD_KIND, RECIPE, self._place, question)
