"""Asks an author for a look inside a block."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileyard.base.model import Side
from tileyard.base.settings import Settings
from tileyard.engine.authors import WorkerAuthor
from tileyard.look.records import Look
from tileyard.verbs.look.options import USUAL_LIMIT_S
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace, ask_about_first
from tileyard.workers.protocol import LookInside

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

    def make(space: OpenSpace) -> LookInside:
        return LookInside(
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

    limit_s = 10 * values["limit"] + SPARE_S
    reply = await ask_about_first(author, request, make, limit_s, failed="cannot be looked at")
    return reply.look
