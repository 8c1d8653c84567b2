"""A Program's numbers: evaluates to NumPy scalars, binds dimensions, describes arrays, counts work."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

import numpy as np

from tileyard.base.errors import BindError, KernelFault, UsageError
from tileyard.base.model import TensorSpec, Value
from tileyard.base.wording import count_of
from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype, is_float
from tileyard.ir.meanings import MEANINGS, convert_one
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Axis,
    Break,
    Cast,
    Const,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Op,
    Print,
    Product,
    Program,
    Roles,
    Scalar,
    Stmt,
    Store,
    Synchronization,
    Tensor,
    TileOperation,
    Var,
    While,
)
from tileyard.ir.walk import walk, walk_expr

LoadElement = Callable[[str, tuple[int, ...]], np.generic]


def literal(const: Const) -> Any:  # noqa: ANN401 (a NumPy scalar)
    """The value of ``const`` in its dtype: rounded once if it is a float."""
    dtype = find_dtype(const.dtype)
    if dtype.is_float and math.isinf(const.value) and const.dtype == "float8_e5m2":
        return np.asarray(const.value).astype(dtype.numpy)[()]  # a conversion would saturate
    if dtype.is_float:
        return convert_one(np.float64(const.value), const.dtype)
    return dtype.numpy.type(const.value)


Thunk = Callable[[], Any]


class Evaluator:
    """Evaluates with the ``values`` of variables; ``load`` returns the elements of buffers. Loops
    evaluate the same expressions many times, so each node is made a function once.
    """

    def __init__(self, values: Mapping[str, np.generic], load: LoadElement) -> None:
        self._values = values
        self._load = load
        self._known: dict[int, tuple[Expr, Thunk]] = {}

    def value(self, expr: Expr) -> Any:  # noqa: ANN401 (a NumPy scalar of the expression's dtype)
        """The value of ``expr``, a NumPy scalar of its dtype. May raise KernelFault."""
        return self._thunk(expr)()

    def number(self, expr: Expr) -> int:
        """The value of an integer expression."""
        return int(self.value(expr))

    def indices(self, exprs: tuple[Expr, ...]) -> tuple[int, ...]:
        """The values of integer expressions."""
        return tuple(int(self.value(expr)) for expr in exprs)

    def _thunk(self, expr: Expr) -> Thunk:
        """The function that evaluates ``expr``. The node is kept so that its identity is not reused."""
        known = self._known.get(id(expr))
        if known is None:
            known = self._known[id(expr)] = (expr, self._make_thunk(expr))
        return known[1]

    def _make_thunk(self, expr: Expr) -> Thunk:
        match expr:
            case Var(name=name):
                values = self._values
                return lambda: values[name]
            case Const():
                number = literal(expr)
                return lambda: number
            case Load(buffer=buffer):
                load, places = self._load, [self._thunk(index) for index in expr.indices]
                return lambda: load(buffer, tuple([int(place()) for place in places]))
            case Cast(dtype=dtype):
                inner = self._thunk(expr.value)
                return lambda: convert_one(inner(), dtype)
            case Op():
                return self._make_op(expr)
            case _:
                assert_never(expr)

    def _make_op(self, op: Op) -> Thunk:
        args = [self._thunk(arg) for arg in op.args]
        match op.name:
            case "select":
                return lambda: args[1]() if args[0]() else args[2]()
            case "and":
                return lambda: np.bool_(args[0]() and args[1]())
            case "or":
                return lambda: np.bool_(args[0]() or args[1]())
            case "nan":
                number = convert_one(np.float32(np.nan), op.dtype)
                return lambda: number
            case "reinterpret":
                numpy = find_dtype(op.dtype).numpy
                return lambda: np.asarray(args[0]()).reshape(1).view(numpy)[0]
            case name:
                meaning = MEANINGS[name]
                if op.dtype == TENSOR_FLOAT:
                    return lambda: convert_one(meaning(*[arg() for arg in args]), TENSOR_FLOAT)
                if len(args) == 2:
                    left, right = args
                    return lambda: meaning(left(), right())
                return lambda: meaning(*[arg() for arg in args])


def no_loads(buffer: str, _: tuple[int, ...]) -> np.generic:
    """A ``LoadElement`` for contexts in which buffers cannot be read, such as shapes."""
    raise KernelFault(f"{buffer} is read where only numbers can be")


def tensors(program: Program) -> tuple[Tensor, ...]:
    """The tensor parameters in calling order."""
    return tuple(param for param in program.params if isinstance(param, Tensor))


def scalar_params(program: Program) -> tuple[Var, ...]:
    """The scalar parameters in calling order."""
    return tuple(param.var for param in program.params if isinstance(param, Scalar))


def tensor_specs(program: Program, dims: Mapping[str, int]) -> tuple[TensorSpec, ...]:
    """The tensor parameters with concrete shapes, in calling order. ``dims`` maps dimensions and
    scalar parameters in shapes by name; UsageError names a missing one.
    """
    return tuple(
        TensorSpec(
            name=tensor.buffer.name,
            dtype=tensor.buffer.dtype,
            shape=_shape(program, tensor, dims),
            role=tensor.role,
        )
        for tensor in tensors(program)
    )


def _shape(program: Program, tensor: Tensor, dims: Mapping[str, int]) -> tuple[int, ...]:
    for extent in tensor.buffer.shape:
        for part in walk_expr(extent):
            if isinstance(part, Var) and part.name not in dims:
                raise UsageError(
                    f"{program.name}: dimension {part.name} of {tensor.buffer.name} has no value",
                    hint=f"give {part.name}=...",
                )
    return tuple(evaluate_size(extent, dims) for extent in tensor.buffer.shape)


def evaluate_size(expr: Expr, numbers: Mapping[str, Value]) -> int:
    """The value of an integer expression whose variables are all in ``numbers``."""
    dtypes = {part.name: part.dtype for part in walk_expr(expr) if isinstance(part, Var)}
    values = {name: convert_scalar(numbers[name], dtype) for name, dtype in dtypes.items()}
    return Evaluator(values, no_loads).number(expr)


def convert_scalar(value: Value, dtype: str) -> Any:  # noqa: ANN401 (a NumPy scalar)
    """A scalar argument in its parameter's dtype. Raises BindError if it is out of range."""
    kind = find_dtype(dtype)
    if isinstance(value, str) or (isinstance(value, float) and not kind.is_float):
        raise BindError(f"{value!r} is not {dtype}")
    if kind.is_float:
        return convert_one(np.float64(value), dtype)
    try:
        return kind.numpy.type(value)
    except OverflowError:
        raise BindError(f"{value} is out of the range of {dtype}") from None


