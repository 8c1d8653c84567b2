"""Texts with ``{names}``: what is known when a suite is read is filled in, the rest stays for later."""

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

BRACES = "write a brace that is meant as such twice"


class TemplateError(ValueError):
    """A text is no template, or names something that is not known; its text says which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """A text taken apart: literal pieces, each with the name that follows it, empty for none.

    ``names`` are all that it asks for.
    """

    text: str
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
        """The text as a template of the names ``later``, with all else filled in.

        Braces that are meant as such stay doubled, also those of values.
        """
        if self.names <= later:
            return self.text
        parts = []
        for literal, name in self.pieces:
            parts.append(double(literal))
            if name in values:
                parts.append(double(values[name]))
            elif name in later:
                parts.append(f"{{{name}}}")
            elif name:
                raise unknown(name, (*values, *later))
        return "".join(parts)

    def fill(self, values: Mapping[str, str]) -> str:
        """The finished text, with single braces."""
        parts = []
        for literal, name in self.pieces:
            parts.append(literal)
            if name in values:
                parts.append(values[name])
            elif name:
                raise unknown(name, tuple(values))
        return "".join(parts)


def read_template(text: str) -> Template:
    """Take a text apart. Raises TemplateError where its braces make no sense."""
    pieces = []
    try:
        for literal, name, form, conversion in string.Formatter().parse(text):
            if name is not None and (form or conversion or not name.isidentifier()):
                raise TemplateError(f"{text!r} is no template; {BRACES}")
            pieces.append((literal, name or ""))
    except ValueError as error:
        if isinstance(error, TemplateError):
            raise
        raise TemplateError(f"{text!r} is no template: {error}; {BRACES}") from error
    if "\0" in text:
        raise TemplateError("a NUL character cannot be passed on")
    names = frozenset(name for _, name in pieces if name)
    return Template(text=text, pieces=tuple(pieces), names=names)


def unknown(name: str, known: Iterable[str]) -> TemplateError:
    """What to say of a name that stands for nothing here."""
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    meant = f"did you mean {{{near[0]}}}? " if near else ""
    listed = ", ".join(f"{{{one}}}" for one in names)
    return TemplateError(f"{{{name}}} stands for nothing here; {meant}known are {listed}; {BRACES}")


def double(text: str) -> str:
    """A text as a template that stands for it."""
    return text.replace("{", "{{").replace("}", "}}")
