"""An author whose kernels are compiled with further pass options, for targets that take TIR."""

from collections.abc import Mapping

import msgspec

from tileyard.engine.authors import Author
from tileyard.model import Outcome, Value
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
)


class WithPassOptions:
    """Answers as ``author`` does, with ``options`` in place of a kernel's own of the same names.

    They are part of each Kernel, so that what is built with them has keys of its own. A target that
    reads none of them refuses every config, lest a build seem to have heeded them.
    """

    def __init__(self, author: Author, options: Mapping[str, Value]) -> None:
        self.cores = author.cores
        self.lanes = author.lanes
        self._author = author
        self._options = dict(options)

    async def begin(self) -> None:
        """Start whatever the author has to start."""
        await self._author.begin()

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Ask one question, and add the options to what comes of an elaboration."""
        if isinstance(request, ElaborateConfig) and self._options and not request.with_tir:
            named = ", ".join(self._options)
            message = f"this target takes no pass options, so it cannot heed {named}"
            return Failed(message=message, outcome=Outcome.COMPILE_ERROR)
        reply = await self._author.ask(request, limit_s)
        if not isinstance(reply, ElaboratedConfig):
            return reply
        kernel = reply.elaborated.kernel
        options = {**kernel.pass_options, **self._options}
        return msgspec.structs.replace(
            reply,
            elaborated=msgspec.structs.replace(
                reply.elaborated, kernel=msgspec.structs.replace(kernel, pass_options=options)
            ),
        )

    async def close(self) -> None:
        """End whatever the author has started."""
        await self._author.close()
