"""Runs a Program in plain NumPy: slow, and obviously right. Targets are tested against it. ``meanings.py``
defines scalar operations, ``tiles.py`` tile operations. Blocks and loops run in order.
"""

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from tileyard.base.errors import BindError, KernelFault
from tileyard.base.model import Value
from tileyard.base.wording import count_of
from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype, poison
from tileyard.ir.nodes import (
    AnyTileOperation,
    Arrive,
    Assert,
    Atomic,
    Await,
    Axis,
    Break,
    Buffer,
    Const,
    Expr,
    For,
    If,
    InitBarrier,
    Issue,
    Let,
    Load,
    Print,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    Sync,
    Synchronization,
    TileOperation,
    Var,
    WaitBarrier,
    While,
)
from tileyard.ir.printer import print_statement
from tileyard.ir.specs import (
    Evaluator,
    bind_dims,
    convert_scalar,
    evaluate_size,
    scalar_params,
    tensor_specs,
    tensors,
)
from tileyard.ir.tiles import Array, Box, Memory, atomic, perform
from tileyard.ir.walk import regions, scalars


def interpret(
    program: Program,
    arrays: Sequence[Array],
    scalars: Sequence[Value] = (),
    say: Callable[[str], object] = sys.stdout.write,
) -> list[Array]:
    """Run ``program``; returns the written arrays (``out`` and ``inout``) in calling order.
    ``arrays`` has one for each ``in`` and ``inout`` tensor, ``scalars`` a number per scalar
    parameter; neither is changed. Never written elements hold their dtype's poison. ``say``
    receives printed lines. Raises BindError, or KernelFault if the kernel itself fails.
    """
    run = Run(program, arrays, scalars, say)
    run.grid()
    return run.written()


def _parameters(
    program: Program, arrays: Sequence[Array], numbers: dict[str, int]
) -> dict[str, Array]:
    given = iter(arrays)
    parameters = {}
    for spec in tensor_specs(program, numbers):
        dtype = find_dtype(spec.dtype).numpy
        if spec.role == "out":
            parameters[spec.name] = np.full(spec.shape, poison(spec.dtype), dtype)
            continue
        array = next(given)
        if array.dtype != dtype:
            raise BindError(f"{spec.name} is {spec.dtype}, the array {array.dtype}")
        parameters[spec.name] = array.copy()
    return parameters


def _make(buffer: Buffer, known: dict[str, Array], numbers: dict[str, int]) -> Array:
    """Storage for a non-parameter buffer: that of another buffer, or new and poisoned."""
    shape = tuple(evaluate_size(extent, numbers) for extent in buffer.shape)
    dtype = find_dtype(buffer.dtype).numpy
    if buffer.view_of:
        return known[buffer.view_of].reshape(-1).view(dtype).reshape(shape)
    return np.full(shape, poison(buffer.dtype), dtype)


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """A point at which a body waits until ``is_over``; ``where`` says in the user's words for what."""

    stmt: Stmt
    where: str
    is_over: Callable[[], bool]


Waiting = Generator[Blocked, None, None]

Plain = Let | Store | Atomic | Print | Assert | AnyTileOperation


