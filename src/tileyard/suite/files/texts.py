"""Templates that know where they stand, so that what is wrong with one is told with file, line and key."""

from collections.abc import Mapping
from dataclasses import dataclass

from tileyard.suite.files.places import Place
from tileyard.suite.files.templates import Template, TemplateError, read_template


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A template and its place."""

    template: Template
    place: Place

    def fill_in(self, values: Mapping[str, str], later: frozenset[str]) -> str:
        """A template of the names ``later``, with all else filled in. Raises UsageError."""
        try:
            return self.template.fill_in(values, later)
        except TemplateError as error:
            self.place.fail(str(error))

    def fill(self, values: Mapping[str, str]) -> str:
        """The finished text. Raises UsageError."""
        try:
            return self.template.fill(values)
        except TemplateError as error:
            self.place.fail(str(error))


def read_text(text: str, place: Place) -> Text:
    """The template that stands at a place. Raises UsageError where it is none."""
    try:
        return Text(template=read_template(text), place=place)
    except TemplateError as error:
        place.fail(str(error))
