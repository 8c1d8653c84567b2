"""Writes names as the user's source has them: a Program numbers a name that the source uses twice."""

import re
from collections.abc import Callable, Iterable

import msgspec

from tileyard.base.model import Record
from tileyard.look.records import Look

_NUMBERED = re.compile(r"\b([A-Za-z_]\w*?)_\d+\b")
_WORD = re.compile(r"\w+")
_AS_THEY_ARE = ("about", "contents")


def with_source_names(look: Look, buffers: Iterable[str]) -> Look:
    """The same with names of the kernel's source: ``i_1`` becomes ``i`` if the source has only that, and no
    buffer has that name.
    """
    words = set(_WORD.findall("\n".join(look.about.source))).difference(buffers)

    def write(text: str) -> str:
        return _NUMBERED.sub(
            lambda one: one[1] if one[1] in words and one[0] not in words else one[0], text
        )

    changed = {
        name: _rewrite(getattr(look, name), write)
        for name in look.__struct_fields__
        if name not in _AS_THEY_ARE
    }
    return msgspec.structs.replace(look, **changed)


def _rewrite(value: object, write: Callable[[str], str]) -> object:
    """A value with all texts in it rewritten."""
    match value:
        case str():
            return write(value)
        case tuple():
            return tuple(_rewrite(one, write) for one in value)
        case Record():
            fields = {
                name: _rewrite(getattr(value, name), write) for name in value.__struct_fields__
            }
            return msgspec.structs.replace(value, **fields)
        case _:
            return value
