"""Runs some blocks in the synchronous meaning, fast: to find wrong blocks, and to try changes."""

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import KernelFault
from tileyard.ir.clocks import Places
from tileyard.ir.dtypes import is_float, name_of
from tileyard.ir.interpret import Blocked, Plain
from tileyard.ir.lanes import NestRun
from tileyard.ir.meanings import convert
from tileyard.ir.nodes import For, Gemm, Program, Stmt
from tileyard.ir.specs import convert_scalar, evaluate_size, tensors
from tileyard.ir.tiles import Array, Memory, Watched
from tileyard.ir.walk import buffer_effects, regions
from tileyard.look.history import Flat

Block = tuple[int, ...]
"""A position in the grid, ``blockIdx.x`` first."""


class Expects(Protocol):
    """What is expected of one output. That ``share`` of its elements may be wrong."""

    share: float

    def find_wrong(self, places: Flat, got: Array) -> NDArray[np.bool_]:
        """Which of the elements at these flat positions are wrong with the values ``got``."""

    def values(self, places: Flat) -> NDArray[np.float64]:
        """What is expected of these elements."""


def find_wrong(expected: Expects, places: Flat, got: Array) -> Flat:
    """Which of these elements of an output are wrong with the values ``got``; none if only as many of them
    are as may be.
    """
    wrong = places[expected.find_wrong(places, got)]
    return wrong if wrong.size > expected.share * places.size else wrong[:0]


def list_blocks(program: Program) -> Iterator[Block]:
    """All blocks of a Program with constant sizes, in the order in which they run."""
    sizes = [range(evaluate_size(axis.extent, {})) for axis in reversed(program.grid)]
    return (tuple(reversed(one)) for one in product(*sizes))


def are_blocks_apart(program: Program) -> bool:
    """Whether no block can see what another one wrote: none reads an output, updates it, or uses a
    workspace.
    """
    written = {one.buffer.name for one in tensors(program) if one.role != "in"}
    spaces = {one.name for one in program.buffers if one.scope == "global"}
    return not buffer_effects(program.body).read & (written | spaces)


class QuickRun(NestRun):
    """Runs blocks one at a time. ``writers`` has for each output the number of the block, from 1, that
    has written an element last, 0 for none. Products are summed in float64 and rounded once, which is
    closer to a reference than ``interpret.py`` is, and ten times as fast. ``has_slow`` if a parallel nest
    had to run lane by lane; it is a KernelFault if ``is_strict``, and also if it ``is_late``, as a loop may
    never end.
    """

    is_strict = False

    def __init__(
        self, program: Program, arrays: Sequence[Array], is_late: Callable[[], bool]
    ) -> None:
        self.is_late = is_late
        self.count = 0
        self.has_slow = False
        self.writers: dict[str, NDArray[np.int32]] = {}
        super().__init__(program, arrays, say=lambda _: None)
        for tensor in tensors(program):
            if tensor.role != "in":
                name = tensor.buffer.name
                self.writers[name] = np.zeros(self._memory.array(name).shape, np.int32)

    def _make_memory(self, storage: dict[str, Array]) -> Memory:
        return Watched(super()._make_memory(storage), self._note)

    def run_block(self, block: Block) -> None:
        """Run one block. Raises KernelFault if it fails."""
        self.count += 1
        for axis, at in zip(self._program.grid, block, strict=True):
            self._values[axis.var.name] = convert_scalar(at, axis.var.dtype)
        with np.errstate(all="ignore"):
            self._block()

    def forget_block(self) -> None:
        """Take back that the last block, which was cut off, has written anything."""
        for writers in self.writers.values():
            writers[writers == self.count] = 0
        self.count -= 1

    def _note(self, buffer: str, where: Places, content: Array | None) -> None:
        if content is not None and buffer in self.writers:
            self.writers[buffer][where] = self.count

    def _run_nest(self, nest: For) -> bool:
        report = self._lanes.run(nest)
        if report.refusal is not None:
            self.has_slow = True
            if self.is_strict:
                raise KernelFault("its lanes conflict")
            return False
        for access in report.accesses:
            if access.is_write and access.buffer in self.writers:
                self.writers[access.buffer].reshape(-1)[access.elements] = self.count
        return True

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Blocked, None, bool]:
        if self.is_late():
            raise KernelFault("it takes too long")
        return (yield from super()._body(body))

    def _run(self, stmt: Plain) -> None:
        if not isinstance(stmt, Gemm) or not self._multiply(stmt):
            super()._run(stmt)

    def _multiply(self, stmt: Gemm) -> bool:
        *sources, into = map(self._box, regions(stmt))
        dtype = name_of(self._memory.array(into.buffer).dtype)
        if not is_float(dtype):
            return False
        a, b = (self._memory.read(box).reshape(box.extents[-2:]) for box in sources)
        left: NDArray[np.float64] = (a.T if stmt.transpose_a else a).astype(np.float64)
        right: NDArray[np.float64] = (b.T if stmt.transpose_b else b).astype(np.float64)
        total = left @ right
        if not stmt.clear:
            total = total + self._memory.read(into).astype(np.float64).reshape(total.shape)
        self._memory.write(into, convert(total, dtype).reshape(into.extents))
        return True

    def wrong(self, expected: Sequence[Expects]) -> dict[str, Flat]:
        """The wrong elements of those written so far, by output, with at least one."""
        found = {}
        for (name, writers), one in zip(self.writers.items(), expected, strict=True):
            places = np.flatnonzero(writers)
            wrong = find_wrong(one, places, self._memory.array(name).reshape(-1)[places])
            if wrong.size:
                found[name] = wrong
        return found

    def value(self, output: str, place: int) -> float:
        """An output's element."""
        return float(self._memory.array(output).reshape(-1)[place])

    def results(self, output: str, most: int | None = None) -> tuple[Flat, Array]:
        """The first ``most`` elements of an output that were written so far, and their values."""
        places = np.flatnonzero(self.writers[output])[:most]
        return places, self._memory.array(output).reshape(-1)[places]

    def missing(self, expected: Sequence[Expects]) -> dict[str, Flat]:
        """The elements that were not written, and had no content or a wrong one before, by output, with at
        least one; none if only as many as may be wrong.
        """
        found = {}
        outputs = [one for one in tensors(self._program) if one.role != "in"]
        for tensor, one in zip(outputs, expected, strict=True):
            name = tensor.buffer.name
            places = np.flatnonzero(self.writers[name] == 0)
            if tensor.role == "inout":
                given = self._memory.array(name).reshape(-1)[places]
                places = places[one.find_wrong(places, given)]
            if places.size > one.share * self.writers[name].size:
                found[name] = places
        return found

    def take_globals(self) -> dict[str, Array]:
        """The present content of outputs and workspaces."""
        spaces = [one.name for one in self._program.buffers if one.scope == "global"]
        return {name: self._memory.array(name).copy() for name in (*self.writers, *spaces)}

    def written_count(self) -> int:
        """The number of elements of outputs that were written."""
        return sum(int(np.count_nonzero(one)) for one in self.writers.values())
