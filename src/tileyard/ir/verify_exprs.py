"""The verifier's rules for expressions, regions and single statements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, assert_never

from tileyard.ir.dtypes import DTYPES, TENSOR_FLOAT, DType, is_float, is_integer, sparse_group
from tileyard.ir.meanings import explain_misuse
from tileyard.ir.nodes import (
    AnyTileOperation,
    Arrive,
    Atomic,
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    InitBarrier,
    Issue,
    Load,
    Op,
    Product,
    Reduce,
    Region,
    SparseGemm,
    Store,
    Sync,
    Synchronization,
    Var,
    WaitBarrier,
    WaitGroup,
)
from tileyard.ir.syntax import describe_outside, layout_indices
from tileyard.ir.walk import regions, walk

_MATRIX = 2


class Broken(Exception):
    """A rule is broken; the verifier knows the statement."""


class Outside(Broken):
    """A region is certainly outside its tile."""


def refuse(reason: str) -> NoReturn:
    """Raise Broken with this reason."""
    raise Broken(reason)


def require(holds: bool, reason: str) -> None:
    """Raise Broken with this reason unless ``holds``."""
    if not holds:
        raise Broken(reason)


@dataclass
class Scope:
    """The declarations at the verifier's position: dtypes of variables, and buffers."""

    variables: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)


def known_dtype(name: str) -> DType:
    """The scalar type called ``name``."""
    return DTYPES[name] if name in DTYPES else refuse(f"{name} is not a scalar type")


def expr(scope: Scope, node: Expr) -> None:
    """Check ``node`` and all its parts."""
    match node:
        case Var():
            known = scope.variables.get(node.name)
            require(known is not None, f"{node.name} is used before it is bound")
            require(known == node.dtype, f"{node.name} is {known}, and is read as {node.dtype}")
        case Const():
            _const(node)
        case Load():
            buffer = element(scope, node.buffer, node.indices)
            is_same = node.dtype == buffer.dtype
            require(is_same, f"{buffer.name} holds {buffer.dtype}, and is read as {node.dtype}")
        case Cast():
            known_dtype(node.dtype)
            expr(scope, node.value)
        case Op():
            for arg in node.args:
                expr(scope, arg)
            known_dtype(node.dtype)
            reason = explain_misuse(node)
            require(not reason, reason)
        case _:
            assert_never(node)


def _const(node: Const) -> None:
    dtype = known_dtype(node.dtype)
    value = node.value
    if dtype.is_float:
        legal = not math.isnan(value)
    elif dtype.is_integer:
        least, greatest = dtype.range
        legal = not isinstance(value, float) and least <= value <= greatest
    else:
        legal = isinstance(value, bool)
    require(legal, f"{value!r} is not a value of {node.dtype}")


def element(scope: Scope, name: str, indices: Sequence[Expr]) -> Buffer:
    """Check one element's indices; returns its buffer."""
    buffer = _known(scope, name)
    rank = len(buffer.shape)
    require(len(indices) == rank, f"{name} has {rank} dimensions, not {len(indices)}")
    for index in indices:
        integer(scope, index, f"an index of {name}")
    return buffer


def _known(scope: Scope, name: str) -> Buffer:
    return scope.buffers[name] if name in scope.buffers else refuse(f"{name} is not a buffer")


def integer(scope: Scope, node: Expr, what: str) -> None:
    """Check an expression that must be an integer."""
    expr(scope, node)
    require(is_integer(node.dtype), f"{what} is {node.dtype}, not an integer")


def region(scope: Scope, node: Region) -> None:
    """Check a region's rank and types, and that it is inside a tile as far as it is constant."""
    buffer = _known(scope, node.buffer)
    rank = len(buffer.shape)
    is_whole = len(node.starts) == len(node.extents) == rank
    require(is_whole, f"{node.buffer} has {rank} dimensions, not {len(node.extents)}")
    starts, extents, shape = (
        [int(one.value) if isinstance(one, Const) else None for one in part]
        for part in (node.starts, node.extents, buffer.shape)
    )
    for start, extent in zip(node.starts, node.extents, strict=True):
        integer(scope, start, f"a start in {node.buffer}")
        integer(scope, extent, f"an extent in {node.buffer}")
        if isinstance(extent, Const):
            require(extent.value >= 0, f"an extent in {node.buffer} is {extent.value}")
    for begin, count, size in zip(starts, extents, shape, strict=True):
        if count is None or size is None or buffer.scope == "global":
            continue
        if not 0 <= (begin or 0) <= size - count:
            raise Outside(describe_outside(node.buffer, starts, extents, shape))


def is_one(extent: Expr) -> bool:
    """Whether an extent is the number 1."""
    return isinstance(extent, Const) and extent.value == 1


def without_ones(extents: Sequence[Expr]) -> list[Expr]:
    """The extents that matter when boxes are matched."""
    return [extent for extent in extents if not is_one(extent)]


