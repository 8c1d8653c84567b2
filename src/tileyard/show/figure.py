"""The look of pictures, and units of their axes."""

from typing import Final

DOTS_PER_IN: Final = 150
WIDTH_IN: Final = 8.0
FONT: Final = 8
TITLE: Final = 120
"""Characters of a title."""
NANOSECONDS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
TIME, CHANGE = "#0072B2", "#D55E00"
"""Okabe and Ito's colours, distinguishable for colour-blind readers; lines differ as well."""


def find_unit(time_ns: float) -> tuple[str, float]:
    """A suitable unit for a time, and its size in nanoseconds."""
    units = reversed(NANOSECONDS.items())
    return next((pair for pair in units if time_ns >= pair[1]), ("ns", 1.0))
