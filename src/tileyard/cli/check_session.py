"""A check of asynchronous copies, as the command line shows it: findings with both lines, then what was checked."""

import asyncio
from pathlib import Path

from tileyard.check.findings import Finding
from tileyard.cli.opening import load_settings, print_json
from tileyard.engine.authors import WorkerAuthor
from tileyard.errors import UsageError
from tileyard.model import Side
from tileyard.report.check_shapes import describe_extent, describe_instance, describe_shapes
from tileyard.report.words import format_config, make_visible
from tileyard.tuning.request import TuneRequest
from tileyard.tuning.space import open_space
from tileyard.wording import count_of
from tileyard.workers.protocol import CheckSync, Failed, SyncChecked

FOUND = 1
FIRST_GUESS = 64
"""What arguments get that have no value, before the check looks for one that fits."""


def check_file(
    file: Path, request: TuneRequest, limit_s: float, architecture: str = "", *, as_json: bool
) -> int:
    """Check the first config of a kernel. Raises UsageError, also for what cannot be elaborated."""
    checked = asyncio.run(_ask(file, request, limit_s, architecture))
    if as_json:
        print_json(checked)
    else:
        _print(file, checked)
    return FOUND if checked.findings else 0


async def _ask(file: Path, request: TuneRequest, limit_s: float, architecture: str) -> SyncChecked:
    settings = load_settings()
    author = WorkerAuthor(file, settings.home, settings.cores, Side(name=""))
    try:
        space = await open_space(author, request, guess=FIRST_GUESS)
        question = CheckSync(
            kernel=space.kernel,
            arguments=space.arguments,
            config=space.configs[0],
            architecture=architecture,
            guessed=space.guessed,
        )
        reply = await author.ask(question, limit_s)
    finally:
        await author.close()
    if isinstance(reply, Failed):
        raise UsageError(f"{space.kernel} cannot be checked: {reply.message}")
    return reply


def _print(file: Path, checked: SyncChecked) -> None:
    for finding in checked.findings:
        print(make_visible(_describe(file, finding)))
    for reason in checked.unchecked:
        print(make_visible(f"not checked: {reason}"))
    config = f" {format_config(checked.config)}" if checked.config else ""
    if not checked.blocks:
        print(make_visible(f"{checked.kernel}{config}: nothing was checked"))
        return
    found = count_of(len(checked.findings), "mistake") if checked.findings else "no mistakes"
    blocks = f"{checked.blocks} of {count_of(checked.grid, 'block')}"
    print(make_visible(f"{checked.kernel}{config}: {found} in {blocks}{describe_shapes(checked)}"))
    for line in describe_extent(checked):
        print(make_visible(f"    {line}"))


def _describe(file: Path, finding: Finding) -> str:
    where = finding.access
    place = f"{file}:?" if where is None else f"{where.file}:{where.line}"
    return f"{place}: {finding.message}{describe_instance(finding)}\n    {finding.fix}"
