"""Putting what is known when a step runs into the templates of its arguments."""

import string
from collections.abc import Mapping, Sequence

from tileyard.errors import BindError

Place = str | tuple[str, ...]
Places = Mapping[str, Place]
"""The value of each place; those that this step has no value for are not in it."""


def fill(template: str, places: Places) -> str:
    """The text with its places filled in. Raises BindError for one that has no value here.

    A place with several texts is their list with a space between.
    """
    for _, name, _, _ in string.Formatter().parse(template):
        if name is not None and name not in places:
            said = f"{{{name}}} in {template!r} has no value in this step of this case"
            raise BindError(said)
    texts = {
        name: " ".join(value) if isinstance(value, tuple) else value
        for name, value in places.items()
    }
    return template.format_map(texts)


def fill_argv(argv: Sequence[str], places: Places) -> tuple[str, ...]:
    """Arguments with their places filled in; ``{cases}`` alone becomes one argument for each case."""
    filled: list[str] = []
    for template in argv:
        value = places.get(template[1:-1]) if template[:1] == "{" and template[-1:] == "}" else None
        if isinstance(value, tuple):
            filled += value
        else:
            filled.append(fill(template, places))
    return tuple(filled)