def _same(left: Sequence[Expr], right: Sequence[Expr]) -> bool:
    return len(left) == len(right) and all(map(_same_extent, left, right))


def _same_extent(left: Expr, right: Expr) -> bool:
    if isinstance(left, Const) and isinstance(right, Const):
        return left.value == right.value
    return left == right


def operation(scope: Scope, stmt: AnyTileOperation) -> None:
    """Check the shapes and types of a tile operation, whose regions are legal."""
    match stmt:
        case Copy():
            _same_box(stmt.src, stmt.dst)
        case Fill():
            pass
        case Gemm() | SparseGemm():
            _gemm(scope, stmt)
        case Reduce():
            _reduce(scope, stmt)
        case _:
            assert_never(stmt)


def _same_box(src: Region, dst: Region) -> None:
    """Check that two boxes can be matched element by element."""
    require(
        _same(without_ones(src.extents), without_ones(dst.extents)),
        f"the extents of {src.buffer} and {dst.buffer} are not seen to match",
    )


def _gemm(scope: Scope, stmt: Product) -> None:
    for operand in regions(stmt):
        require(len(operand.extents) >= _MATRIX, f"{operand.buffer} is not a matrix")
        require(
            not without_ones(operand.extents[:-_MATRIX]),
            f"{operand.buffer} has more than two dimensions that are not 1",
        )
    a, b, c = (operand.extents[-_MATRIX:] for operand in (stmt.a, stmt.b, stmt.c))
    m, k = reversed(a) if stmt.transpose_a else a
    if isinstance(stmt, SparseGemm):
        k = _sparse_k(scope, stmt, m, k)
    k_b, n = reversed(b) if stmt.transpose_b else b
    for name, left, right in (("m", m, c[0]), ("n", n, c[1]), ("k", k, k_b)):
        require(_same_extent(left, right), f"gemm's operands differ in {name}")
    dtypes = [scope.buffers[operand.buffer].dtype for operand in (stmt.a, stmt.b, stmt.c)]
    is_alike = all(map(is_float, dtypes)) or all(map(is_integer, dtypes))
    is_taken = is_alike and dtypes[-1] != TENSOR_FLOAT
    require(is_taken, f"gemm does not take {', '.join(dtypes)}")


