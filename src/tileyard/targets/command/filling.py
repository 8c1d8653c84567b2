"""Fills in the templates of a step's arguments when the step runs."""

import string
from collections.abc import Mapping, Sequence

from tileyard.base.errors import BindError

Place = str | tuple[str, ...]
Places = Mapping[str, Place]
"""Values by place, without the places that have no value in this step."""


def fill(template: str, places: Places) -> str:
    """The text with its places filled, texts joined by spaces. Raises BindError for a place without value."""
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
    """Arguments with their places filled in; ``{cases}`` alone becomes one argument per case."""
    filled: list[str] = []
    for template in argv:
        value = places.get(template[1:-1]) if template[:1] == "{" and template[-1:] == "}" else None
        if isinstance(value, tuple):
            filled += value
        else:
            filled.append(fill(template, places))
    return tuple(filled)
