"""Checks that a Program is legal: names, types, shapes, roles and structure."""

import math
from collections.abc import Sequence
from typing import assert_never

from tileyard.base.errors import InvalidProgramError, OutsideTileError
from tileyard.ir import verify_exprs as check
from tileyard.ir.dtypes import is_integer
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Break,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    LoopKind,
    Print,
    Program,
    Roles,
    Stmt,
    Store,
    Synchronization,
    Tensor,
    TileOperation,
    Var,
    While,
)
from tileyard.ir.printer import print_statement
from tileyard.ir.specs import scalar_params, tensors
from tileyard.ir.syntax import is_name
from tileyard.ir.verify_exprs import require
from tileyard.ir.walk import bodies, expressions, regions, walk, walk_expr

_BREAKABLE = ("serial", "unroll", "pipelined", "while")
_MAX_GRID = 3
_REGISTERS = range(24, 257, 8)
"""Numbers of registers that a thread can request. Source: PTX ISA, setmaxnreg."""


def verify(program: Program) -> None:
    """Raise InvalidProgramError for the first broken rule, with its statement and number, -1 for the head."""
    verifier = _Verifier(program)
    try:
        verifier.head()
        verifier.body(program.body, ())
    except check.Broken as broken:
        stmt = verifier.stmt
        where = "" if stmt is None else f" in `{print_statement(program, stmt)}`"
        kind = OutsideTileError if isinstance(broken, check.Outside) else InvalidProgramError
        raise kind(f"{broken}{where}", statement=verifier.number) from None


