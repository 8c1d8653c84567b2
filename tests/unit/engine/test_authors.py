"""An author in its own process ends a file's Python that takes too long, and names its limit's option."""

import asyncio
from pathlib import Path

import pytest

from tileyard.base.model import Outcome, Side
from tileyard.engine.authors import WorkerAuthor
from tileyard.workers.protocol import DescribeKernels, Failed
from tileyard.workers.question import Question

FILE = """
import threading
import tileyard

wait = threading.Event().wait
{waits}

def no_space():
    wait()

@tileyard.kernel(space=no_space)
def endless(M=8):
    pass
"""


def ask(
    file: Path, request: Question[object], limit_s: float, python_limit_s: float = 0.0
) -> object:
    """The answer of a new author of the file."""

    async def ask_once() -> object:
        side = Side(name="", python_limit_s=python_limit_s)
        author = WorkerAuthor(file, file.parent, (0,), side)
        try:
            return await author.ask(request, limit_s)
        finally:
            await author.close()

    return asyncio.run(ask_once())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("waits", "limits", "what"),
    [
        ("wait()", (60.0, 0.01), "importing it"),
        ("", (0.01, 0.0), "listing its kernels and their spaces"),
    ],
)
def test_a_file_that_takes_too_long_is_ended_with_the_option_that_limits_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waits: str,
    limits: tuple[float, float],
    what: str,
) -> None:
    """Its import and the answers of its code have limits of their own; an option sets both."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "endless.py"
    file.write_text(FILE.format(waits=waits))
    reply = ask(file, DescribeKernels(), *limits)
    assert isinstance(reply, Failed)
    assert reply.outcome is Outcome.TIMEOUT
    expected = f"endless.py: {what} takes longer than 0.01 s (--python-limit sets another limit)"
    assert reply.message == expected
