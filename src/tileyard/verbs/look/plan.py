"""Asks an author for a look inside a block."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileyard.base.errors import UsageError
from tileyard.base.model import Side
from tileyard.base.settings import Settings
from tileyard.engine.authors import WorkerAuthor
from tileyard.look.records import Look
from tileyard.verbs.look.options import USUAL_LIMIT_S
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import open_space
from tileyard.workers.protocol import Failed, LookInside

SPARE_S = 120.0
"""Seconds for all that the limit does not count: elaboration, inputs and the reference."""


async def ask(
    file: Path,
    request: TuneRequest,
    values: Mapping[str, Any],
    settings: Settings,
) -> Look:
    """Look inside a block of the kernel's first config. Raises UsageError."""
    side = Side(name="", python_limit_s=values["python_limit"])
    author = WorkerAuthor(file, settings.home, settings.cores, side)
    try:
        space = await open_space(author, request)
        question = LookInside(
            kernel=space.kernel,
            arguments=space.arguments,
            config=space.configs[0],
            block=values["block"],
            architecture=values["pipeline"],
            reference=values["reference"] or "",
            make_inputs=values["inputs"] or "",
            tolerance=space.tolerance,
            patience=values["limit"] / USUAL_LIMIT_S,
        )
        reply = await author.ask(question, 10 * values["limit"] + SPARE_S)
    finally:
        await author.close()
    if isinstance(reply, Failed):
        raise UsageError(f"{space.kernel} cannot be looked at: {reply.message}")
    return reply.look
