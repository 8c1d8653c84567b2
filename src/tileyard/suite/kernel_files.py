"""The authors of the files that a suite's kernels stand in, each started when it is first needed."""

import asyncio
from collections.abc import Callable

import msgspec

from tileyard.engine.authors import Author
from tileyard.suite.records import KernelWork
from tileyard.workers.protocol import AuthorReply, ElaborateConfig, JudgeOutputs, MakeGolden

MakeAuthor = Callable[[str], Author]


class FileAuthors:
    """One author for each file. ``make_author`` is given the file's path."""

    def __init__(self, make_author: MakeAuthor) -> None:
        self._make_author = make_author
        self._authors: dict[str, Author] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def ask(
        self, request: ElaborateConfig | MakeGolden | JudgeOutputs, work: KernelWork, limit_s: float
    ) -> AuthorReply:
        """The question about a suite's case, as one about the file's own kernel; one at a time."""
        if work.file not in self._authors:
            self._authors[work.file] = self._make_author(work.file)
            self._asking[work.file] = asyncio.Lock()
        own = msgspec.structs.replace(request, kernel=work.kernel, arguments=dict(work.arguments))
        if isinstance(own, ElaborateConfig):
            own = msgspec.structs.replace(own, config=dict(work.config))
        if isinstance(own, MakeGolden) and work.reference:
            own = msgspec.structs.replace(own, reference=work.reference)
        async with self._asking[work.file]:
            return await self._authors[work.file].ask(own, limit_s)

    async def close(self) -> None:
        """End them all."""
        for author in self._authors.values():
            await author.close()
