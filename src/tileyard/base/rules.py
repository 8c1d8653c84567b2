"""Describes the part of a kernel's ``where`` that the numbers of a call decide."""

import msgspec


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's ``where`` as it was evaluated when the kernel was elaborated.

    ``text`` names it and its line. ``numbers`` are the dimensions and scalars that it takes, with the values that it accepted. ``signature`` is the
    text of a Program without statements, whose parameters they belong to.
    """

    text: str
    numbers: dict[str, bool | int | float | str]
    signature: str
