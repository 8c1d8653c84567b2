"""Reads the text of a Program: readable, canonical, and exact: ``read_program(print_program(p)) == p``.

It is a small part of Python's syntax, so that editors colour it and a comment starts with ``#``::

    def matmul(A: float32[m, 512], B: float32[512, 256], C: out.float32[m, 256]):
        m: dim
        bx: grid[2]
        by: grid[(m + 63) // 64]
        threads(128)
        A_shared: shared.float32[64, 32]
        B_shared: shared.float32[32, 128]
        C_local: fragment.float32[64, 128]

        fill(C_local, 0.0)
        for k in pipelined(16, stages=3):
            copy(A[by * 64 : +64, k * 32 : +32], A_shared)
            copy(B[k * 32 : +32, bx * 128 : +128], B_shared)
            gemm(A_shared, B_shared, C_local)
        for i, j in parallel(64, 128):
            C_local[i, j] = max(C_local[i, j], 0.0)
        copy(C_local, C[by * 64 : +64, bx * 128 : +128])

- Parameters are in the head: ``float32[m, 8]`` is an array that is read, ``out.`` and
  ``inout.`` one that is written, ``float32[m, 8] @ (s, 1)`` one with strides, and plain ``int32``
  a number. Then come the names of the shapes' variables (``dim``), the grid with ``blockIdx.x``
  first, the threads asked for, and the buffers (``shared``, ``fragment``, ``local``; ``memory`` for
  a workspace of all blocks; ``B: shared.int32[8] = A`` is ``A`` as another shape or dtype,
  ``T: shared.int32[8, 8] = layout(i0, i1 ^ i0)`` does not have its elements in rows, a fragment's
  layout also has each element's ``thread=`` and ``copies=``, and ``A = layout(i1, i0)`` is a
  parameter's); then the statements.
- A region is ``A[start : +extent, :, index]``: ``:`` is a whole dimension and a lone index has
  extent 1. A buffer's name alone is all of it.
- ``x = e`` binds, ``x[i, j] = e`` stores. Loops run over ``serial``, ``parallel``, ``unroll``,
  ``vectorized``, ``pipelined`` or ``blocks`` ``(extent, start=0, dtype=int32, stages=0)``;
  a pipelined one may have a schedule, ``order=(1, 0), stage=(0, 1), group=((0,), (1,))``.
- Tile operations are calls: first the regions and values, then the other fields by keyword.
- ``atomic_add(C[i], e)`` updates an element atomically, ``x = atomic_add(C[i], e)`` binds
  its old content too. ``print("x", e)`` writes a line, ``assert e, "why"`` ends the kernel if it fails.
- ``with roles:`` holds a ``with role(first, end):`` for each body that runs beside the others, with
  its range of threads; ``wait(e)`` passes control to them until ``e`` holds.
  ``role(first, end, registers=24)`` requests 24 registers.
- ``full: barrier[128, 1]`` declares two barriers: 128 arrivals end a phase of the first, one of
  the second. ``with issue("tma", full[0]):`` starts the operations in it. docs/design/async.md has
  all statements of this kind.
- ``float16(x)`` converts. ``a if c else b`` is ``select``. Operations without a symbol are calls.
- A number takes the type of its neighbour, of the element that it is stored to, or else
  ``int32`` or ``float32``. ``float16(0.5)`` states another type, and ``cast(1, float32)`` is a
  conversion of a number. Variables of the grid, of dims and of loops are ``int32`` unless declared as
  ``grid.int64[n]``, ``dim.int64``, ``serial(n, dtype=int64)``; ``x: int64 = e`` states the type of a
  binding that differs from its value's.
- ``typed(e, int64)`` states a type that breaks these rules; only Programs that are invalid need it.
"""

import ast
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, get_args

import msgspec

