"""What a case gets of a result that a golden step made for several."""

import msgspec


class GoldenPart(msgspec.Struct, frozen=True, kw_only=True):
    """What lies at ``path`` or below it, by the same names; everything if that is empty.

    Names of ``path`` are patterns, as in a shell. ``is_linked`` says that the files are links to the result: nothing
    is copied, and none of them may be written.
    """

    path: str = ""
    is_linked: bool = False


WHOLE = GoldenPart()