def _sparse_k(scope: Scope, stmt: SparseGemm, m: Expr, half: Expr) -> Expr:
    """The length of the rows of a sparse matrix, after a check that the positions of its elements fit it."""
    e = stmt.e.extents[-_MATRIX:]
    dtype = known_dtype(scope.buffers[stmt.e.buffer].dtype)
    require(is_integer(dtype.name), f"gemm_sp finds elements by {dtype.name}")
    e_m, words = reversed(e) if stmt.transpose_e else e
    require(_same_extent(m, e_m), "gemm_sp's a and e differ in m")
    if not isinstance(half, Const) or not isinstance(words, Const):
        refuse("gemm_sp of a size that is not constant")
    found = int(words.value) * (dtype.bits // 4) * sparse_group(scope.buffers[stmt.a.buffer].dtype)
    size = 2 * int(half.value)
    require(found == size, f"gemm_sp's e is for rows of {found}, those of a are {size}")
    return Const(size, half.dtype)


def atomic(stmt: Atomic) -> None:
    """Check the type of an atomic update, whose value has its buffer's type."""
    dtype = DTYPES[stmt.value.dtype]
    is_taken = _can_fold(dtype, is_bitwise=stmt.kind in ("and", "or", "xor"))
    require(is_taken, f"atomic {stmt.kind} does not take {dtype.name}")
    if stmt.var is not None and stmt.var.dtype != dtype.name:
        refuse(f"{stmt.var.name} is {stmt.var.dtype}, {stmt.buffer} holds {dtype.name}")


def _reduce(scope: Scope, stmt: Reduce) -> None:
    rank = len(stmt.src.extents)
    require(
        0 <= stmt.axis < rank, f"axis {stmt.axis} is not one of the {rank} of {stmt.src.buffer}"
    )
    rest = [*stmt.src.extents[: stmt.axis], *stmt.src.extents[stmt.axis + 1 :]]
    require(
        _same(without_ones(rest), without_ones(stmt.dst.extents)),
        f"the extents of {stmt.dst.buffer} are not those of {stmt.src.buffer} without one axis",
    )
    dtype = DTYPES[scope.buffers[stmt.dst.buffer].dtype]
    is_given = _can_fold(dtype, is_bitwise=stmt.kind in ("bitand", "bitor", "bitxor"))
    require(is_given, f"reduce {stmt.kind} does not give {dtype.name}")


def _can_fold(dtype: DType, *, is_bitwise: bool) -> bool:
    is_fit = not dtype.is_float if is_bitwise else dtype.kind != "bool"
    return is_fit and dtype.name != TENSOR_FLOAT


def layout(buffer: Buffer) -> None:
    """Check the layout of a buffer."""
    found = buffer.layout
    if found is None:
        return
    is_own = not buffer.view_of and buffer.scope != "barrier"
    require(is_own, f"{buffer.name} has no elements of its own that a layout could place")
    is_told = (found.thread is not None) == (buffer.scope == "fragment")
    require(is_told, f"the layout of a fragment, and of nothing else, says threads: {buffer.name}")
    require(bool(found.place) and found.copies > 0, f"the layout of {buffer.name} has no place")
    names = layout_indices(len(buffer.shape))
    known = Scope(dict.fromkeys(names if found.copies > 1 else names[:-1], "int32"))
    for part in (*found.place, *((found.thread,) if found.thread is not None else ())):
        integer(known, part, f"the layout of {buffer.name}")


def schedule(stmt: For) -> None:
    """Check the schedule of a loop."""
    is_given = bool(stmt.order or stmt.stage or stmt.group)
    require(not is_given or stmt.kind == "pipelined", f"a {stmt.kind} loop has a schedule")
    places, lags = len(stmt.order), len(stmt.stage)
    require(
        places == lags, f"a schedule has the places of {places} statements and the stages of {lags}"
    )
    require(
        sorted(stmt.order) == list(range(places)),
        f"{stmt.order} is not an order of {places} statements",
    )
    require(all(lag >= 0 for lag in stmt.stage), f"{stmt.stage} has a stage before the first")
    grouped = [number for group in stmt.group for number in group]
    is_once = len(set(grouped)) == len(grouped) and min(grouped, default=0) >= 0 and all(stmt.group)
    require(is_once, f"{stmt.group} are no groups of statements")


def issue(scope: Scope, stmt: Issue) -> None:
    """Check what is issued: that its unit can do it, and the barrier from which it subtracts bytes."""
    require(bool(stmt.body), "nothing is issued")
    needs_barrier = stmt.unit == "tma"
    if stmt.barrier is not None:
        _place(scope, stmt.barrier)
    require((stmt.barrier is not None) == needs_barrier, f"{stmt.unit} and a barrier")
    for inner in walk(stmt.body):
        match inner:
            case _ if isinstance(inner, Product) and stmt.unit == "wgmma":
                operation(scope, inner)
            case If() | For():
                pass
            case _ if stmt.unit == "wgmma":
                refuse("wgmma is not a gemm")
            case Copy():
                _transfer(scope, stmt, inner.src.buffer, inner.dst.buffer)
            case Store(value=Const()):
                _transfer(scope, stmt, None, inner.buffer)
            case Store(value=Load() as source):
                _transfer(scope, stmt, source.buffer, inner.buffer)
            case _:
                tag = inner.__struct_config__.tag
                refuse(f"{stmt.unit} copies, and cannot be asked for this {tag}")


def _transfer(scope: Scope, stmt: Issue, source: str | None, to: str) -> None:
    """Check the kinds of memory between which a unit copies. Undeclared buffers are refused elsewhere."""
    wanted_from, wanted_to = (
        ("shared", "global") if stmt.unit == "tma_store" else ("global", "shared")
    )
    for name, wanted, way in ((source, wanted_from, "from"), (to, wanted_to, "to")):
        found = scope.buffers[name].scope if name in scope.buffers else wanted
        complaint = f"{stmt.unit} copies {way} {wanted} memory, and {name} is {found}"
        require(found == wanted, complaint)
    known = [scope.buffers[name] for name in (source, to) if name in scope.buffers]
    if len({buffer.dtype for buffer in known}) > 1:
        said = ", ".join(f"{buffer.name} is {buffer.dtype}" for buffer in known)
        refuse(f"{stmt.unit} converts nothing, and {said}")


def synchronization(scope: Scope, stmt: Synchronization) -> None:
    """Check a statement on groups or barriers."""
    match stmt:
        case WaitGroup():
            require(is_integer(stmt.count.dtype), f"a wait for {stmt.count.dtype} groups")
        case InitBarrier():
            _row(scope, stmt.barriers.buffer)
        case Arrive():
            _place(scope, stmt.barrier)
            require(stmt.count >= 0 and stmt.bytes >= 0, "a negative number of arrivals or bytes")
        case WaitBarrier():
            _place(scope, stmt.barrier)
            require(is_integer(stmt.parity.dtype), f"a parity that is {stmt.parity.dtype}")
        case Sync():
            require(0 < stmt.threads <= stmt.count, f"{stmt.threads} of {stmt.count} threads")
        case _:
            pass


def _place(scope: Scope, place: Load) -> None:
    _row(scope, place.buffer)
    element(scope, place.buffer, place.indices)


def _row(scope: Scope, name: str) -> None:
    found = scope.buffers.get(name)
    require(found is None or found.scope == "barrier", f"{name} is not a row of barriers")
