"""The options of a verb as one record, from which the command line, Python and the engine take them.

A record is a TypedDict that is not total; each of its fields is ``Annotated`` with an ``Option``. A field has
the name of the option, with ``_`` for each ``-``, and with a trailing ``_`` if it is a Python keyword.
"""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial, wraps
from inspect import Parameter, signature
from os import PathLike
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.wording import show_value
from tileyard.show.values import parse_factor, read_bytes, read_names, read_path, read_time_s

P = ParamSpec("P")
R = TypeVar("R")
RecordT = TypeVar("RecordT", bound=msgspec.Struct)
HOSTS = (
    "ssh:HOST,HOST; ray:cpus=N,gpus=N; slurm:ARGUMENTS; listen:ADDRESS,N; FILE.toml; local:N for a "
    "trial."
)
"""How --hosts names hosts."""
UNITS = ("", "_s", "_bytes")
"""Ends of names of the engine's fields, which the names of options do not have."""


def _unchanged(given: Any, _flag: str) -> Any:  # noqa: ANN401 - any type
    return given


@dataclass(frozen=True)
class Option:
    """An option: its effect, in one sentence; its default; its form; and what is read from it.

    ``flags`` are those of the command line if they do not follow from the field's name, ``least`` is the
    smallest valid number, ``variable`` is the environment variable that sets it. An option that takes
    functions is ``for_python`` alone. ``read`` makes the engine's value of a given one and of the default,
    from this value and the flag that its errors name.
    """

    help: str
    _: KW_ONLY
    default: object = None
    metavar: str = ""
    flags: tuple[str, ...] = ()
    least: int | None = None
    variable: str = ""
    for_python: bool = False
    read: Callable[[Any, str], Any] = _unchanged


def usually(usual: object, read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """``read``, with a usual value for an option whose default is None, to tell whether it is given."""
    return lambda given, flag: read(usual if given is None else given, flag)


Switch = partial(Option, default=False)
Text = partial(Option, default="")
TimeOption = partial(Option, metavar="TIME", read=read_time_s)
SizeOption = partial(Option, metavar="SIZE", read=read_bytes)
NumberOption = partial(Option, metavar="NUMBER", read=parse_factor)
FileOption = partial(Option, metavar="FILE", read=read_path)
NamesOption = partial(Option, read=read_names)

Home = Annotated[
    str | PathLike[str] | None,
    Option(
        "Where results are kept; by default $TILEYARD_HOME, else .tileyard beside the nearest "
        "pyproject.toml, else in the working directory.",
        for_python=True,
    ),
]
ShowProgress = Annotated[
    bool | None,
    Option(
        "Show progress and the result on stderr; by default on a terminal and in a notebook.",
        for_python=True,
    ),
]


@dataclass(frozen=True)
class Field:
    """A field of a record: its type, and its option."""

    name: str
    type: Any
    option: Option

    @property
    def flags(self) -> tuple[str, ...]:
        """Its flags on the command line: ``--x`` if off by default, ``--x/--no-x`` for another switch."""
        if self.option.flags:
            return self.option.flags
        name = self.name.rstrip("_").replace("_", "-")
        is_switch = bool in flatten(self.type) and self.option.default is not False
        return (f"--{name}/--no-{name}" if is_switch else f"--{name}",)

    @property
    def flag(self) -> str:
        """Its name in messages: the first flag, the one that turns a switch on."""
        return self.flags[0].partition("/")[0]

    def spell(self, flag: str) -> str:
        """Python's form of one of the flags."""
        if bool not in flatten(self.type):
            return self.name
        return f"{self.name}={not any(flag in pair.split('/')[1:] for pair in self.flags)}"


def flatten(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any type
    """The kinds of values of a type, without their contents: ``(Mapping, NoneType)``."""
    origin = get_origin(hint)
    if origin is None or origin is Literal:
        return (hint,)
    if isinstance(origin, type) and origin.__module__ != "types":
        return (origin,)
    return tuple(kind for one in get_args(hint) for kind in flatten(one))


@cache
def list_fields(record: type) -> dict[str, Field]:
    """The fields of a record, in its order."""
    found = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        kind, option = get_args(hint)
        found[name] = Field(name, kind, option)
    return found


def complete(record: type[R], given: R) -> R:
    """The given options, and the others' defaults. Raises UsageError, in Python's terms."""
    fields = list_fields(cast(type, record))
    values = cast(dict[str, object], given)
    for name, value in values.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1, cutoff=0.75)
            flag = _list_spellings(cast(type, record)).get(f"--{name.replace('_', '-')}")
            known = flag or next(iter(near), "")
            hint = f"there is {known}" if known else "help() of the function lists all"
            raise UsageError(f"there is no option {name!r}", hint)
        _require(fields[name], value)
    defaults = {name: field.option.default for name, field in fields.items()}
    return cast(R, {**defaults, **values})


def read_options(record: type, options: Mapping[str, object]) -> dict[str, Any]:
    """What is read from complete options, by their names. Raises UsageError."""
    fields = list_fields(record).values()
    return {one.name: one.option.read(options[one.name], one.flag) for one in fields}


def list_given(
    record: type, options: Mapping[str, object], names: Iterable[str]
) -> dict[str, object]:
    """Those of the named options that have not their default, by their flags."""
    fields = list_fields(record)
    given = {name: options[name] for name in names}
    return {
        fields[name].flag: value
        for name, value in given.items()
        if value != fields[name].option.default
    }


def fill(
    record: type[RecordT],
    values: Mapping[str, Any],
    **others: Any,  # noqa: ANN401 - any fields
) -> RecordT:
    """A record of the engine. Each field takes what is read of the option of its name, but for ``others``.

    The name of a field may end with the unit of its value: ``queue_limit_s`` is ``--queue-limit``.
    """
    known = {name.rstrip("_"): value for name, value in values.items()}
    for field in record.__struct_fields__:
        name = next((name for end in UNITS if (name := field.removesuffix(end)) in known), None)
        if name is not None and field not in others:
            others[field] = known[name]
    return record(**others)


_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    Mapping: "a mapping",
    Sequence: "a list",
    PathLike: "a path",
    Callable: "a function",
    NoneType: "None",
}


