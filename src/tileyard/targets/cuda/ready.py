"""Calls of a kernel with some shapes and numbers, made ready: what is left are addresses and a stream."""

import math
from collections.abc import Sequence

from tileyard.errors import BindError
from tileyard.ir.dtypes import find_dtype
from tileyard.model import TensorSpec
from tileyard.targets.cuda.driver import Gpu
from tileyard.targets.cuda.launching import Plan
from tileyard.targets.cuda.memory import Buffer

MOST_KNOWN = 256
"""For how many combinations of addresses packed arguments are kept."""


class Ready:
    """Everything about calls with some shapes and numbers that does not depend on addresses.

    ``places`` are those of tensors among the arguments; ``missing`` the tensors that are not among
    them, each with its place among all tensors.
    """

    def __init__(
        self,
        plan: Plan,
        specs: Sequence[TensorSpec],
        given: tuple[list[int], frozenset[str]],
    ) -> None:
        self.plan = plan
        self.places, names = given
        self.names = [spec.name for spec in specs]
        self.missing = [spec for spec in specs if spec.name not in names]
        self.missing_places = [self.names.index(spec.name) for spec in self.missing]
        self.addresses: list[int] = []
        self.stream = -1
        self._states: dict[tuple[int, ...], bytes] = {}
        sizes = [math.prod(s.shape) * find_dtype(s.dtype).bits // 8 for s in specs]
        self._pairs = [
            (at, sizes[at], other, sizes[other])
            for at, spec in enumerate(specs)
            for other in range(len(specs))
            if spec.role != "in" and other != at
        ]
        self._lent: dict[int, list[Buffer]] = {}

    def aim(self, gpu: Gpu, addresses: list[int], stream: int) -> None:
        """Have the next launch be for these addresses. Raises BindError, MemoryError."""
        key = (*addresses, stream) if self.plan.workspaces else tuple(addresses)
        state = self._states.get(key)
        if state is None:
            self.check_apart(addresses)
            self.addresses = []  # what is refused halfway is aimed at nothing
            self.plan.aim(addresses, self.lend(gpu, stream) if self.plan.workspaces else ())
            if len(self._states) >= MOST_KNOWN:
                self._states.clear()
            self._states[key] = self.plan.save()
        else:
            self.plan.restore(state)
        self.addresses, self.stream = addresses, stream

    def check_apart(self, addresses: Sequence[int]) -> None:
        """Raise BindError where what is written shares memory with anything else."""
        for at, size, other, other_size in self._pairs:
            one, two = addresses[at], addresses[other]
            if two < one + size and one < two + other_size:
                raise BindError(
                    f"{self.names[at]} is written, and shares memory with {self.names[other]}",
                    "pass a copy of one of them",
                )

    def lend(self, gpu: Gpu, stream: int) -> list[int]:
        """Workspaces for launches on a stream, which follow each other. Raises MemoryError."""
        if stream not in self._lent and self.plan.workspaces:
            self._lent[stream] = [
                Buffer(gpu, size, f"workspace {number}")
                for number, size in enumerate(self.plan.workspaces)
            ]
        return [buffer.address for buffer in self._lent.get(stream, ())]
