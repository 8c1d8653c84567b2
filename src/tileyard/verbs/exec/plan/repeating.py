"""Launches kernels again with other content in the outputs that we allocate, to see what depends on it."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tileyard.base.errors import KernelFault
from tileyard.ir.dtypes import fill_differently, name_of
from tileyard.measure.compare import default_tolerance, find_changed
from tileyard.targets.base import Array

MOST_S = 1.0
"""The longest launch that is repeated, in CPU seconds."""
MOST_BYTES = 64 << 20
"""The most bytes of outputs of a launch that is repeated."""
USUAL = 1000.0
"""The size of the floats in the memory: a sum with a usual number is not that number again."""


class Repeater:
    """Launches a kernel twice more, in place: ``run`` takes all arguments; ``outputs`` are named."""

    def __init__(self, run: Callable[..., object], outputs: Mapping[int, str]) -> None:
        self._run = run
        self._outputs = outputs

    def find_old_reads(
        self, given: Sequence[object], results: Sequence[Array], took_s: float
    ) -> str:
        """A line about result elements that were read before written; empty if none, or if the launch took
        too long. An element that keeps both contents was not written, which may be meant. ``given`` are the
        other arguments.
        """
        if took_s > MOST_S or sum(one.nbytes for one in results) > MOST_BYTES:
            return ""
        try:
            fillings = [
                self._launch(given, results, inverted=inverted) for inverted in (False, True)
            ]
        except KernelFault as fault:
            return f"with other content in {', '.join(self._outputs.values())} it fails: {fault}"
        for name, one, other in zip(self._outputs.values(), *fillings, strict=True):
            (held, first), (held_then, second) = one, other
            changed = find_changed(second, first, default_tolerance(name_of(first.dtype)))
            kept = (first.reshape(-1) == held) & (second.reshape(-1) == held_then)
            (places,) = np.nonzero(changed & ~kept)
            if places.size:
                index = ", ".join(map(str, np.unravel_index(places[0], first.shape)))
                return (
                    f"{places.size} of {first.size} elements of {name} depend on what {name} held before,"
                    f" {name}[{index}] first: they are read before they are written"
                )
        return ""

    def _launch(
        self, given: Sequence[object], results: Sequence[Array], *, inverted: bool
    ) -> list[tuple[Array, Array]]:
        """What the memory of each output held before, flat, and after a launch."""
        outputs = [np.empty(one.shape, one.dtype) for one in results]
        for output in outputs:
            fill_differently(output, name_of(output.dtype), inverted=inverted, most=USUAL)
        before = [output.reshape(-1).copy() for output in outputs]
        arguments = list(given)
        for position, output in sorted(
            zip(self._outputs, outputs, strict=True), key=lambda one: one[0]
        ):
            arguments.insert(position, output)
        self._run(*arguments)
        return list(zip(before, outputs, strict=True))
