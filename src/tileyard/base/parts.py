"""Describes the parts of the results of shared steps: of a golden step, and of a build."""

import msgspec


class GoldenPart(msgspec.Struct, frozen=True, kw_only=True):
    """The files at or below ``path``, a pattern as in a shell, all if empty. ``is_linked``: links
    to the result, which nobody may write.
    """

    path: str = ""
    is_linked: bool = False


class BuildPart(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a build: its own ``inputs``, its ``products`` below the cache, else in the folder."""

    inputs: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


WHOLE = GoldenPart()
