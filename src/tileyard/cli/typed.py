"""Commands as typer takes them, with the options of their records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from os import PathLike
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from tileyard.requests.options import Field, Option, flatten, list_fields

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
KernelName = Annotated[str, typer.Argument(metavar="FILE[::NAME]", help="Where the kernel is.")]
Subject = Annotated[
    str,
    typer.Argument(metavar="[KERNEL|RUN]", help="Of one kernel, or of one run; without it of all."),
]


def typed(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """A command whose signature has an option of typer's for each of ours, and those of a record for ``**options``."""
    plain = signature(function, eval_str=True)

    def command(**given: object) -> int | None:
        return function(**given)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    expands = any(one.kind is Parameter.VAR_KEYWORD for one in plain.parameters.values())
    parameters = [p for one in plain.parameters.values() for p in _convert(one)]
    # In the order of kinds, with the options of a record before those of the command alone.
    parameters.sort(key=lambda one: (one.kind, expands and one.name in plain.parameters))
    made = plain.replace(parameters=parameters)
    command.__signature__ = made  # type: ignore[attr-defined]  # read by typer
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _convert(one: Parameter) -> Iterator[Parameter]:
    """The parameters that typer takes for one of a function."""
    if one.kind is Parameter.VAR_KEYWORD:
        (record,) = get_args(one.annotation)
        for field in list_fields(record).values():
            made = Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.option.default)
            if not field.option.for_python:
                yield made.replace(annotation=_annotate(field))
        return
    for told in getattr(one.annotation, "__metadata__", ()):
        if isinstance(told, Option):
            field = Field(one.name, get_args(one.annotation)[0], told)
            one = one.replace(annotation=_annotate(field))
    yield one


def _annotate(field: Field) -> Any:  # noqa: ANN401 - any type
    option = field.option
    made = typer.Option(
        *field.flags, metavar=option.metavar or None, help=option.help, min=option.least
    )
    return Annotated[_text_type(field), made]


def _text_type(field: Field) -> Any:  # noqa: ANN401 - any type
    """What typer reads: flags, numbers and words as they are, several texts for what is a list, else a text."""
    kinds = set(flatten(field.type))
    if kinds & {Mapping, Sequence} and PathLike not in kinds:
        return list[str] | None
    if all(kind in (bool, int, NoneType) or get_origin(kind) is Literal for kind in kinds):
        return field.type
    return str | None if field.option.default is None else str
