"""Describes the part of a golden step's result that one of several cases gets."""

import msgspec


class GoldenPart(msgspec.Struct, frozen=True, kw_only=True):
    """The files at ``path`` or below it, with the same names; all files if it is empty.

    Names in ``path`` are patterns, as in a shell. ``is_linked``: the files are links to the result, so nothing is copied,
    and none of them may be written.
    """

    path: str = ""
    is_linked: bool = False


WHOLE = GoldenPart()
