"""Describes the inputs that a kernel is run on."""

from typing import Literal

import msgspec

EdgeValues = Literal["zeros", "tiny", "largest", "inf", "nan"]
"""Zeros of both signs; the smallest values, normal or not; the largest finite ones; infinities; NaN."""


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """The usual inputs, those of another ``seed``, or the usual ones with ``edges`` among them."""

    seed: int = 0
    edges: EdgeValues | None = None

    @property
    def name(self) -> str:
        """A name for people."""
        return f"edge values ({self.edges})" if self.edges else f"seed {self.seed}"


USUAL_DRAW = Draw()
