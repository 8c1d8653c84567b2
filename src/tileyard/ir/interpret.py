"""Runs a Program in plain NumPy: slow, and obviously right. Targets are tested against it.

Scalar operations and conversions are defined in ``meanings.py``, tile operations in ``tiles.py``. Blocks run one after the other, loops in order.
"""

import sys
from collections.abc import Callable, Generator, Sequence
from typing import assert_never

import numpy as np

from tileyard.errors import BindError, KernelFault
from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype, poison
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Axis,
    Break,
    Buffer,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Print,
    Program,
    Reduce,
    Region,
    Roles,
    Stmt,
    Store,
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
from tileyard.ir.tiles import Array, Box, Memory, atomic, copy, fill, gemm, reduce
from tileyard.ir.walk import walk
from tileyard.model import Value


def interpret(
    program: Program,
    arrays: Sequence[Array],
    scalars: Sequence[Value] = (),
    say: Callable[[str], object] = sys.stdout.write,
) -> list[Array]:
    """Run ``program``; returns the written arrays (``out`` and ``inout``) in calling order.

    ``arrays`` holds one array for each ``in`` and ``inout`` tensor in calling order, ``scalars``
    one number for each scalar parameter; neither is changed. What an output holds where nothing is
    written is its dtype's poison. ``say`` takes the lines that the kernel prints. Raises BindError, or KernelFault where the kernel itself fails.
    """
    numbers = bind_dims(program, [array.shape for array in arrays], scalars)
    values = {var.name: convert_scalar(numbers[var.name], var.dtype) for var in program.dims}
    params = scalar_params(program)
    if len(scalars) != len(params):
        raise BindError(f"{program.name} takes {len(params)} scalars, not {len(scalars)}")
    for var, value in zip(params, scalars, strict=True):
        values[var.name] = convert_scalar(value, var.dtype)
    parameters = _parameters(program, arrays, numbers)
    storage = dict(parameters)
    for buffer in program.buffers:
        if buffer.scope == "global":
            storage[buffer.name] = _make(buffer, storage, numbers)
    run = _Run(program, values, storage, say)
    with np.errstate(all="ignore"):
        run.blocks(tuple(reversed(program.grid)))
    written = [tensor.buffer.name for tensor in tensors(program) if tensor.role != "in"]
    return [parameters[name] for name in written]


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
    """Storage for a buffer that is no parameter: that of another one, or new and poisoned."""
    shape = tuple(evaluate_size(extent, numbers) for extent in buffer.shape)
    dtype = find_dtype(buffer.dtype).numpy
    if buffer.view_of:
        return known[buffer.view_of].reshape(-1).view(dtype).reshape(shape)
    return np.full(shape, poison(buffer.dtype), dtype)