class Run:
    """The state of one run: the values of all variables, the content of all buffers. ``at`` is the current
    statement. Asynchronous operations are done when issued; ``asynchronous.py`` has the other meaning.
    """

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        scalars: Sequence[Value] = (),
        say: Callable[[str], object] = sys.stdout.write,
    ) -> None:
        numbers = bind_dims(program, [array.shape for array in arrays], scalars)
        params = scalar_params(program)
        if len(scalars) != len(params):
            raise BindError(
                f"{program.name} takes {count_of(len(params), 'scalar')}, not {len(scalars)}"
            )
        given = [
            *((var, numbers[var.name]) for var in program.dims),
            *zip(params, scalars, strict=True),
        ]
        self.at: Stmt | None = None
        self._arrivals = {buffer.name: buffer.arrivals for buffer in program.buffers}
        self._syncs: dict[int, int] = {}
        self._in_roles = False
        self._program = program
        self._values = {var.name: convert_scalar(value, var.dtype) for var, value in given}
        storage = _parameters(program, arrays, numbers)
        for buffer in program.buffers:
            if buffer.scope == "global":
                storage[buffer.name] = _make(buffer, storage, numbers)
        self._memory = self._make_memory(storage)
        self._say = say
        self._evaluator = Evaluator(self._values, self._memory.load)
        self._value = self._evaluator.value

    def _make_memory(self, storage: dict[str, Array]) -> Memory:
        buffers = (*(tensor.buffer for tensor in tensors(self._program)), *self._program.buffers)
        cut = frozenset(buffer.name for buffer in buffers if buffer.dtype == TENSOR_FLOAT)
        return Memory(storage, cut)

    def grid(self) -> None:
        """Run all blocks."""
        with np.errstate(all="ignore"):
            self.blocks(tuple(reversed(self._program.grid)))

    def written(self) -> list[Array]:
        """The arrays that the Program writes, in calling order."""
        names = [tensor.buffer.name for tensor in tensors(self._program) if tensor.role != "in"]
        return [self._memory.array(name) for name in names]

    def blocks(self, axes: tuple[Axis, ...]) -> None:
        """Run the blocks of the grid that ``axes`` span, the last axis fastest."""
        if not axes:
            self._block()
            return
        for _ in self._iterate(axes[0].var, Const(0, "int32"), axes[0].extent):
            self.blocks(axes[1:])

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        first = self._evaluator.number(start)
        for index in range(first, first + self._evaluator.number(extent)):
            self._values[var.name] = convert_scalar(index, var.dtype)
            yield

    def _block(self) -> None:
        tiles = self._memory.tiles
        self._syncs.clear()
        for buffer in self._program.buffers:
            if buffer.scope != "global":
                tiles[buffer.name] = _make(buffer, tiles, {})
        body = self._body(self._program.body)
        for wait in body:
            if not wait.is_over():
                body.throw(KernelFault(describe_deadlock(wait.where)))

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Blocked, None, bool]:
        """Run ``body``, stopping at each wait; returns whether it was left by a break."""
        for stmt in body:
            self.at = stmt
            try:
                match stmt:
                    case For():
                        for _ in self._iterate(stmt.var, stmt.start, stmt.extent):
                            if (yield from self._body(stmt.body)):
                                break
                    case If():
                        if (yield from self._body(self._branch(stmt))):
                            return True
                    case While():
                        while self._value(stmt.cond):
                            if (yield from self._body(stmt.body)):
                                break
                    case Break():
                        return True
                    case Await():
                        yield self._await(stmt)
                    case Roles():
                        self._run_roles(stmt)
                    case Issue():
                        yield from self._issue(stmt)
                    case Synchronization():
                        yield from self._synchronize(stmt)
                    case _:
                        self._run(stmt)
            except KernelFault as fault:
                if " in `" not in fault.message:
                    fault.message += f" in `{print_statement(self._program, stmt)}`"
                raise
        return False

    def _branch(self, stmt: If) -> tuple[Stmt, ...]:
        return stmt.then if self._value(stmt.cond) else stmt.orelse

    def _await(self, stmt: Await) -> Blocked:
        return Blocked(stmt=stmt, where=stmt.message, is_over=lambda: bool(self._value(stmt.cond)))

    def _issue(self, stmt: Issue) -> Waiting:
        """Start an asynchronous operation, which is over as soon as it has started."""
        yield from self._body(stmt.body)

    def _synchronize(self, stmt: Synchronization) -> Waiting:
        """Wait for other roles, or let them go on; asynchronous operations are over already."""
        match stmt:
            case InitBarrier():
                self._memory.array(stmt.barriers.buffer)[...] = 0
            case Arrive():
                counts, (number,) = self._barrier(stmt.barrier)
                counts[number] += stmt.count
            case WaitBarrier():
                counts, (number,) = self._barrier(stmt.barrier)
                each = self._arrivals[stmt.barrier.buffer][number]
                parity = self._evaluator.number(stmt.parity)
                yield Blocked(
                    stmt=stmt,
                    where=f"for {stmt.barrier.buffer}",
                    is_over=lambda: int(counts[number]) // each % 2 != parity,
                )
            case Sync(given=False):
                before = self._syncs.get(stmt.barrier, 0)
                self._syncs[stmt.barrier] = before + stmt.threads
                end = before // stmt.count * stmt.count + stmt.count
                if stmt.waits and self._in_roles:
                    yield Blocked(
                        stmt=stmt,
                        where=f"for {stmt.count} threads",
                        is_over=lambda: self._syncs[stmt.barrier] >= end,
                    )
            case _:
                pass

    def _barrier(self, place: Load) -> tuple[Array, tuple[int, ...]]:
        """The counts of a row of barriers, and one's index. Raises KernelFault if the row has no such one."""
        indices = self._evaluator.indices(place.indices)
        self._memory.is_inside(place.buffer, indices)
        return self._memory.array(place.buffer), indices

    def _run(self, stmt: Plain) -> None:
        match stmt:
            case Let():
                self._values[stmt.var.name] = self._value(stmt.value)
            case Store():
                indices = self._evaluator.indices(stmt.indices)
                if self._memory.is_inside(stmt.buffer, indices):
                    self._memory.store(stmt.buffer, indices, self._value(stmt.value))
            case Atomic():
                old = atomic(self._memory, stmt, self._evaluator)
                if stmt.var is not None:
                    self._values[stmt.var.name] = old
            case Print():
                values = [str(self._value(value)) for value in stmt.values]
                self._say(describe_print(stmt.message, values) + "\n")
            case Assert():
                if not self._value(stmt.cond):
                    raise KernelFault(stmt.message or "an assertion fails")
            case TileOperation():
                boxes = tuple(map(self._box, regions(stmt)))
                perform(self._memory, stmt, boxes, tuple(map(self._value, scalars(stmt))))
            case _:
                assert_never(stmt)

    def _run_roles(self, stmt: Roles) -> None:
        """Let each role go on until it has to wait, in turn, until all have ended."""
        waiting: dict[int, Blocked | None] = dict.fromkeys(range(len(stmt.bodies)))
        self._in_roles = True
        roles = [self._body(body) for body in stmt.bodies]
        while waiting:
            has_moved = False
            for number, found in list(waiting.items()):
                if found is not None and not found.is_over():
                    continue
                has_moved = True
                try:
                    waiting[number] = next(roles[number])
                except StopIteration:
                    del waiting[number]
            if not has_moved:
                stuck = [found.where for found in waiting.values() if found is not None]
                raise KernelFault("; ".join(map(describe_deadlock, stuck)))
        self._in_roles = False

    def _box(self, region: Region) -> Box:
        indices = self._evaluator.indices
        starts, extents = indices(region.starts), indices(region.extents)
        if any(extent < 0 for extent in extents):
            raise KernelFault(f"a region of {region.buffer} has extents {extents}")
        return Box(buffer=region.buffer, starts=starts, extents=extents)


def describe_print(message: str, values: Sequence[str]) -> str:
    """The line that a print writes: a value for each ``{}`` of its message, and the rest at the end."""
    head, *parts = message.split("{}")
    filled = "".join(f"{value}{part}" for value, part in zip(values, parts, strict=False))
    left = "".join(f"{{}}{part}" for part in parts[len(values) :])
    return " ".join([head + filled + left, *values[len(parts) :]])


def describe_deadlock(where: str) -> str:
    """The message for a wait that no other role can end."""
    return f"deadlock: nothing ends the wait {where}".rstrip()
