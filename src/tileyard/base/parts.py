"""Describes the parts of the results of shared steps: of a golden step, and of a build."""

import msgspec


class GoldenPart(msgspec.Struct, frozen=True, kw_only=True):
    """The files at ``path`` or below it, with the same names; all files if it is empty.

    Names in ``path`` are patterns, as in a shell. ``is_linked``: the files are links to the result, so nothing is copied,
    and none of them may be written.
    """

    path: str = ""
    is_linked: bool = False


class BuildPart(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a build: the ``inputs`` on which only it depends, and its ``products`` below the build's cache.

    Without products it is in the folder that the whole build fills.
    """

    inputs: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


WHOLE = GoldenPart()
