"""Finds accesses of lanes to one element, one of them a write: a GPU does them in no fixed order.
Bytes are compared, not names: views share their owner's storage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import KernelFault
from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype
from tileyard.ir.meanings import MEANINGS, convert, convert_one
from tileyard.ir.nodes import (
    Atomic,
    AtomicKind,
    Cast,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Store,
    Var,
)
from tileyard.ir.specs import literal

Array = NDArray[Any]
Meaning = Callable[..., Any]
"""Maps arguments of one dtype, arrays of one length or NumPy scalars, to an array."""
_STEPS: dict[AtomicKind, "np.ufunc"] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
Integers = NDArray[np.int64]
Loops = tuple[tuple[str, int], ...]
Accessor = Let | Store | Atomic | If | For


def meaning_of_lanes(name: str) -> Meaning:
    """The scalar operation ``name`` for many lanes. It raises KernelFault if a lane has a fault."""
    return _OF_ARRAYS.get(name) or _each(MEANINGS[name])


def _each(meaning: Callable[..., Any]) -> Meaning:
    """``meaning`` applied to one element after another."""

    def every(*args: Array) -> Array:
        columns = np.broadcast_arrays(*args)
        found = [meaning(*row) for row in zip(*columns, strict=True)]
        return np.array(found, np.asarray(found[0]).dtype)

    return every


def _wide(function: Callable[..., Any]) -> Meaning:
    """``function`` on float64 numbers, its result rounded to the arguments' dtype."""

    def meaning(*args: Array) -> Array:
        wide: Array = function(*[arg.astype(np.float64) for arg in args])
        return wide.astype(args[0].dtype)

    return meaning


def _divided(function: Callable[[Array, Array], Any]) -> Meaning:
    def meaning(left: Array, right: Array) -> Any:  # noqa: ANN401 (an array)
        if not np.all(right):
            raise KernelFault("an integer is divided by zero")
        return function(left, right)

    return meaning


def _shifted(function: Callable[[Array, Array], Any]) -> Meaning:
    def meaning(left: Array, count: Array) -> Any:  # noqa: ANN401 (an array)
        bits = left.dtype.itemsize * 8
        if not np.all((count >= 0) & (count < bits)):
            raise KernelFault(f"an integer of {bits} bits is shifted by another count")
        return function(left, count)

    return meaning


def _truncdiv(left: Array, right: Array) -> Any:  # noqa: ANN401 (an array)
    down = left // right
    is_cut = (down * right != left) & ((left < 0) != (right < 0))
    return down + is_cut.astype(down.dtype)


_OF_ARRAYS: dict[str, Meaning] = {
    **{
        name: MEANINGS[name]
        for name in (
            *("add", "sub", "mul", "div", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "not"),
            *("bitand", "bitor", "bitxor", "bitnot", "nextafter", "isnan", "isinf", "isfinite"),
        )
    },
    "min": lambda a, b: np.where((b < a) | (a != a), b, a),
    "max": lambda a, b: np.where((b > a) | (a != a), b, a),
    "floordiv": _divided(np.floor_divide),
    "floormod": _divided(np.remainder),
    "truncdiv": _divided(_truncdiv),
    "truncmod": _divided(lambda a, b: a - b * _truncdiv(a, b)),
    "shl": _shifted(np.left_shift),
    "shr": _shifted(np.right_shift),
    "exp": _wide(np.exp),
    "exp2": _wide(np.exp2),
    "log": _wide(np.log),
    "log2": _wide(np.log2),
    "log10": _wide(np.log10),
    "log1p": _wide(np.log1p),
    "sqrt": _wide(np.sqrt),
    "rsqrt": _wide(lambda x: 1.0 / np.sqrt(x)),
    "tanh": _wide(np.tanh),
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "tan": _wide(np.tan),
    "sigmoid": _wide(lambda x: 1.0 / (1.0 + np.exp(-x))),
    "fmod": _wide(np.fmod),
    "copysign": _wide(np.copysign),
    "floor": _wide(np.floor),
    "ceil": _wide(np.ceil),
    "round": _wide(np.rint),
    "trunc": _wide(np.trunc),
}
"""Functions that NumPy computes for arrays as for scalars, which it doesn't for powers."""


def reinterpret(values: Array, dtype: str) -> Array:
    """The bits of each element read as a number of ``dtype``."""
    return np.ascontiguousarray(values).view(find_dtype(dtype).numpy)


# ---- atomic updates -------------------------------------------------------------------------------

UPDATES: dict[AtomicKind, str] = {
    "add": "add",
    "max": "max",
    "min": "min",
    "and": "bitand",
    "or": "bitor",
    "xor": "bitxor",
}
"""The scalar operations of atomic updates; an exchange has none."""


