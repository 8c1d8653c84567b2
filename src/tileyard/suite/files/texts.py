"""Texts with ``{names}``: what is known when a suite is read is filled in, the rest stays for later.

A text knows where it stands, so that what is wrong with it is told with file, line and key.
"""

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tileyard.suite.files.places import Place

BRACES = "write a brace that is meant as such twice"
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A text taken apart: literal pieces, each with the name that follows it, empty for none.

    ``names`` are all that it asks for.
    """

    text: str
    place: Place
    pieces: tuple[tuple[str, str], ...]
    names: frozenset[str]

    @property
    def first(self) -> str:
        """The name that it begins with, empty where it begins with anything else."""
        return self.pieces[0][1] if self.pieces and not self.pieces[0][0] else ""

    @property
    def is_lone(self) -> bool:
        """Whether it is one name and nothing else."""
        return len(self.pieces) == 1 and not self.pieces[0][0]

    def fill_in(self, values: Mapping[str, str], later: frozenset[str]) -> str:
        """The text as a template of the names ``later``, with all else filled in. Raises UsageError.

        Braces that are meant as such stay doubled, also those of values.
        """
        return self.text if self.names <= later else self._join(values, later, double)

    def fill(self, values: Mapping[str, str]) -> str:
        """The finished text, with single braces. Raises UsageError."""
        return self._join(values, _NOTHING, str)

    def _join(
        self, values: Mapping[str, str], later: frozenset[str], write: Callable[[str], str]
    ) -> str:
        parts = []
        for literal, name in self.pieces:
            parts.append(write(literal))
            if name in values:
                parts.append(write(values[name]))
            elif name in later:
                parts.append(f"{{{name}}}")
            elif name:
                known = sorted({*values, *later})
                near = get_close_matches(name, known, n=1)
                meant = f"did you mean {{{near[0]}}}? " if near else ""
                listed = ", ".join(f"{{{one}}}" for one in known)
                self.place.fail(
                    f"{{{name}}} stands for nothing here; {meant}known are {listed}; {BRACES}"
                )
        return "".join(parts)


def read_text(text: str, place: Place) -> Text:
    """The text that stands at a place, taken apart. Raises UsageError where its braces make no sense."""
    pieces = []
    try:
        for literal, name, form, conversion in string.Formatter().parse(text):
            if name is not None and (form or conversion or not name.isidentifier()):
                place.fail(f"{text!r} is no template; {BRACES}")
            pieces.append((literal, name or ""))
    except ValueError as error:
        place.fail(f"{text!r} is no template: {error}; {BRACES}")
    if "\0" in text:
        place.fail("a NUL character cannot be passed on")
    names = frozenset(name for _, name in pieces if name)
    return Text(text=text, place=place, pieces=tuple(pieces), names=names)


def double(text: str) -> str:
    """A text as a template that stands for it."""
    return text.replace("{", "{{").replace("}", "}}")
