"""The look of pictures, and PNG."""

import io
import warnings
from typing import Final

from matplotlib.figure import Figure
from PIL import Image

DOTS_PER_IN: Final = 200
WIDTH_IN: Final = 4.0
"""Pictures are 800 dots wide, to be read at 400."""
FONT: Final = 7.5
TIME, CHANGE = "#0072B2", "#D55E00"
"""Okabe and Ito's colours, distinguishable for colour-blind readers; lines differ as well."""


def encode_png(figure: Figure) -> bytes:
    """The figure as PNG of 256 colours, which is small; a character that no font has is drawn as a box."""
    drawn, encoded = io.BytesIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.savefig(drawn, format="png")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256).save(encoded, format="png", optimize=True)
    return encoded.getvalue()
