"""The shapes that a kernel is tuned for: from a file that lists them, or from Python values."""

import difflib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tileyard.base.errors import UsageError
from tileyard.base.model import Record, Value
from tileyard.base.wording import show_value
from tileyard.show.values import read_choices

Shapes: TypeAlias = (
    str | os.PathLike[str] | Mapping[str, Mapping[str, object]] | Sequence[Mapping[str, object]]
)
"""A file, or sets of arguments, with names or without."""
Where = Callable[..., str]
"""The place of a key, as in ``where(2, "M")``; without keys that of the list."""
MOST = 10_000
LIST, WEIGHT = "shape", "weight"


class Shape(Record):
    """Arguments to tune a kernel for, beside those of all shapes, and of the kernel's own shape ``declared``.

    ``weight`` is their frequency, in any unit. ``where`` is the beginning of messages about them.
    """

    arguments: dict[str, Value]
    weight: float = 1.0
    name: str = ""
    declared: str = ""
    where: str = ""


def read_shapes(given: object) -> tuple[Shape, ...]:
    """The shapes of a file, or of a list or mapping by name. Raises UsageError naming an error's place."""
    if isinstance(given, str | os.PathLike):
        # Half of the time that a command takes to start, for those that read no such file.
        from tileyard.base.places import Document, Place

        document = Document(Path(given))
        for key in document.table:
            if key != LIST:
                near = difflib.get_close_matches(key, [LIST], cutoff=0.5)
                hint = f"did you mean {LIST}?" if near else f"[[{LIST}]] begins each set"
                (Place(document=document) / key).fail("is not a key of a file of shapes", hint)
        listed = document.table.get(LIST, [])

        def where(*keys: str | int) -> str:
            return Place(document=document, keys=(LIST, *keys)).where

    else:
        listed = given

        def where(*keys: str | int) -> str:
            return "shapes" + "".join(f"[{key!r}]" for key in keys)

    shapes = tuple(itertools.islice(_read(listed, where), MOST + 1))
    if not shapes:
        raise UsageError(
            f"{where()}: there is no shape", f"[[{LIST}]] begins each set of arguments"
        )
    if len(shapes) > MOST:
        raise UsageError(f"{where()}: there are more than {MOST} shapes")
    return shapes


def cross_shapes(names: Iterable[str], axes: Mapping[str, Sequence[Value]]) -> tuple[Shape, ...]:
    """Each named set of arguments with each combination of values. Raises UsageError for too many."""
    named = tuple(dict.fromkeys(names)) or ("",)
    if len(named) * math.prod(map(len, axes.values())) > MOST:
        raise UsageError(f"--arg: there are more than {MOST} shapes")
    shapes = []
    for name, point in itertools.product(named, itertools.product(*axes.values())):
        arguments = dict(zip(axes, point, strict=True))
        options = [f"--shape {name}"] if name else []
        options += [f"--arg {key}={value}" for key, value in arguments.items()]
        where = " ".join(options)
        shapes.append(Shape(arguments=arguments, name=name, declared=name, where=where))
    return tuple(shapes)


def _read(listed: object, where: Where) -> Iterator[Shape]:
    is_named = isinstance(listed, Mapping)
    if not isinstance(listed, Mapping | Sequence) or isinstance(listed, str):
        raise UsageError(f"{where()}: {show_value(listed)} is not a list of shapes")
    for key, table in listed.items() if isinstance(listed, Mapping) else enumerate(listed):
        if not isinstance(table, Mapping):
            hint = f"[[{LIST}]] begins each set of arguments, [{LIST}.NAME] one with a name"
            named = f"{key}: " if is_named else ""
            raise UsageError(f"{where(key)}: {named}{show_value(table)} is not a table", hint)
        weight = table.get(WEIGHT, 1)
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not (is_number and 0 < weight < math.inf):
            raise UsageError(
                f"{where(key, WEIGHT)}: {WEIGHT} is {show_value(weight)}, and no number above 0"
            )
        axes = {
            name: _read_values(name, values, where(key, name))
            for name, values in table.items()
            if name != WEIGHT
        }
        for point in itertools.product(*axes.values()):
            yield Shape(
                arguments=dict(zip(axes, point, strict=True)),
                weight=float(weight),
                name=str(key) if is_named else "",
                where=where(key),
            )


def _read_values(name: object, given: object, where: str) -> tuple[Value, ...]:
    """The values of an argument: one, or each of a list."""
    listed = given if isinstance(given, list | tuple | range) else [given]
    for value in listed:
        if isinstance(value, Mapping | list | tuple | set):
            raise UsageError(f"{where}: {name} is {show_value(value)}, and no number or text")
    if not listed:
        raise UsageError(f"{where}: {name} is an empty list", "leave it out, or give it a value")
    return next(iter(read_choices({name: listed}, f"{where}:").values()))  # type: ignore[dict-item]