def commutes(kind: AtomicKind, dtype: "np.dtype[Any]") -> bool:
    """Whether updates of one kind have the same result in every order."""
    return kind in _STEPS and dtype.kind in "iub"


def update(content: Array, elements: Array, values: Array, kind: AtomicKind) -> None:
    """Update ``content[elements]``, one lane after another if several have the same element."""
    if commutes(kind, content.dtype) or (kind == "add" and content.dtype.kind == "f"):
        _STEPS[kind].at(content, elements, values)  # one after the other, each step rounded
        return
    for turn in _turns(elements):
        at = elements[turn]
        new = values[turn]
        if kind != "exchange":
            new = meaning_of_lanes(UPDATES[kind])(content[at], new)
        content[at] = new


def _turns(elements: Array) -> list[Array]:
    """Positions in ``elements``, in groups without repetitions: first occurrences, second ones, and so on."""
    if np.all(elements[1:] > elements[:-1]):
        return [np.arange(len(elements))]
    order = np.argsort(elements, kind="stable")
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = elements[order[1:]] != elements[order[:-1]]
    starts = np.flatnonzero(is_new)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    if not rank.any():
        return [np.arange(len(order))]
    by_rank = np.argsort(rank, kind="stable")
    return np.split(order[by_rank], np.flatnonzero(np.diff(rank[by_rank])) + 1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Access:
    """All accesses of one statement to a buffer at one time: lane ``lanes[n]`` touched element
    ``elements[n]``. ``elements`` are row-major positions inside the buffer. ``values`` are what was
    written, None for a read and an atomic update, which is a write, too; ``before`` is the old
    content. ``inner`` are the values of the nest's serial loops.
    """

    stmt: Accessor
    buffer: str
    elements: Integers
    lanes: Integers
    is_write: bool
    values: Array | None = None
    before: Array | None = None
    inner: Loops = ()

    @property
    def is_update(self) -> bool:
        """Whether this is an atomic update, which conflicts with no other update."""
        return self.is_write and self.values is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of two conflicting accesses. ``loops`` are the values of the nest's loops, outermost first."""

    stmt: Accessor
    is_write: bool
    lane: int
    loops: Loops


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """Two lanes touch the element of ``buffer`` at ``indices``, and the first of them writes it. It
    is benign if all lanes write the same bits and no lane reads what another one writes.
    """

    buffer: str
    indices: tuple[int, ...]
    first: Side
    second: Side
    is_benign: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The first conflict of each pair of statements, and whether the order of atomic updates matters."""

    conflicts: tuple[Conflict, ...] = ()
    is_ordered: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Events:
    """All accesses of one kind by one statement to one storage, in units that all of its views share.
    ``bits`` are those written, empty except for stores; ``source`` is the access of each unit.
    """

    accesses: tuple[Access, ...]
    units: Integers
    lanes: Integers
    bits: Array
    source: Integers
    width: int

    @property
    def head(self) -> Access:
        return self.accesses[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Search:
    arrays: Mapping[str, Array]
    loops: Callable[[int], Loops]


def find_conflicts(
    accesses: Sequence[Access], arrays: Mapping[str, Array], loops: Callable[[int], Loops]
) -> Found:
    """The conflicts among ``accesses`` to ``arrays``, by name; ``loops`` gives a lane's loop values."""
    search = _Search(arrays=arrays, loops=loops)
    shared: dict[int, list[Access]] = {}
    for access in accesses:
        shared.setdefault(address(arrays[access.buffer]), []).append(access)
    found = [
        _explain(group, search)
        for group in shared.values()
        if any(access.is_write for access in group) and _is_shared(group, arrays)
    ]
    return Found(
        conflicts=tuple(conflict for part in found for conflict in part.conflicts),
        is_ordered=any(part.is_ordered for part in found),
    )


def address(array: Array) -> int:
    """The address of an array: the same for views of another shape or dtype."""
    place: int = array.__array_interface__["data"][0]
    return place


def _units(access: Access, arrays: Mapping[str, Array], width: int) -> tuple[Integers, Integers]:
    """The units of ``width`` bytes that are touched, and the lanes that touch them."""
    count = arrays[access.buffer].itemsize // width
    if count == 1:
        return access.elements, access.lanes
    units = access.elements[:, None] * count + np.arange(count)
    return units.reshape(-1), np.repeat(access.lanes, count)


def _is_shared(group: list[Access], arrays: Mapping[str, Array]) -> bool:
    """Whether two lanes touch an element that is written: fast, and exact."""
    width = min(arrays[access.buffer].itemsize for access in group)
    units = [(access.is_write, *_units(access, arrays, width)) for access in group]
    low = min(int(at.min()) for is_write, at, _ in units if is_write)
    high = max(int(at.max()) for is_write, at, _ in units if is_write)
    owner = np.zeros(high - low + 1, np.int64)  # the lane that writes, counted from 1
    for is_write, at, lanes in units:
        if is_write:
            owner[at - low] = lanes + 1
    for is_write, at, lanes in units:
        if not is_write:
            is_inside = (at >= low) & (at <= high)
            if not is_inside.all():
                at, lanes = at[is_inside], lanes[is_inside]  # noqa: PLW2901 (the rest is never written)
        known = owner[at - low]
        if np.any((known != lanes + 1) & (known != 0)):
            return True
    return False


def _gather(group: list[Access], arrays: Mapping[str, Array]) -> list[_Events]:
    width = min(arrays[access.buffer].itemsize for access in group)
    alike: dict[tuple[int, str, bool], list[Access]] = {}
    for access in group:
        alike.setdefault((id(access.stmt), access.buffer, access.is_write), []).append(access)
    found = []
    for accesses in alike.values():
        units = [_units(access, arrays, width) for access in accesses]
        values = [access.values for access in accesses if access.values is not None]
        bits = [np.ascontiguousarray(part).view(f"u{width}") for part in values]
        found.append(
            _Events(
                accesses=tuple(accesses),
                units=np.concatenate([at for at, _ in units]),
                lanes=np.concatenate([lanes for _, lanes in units]),
                bits=np.concatenate(bits) if bits else np.empty(0, np.uint8),
                source=np.repeat(np.arange(len(units)), [len(at) for at, _ in units]),
                width=width,
            )
        )
    return found


def _explain(group: list[Access], search: _Search) -> Found:
    """Every pair of statements of which two lanes touch the same element, and one of them writes it."""
    events = _gather(group, search.arrays)
    low = min(int(part.units.min()) for part in events)
    size = max(int(part.units.max()) for part in events) - low + 1
    conflicts = []
    is_ordered = False
    for place, writer in enumerate(events):
        if not writer.head.is_write:
            continue
        least, most = np.full(size, np.iinfo(np.int64).max), np.full(size, -1, np.int64)
        np.minimum.at(least, writer.units - low, writer.lanes)
        np.maximum.at(most, writer.units - low, writer.lanes)
        for other_place, other in enumerate(events):
            if other.head.is_write and other_place < place:
                continue  # this pair has been examined from the other side
            at = other.units - low
            hits = np.flatnonzero(
                (most[at] >= 0) & ((least[at] != other.lanes) | (most[at] != other.lanes))
            )
            if not len(hits):
                continue
            if writer.head.is_update and other.head.is_update:
                is_ordered |= _is_ordered(writer, other, search.arrays)
            else:
                conflicts.append(_conflict(writer, other, hits, search))
    return Found(conflicts=tuple(conflicts), is_ordered=is_ordered)


def _is_ordered(left: _Events, right: _Events, arrays: Mapping[str, Array]) -> bool:
    """Whether the order in which lanes update an element matters; in one access it is the order of lanes."""
    if left is right and len(left.accesses) == 1:
        return False
    one, two = left.head, right.head
    kinds = {access.stmt.kind for access in (one, two) if isinstance(access.stmt, Atomic)}
    is_same = len(kinds) == 1 and arrays[one.buffer].dtype == arrays[two.buffer].dtype
    return not is_same or not all(commutes(kind, arrays[one.buffer].dtype) for kind in kinds)


def _conflict(writer: _Events, other: _Events, hits: Integers, search: _Search) -> Conflict:
    """The conflict at the first of ``hits``, positions in ``other``; at the first harmful one, if any."""
    harmful = hits
    if len(writer.bits) and len(other.bits):
        harmful = hits[_differs(writer, other, hits)]
    chosen = int(harmful[0] if len(harmful) else hits[0])
    unit, lane = other.units[chosen], other.lanes[chosen]
    against = np.flatnonzero((writer.units == unit) & (writer.lanes != lane))
    if len(writer.bits) and len(other.bits):
        worst = against[writer.bits[against] != other.bits[chosen]]
        against = worst if len(worst) else against
    array = search.arrays[other.head.buffer]
    element = int(unit) * other.width // array.itemsize
    return Conflict(
        buffer=other.head.buffer,
        indices=tuple(int(i) for i in np.unravel_index(element, array.shape)),
        first=_side(writer, int(against[0]), search),
        second=_side(other, chosen, search),
        is_benign=not len(harmful),
    )


def _differs(writer: _Events, other: _Events, hits: Integers) -> NDArray[np.bool_]:
    """The hits at which some value that ``writer`` writes differs from what ``other`` writes there."""
    low = int(writer.units.min())
    size = int(writer.units.max()) - low + 1
    least, most = np.full(size, np.iinfo(np.uint64).max, np.uint64), np.zeros(size, np.uint64)
    bits = writer.bits.astype(np.uint64)
    np.minimum.at(least, writer.units - low, bits)
    np.maximum.at(most, writer.units - low, bits)
    at, own = other.units[hits] - low, other.bits[hits].astype(np.uint64)
    differs: NDArray[np.bool_] = (least[at] != own) | (most[at] != own)
    return differs


def _side(events: _Events, place: int, search: _Search) -> Side:
    access = events.accesses[int(events.source[place])]
    lane = int(events.lanes[place])
    return Side(
        stmt=access.stmt,
        is_write=access.is_write,
        lane=lane,
        loops=(*search.loops(lane), *access.inner),
    )


@dataclass(slots=True, eq=False)
class Frame:
    """Some lanes, in order, at least one; ``names`` has values of variables in them. Others are in
    the enclosing frame, of whose lanes these are the ones at ``picked``.
    """

    lanes: Integers
    names: dict[str, Any]
    outer: "Frame | None" = None
    picked: Integers | None = None

    def find(self, name: str) -> Any:  # noqa: ANN401 (a NumPy scalar or an array)
        """The value of a variable."""
        if name in self.names or self.outer is None:
            return self.names[name]
        value = self.outer.find(name)
        self.names[name] = value[self.picked] if value.ndim else value
        return self.names[name]

    def pick(self, mask: Array) -> "Frame":
        """The lanes for which ``mask``, an array, is true."""
        if mask.all():
            return self
        picked = np.flatnonzero(mask)
        return Frame(self.lanes[picked], {}, self, picked)


class LaneEvaluator:
    """Evaluates for a frame's lanes; ``load`` returns elements, ``literals`` are known by identity."""

    def __init__(
        self,
        load: Callable[[Load, Frame], Any],
        literals: dict[int, tuple[Const, np.generic]],
    ) -> None:
        self._load = load
        self._literals = literals

    def value(self, expr: Expr, frame: Frame) -> Any:  # noqa: ANN401 (a NumPy scalar or an array)
        """The values of ``expr``, in its dtype. Raises KernelFault if a lane has a fault."""
        match expr:
            case Var():
                return frame.find(expr.name)
            case Const():
                if id(expr) not in self._literals:
                    self._literals[id(expr)] = (expr, literal(expr))
                return self._literals[id(expr)][1]
            case Load():
                return self._load(expr, frame)
            case Cast():
                return _convert(self.value(expr.value, frame), expr.dtype)
            case Op():
                return self._op(expr, frame)
            case _:
                assert_never(expr)

    def _op(self, op: Op, frame: Frame) -> Any:  # noqa: ANN401
        match op.name:
            case "select":
                return self._select(op, frame)
            case "and" | "or":
                return self._logic(op, frame)
            case "nan":
                return convert_one(np.float32(np.nan), op.dtype)
            case "reinterpret":
                value = self.value(op.args[0], frame)
                bits = reinterpret(np.atleast_1d(value), op.dtype)
                return bits if value.ndim else bits[0]
            case name:
                args = [self.value(arg, frame) for arg in op.args]
                is_one = all(arg.ndim == 0 for arg in args)
                result = (MEANINGS[name] if is_one else meaning_of_lanes(name))(*args)
                return _convert(result, TENSOR_FLOAT) if op.dtype == TENSOR_FLOAT else result

    def _select(self, op: Op, frame: Frame) -> Any:  # noqa: ANN401
        cond, *branches = op.args
        mask = self.value(cond, frame)
        if mask.ndim == 0 or mask.all() or not mask.any():
            return self.value(branches[0 if mask.all() else 1], frame)
        if all(isinstance(branch, Const | Var) for branch in branches):
            return np.where(mask, *[self.value(branch, frame) for branch in branches])
        result = np.empty(len(mask), find_dtype(op.dtype).numpy)
        for where, branch in zip((mask, ~mask), branches, strict=True):
            result[where] = self.value(branch, frame.pick(where))
        return result

    def _logic(self, op: Op, frame: Frame) -> Any:  # noqa: ANN401
        left = self.value(op.args[0], frame)
        is_open = left if op.name == "and" else ~left
        if not is_open.any():
            return left
        if is_open.all():
            return self.value(op.args[1], frame)
        result = left.copy()
        result[is_open] = self.value(op.args[1], frame.pick(is_open))
        return result


def _convert(value: Any, dtype: str) -> Any:  # noqa: ANN401 (a NumPy scalar or an array)
    return convert(value, dtype) if value.ndim else convert_one(value, dtype)
