"""The points of a space that meet its constraints, as a decision diagram: a layer for each axis, whose states
are all that the constraints must know of the axes before it. So points are counted, found, numbered and drawn
without a list of them, and no partial point that cannot be completed is ever seen again.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tileyard.frontend.constraints import Const, Expr, Name, Op, list_names
from tileyard.verbs.tune.plan.columns import Column, evaluate_column, find_true, make_column

MOST_STEPS: Final = 1 << 21
"""The most steps of a layer, from each state with each value of its axis, that are looked at."""
FEW_STATES: Final = 1 << 14
"""Number of states that go on, chosen at random, where every order of the axes has too many steps."""
MOST_PICKED: Final = 1 << 18
"""The most values of an axis that are looked at then, also chosen at random."""
DRAWN: Final = 1 << 17
"""Points that are drawn to estimate the share of valid ones."""
MOST_COUNTED: Final = 1 << 62
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Variable:
    """An axis: the number of its values, and what constraints may ask of them, by name."""

    length: int
    values: Mapping[str, Sequence[Any]]

    @cached_property
    def _columns(self) -> dict[str, Column]:
        return {}

    def column_of(self, name: str, indexes: Array | None = None) -> Column:
        """The values that a name has at these indexes, or at all."""
        values = self.values[name]
        if isinstance(values, range) and indexes is not None:
            return Column(values.start + values.step * indexes.astype(np.int64))
        if name not in self._columns:
            self._columns[name] = make_column(values)
        return self._columns[name] if indexes is None else self._columns[name].take(indexes)

    def is_whole(self, name: str) -> bool:
        """Whether all values of a name are whole numbers that fit a machine word."""
        return isinstance(self.values[name], range) or self.column_of(name).is_whole


@dataclass(frozen=True)
class Layer:
    """The steps of an axis: for each state before it, and each value, the state after it, or -1.

    ``steps`` is None where every value is allowed and no constraint asks for it: the state stays. ``picks``
    are the values' indexes if only some of them are looked at, in order.
    """

    axis: int
    steps: Array | None = None
    picks: Array | None = None


@dataclass
class Diagram:
    """The valid points of these axes, or, if it ``is_part``, a random part of them.

    A point is a place, an index for each axis, and has a number below ``size``; numbers follow the ``order``
    of the axes, the last one fastest.
    """

    lengths: tuple[int, ...]
    layers: list[Layer]
    is_part: bool = False
    counts: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        fits = math.prod(self.lengths) < MOST_COUNTED
        after: Array = np.ones(1, dtype=np.int64 if fits else object)
        self.counts = [after]
        for layer in reversed(self.layers):
            if layer.steps is None:
                after = after * self.lengths[layer.axis]
            elif after.size:
                after = np.where(layer.steps >= 0, after[layer.steps], 0).sum(axis=1)
            else:
                after = np.zeros(len(layer.steps), dtype=after.dtype)
            self.counts.append(after)
        self.counts.reverse()

    @cached_property
    def size(self) -> int:
        """The number of points."""
        return int(self.counts[0].sum())

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order in which they are numbered."""
        return tuple(layer.axis for layer in self.layers)

    def places_of(self, numbers: Sequence[int]) -> Array:
        """The places of the points with these numbers, one per row."""
        if len(numbers) > (most := self._most_at_once):
            parts = [numbers[at : at + most] for at in range(0, len(numbers), most)]
            return np.concatenate([self.places_of(part) for part in parts])
        left: Array = np.array(numbers, dtype=self.counts[0].dtype)
        places = np.zeros((len(numbers), len(self.lengths)), dtype=np.int64)
        states = np.zeros(len(numbers), dtype=np.int64)
        rows = np.arange(len(numbers))
        for depth, layer in enumerate(self.layers):
            if layer.steps is None:
                each = self.counts[depth + 1][states]
                places[:, layer.axis], left = left // each, left % each
                continue
            steps, counts = self._look_beyond(depth, layer.steps, states)
            below = np.cumsum(counts, axis=1)
            found = (below <= left[:, None]).sum(axis=1)
            left = left - (below[rows, found] - counts[rows, found])
            places[:, layer.axis] = found if layer.picks is None else layer.picks[found]
            states = steps[rows, found]
        return places

    def numbers_of(self, places: Array) -> tuple[list[int], Array]:
        """The numbers of the points at these places, or, where a place is not valid, of a valid one whose
        indexes are, one after another, the nearest that are left; and which places are valid. Raises
        IndexError if no point is.
        """
        if not self.size:
            raise IndexError("no point is valid")
        if len(places) > (most := self._most_at_once):
            found = [self.numbers_of(places[at : at + most]) for at in range(0, len(places), most)]
            known = [number for numbers, _ in found for number in numbers]
            return known, np.concatenate([is_valid for _, is_valid in found])
        numbers: Array = np.zeros(len(places), dtype=self.counts[0].dtype)
        is_valid = np.ones(len(places), dtype=np.bool_)
        states = np.zeros(len(places), dtype=np.int64)
        rows = np.arange(len(places))
        for depth, layer in enumerate(self.layers):
            indexes = places[:, layer.axis]
            if layer.steps is None:
                numbers = numbers + indexes * self.counts[depth + 1][states]
                continue
            steps, counts = self._look_beyond(depth, layer.steps, states)
            picks = np.arange(counts.shape[1]) if layer.picks is None else layer.picks
            away = np.where(counts > 0, np.abs(picks - indexes[:, None]), MOST_COUNTED)
            found = np.argmin(away, axis=1)
            is_valid &= away[rows, found] == 0
            numbers = numbers + np.where(np.arange(len(picks)) < found[:, None], counts, 0).sum(
                axis=1
            )
            states = steps[rows, found]
        return numbers.tolist(), is_valid

    @cached_property
    def _most_at_once(self) -> int:
        """Number of points whose steps fit into memory together."""
        widths = [layer.steps.shape[1] for layer in self.layers if layer.steps is not None]
        return max(MOST_STEPS // int(max([1, *widths])), 1)

    def _look_beyond(self, depth: int, steps: Array, states: Array) -> tuple[Array, Array]:
        """The steps of these states, and the number of points beyond each."""
        own = steps[states]
        return own, np.where(own >= 0, self.counts[depth + 1][own], 0)


def solve(
    variables: Sequence[Variable], constraints: Sequence[Expr], *, most_steps: int = MOST_STEPS
) -> Diagram:
    """The points that meet all constraints: numbered in the order of the axes, or in another one if that
    keeps the diagram small, or else a random part of them.
    """
    lengths = tuple(variable.length for variable in variables)
    parts = list(_split(constraints))
    own = tuple(range(len(variables)))
    other = choose_order(variables, parts)
    for order in dict.fromkeys((own, other)):
        layers = _Builder(variables, parts, most_steps).build(order)
        if layers is not None:
            return Diagram(lengths, layers)
    generator = np.random.default_rng(0)
    layers = _Builder(variables, parts, most_steps, generator).build(other)
    if layers is None:
        raise AssertionError("a part can always be made")
    return Diagram(lengths, layers, is_part=True)


def _split(constraints: Sequence[Expr]) -> Iterator[Expr]:
    for constraint in constraints:
        if isinstance(constraint, Op) and constraint.sign == "and":
            yield from _split(constraint.parts)
        else:
            yield constraint


def choose_order(variables: Sequence[Variable], constraints: Sequence[Expr]) -> tuple[int, ...]:
    """An order of the axes in which few of them wait for a constraint at any time: those that constraints
    join come one after another, and of these the one next after which the waiting ones have the fewest
    combinations.
    """
    home = {name: number for number, one in enumerate(variables) for name in one.values}
    scopes = [{home[name] for name in list_names(one) if name in home} for one in constraints]
    groups = _join_groups(len(variables), scopes)
    order: list[int] = []
    for group in groups:
        left = sorted(group)
        taken: set[int] = set()
        own = [scope for scope in scopes if scope & group]
        while left:

            def cost(axis: int, taken: set[int] = taken, own: list[set[int]] = own) -> float:
                after = taken | {axis}
                waiting = {one for scope in own if not scope <= after for one in scope & after}
                return sum(math.log(max(variables[one].length, 1)) for one in waiting)

            chosen = min(left, key=cost)
            left.remove(chosen)
            taken.add(chosen)
            order.append(chosen)
    return tuple(order)


def _join_groups(count: int, scopes: Sequence[set[int]]) -> list[set[int]]:
    groups = [{number} for number in range(count)]
    for scope in scopes:
        touched = [group for group in groups if group & scope]
        if len(touched) > 1:
            groups = [group for group in groups if not group & scope]
            groups.append(set().union(*touched))
    return sorted(groups, key=min)


SLOT = "#"
"""Begins the names of known parts of constraints in progress, whose values are columns of the states."""


class _Builder:
    """Makes the layers of a diagram, one after another, with the constraints as far as they are open.

    With a ``generator`` too many steps are thinned out at random, else they end the building.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        constraints: Sequence[Expr],
        most_steps: int,
        generator: np.random.Generator | None = None,
    ) -> None:
        self._variables = variables
        self._most = most_steps
        self._generator = generator
        whole = {
            name: variable.is_whole(name)
            for variable in variables
            for name in _asked(variable, constraints)
        }
        self._open = [_flatten(one, whole) for one in constraints]
        self._slots: dict[str, Column] = {}
        self._states = 1

    def build(self, order: Sequence[int]) -> list[Layer] | None:
        """The layers, None if there are too many steps. Layers after a dead end have none."""
        self._settle()
        layers = []
        for axis in order:
            layer = self._add(axis)
            if layer is None:
                return None
            layers.append(layer)
        return layers

    def _settle(self) -> None:
        """Decide the constraints that name no axis."""
        fixed = [one for one in self._open if not set(list_names(one))]
        self._open = [one for one in self._open if set(list_names(one))]
        if not all(find_true(evaluate_column(one, {}, 1)).all() for one in fixed):
            self._states = 0

    def _add(self, axis: int) -> Layer | None:
        variable = self._variables[axis]
        names = _asked(variable, self._open)
        if not self._states:
            return Layer(axis, np.empty((0, 0), dtype=np.int32))
        if not names:
            return Layer(axis)
        picks = self._pick(variable.length)
        if picks is None and self._states * variable.length > self._most:
            return None
        asked = {name: variable.column_of(name, picks) for name in names}
        width = variable.length if picks is None else len(picks)
        before = np.repeat(np.arange(self._states), width)
        after = np.tile(np.arange(width), self._states)
        rows = _Rows(self._slots, asked, before, after)
        closed = [one for one in self._open if _is_known(one, asked)]
        self._open = [one for one in self._open if not _is_known(one, asked)]
        for one in closed:
            kept = np.flatnonzero(find_true(rows.evaluate(one)))
            rows, before, after = rows.take(kept), before[kept], after[kept]
        self._open = [rows.advance(one) for one in self._open]
        rows.forget(self._open)
        codes, count = rows.number_states()
        steps = np.full((self._states, width), -1, dtype=np.int32)
        steps[before, after] = codes
        self._slots, self._states = rows.first_of_each(codes, count), count
        if self._generator is None:
            return Layer(axis, steps, picks)
        steps = self._thin(steps)
        used = np.flatnonzero((steps >= 0).any(axis=0))
        return Layer(axis, steps[:, used], used if picks is None else picks[used])

    def _pick(self, length: int) -> Array | None:
        """Some of the values of an axis, if all of them are too many."""
        if self._generator is None or self._states * length <= self._most:
            return None
        count = min(max(self._most // max(self._states, 1), 1), MOST_PICKED)
        drawn = np.sort(self._generator.integers(length, size=count))
        return drawn[np.diff(drawn, prepend=-1) > 0]

    def _thin(self, steps: Array) -> Array:
        """Keep a random part of the states that were just made, if there are many."""
        if self._generator is None or self._states <= FEW_STATES:
            return steps
        kept = np.sort(self._generator.choice(self._states, FEW_STATES, replace=False))
        renamed = np.full(self._states + 1, -1, dtype=np.int32)
        renamed[kept] = np.arange(len(kept))
        self._slots = {name: slot.take(kept) for name, slot in self._slots.items()}
        self._states = len(kept)
        return renamed[steps]


def _asked(variable: Variable, constraints: Sequence[Expr]) -> set[str]:
    """The names of a variable that constraints ask for."""
    return {name for one in constraints for name in list_names(one)} & variable.values.keys()


class _Rows:
    """The steps of a layer: each with the columns of its state, and of its value."""

    def __init__(
        self,
        slots: Mapping[str, Column],
        asked: Mapping[str, Column],
        before: Array,
        indexes: Array,
    ) -> None:
        self._old, self._asked, self._before, self._indexes = slots, asked, before, indexes
        self._made: dict[Expr, Name] = {}
        self.slots: dict[str, Column] = {}

    def take(self, kept: Array) -> "_Rows":
        """Some of the rows."""
        return _Rows(self._old, self._asked, self._before[kept], self._indexes[kept])

    def evaluate(self, expr: Expr) -> Column:
        """An expression of which all is known."""
        columns = {
            name: self._asked[name].take(self._indexes)
            if name in self._asked
            else self._old[name].take(self._before)
            for name in list_names(expr)
        }
        return evaluate_column(expr, columns, len(self._before))

    def advance(self, expr: Expr) -> Expr:
        """The same expression, with all of it that is known as slots of the states after these steps."""
        if not isinstance(expr, Const) and _is_known(expr, self._asked):
            return self._keep(expr)
        if not isinstance(expr, Op):
            return expr
        known = tuple(part for part in expr.parts if _is_known(part, self._asked))
        if expr.sign in _JOINED and len(known) > 1:
            rest = (self.advance(part) for part in expr.parts if part not in known)
            return Op(expr.sign, (self._keep(Op(expr.sign, known)), *rest))
        parts = [self.advance(part) for part in expr.parts]
        if expr.sign in _JOINED:
            parts.sort(key=lambda part: not (isinstance(part, Name) and part.name[0] == SLOT))
        return Op(expr.sign, tuple(parts))

    def _keep(self, expr: Expr) -> Name:
        if expr not in self._made:
            name = f"{SLOT}{len(self.slots)}"
            self._made[expr] = Name(name)
            self.slots[name] = self.evaluate(expr)
        return self._made[expr]

    def forget(self, constraints: Sequence[Expr]) -> None:
        """Where a part of an ``or`` is true already, forget what only its other parts would need."""
        users = [set(list_names(one)) & self.slots.keys() for one in constraints]
        for number, one in enumerate(constraints):
            first = one.parts[0] if isinstance(one, Op) and one.sign == "or" else None
            if not (isinstance(first, Name) and first.name in self.slots):
                continue
            is_met = find_true(self.slots[first.name])
            others = set().union(*users[:number], *users[number + 1 :])
            for slot in users[number] - others - {first.name}:
                column = self.slots[slot]
                values = np.where(is_met, column.values[:1], column.values)
                undefined = None if column.undefined is None else column.undefined & ~is_met
                self.slots[slot] = Column(values, undefined)

    def number_states(self) -> tuple[Array, int]:
        """A number for each row, equal for rows with equal slots, and how many there are."""
        codes, width = np.zeros(len(self._before), dtype=np.int64), 1
        for part in itertools.chain.from_iterable(map(_list_parts, self.slots.values())):
            lowest = int(part.min(initial=0))
            column, span = part - lowest, int(part.max(initial=0)) - lowest + 1
            if width * span >= MOST_COUNTED:
                codes, width = _renumber(codes, width)
                column, span = _renumber(column, span)
            codes, width = codes * span + column, width * span
        return _renumber(codes, width)

    def first_of_each(self, codes: Array, count: int) -> dict[str, Column]:
        """The slots of each state."""
        first = np.zeros(count, dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        return {name: slot.take(first) for name, slot in self.slots.items()}


def _list_parts(column: Column) -> Iterator[Array]:
    """Whole numbers that are equal in the rows in which a column is equal."""
    values = column.values
    if values.dtype.kind == "f":
        values = np.unique(values, return_inverse=True)[1]
    if values.dtype.kind == "O":
        seen: dict[object, int] = {}
        codes = [seen.setdefault((type(one), one), len(seen)) for one in values.tolist()]
        values = np.array(codes, dtype=np.int64)
    values = values.astype(np.int64)
    if column.undefined is None:
        yield values
    else:
        yield np.where(column.undefined, values[:1], values)
        yield column.undefined.astype(np.int64)


def _renumber(codes: Array, width: int) -> tuple[Array, int]:
    """Codes below ``width`` as numbers without gaps in the same order, and how many differ."""
    if width > 4 * len(codes) + 64:
        distinct, codes = np.unique(codes, return_inverse=True)
        return codes, len(distinct)
    is_there = np.zeros(width, dtype=np.bool_)
    is_there[codes] = True
    numbers = np.cumsum(is_there) - 1
    return numbers[codes], int(is_there.sum())


_JOINED = ("+", "*", "and", "or", "min", "max")
"""Operations of any number of parts, in any order."""


def _flatten(expr: Expr, whole: Mapping[str, bool]) -> Expr:
    """The expression with sums and products of whole numbers as one operation each; those of fractions stay
    as they are, because their results depend on the order.
    """
    if not isinstance(expr, Op):
        return expr
    parts = tuple(_flatten(part, whole) for part in expr.parts)
    if expr.sign in ("+", "*"):
        if not all(_is_whole(part, whole) for part in parts):
            return Op(expr.sign, parts)
        parts = tuple(
            inner
            for part in parts
            for inner in (
                part.parts if isinstance(part, Op) and part.sign == expr.sign else (part,)
            )
        )
    return Op(expr.sign, parts)


def _is_whole(expr: Expr, whole: Mapping[str, bool]) -> bool:
    if isinstance(expr, Const):
        return isinstance(expr.value, int)
    if isinstance(expr, Name):
        return whole.get(expr.name, False)
    if expr.sign in ("+", "*", "-", "//", "%", "neg", "pos", "abs", "min", "max"):
        return all(_is_whole(part, whole) for part in expr.parts)
    return expr.sign != "/"


def _is_known(expr: Expr, asked: Mapping[str, Column]) -> bool:
    """Whether an expression has only slots, constants and values of this layer's axis."""
    return all(name in asked or name[0] == SLOT for name in list_names(expr))


def find_conflict(
    variables: Sequence[Variable], constraints: Sequence[Expr]
) -> tuple[int, ...] | None:
    """Of constraints that no point meets, the numbers of some that exclude every point together, and of which
    none can be left out; None if that cannot be proven.
    """

    def is_empty(numbers: Sequence[int]) -> bool:
        found = solve(variables, [constraints[number] for number in numbers])
        return found.size == 0 and not found.is_part

    left = list(range(len(constraints)))
    for number in left:
        if is_empty([number]):
            return (number,)
    if not is_empty(left):
        return None
    for number in list(left):
        others = [one for one in left if one != number]
        if is_empty(others):
            left = others
    return tuple(left)


def estimate_share(
    variables: Sequence[Variable], constraints: Sequence[Expr], drawn: int = DRAWN
) -> tuple[float, float]:
    """Bounds of the share of valid points, at 95 %, from points drawn at random."""
    generator = np.random.default_rng(0)
    columns = {
        name: variable.column_of(name, indexes)
        for variable in variables
        for indexes in [generator.integers(variable.length, size=drawn)]
        for name in _asked(variable, constraints)
    }
    valid = np.ones(drawn, dtype=np.bool_)
    for one in constraints:
        valid &= find_true(evaluate_column(one, columns, drawn))
    share, z2 = float(valid.mean()), 1.96**2
    middle = (share + z2 / (2 * drawn)) / (1 + z2 / drawn)
    spread = math.sqrt(z2 * (share * (1 - share) / drawn + z2 / (4 * drawn**2))) / (1 + z2 / drawn)
    return max(middle - spread, 0.0), min(middle + spread, 1.0)
