"""Converts commands to typer's form, with the options of their records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from tileyard.show.defaults import Kind, Known, VerbPath
from tileyard.show.options import Field, Option, flatten, list_fields

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TokenFile = Annotated[
    str,
    typer.Option(
        metavar="FILE", help="Take the token from this file, which only its owner may read."
    ),
]
Rows = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of rows.")]
TimesFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the expected time of each case, for --durations."),
]
KernelName = Annotated[str, typer.Argument(metavar="FILE[::NAME]", help="Where the kernel is.")]
Subject = Annotated[
    str,
    typer.Argument(metavar="[KERNEL|RUN]", help="One kernel or one run; by default all."),
]


def typed(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """A command with a typer option for each of ours, with its default, and for those of ``**options``."""
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
            one = one.replace(annotation=_annotate(field), default=told.default)
    yield one


def _annotate(field: Field) -> Any:  # noqa: ANN401 - any type
    option = field.option
    made = typer.Option(
        *field.flags,
        metavar=option.metavar or None,
        help=option.help,
        min=option.least,
        envvar=option.variable or None,
    )
    return Annotated[_text_type(field), made]


def _text_type(field: Field) -> Any:  # noqa: ANN401 - any type
    """The type for typer: flags, numbers and words unchanged, several texts for a list, otherwise a text."""
    kinds = set(flatten(field.type))
    if kinds & {Mapping, Sequence} and PathLike not in kinds:
        return list[str] | None
    if all(kind in (bool, int, NoneType) or get_origin(kind) is Literal for kind in kinds):
        return field.type
    return str | None if field.option.default is None else str


def list_options(command: Any, path: VerbPath = ()) -> dict[VerbPath, dict[str, Known]]:  # noqa: ANN401
    """The options of a command and of those below it, by the words that name each, then by their keys."""
    found: dict[VerbPath, dict[str, Known]] = {}
    options = [_known(one) for one in command.params if one.param_type_name == "option"]
    if path:
        found[path] = {one.key: one for one in options if one.name != "help"}
    for word, inner in getattr(command, "commands", {}).items():
        found |= list_options(inner, (*path, word))
    return found


def _known(option: Any) -> Known:  # noqa: ANN401 (typer hides its type)
    taken = option.type_descriptor
    numbers: dict[object, Kind] = {int: "whole", float: "number"}
    kind: Kind = "list" if option.multiple else numbers.get(taken.annotation, "text")
    return Known(
        name=option.name,
        flags=tuple(option.opts),
        negations=tuple(option.secondary_opts),
        kind="switch" if option.is_flag else kind,
        choices=tuple(taken.choices or ()),
        least=option.min,
        metavar=option.metavar or "",
        variable=option.envvar or "",
    )
