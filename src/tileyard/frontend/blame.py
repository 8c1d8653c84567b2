"""Running a user's code: calls by the names of parameters, and what is raised as one line and a short traceback."""

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping

from tileyard.errors import TileyardError, UsageError, UserCodeError
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
    trace = error.__traceback__
    frames = traceback.extract_tb(getattr(trace, "tb_next", None) or trace)  # below blame_user
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


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def call_by_name(
    function: Callable[..., object], values: Mapping[str, object], what: str
) -> object:
    """Call with those ``values`` that the parameters name, or with all of them through ``**kwargs``.

    ``what`` names the function in messages. Raises UsageError where a parameter asks for something
    that is not in ``values``, and UserCodeError for whatever the function raises.
    """
    parameters = parameters_of(function)
    if parameters is None:
        with blame_user(what):
            return function(**values)
    unknown = [
        parameter.name
        for parameter in parameters
        if parameter.name not in values
        and parameter.default is parameter.empty
        and parameter.kind not in _VARIADIC
    ]
    if unknown:
        raise UsageError(
            f"{what} asks for {', '.join(unknown)}, which the kernel does not have",
            hint=f"it may ask for {', '.join(values)}" if values else "",
        )
    positional = [
        values[parameter.name]
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in values
    ]
    keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {parameter.name for parameter in parameters if parameter.kind in keyword}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    taken = {name: value for name, value in values.items() if takes_all or name in named}
    with blame_user(what):
        return function(*positional, **taken)


def parameters_of(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    """A callable's parameters; None where it does not tell them, as some written in C."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
