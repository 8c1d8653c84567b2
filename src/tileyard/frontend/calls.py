"""Calling a user's function by the names of its parameters."""

import inspect
from collections.abc import Callable, Mapping

from tileyard.errors import UsageError
from tileyard.frontend.blame import blame_user

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
    named = {parameter.name for parameter in parameters if _takes_keyword(parameter)}
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


def _takes_keyword(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
