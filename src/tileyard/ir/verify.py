"""Says what is legal in a Program: names, types, shapes, roles and structure."""

from collections.abc import Sequence
from typing import NoReturn, assert_never

from tileyard.errors import InvalidProgramError
from tileyard.ir import verify_exprs as check
from tileyard.ir.dtypes import DTYPES, is_integer
from tileyard.ir.effects import expressions, read_regions, written_region
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Break,
    Buffer,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Load,
    LoopKind,
    Print,
    Program,
    Reduce,
    Roles,
    Scalar,
    Stmt,
    Store,
    Tensor,
    Var,
    While,
)
from tileyard.ir.printer import print_statement
from tileyard.ir.syntax import is_name
from tileyard.ir.walk import walk, walk_expr

_BREAKABLE = ("serial", "unroll", "pipelined", "while")
_MAX_GRID = 3


def verify(program: Program) -> None:
    """Raise InvalidProgramError for the first rule that ``program`` breaks.

    The message quotes the statement, and the error carries its pre-order number; it is -1 where
    the head is at fault.
    """
    verifier = _Verifier(program)
    try:
        verifier.head()
        verifier.body(program.body, ())
    except check.Broken as broken:
        verifier.refuse(broken.reason)


class _Verifier:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._scope = check.Scope()
        self._names: set[str] = set()
        self._read_only: set[str] = set()
        self._stmt: Stmt | None = None
        self._number = -1

    def refuse(self, reason: str) -> NoReturn:
        """Raise for the statement that is being looked at."""
        where = ""
        if self._stmt is not None:
            where = f" in `{print_statement(self._program, self._stmt)}`"
        raise InvalidProgramError(f"{reason}{where}", statement=self._number)

    # ---- the head ---------------------------------------------------------------------------

    def head(self) -> None:
        """Check parameters, dimensions, grid and buffers, and declare their names."""
        program = self._program
        if not is_name(program.name):
            self.refuse(f"{program.name!r} cannot be a name")
        for var in program.dims:
            self._declare_var(var)
        for param in program.params:
            if isinstance(param, Scalar):
                self._declare_var(param.var, is_integer_only=False)
        for param in program.params:
            if isinstance(param, Tensor):
                self._tensor(param)
        self._check_dims()
        if len(program.grid) > _MAX_GRID:
            self.refuse(f"the grid has {len(program.grid)} dimensions")
        for axis in program.grid:
            self._size(axis.extent, f"the extent of {axis.var.name}")
        for axis in program.grid:
            self._declare_var(axis.var)
        if any(count < 1 for count in program.threads):
            self.refuse(f"a block of {program.threads} threads is empty")
        for buffer in program.buffers:
            is_local = buffer.scope != "global"
            if is_local and not all(isinstance(extent, Const) for extent in buffer.shape):
                self.refuse(f"{buffer.name} is tile-local and its layout is not constant")
            if buffer.strides:
                self.refuse(f"{buffer.name} has strides and is no parameter")
            if buffer.view_of:
                self._view(buffer)
            self._declare_buffer(buffer)

    def _declare(self, name: str) -> None:
        if not is_name(name):
            self.refuse(f"{name!r} cannot be a name")
        if name in self._names:
            self.refuse(f"{name} is declared twice")
        self._names.add(name)

    def _declare_var(self, var: Var, *, is_integer_only: bool = True) -> None:
        self._declare(var.name)
        check.known_dtype(var.dtype)
        if is_integer_only and not is_integer(var.dtype):
            self.refuse(f"{var.name} is {var.dtype}, not an integer")
        self._scope.variables[var.name] = var.dtype

    def _declare_buffer(self, buffer: Buffer) -> None:
        self._declare(buffer.name)
        check.known_dtype(buffer.dtype)
        for extent in buffer.shape:
            self._size(extent, f"the shape of {buffer.name}")
        for stride in buffer.strides:
            self._size(stride, f"the strides of {buffer.name}")
        if len(buffer.strides) not in (0, len(buffer.shape)):
            self.refuse(f"{buffer.name} has {len(buffer.strides)} strides")
        self._scope.buffers[buffer.name] = buffer

    def _view(self, buffer: Buffer) -> None:
        owner = self._scope.buffers.get(buffer.view_of)
        if owner is None or owner.view_of or owner.strides or owner.scope != buffer.scope:
            self.refuse(f"{buffer.name} cannot be a view of {buffer.view_of}")
        sizes = [_bits(owner), _bits(buffer)]
        if None not in sizes and sizes[0] != sizes[1]:
            self.refuse(f"{buffer.name} has {sizes[1]} bits, {owner.name} {sizes[0]}")
        if owner.name in self._read_only:
            self._read_only.add(buffer.name)

    def _size(self, expr: Expr, what: str) -> None:
        check.expr(self._scope, expr)
        if not is_integer(expr.dtype):
            self.refuse(f"{what} is {expr.dtype}, not an integer")
        if any(isinstance(part, Load) for part in walk_expr(expr)):
            self.refuse(f"{what} reads memory")
        if isinstance(expr, Const) and expr.value < 0:
            self.refuse(f"{what} is negative")

    def _tensor(self, param: Tensor) -> None:
        if param.buffer.scope != "global":
            self.refuse(f"parameter {param.buffer.name} is not in global memory")
        if param.buffer.view_of:
            self.refuse(f"parameter {param.buffer.name} is a view")
        self._declare_buffer(param.buffer)
        if param.role == "in":
            self._read_only.add(param.buffer.name)

    def _check_dims(self) -> None:
        tensors = [p for p in self._program.params if isinstance(p, Tensor)]
        parts = [part for t in tensors for extent in t.buffer.shape for part in walk_expr(extent)]
        known = {part.name for part in parts if isinstance(part, Var)}
        for var in self._program.dims:
            if var.name not in known:
                self.refuse(f"no parameter has {var.name} as one of its dimensions")

    # ---- statements -------------------------------------------------------------------------

    def body(self, body: Sequence[Stmt], loops: tuple[LoopKind | str, ...]) -> None:
        """Check statements inside ``loops``; what they declare ends with them."""
        variables = dict(self._scope.variables)
        for stmt in body:
            self._number += 1
            self._stmt = stmt
            self._statement(stmt, loops)
        self._scope.variables = variables

    def _statement(self, stmt: Stmt, loops: tuple[LoopKind | str, ...]) -> None:
        for region in read_regions(stmt):
            check.region(self._scope, region)
        written = written_region(stmt)
        if written is not None:
            check.region(self._scope, written)
            self._check_written(written.buffer)
        for expr in expressions(stmt):
            check.expr(self._scope, expr)
        match stmt:
            case Let():
                self._let(stmt)
            case Store() | Atomic():
                self._store(stmt)
            case Assert() | Await():
                self._condition(stmt.cond)
                if isinstance(stmt, Await) and "parallel" in loops:
                    self.refuse("iterations of a parallel loop do not wait for others")
            case Roles():
                self._roles(stmt, loops)
            case For():
                self._loop(stmt, loops)
            case If() | While():
                self._branch(stmt, loops)
            case Break():
                if not loops or loops[-1] not in _BREAKABLE:
                    self.refuse("break has no serial loop to leave")
            case Copy():
                check.same_box(stmt.src, stmt.dst)
            case Fill() | Print():
                pass
            case Gemm():
                check.gemm(self._scope, stmt)
            case Reduce():
                check.reduce(self._scope, stmt)
            case _:
                assert_never(stmt)

    def _check_written(self, buffer: str) -> None:
        if buffer in self._read_only:
            self.refuse(f"{buffer} is an `in` parameter, and it is written")

    def _let(self, stmt: Let) -> None:
        if stmt.value.dtype != stmt.var.dtype:
            self.refuse(f"{stmt.var.name} is {stmt.var.dtype}, its value {stmt.value.dtype}")
        self._declare_var(stmt.var, is_integer_only=False)

    def _store(self, stmt: Store | Atomic) -> None:
        buffer = check.element(self._scope, stmt.buffer, stmt.indices)
        if stmt.value.dtype != buffer.dtype:
            self.refuse(f"{buffer.name} holds {buffer.dtype}, the value is {stmt.value.dtype}")
        self._check_written(buffer.name)
        if isinstance(stmt, Atomic):
            check.atomic(stmt)
            if stmt.var is not None:
                self._declare_var(stmt.var, is_integer_only=False)

    def _loop(self, stmt: For, loops: tuple[LoopKind | str, ...]) -> None:
        for name, expr in (("start", stmt.start), ("extent", stmt.extent)):
            if expr.dtype != stmt.var.dtype:
                self.refuse(f"{stmt.var.name} is {stmt.var.dtype}, the {name} {expr.dtype}")
        if stmt.stages < 0 or (stmt.stages and stmt.kind != "pipelined"):
            self.refuse(f"a {stmt.kind} loop has {stmt.stages} stages")
        outside = dict(self._scope.variables)
        self._declare_var(stmt.var)
        self.body(stmt.body, (*loops, stmt.kind))
        self._scope.variables = outside

    def _condition(self, cond: Expr) -> None:
        if cond.dtype != "bool":
            self.refuse(f"the condition is {cond.dtype}, not bool")

    def _roles(self, stmt: Roles, loops: tuple[LoopKind | str, ...]) -> None:
        if loops:
            self.refuse("roles stand in no loop: each has loops of its own")
        if not stmt.bodies or not all(stmt.bodies):
            self.refuse("a role without a statement")
        for body in stmt.bodies:
            if any(isinstance(inner, Roles) for inner in walk(body)):
                self.refuse("roles within a role")
            self.body(body, loops)

    def _branch(self, stmt: If | While, loops: tuple[LoopKind | str, ...]) -> None:
        self._condition(stmt.cond)
        if isinstance(stmt, While):
            self.body(stmt.body, (*loops, "while"))
            return
        self.body(stmt.then, loops)
        self.body(stmt.orelse, loops)


def _bits(buffer: Buffer) -> int | None:
    """The size of a buffer; None where it is not constant."""
    check.known_dtype(buffer.dtype)
    bits = DTYPES[buffer.dtype].bits
    for extent in buffer.shape:
        if not isinstance(extent, Const):
            return None
        bits *= int(extent.value)
    return bits