def _require(field: Field, value: object) -> None:
    kinds = flatten(field.type)
    if not any(_is_one(value, kind) for kind in kinds):
        words = [
            word
            for kind in kinds
            for word in (
                map(repr, get_args(kind)) if get_origin(kind) is Literal else [_WORDS[kind]]
            )
        ]
        raise UsageError(f"{field.name} must be {' or '.join(words)}, not {show_value(value)}")
    least = field.option.least
    if least is not None and isinstance(value, int) and value < least:
        raise UsageError(f"{field.name} {value} is less than {least}")


def _is_one(value: object, kind: Any) -> bool:  # noqa: ANN401 - any type
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, int | float if kind is float else kind)


# ---- Python ----------------------------------------------------------------------------------------


def takes(record: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a Python function a record's options: in its signature, docstring, and words of errors."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with spelled_for_python(record):
                return function(*args, **kwargs)

        fields = list_fields(record).values()
        options = [
            Parameter(
                one.name, Parameter.KEYWORD_ONLY, default=one.option.default, annotation=one.type
            )
            for one in fields
        ]
        plain = signature(function)
        before = [p for p in plain.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        made = plain.replace(parameters=[*before, *options])
        call.__signature__ = made  # type: ignore[attr-defined]  # read by inspect.signature
        told = "\n".join(f"        {one.name}: {one.option.help}" for one in fields)
        call.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n    Options:\n{told}\n    "
        return call

    return decorate


@contextlib.contextmanager
def spelled_for_python(record: type) -> Iterator[None]:
    """Let errors that name options of the record use Python's form: ``check=False`` for ``--no-check``."""
    try:
        yield
    except UsageError as error:
        error.message = _respell(error.message, record)
        error.hint = _respell(error.hint, record)
        raise


def _list_spellings(record: type) -> dict[str, str]:
    return {
        flag: field.spell(flag)
        for field in list_fields(record).values()
        for flags in field.flags
        for flag in flags.split("/")
    }


def _respell(text: str, record: type) -> str:
    spelled = _list_spellings(record)
    return re.sub(r"(?<![\w-])-{1,2}[a-z][a-z0-9-]*", lambda m: spelled.get(m[0], m[0]), text)