def bind_dims(
    program: Program, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value] = ()
) -> dict[str, int]:
    """The dimensions, by name, that arrays of these shapes imply; integer ``scalars`` are included.
    ``shapes`` are those of all tensors in calling order, or of the ``in`` and ``inout`` ones.
    Raises BindError if they do not fit, UsageError for a dimension that none fixes.
    """
    chosen = tensors(program)
    if len(shapes) != len(chosen):
        chosen = tuple(tensor for tensor in chosen if tensor.role != "out")
    if len(shapes) != len(chosen):
        raise BindError(f"{program.name} takes {count_of(len(chosen), 'array')}, not {len(shapes)}")
    bound = _bind_scalars(program, scalars)
    for tensor, shape in zip(chosen, shapes, strict=True):
        _bind_shape(tensor, shape, bound, {var.name for var in program.dims})
    for var in program.dims:
        if var.name not in bound:
            raise UsageError(
                f"{program.name}: no array that is read fixes dimension {var.name}",
                hint=f"give {var.name}=...",
            )
    for tensor, shape in zip(chosen, shapes, strict=True):
        want = tuple(evaluate_size(extent, bound) for extent in tensor.buffer.shape)
        if want != shape:
            raise BindError(f"{tensor.buffer.name} has shape {want}, the array {shape}")
    return bound


def _bind_scalars(program: Program, scalars: Sequence[Value]) -> dict[str, int]:
    params = scalar_params(program)
    if len(scalars) not in (0, len(params)):
        raise BindError(
            f"{program.name} takes {count_of(len(params), 'scalar')}, not {len(scalars)}"
        )
    return {
        var.name: int(value)
        for var, value in zip(params, scalars, strict=False)
        if not isinstance(value, float | str)
    }


def _bind_shape(
    tensor: Tensor, shape: tuple[int, ...], bound: dict[str, int], dims: set[str]
) -> None:
    buffer = tensor.buffer
    if len(shape) != len(buffer.shape):
        dimensions = count_of(len(buffer.shape), "dimension")
        raise BindError(f"{buffer.name} has {dimensions}, the array {len(shape)}")
    for extent, size in zip(buffer.shape, shape, strict=True):
        names = {part.name for part in walk_expr(extent) if isinstance(part, Var)} - bound.keys()
        if len(names) == 1 and names <= dims:
            (name,) = names
            value = _solve(extent, name, size, bound)
            if value is not None:
                bound[name] = value


