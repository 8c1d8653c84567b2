"""Describes the part of a kernel's ``where`` that the numbers of a call decide."""

import msgspec


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's ``where`` as it was evaluated in elaborating; ``text`` names it and its line.
    ``numbers`` are the dimensions and scalars it takes with the accepted values, of the parameters
    of the Program in ``signature``.
    """

    text: str
    numbers: dict[str, bool | int | float | str]
    signature: str
