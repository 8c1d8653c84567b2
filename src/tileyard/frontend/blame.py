"""Turning what a user's code raises into one line with its file and line, and a short traceback."""

import contextlib
import traceback
from collections.abc import Iterator
from types import TracebackType

from tileyard.errors import TileyardError, UserCodeError
from tileyard.frontend.provenance import is_users
from tileyard.wording import name_line


@contextlib.contextmanager
def blame_user(doing: str = "") -> Iterator[None]:
    """Runs a user's code. Whatever it raises, SystemExit included, comes out as UserCodeError.

    ``doing`` begins the message, such as ``where of gemm``. Failures of ours and interrupts pass
    through; so does MemoryError, which says something of the machine and not of the code.
    """
    try:
        yield
    except (TileyardError, KeyboardInterrupt, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        raise describe_failure(error, doing) from error


def describe_failure(error: BaseException, doing: str = "") -> UserCodeError:
    """``file:line: doing: Type: first line`` of the user's innermost frame, and a traceback."""
    what = describe_exception(error)
    frames = traceback.extract_tb(_below_ours(error.__traceback__))
    users = [frame for frame in frames if is_users(frame.filename)]
    file, line = "", 0
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        file, line = error.filename, error.lineno or 0
    elif users:
        file, line = users[-1].filename, users[-1].lineno or 0
    shown = traceback.format_list(users or frames)
    ending = traceback.format_exception_only(error)
    summary = f"{doing}: {what}" if doing else what
    return UserCodeError(
        message=f"{name_line(file, line)}: {summary}" if file else summary,
        summary=summary,
        file=file,
        line=line,
        trace="".join(["Traceback (your code only):\n", *shown, *ending]),
    )


def describe_exception(error: BaseException) -> str:
    """The exception's type and the first line of what it says."""
    if isinstance(error, SystemExit):
        return f"it ended the process with status {error.code!r}"
    lines = str(error).strip().splitlines()
    said = next((line.strip() for line in lines if line.strip()), "")
    name = type(error).__name__
    return f"{name}: {said}" if said else name


def _below_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frame of ``blame_user`` itself."""
    return trace.tb_next if trace is not None and trace.tb_next is not None else trace