def _solve(extent: Expr, name: str, size: int, bound: Mapping[str, int]) -> int | None:
    """The value of ``name`` for which ``extent``, linear in it, is ``size``; None if there is none."""
    base = evaluate_size(extent, {**bound, name: 0})
    step = evaluate_size(extent, {**bound, name: 1}) - base
    return (size - base) // step if step and (size - base) % step == 0 else None


_MOST_BLOCKS = 4096
"""Largest number of different blocks examined if blocks differ in their work."""


class _Unknown(Exception):
    """The work depends on data, or on too many other values."""


def count_gemm_flops(program: Program, dims: Mapping[str, int]) -> float:
    """``2 m n k`` of every gemm (a sparse one's stored part of k) times its runs; 0.0 if it depends
    on data. ``dims`` has dimensions and scalar parameters by name. Blocks may differ in their work.
    """
    try:
        return float(_count_blocks(program, dict(dims)))
    except _Unknown:
        return 0.0


def _count_blocks(program: Program, numbers: dict[str, int]) -> int:
    extents = {axis.var.name: _known(axis.extent, numbers) for axis in program.grid}
    matter = _axes_that_matter(program)
    alike = math.prod(extent for name, extent in extents.items() if name not in matter)
    different = [range(extents[axis.var.name]) for axis in matter.values()]
    if math.prod(map(len, different)) > _MOST_BLOCKS:
        raise _Unknown
    total = 0
    for block in itertools.product(*different):
        total += _count(program.body, {**numbers, **dict(zip(matter, block, strict=True))})
    return alike * total


def _axes_that_matter(program: Program) -> dict[str, Axis]:
    """The dimensions of the grid that determine the trip count of a loop around a gemm."""
    used: set[str] = set()
    bound: dict[str, Expr] = {}
    for stmt in walk(program.body):
        match stmt:
            case Let():
                bound[stmt.var.name] = stmt.value
            case For() if _has_gemm(stmt):
                used |= variables_in(stmt.extent)
            case If() if _has_gemm(stmt):
                used |= variables_in(stmt.cond)
            case _:
                pass
    for name in reversed(list(bound)):
        if name in used:
            used |= variables_in(bound[name])
    return {axis.var.name: axis for axis in program.grid if axis.var.name in used}


def variables_in(expr: Expr) -> set[str]:
    """The names of the variables in an expression."""
    return {part.name for part in walk_expr(expr) if isinstance(part, Var)}


def _has_gemm(stmt: Stmt) -> bool:
    return any(isinstance(inner, Product) for inner in walk((stmt,)))


def _known(expr: Expr, numbers: Mapping[str, int]) -> int:
    """The value of ``expr``; raises _Unknown unless it depends only on ``numbers``."""
    try:
        return evaluate_size(expr, numbers)
    except (KernelFault, KeyError):
        raise _Unknown from None


def _count(body: tuple[Stmt, ...], numbers: dict[str, int]) -> int:
    total = 0
    for stmt in body:
        if isinstance(stmt, Let) and not is_float(stmt.var.dtype):
            with suppress(_Unknown):
                numbers = {**numbers, stmt.var.name: _known(stmt.value, numbers)}
        elif _has_gemm(stmt):
            total += _count_one(stmt, numbers)
    return total


def _count_one(stmt: Stmt, numbers: dict[str, int]) -> int:
    match stmt:
        case _ if isinstance(stmt, Product):
            inner = stmt.a.extents[-2 if stmt.transpose_a else -1]
            m, n, k = (_known(extent, numbers) for extent in (*stmt.c.extents[-2:], inner))
            return 2 * m * n * k
        case For():
            return max(_known(stmt.extent, numbers), 0) * _count(stmt.body, numbers)
        case If():
            return _count(stmt.then if _known(stmt.cond, numbers) else stmt.orelse, numbers)
        case Roles():
            return sum(_count(body, numbers) for body in stmt.bodies)
        case Issue():
            return _count(stmt.body, numbers)
        case While():
            raise _Unknown
        case Let() | Store() | Atomic() | Print() | Assert() | Break() | Await():
            return 0
        case TileOperation() | Synchronization():
            return 0
        case _:
            assert_never(stmt)