class _Run:
    """The state of one run: the values of all variables, the content of all buffers."""

    def __init__(
        self,
        program: Program,
        values: dict[str, np.generic],
        arrays: dict[str, Array],
        say: Callable[[str], object],
    ) -> None:
        self._program = program
        self._values = values
        buffers = (*(tensor.buffer for tensor in tensors(program)), *program.buffers)
        cut = frozenset(buffer.name for buffer in buffers if buffer.dtype == TENSOR_FLOAT)
        self._memory = Memory(arrays, cut)
        self._say = say
        self._evaluator = Evaluator(values, self._memory.load)
        self._value = self._evaluator.value

    def blocks(self, axes: tuple[Axis, ...]) -> None:
        """Run the blocks of the grid that ``axes`` span, the last of them the fastest."""
        if not axes:
            self._block()
            return
        var = axes[0].var
        for index in range(self._evaluator.number(axes[0].extent)):
            self._values[var.name] = convert_scalar(index, var.dtype)
            self.blocks(axes[1:])

    def _block(self) -> None:
        tiles = self._memory.tiles
        for buffer in self._program.buffers:
            if buffer.scope != "global":
                tiles[buffer.name] = _make(buffer, tiles, {})
        self._body(self._program.body)

    def _body(self, body: tuple[Stmt, ...]) -> bool:
        """Run ``body``; returns whether it was left by a break."""
        for stmt in body:
            try:
                left = self._stmt(stmt)
            except KernelFault as fault:
                if " in `" not in fault.message:
                    fault.message += f" in `{print_statement(self._program, stmt)}`"
                raise
            if left:
                return True
        return False

    def _stmt(self, stmt: Stmt) -> bool:
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
            case For():
                self._loop(stmt)
            case If():
                return self._body(stmt.then if self._value(stmt.cond) else stmt.orelse)
            case While():
                while self._value(stmt.cond):
                    if self._body(stmt.body):
                        break
            case Break():
                return True
            case Roles():
                self._side_by_side(stmt.bodies)
            case Await():
                if not self._value(stmt.cond):
                    raise KernelFault(describe_deadlock(stmt.message))
            case Copy():
                copy(self._memory, self._box(stmt.src), self._box(stmt.dst))
            case Fill():
                fill(self._memory, self._box(stmt.dst), self._value(stmt.value))
            case Gemm():
                gemm(self._memory, stmt, (self._box(stmt.a), self._box(stmt.b), self._box(stmt.c)))
            case Reduce():
                reduce(self._memory, stmt, (self._box(stmt.src), self._box(stmt.dst)))
            case _:
                assert_never(stmt)
        return False

    def _loop(self, stmt: For) -> None:
        start = self._evaluator.number(stmt.start)
        for index in range(start, start + self._evaluator.number(stmt.extent)):
            self._values[stmt.var.name] = convert_scalar(index, stmt.var.dtype)
            if self._body(stmt.body):
                break

    # ---- roles ------------------------------------------------------------------------------

    def _side_by_side(self, bodies: tuple[tuple[Stmt, ...], ...]) -> None:
        """Let each role go on until it has to wait, in turn, until all have ended."""
        waiting: dict[int, Await | None] = dict.fromkeys(range(len(bodies)))
        roles = [self._role(body) for body in bodies]
        while waiting:
            has_moved = False
            for number, found in list(waiting.items()):
                if found is not None and not self._value(found.cond):
                    continue
                has_moved = True
                try:
                    waiting[number] = next(roles[number])
                except StopIteration:
                    del waiting[number]
            if not has_moved:
                stuck = [found.message for found in waiting.values() if found is not None]
                raise KernelFault("; ".join(map(describe_deadlock, stuck)))

    def _role(self, body: tuple[Stmt, ...]) -> Generator[Await, None, bool]:
        """Run ``body``, stopping at each wait; returns whether it was left by a break."""
        for stmt in body:
            match stmt:
                case Await():
                    yield stmt
                case For() if _waits(stmt):
                    start = self._evaluator.number(stmt.start)
                    for index in range(start, start + self._evaluator.number(stmt.extent)):
                        self._values[stmt.var.name] = convert_scalar(index, stmt.var.dtype)
                        if (yield from self._role(stmt.body)):
                            break
                case While() if _waits(stmt):
                    while self._value(stmt.cond):
                        if (yield from self._role(stmt.body)):
                            break
                case If() if _waits(stmt):
                    branch = stmt.then if self._value(stmt.cond) else stmt.orelse
                    if (yield from self._role(branch)):
                        return True
                case _:
                    if self._body((stmt,)):
                        return True
        return False

    def _box(self, region: Region) -> Box:
        return self._memory.box(region, self._evaluator)


def _waits(stmt: Stmt) -> bool:
    return any(isinstance(inner, Await) for inner in walk((stmt,)))


def describe_print(message: str, values: Sequence[str]) -> str:
    """The line that a print writes: a value for each ``{}`` of its message, and the others behind it."""
    head, *parts = message.split("{}")
    filled = "".join(f"{value}{part}" for value, part in zip(values, parts, strict=False))
    left = "".join(f"{{}}{part}" for part in parts[len(values) :])
    return " ".join([head + filled + left, *values[len(parts) :]])


def describe_deadlock(where: str) -> str:
    """What is wrong where no other role can end a wait."""
    return f"deadlock: nothing ends the wait {where}".rstrip()