from tileyard.base.errors import InvalidProgramError
from tileyard.ir import syntax
from tileyard.ir.expr_reader import (
    SCOPES,
    ExprReader,
    annotated,
    fail,
    is_declaration,
    plain,
    plain_int,
    plain_text,
    prefix_of,
    read_dtype,
    require,
)
from tileyard.ir.nodes import (
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
    Issue,
    Layout,
    Let,
    Load,
    LoopKind,
    Param,
    Print,
    Program,
    Region,
    Roles,
    Scalar,
    Stmt,
    Store,
    Tensor,
    Unit,
    Var,
    While,
)

_SCHEDULE = {
    field.name: field.type
    for field in msgspec.structs.fields(For)
    if field.name in ("order", "stage", "group")
}
"""The schedule fields of a loop."""

_WORDS = ("dim", "grid", *SCOPES)


def read_program(text: str) -> Program:
    """The Program with this text. Raises InvalidProgramError with the line."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise InvalidProgramError(f"line {error.lineno}: {error.msg}") from None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise InvalidProgramError("the text of a Program is one `def`")
    return _Reader(tree.body[0]).program()


class _Reader:
    """Reads one Program; knows the types of all names before the current point."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self._tree = tree
        self._exprs = ExprReader()

    # ---- the head ---------------------------------------------------------------------------

    def program(self) -> Program:
        args = self._tree.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
            fail(self._tree, "a parameter is `name: type`")
        body = self._tree.body
        head = list(takewhile(is_declaration, body))
        for stmt in head:
            if isinstance(stmt, ast.AnnAssign) and prefix_of(stmt.annotation) not in _WORDS:
                fail(stmt, f"{ast.unparse(stmt)} declares neither a dim, a grid nor a buffer")
        dims = tuple(self._scalar(stmt, "dim") for stmt in annotated(head, "dim"))
        for arg in args.args:
            if isinstance(arg.annotation, ast.Name):
                self._exprs.scalars[arg.arg] = read_dtype(arg.annotation)
        params = tuple(self._param(arg) for arg in args.args)
        grid = tuple(self._axis(stmt) for stmt in annotated(head, "grid"))
        buffers = tuple(
            self._buffer(stmt.target, stmt.annotation, stmt.value)[0]
            for stmt in annotated(head, *SCOPES)
        )
        laid_out = {param.buffer.name: param for param in params if isinstance(param, Tensor)}
        for stmt in head:
            if isinstance(stmt, ast.Assign):
                self._lay_out(stmt, laid_out)
        return Program(
            name=self._tree.name,
            params=tuple(laid_out[p.buffer.name] if isinstance(p, Tensor) else p for p in params),
            dims=dims,
            grid=grid,
            threads=self._threads(head),
            buffers=buffers,
            body=self._body(body[len(head) :]),
        )

    def _scalar(self, stmt: ast.AnnAssign, word: str) -> Var:
        """A variable declared as ``word`` or ``word.dtype``."""
        note = stmt.annotation
        if isinstance(note, ast.Subscript):
            note = note.value
        dtype = "int32" if isinstance(note, ast.Name) else read_dtype(note)
        if not isinstance(stmt.target, ast.Name):
            fail(stmt, f"`{word}` declares one name")
        return self._bind(stmt.target.id, dtype)

    def _axis(self, stmt: ast.AnnAssign) -> Axis:
        if not isinstance(stmt.annotation, ast.Subscript):
            fail(stmt, "a dimension of the grid is `name: grid[extent]`")
        var = self._scalar(stmt, "grid")
        return Axis(var, self._exprs.read(stmt.annotation.slice, var.dtype))

    def _threads(self, head: Sequence[ast.stmt]) -> tuple[int, ...]:
        for stmt in head:
            if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
                return tuple(plain_int(arg) for arg in stmt.value.args)
        return ()

    def _param(self, arg: ast.arg) -> Param:
        if arg.annotation is None:
            fail(arg, f"{arg.arg} has no type")
        if isinstance(arg.annotation, ast.Name):
            return Scalar(Var(arg.arg, self._exprs.scalars[arg.arg]))
        buffer, role = self._buffer(ast.Name(arg.arg), arg.annotation)
        require(arg, role not in SCOPES, f"{role} is not a role")
        return Tensor(buffer, role)  # type: ignore[arg-type]

    def _buffer(
        self, target: ast.expr, note: ast.expr, owner: ast.expr | None = None
    ) -> tuple[Buffer, str]:
        """The storage that ``note`` describes, with its role: ``in`` if none is written."""
        strides: tuple[Expr, ...] = ()
        if isinstance(note, ast.BinOp) and isinstance(note.op, ast.MatMult):
            strides = self._exprs.read_all(note.right)
            note = note.left
        if not isinstance(note, ast.Subscript) or not isinstance(target, ast.Name):
            fail(note, "storage is `name: scope.dtype[shape]`")
        if prefix_of(note) == "barrier":
            return self._barriers(target.id, note.slice), "barrier"
        kind, prefix = note.value, ""
        if isinstance(kind, ast.Attribute) and isinstance(kind.value, ast.Name):
            prefix = kind.value.id
        if prefix not in ("", "out", "inout", *SCOPES):
            fail(note, f"{prefix} is neither a role nor a scope")
        layout = None
        if isinstance(owner, ast.Call):
            layout, owner = self._layout(owner, len(self._exprs.read_all(note.slice))), None
        buffer = Buffer(
            name=target.id,
            dtype=read_dtype(kind),
            shape=self._exprs.read_all(note.slice),
            scope=prefix if prefix in SCOPES[1:] else "global",  # type: ignore[arg-type]
            strides=strides,
            view_of=self._exprs.known_buffer(owner).name if owner is not None else "",
            layout=layout,
        )
        self._exprs.buffers[target.id] = buffer
        return buffer, prefix or "in"

    def _lay_out(self, stmt: ast.Assign, among: dict[str, Tensor]) -> None:
        name = ast.unparse(stmt.targets[0])
        require(
            stmt,
            name in among,
            f"{name} is not a parameter, and has its layout where it is declared",
        )
        buffer = among[name].buffer
        layout = self._layout(stmt.value, len(buffer.shape))  # type: ignore[arg-type]  # a head has no others
        among[name] = Tensor(msgspec.structs.replace(buffer, layout=layout), among[name].role)

    def _layout(self, call: ast.Call, rank: int) -> Layout:
        words = {word.arg: word.value for word in call.keywords}
        is_one = isinstance(call.func, ast.Name) and call.func.id == "layout"
        is_known = is_one and words.keys() <= {"thread", "copies"}
        require(call, is_known, f"{ast.unparse(call)} is neither a buffer nor a layout")
        outside = self._exprs.scalars
        names = syntax.layout_indices(rank)
        self._exprs.scalars = {**outside, **dict.fromkeys(names, "int32")}
        layout = Layout(
            place=tuple(map(self._exprs.read, call.args)),
            thread=self._exprs.read(words["thread"]) if "thread" in words else None,
            copies=plain_int(words["copies"]) if "copies" in words else 1,
        )
        self._exprs.scalars = outside
        return layout

    def _barriers(self, name: str, arrivals: ast.expr) -> Buffer:
        counts = arrivals.elts if isinstance(arrivals, ast.Tuple) else [arrivals]
        size = (Const(len(counts), "int32"),)
        buffer = Buffer(name, "int32", size, "barrier", arrivals=tuple(map(plain_int, counts)))
        self._exprs.buffers[name] = buffer
        return buffer

    # ---- statements -------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> tuple[Stmt, ...]:
        return tuple(self._stmt(stmt) for stmt in body if not isinstance(stmt, ast.Pass))

    def _stmt(self, stmt: ast.stmt) -> Stmt:  # noqa: RET503 (fail never returns)
        match stmt:
            case ast.Assign(targets=[ast.Subscript() as target]):
                return self._store(target, stmt.value)
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=kind)) as call
            ) if kind in syntax.ATOMICS:
                return self._atomic(kind, call, name, None)
            case ast.AnnAssign(
                target=ast.Name(id=name), value=ast.Call(func=ast.Name(id=kind)) as call
            ) if kind in syntax.ATOMICS:
                return self._atomic(kind, call, name, read_dtype(stmt.annotation))
            case ast.Expr(value=ast.Call(func=ast.Name(id=kind)) as call) if kind in syntax.ATOMICS:
                return self._atomic(kind, call, None, None)
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[message, *values])):
                return Print(plain_text(message), tuple(map(self._exprs.read, values)))
            case ast.Assert(test=test, msg=message):
                return Assert(
                    self._exprs.read(test), "" if message is None else plain_text(message)
                )
            case ast.Assign(targets=[ast.Name(id=name)]):
                return self._let(name, self._exprs.read(stmt.value), None)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                return self._let(name, self._exprs.read(value), read_dtype(stmt.annotation))
            case ast.For(target=target, iter=ast.Call(func=ast.Name(id=kind)) as call) if (
                kind in get_args(LoopKind)
            ):
                return self._loop(stmt, target, kind, call)
            case ast.If():
                return If(
                    self._exprs.read(stmt.test), self._body(stmt.body), self._body(stmt.orelse)
                )
            case ast.While():
                return While(self._exprs.read(stmt.test), self._body(stmt.body))
            case ast.Break():
                return Break()
            case ast.With(items=[ast.withitem(context_expr=ast.Name(id="roles"))]):
                return self._roles(stmt)
            case ast.With(items=[ast.withitem(ast.Call(ast.Name(id="issue"), args=args))]):
                return self._issue(stmt, args)
            case ast.Expr(value=ast.Call(func=ast.Name(id="wait"), args=[cond, *said])) if (
                len(said) < 2
            ):
                return Await(self._exprs.read(cond), *map(plain_text, said))
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if (
                name in syntax.STATEMENTS
            ):
                return self._call(name, call)
            case _:
                fail(stmt, f"{ast.unparse(stmt).splitlines()[0]} is not a statement")

    def _roles(self, stmt: ast.With) -> Roles:
        found = [self._role(role) for role in stmt.body]
        threads = tuple(role.threads[0] for role in found)
        registers = tuple(role.registers[0] for role in found)
        bodies = tuple(role.bodies[0] for role in found)
        return Roles(bodies, threads if any(threads) else (), registers if any(registers) else ())

    def _role(self, stmt: ast.stmt) -> Roles:  # noqa: RET503 (fail never returns)
        match stmt:
            case ast.With(items=[ast.withitem(context_expr=ast.Name(id="role"))], body=body):
                return Roles((self._body(body),), ((),), (0,))
            case ast.With(
                items=[ast.withitem(ast.Call(ast.Name(id="role"), args, words))], body=body
            ):
                bounds = [plain_int(arg) for arg in args]
                require(stmt, len(bounds) % 2 == 0, "a role has ranges of threads")
                counts = {word.arg: plain_int(word.value) for word in words}
                registers = counts.pop("registers", 0)
                require(stmt, not counts, f"a role has no {', '.join(map(str, counts))}")
                ranges = tuple(zip(bounds[::2], bounds[1::2], strict=True))
                return Roles((self._body(body),), (ranges,), (registers,))
            case _:
                fail(stmt, "`with roles:` contains `with role:`")

    def _issue(self, stmt: ast.With, args: list[ast.expr]) -> Issue:
        if not 1 <= len(args) <= 2:
            fail(stmt, "issue takes a unit and a barrier")
        name = plain_text(args[0])
        require(args[0], name in get_args(Unit), f"{name} carries out nothing asynchronous")
        barrier = self._place(args[1]) if args[1:] else None
        return Issue(name, self._body(stmt.body), barrier)  # type: ignore[arg-type]

    def _place(self, node: ast.expr) -> Load:  # noqa: RET503 (fail never returns)
        match self._exprs.read(node):
            case Load() as place:
                return place
            case _:
                fail(node, f"{ast.unparse(node)} is not an element of a buffer")

    def _let(self, name: str, value: Expr, dtype: str | None) -> Let:
        return Let(self._bind(name, dtype or value.dtype), value)

    def _bind(self, name: str, dtype: str) -> Var:
        self._exprs.scalars[name] = dtype
        return Var(name, dtype)

    def _store(self, target: ast.Subscript, value: ast.expr) -> Store:
        buffer = self._exprs.known_buffer(target.value)
        indices = self._exprs.read_all(target.slice)
        return Store(buffer.name, indices, self._exprs.read(value, buffer.dtype))

    def _atomic(self, kind: str, call: ast.Call, name: str | None, dtype: str | None) -> Atomic:
        match call.args:
            case [ast.Subscript() as target, value] if not call.keywords:
                buffer = self._exprs.known_buffer(target.value)
            case _:
                fail(call, f"{kind} takes an element and a value")
        indices = self._exprs.read_all(target.slice)
        read = self._exprs.read(value, buffer.dtype)
        var = None if name is None else self._bind(name, dtype or buffer.dtype)
        return Atomic(buffer.name, indices, read, syntax.ATOMICS[kind], var)

    def _loop(self, stmt: ast.For, target: ast.expr, kind: str, call: ast.Call) -> For:
        names = [
            part.id if isinstance(part, ast.Name) else fail(stmt, "a loop runs over names")
            for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        if len(names) != len(call.args):
            fail(stmt, f"{len(names)} variables and {len(call.args)} extents")
        words = {word.arg or "": word.value for word in call.keywords}
        dtype = read_dtype(words.pop("dtype")) if "dtype" in words else "int32"
        zero = Const(0, dtype)
        start = self._exprs.read(words.pop("start"), dtype) if "start" in words else zero
        stages = plain_int(words.pop("stages")) if "stages" in words else 0
        schedule = {
            word: self._numbers(words.pop(word), kind)
            for word, kind in _SCHEDULE.items()
            if word in words
        }
        require(stmt, not words, f"a loop has no {', '.join(words)}")
        extents = [self._exprs.read(arg, dtype) for arg in call.args]
        self._exprs.scalars.update(dict.fromkeys(names, dtype))
        body = self._body(stmt.body)
        for name, extent in zip(reversed(names), reversed(extents), strict=True):
            loop = For(Var(name, dtype), start, extent, kind, body, stages, **schedule)  # type: ignore[arg-type]
            body = (loop,)
        return loop

    def _numbers(self, node: ast.expr, kind: object) -> Any:  # noqa: ANN401 (what ``kind`` says)
        """Numbers in parentheses, in the number and depth of ``kind``."""
        try:
            return msgspec.convert(plain(node), kind)
        except msgspec.ValidationError as error:
            fail(node, f"{ast.unparse(node)}: {error}")

    def _call(self, name: str, call: ast.Call) -> Stmt:
        fields = syntax.FIELDS[name]
        by_position = [field for field in fields if field.type in syntax.OPERANDS]
        if len(call.args) != len(by_position):
            wanted = ", ".join(field.name for field in by_position)
            fail(call, f"{name} takes {wanted}")
        values: dict[str, object] = {}
        hint = None
        for field, arg in zip(by_position, call.args, strict=True):
            if field.type is Load:
                values[field.name] = self._place(arg)
                continue
            if field.type is not Region:
                values[field.name] = self._exprs.read(arg, hint)
                continue
            region = self._exprs.region(arg)
            hint = hint or self._exprs.buffers[region.buffer].dtype
            values[field.name] = region
        types = {field.name: field.type for field in fields if field not in by_position}
        for word in call.keywords:
            if word.arg not in types:
                fail(call, f"{name} has no {word.arg}")
            try:
                values[word.arg] = msgspec.convert(plain(word.value), types[word.arg])
            except msgspec.ValidationError as error:
                fail(call, f"{name}, {word.arg}: {error}")
        try:
            node: Stmt = syntax.STATEMENTS[name](**values)
        except TypeError as error:
            fail(call, f"{name}: {error}")
        return node