class _Verifier:
    """``stmt`` is the current statement, ``number`` its number."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._scope = check.Scope()
        self._names: set[str] = set()
        self._read_only: set[str] = set()
        self.stmt: Stmt | None = None
        self.number = -1

    # ---- the head ---------------------------------------------------------------------------

    def head(self) -> None:
        program = self._program
        require(is_name(program.name), f"{program.name!r} cannot be a name")
        for var in program.dims:
            self._declare_var(var)
        for var in scalar_params(program):
            self._declare_var(var, is_integer_only=False)
        for param in tensors(program):
            self._tensor(param)
        self._check_dims()
        require(len(program.grid) <= _MAX_GRID, f"the grid has {len(program.grid)} dimensions")
        for axis in program.grid:
            self._size(axis.extent, f"the extent of {axis.var.name}")
        for axis in program.grid:
            self._declare_var(axis.var)
        require(
            all(count > 0 for count in program.threads),
            f"a block of {program.threads} threads is empty",
        )
        for buffer in program.buffers:
            has_arrivals = buffer.shape == (Const(len(buffer.arrivals), "int32"),)
            require(
                has_arrivals if buffer.scope == "barrier" else not buffer.arrivals,
                f"{buffer.name} is not a row of barriers with a number of arrivals for each",
            )
            require(
                buffer.scope == "global" or all(isinstance(e, Const) for e in buffer.shape),
                f"{buffer.name} is tile-local and its layout is not constant",
            )
            require(not buffer.strides, f"{buffer.name} has strides and is not a parameter")
            if buffer.view_of:
                self._view(buffer)
            self._declare_buffer(buffer)

    def _declare(self, name: str) -> None:
        require(is_name(name), f"{name!r} cannot be a name")
        require(name not in self._names, f"{name} is declared twice")
        self._names.add(name)

    def _declare_var(self, var: Var, *, is_integer_only: bool = True) -> None:
        self._declare(var.name)
        check.known_dtype(var.dtype)
        is_allowed = is_integer(var.dtype) or not is_integer_only
        require(is_allowed, f"{var.name} is {var.dtype}, not an integer")
        self._scope.variables[var.name] = var.dtype

    def _declare_buffer(self, buffer: Buffer) -> None:
        self._declare(buffer.name)
        check.known_dtype(buffer.dtype)
        for extent in buffer.shape:
            self._size(extent, f"the shape of {buffer.name}")
        for stride in buffer.strides:
            self._size(stride, f"the strides of {buffer.name}")
        count = len(buffer.strides)
        require(count in (0, len(buffer.shape)), f"{buffer.name} has {count} strides")
        check.layout(buffer)
        self._scope.buffers[buffer.name] = buffer

    def _view(self, buffer: Buffer) -> None:
        owner = self._scope.buffers.get(buffer.view_of)
        if owner is None or owner.view_of or owner.strides or owner.scope != buffer.scope:
            check.refuse(f"{buffer.name} cannot be a view of {buffer.view_of}")
        theirs, own = _bits(owner), _bits(buffer)
        is_same = theirs is None or own is None or theirs == own
        require(is_same, f"{buffer.name} has {own} bits, {owner.name} {theirs}")
        if owner.name in self._read_only:
            self._read_only.add(buffer.name)

    def _size(self, expr: Expr, what: str) -> None:
        check.integer(self._scope, expr, what)
        require(not any(isinstance(p, Load) for p in walk_expr(expr)), f"{what} reads memory")
        require(not isinstance(expr, Const) or expr.value >= 0, f"{what} is negative")

    def _tensor(self, param: Tensor) -> None:
        buffer = param.buffer
        require(buffer.scope == "global", f"parameter {buffer.name} is not in global memory")
        require(not buffer.view_of, f"parameter {buffer.name} is a view")
        self._declare_buffer(buffer)
        if param.role == "in":
            self._read_only.add(buffer.name)

    def _check_dims(self) -> None:
        shapes = (tensor.buffer.shape for tensor in tensors(self._program))
        parts = (part for shape in shapes for extent in shape for part in walk_expr(extent))
        known = {part.name for part in parts if isinstance(part, Var)}
        for var in self._program.dims:
            require(var.name in known, f"no parameter has {var.name} as one of its dimensions")

    # ---- statements -------------------------------------------------------------------------

    def body(self, body: Sequence[Stmt], loops: tuple[LoopKind | str, ...]) -> None:
        """Check statements inside ``loops``; their declarations end with them."""
        variables = dict(self._scope.variables)
        for stmt in body:
            self.number += 1
            self.stmt = stmt
            self._statement(stmt, loops)
        self._scope.variables = variables

    def _statement(self, stmt: Stmt, loops: tuple[LoopKind | str, ...]) -> None:
        if isinstance(stmt, TileOperation):
            for region in regions(stmt):
                check.region(self._scope, region)
            self._check_written(regions(stmt)[-1].buffer)
        for expr in expressions(stmt):
            check.expr(self._scope, expr)
        match stmt:
            case Let():
                self._let(stmt)
            case Store() | Atomic():
                self._store(stmt)
            case Assert() | Await():
                self._condition(stmt.cond)
                may_wait = isinstance(stmt, Assert) or "parallel" not in loops
                require(may_wait, "iterations of a parallel loop do not wait for others")
            case Roles():
                self._roles(stmt, loops)
            case For():
                self._loop(stmt, loops)
            case If() | While():
                self._branch(stmt, loops)
            case Break():
                require(
                    bool(loops) and loops[-1] in _BREAKABLE, "break has no serial loop to leave"
                )
            case Issue():
                check.issue(self._scope, stmt)
                self.body(stmt.body, loops)
            case Synchronization():
                require(
                    "parallel" not in loops, "iterations of a parallel loop do not wait for others"
                )
                check.synchronization(self._scope, stmt)
            case TileOperation():
                check.operation(self._scope, stmt)
            case Print():
                pass
            case _:
                assert_never(stmt)

    def _check_written(self, buffer: str) -> None:
        require(buffer not in self._read_only, f"{buffer} is an `in` parameter, and it is written")

    def _let(self, stmt: Let) -> None:
        require(
            stmt.value.dtype == stmt.var.dtype,
            f"{stmt.var.name} is {stmt.var.dtype}, its value {stmt.value.dtype}",
        )
        self._declare_var(stmt.var, is_integer_only=False)

    def _store(self, stmt: Store | Atomic) -> None:
        buffer = check.element(self._scope, stmt.buffer, stmt.indices)
        require(
            stmt.value.dtype == buffer.dtype,
            f"{buffer.name} holds {buffer.dtype}, the value is {stmt.value.dtype}",
        )
        self._check_written(buffer.name)
        if isinstance(stmt, Atomic):
            check.atomic(stmt)
            if stmt.var is not None:
                self._declare_var(stmt.var, is_integer_only=False)

    def _loop(self, stmt: For, loops: tuple[LoopKind | str, ...]) -> None:
        for name, expr in (("start", stmt.start), ("extent", stmt.extent)):
            require(
                expr.dtype == stmt.var.dtype,
                f"{stmt.var.name} is {stmt.var.dtype}, the {name} {expr.dtype}",
            )
        most = stmt.stages if stmt.kind == "pipelined" else 0
        require(0 <= stmt.stages <= most, f"a {stmt.kind} loop has {stmt.stages} stages")
        check.schedule(stmt)
        self._declare_var(stmt.var)
        self.body(stmt.body, (*loops, stmt.kind))
        del self._scope.variables[stmt.var.name]

    def _condition(self, cond: Expr) -> None:
        require(cond.dtype == "bool", f"the condition is {cond.dtype}, not bool")

    def _roles(self, stmt: Roles, loops: tuple[LoopKind | str, ...]) -> None:
        require(not loops, "roles stand in no loop: each has loops of its own")
        require(bool(stmt.bodies) and all(stmt.bodies), "a role without a statement")
        for body in stmt.bodies:
            require(not any(isinstance(s, Roles) for s in walk(body)), "roles within a role")
            self.body(body, loops)
        has_threads = len(stmt.threads) in (0, len(stmt.bodies))
        require(has_threads, f"{len(stmt.bodies)} roles, and threads of {len(stmt.threads)}")
        require(
            len(stmt.registers) in (0, len(stmt.bodies))
            and all(count in _REGISTERS for count in stmt.registers if count),
            f"{len(stmt.bodies)} roles with {stmt.registers} registers: "
            "a multiple of 8 from 24 to 256 for each",
        )

    def _branch(self, stmt: If | While, loops: tuple[LoopKind | str, ...]) -> None:
        self._condition(stmt.cond)
        inside = (*loops, "while") if isinstance(stmt, While) else loops
        for body in bodies(stmt):
            self.body(body, inside)


def _bits(buffer: Buffer) -> int | None:
    """The size of a buffer in bits; None if it is not constant."""
    sizes = [int(extent.value) for extent in buffer.shape if isinstance(extent, Const)]
    bits = math.prod(sizes, start=check.known_dtype(buffer.dtype).bits)
    return bits if len(sizes) == len(buffer.shape) else None
