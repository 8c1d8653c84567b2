"""Decision diagrams of valid points: as many, and the same ones, as without them."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.base.model import Value
from tileyard.frontend.constraints import Constraint, put_constants, read_constraint
from tileyard.verbs.tune.plan.diagram import (
    Diagram,
    Variable,
    choose_order,
    estimate_share,
    find_conflict,
    solve,
)
from tileyard.verbs.tune.plan.strategies.base import unique

NAMES = ("a", "b", "c", "d")
PLAIN = (0, 1, 2, 3, 4, 5, 8, 16, -1)
ODD = (True, False, 0.5, 1.5, "a", "b", "None", 2**61, 2**64)
leaves = st.sampled_from([*NAMES * 3, "0", "1", "2", "7", "0.5", "'a'"])


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arithmetic = ["+", "-", "*", "*", "//", "%", "/", "min", "max"]
    orders = ["<", "<=", "==", "!=", ">", ">=", "in"]
    signs = st.sampled_from([*arithmetic, *orders, "and", "or", "and", "or", "not"])

    def join(sign: str, left: str, right: str) -> str:
        if sign == "not":
            return f"(not {left})"
        if sign in ("min", "max"):
            return f"{sign}({left}, {right})"
        return f"({left} in ({right}, 2))" if sign == "in" else f"({left} {sign} {right})"

    return st.builds(join, signs, inner, inner)


texts = st.recursive(leaves, _grow, max_leaves=8)
values = st.lists(st.sampled_from(PLAIN) | st.sampled_from(PLAIN + ODD), min_size=1, max_size=4)
axes_of_some = st.fixed_dictionaries(dict.fromkeys(NAMES, values))


def variables_of(axes: Mapping[str, Sequence[Value]]) -> list[Variable]:
    """One variable for each axis."""
    return [Variable(len(values), {name: values}) for name, values in axes.items()]


def list_places(diagram: Diagram) -> list[tuple[int, ...]]:
    """The places of all points of a diagram."""
    return [tuple(place) for place in diagram.places_of(range(diagram.size)).tolist()]


def list_valid(
    axes: Mapping[str, Sequence[Value]], constraints: Sequence[Constraint]
) -> list[tuple[int, ...]]:
    """The valid places, by trying all."""
    places = itertools.product(*(range(len(values)) for values in axes.values()))
    return [
        place
        for place in places
        if all(
            one.accepts({name: axes[name][index] for name, index in zip(axes, place, strict=True)})
            for one in constraints
        )
    ]


@pytest.mark.slow
@given(axes_of_some, st.lists(texts, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_a_diagram_has_the_points_that_trying_all_finds(
    drawn: dict[str, list[Value]], texts: list[str]
) -> None:
    """In their order, each under its number; a place that is not valid has no number, and is near one that
    is. If there is none, the constraints that are named exclude all, and none of them can be left out.
    """
    axes = {name: unique(values) for name, values in drawn.items()}
    constraints = [read_constraint(text) for text in texts]
    valid = list_valid(axes, constraints)
    variables = variables_of(axes)
    exprs = [put_constants(one.expr, {}) for one in constraints]
    diagram = solve(variables, exprs)
    assert list_places(diagram) == valid
    if valid:
        places = np.array(list(itertools.product(*map(range, diagram.lengths))))
        numbers, is_valid = diagram.numbers_of(places)
        assert [tuple(place) for place in places[is_valid].tolist()] == valid
        assert list(itertools.compress(numbers, is_valid)) == list(range(len(valid)))
        assert {*numbers} <= {*range(len(valid))}
    if not valid:
        named = find_conflict(variables, exprs)
        assert named is not None
        assert not list_valid(axes, [constraints[number] for number in named])
        for number in named if len(named) > 1 else ():
            others = [constraints[one] for one in named if one != number]
            assert list_valid(axes, others)


@pytest.mark.slow
@given(axes_of_some, st.lists(texts, min_size=1, max_size=2))
@settings(max_examples=20, deadline=None)
def test_a_diagram_that_is_too_large_has_a_part_of_the_points(
    drawn: dict[str, list[Value]], texts: list[str]
) -> None:
    """All of them are valid."""
    axes = {name: unique(values) for name, values in drawn.items()}
    constraints = [read_constraint(text) for text in texts]
    valid = list_valid(axes, constraints)
    exprs = [put_constants(one.expr, {}) for one in constraints]
    diagram = solve(variables_of(axes), exprs, most_steps=2)
    places = list_places(diagram)
    assert {*places} <= {*valid}
    assert len({*places}) == len(places)
    assert diagram.is_part or places == valid


def solve_texts(axes: Mapping[str, Sequence[Value]], *texts: str) -> Diagram:
    """The diagram of these constraints."""
    return solve(variables_of(axes), [read_constraint(text).expr for text in texts])


@pytest.mark.parametrize(
    ("axes", "texts"),
    [
        # What one constraint no longer needs, another one does.
        (dict.fromkeys("abcd", range(4)), ["a > 1 or b + c < 3", "b * d < 5"]),
        (dict.fromkeys("abcd", range(4)), ["a > 1 or b + c < 3 or d == b", "c + d > 1"]),
        # An undefined part is no number, and some other side decides.
        ({"a": (1, 2), "b": (0, 1), "c": (0, 1, 3)}, ["a / b > c"]),
        ({"a": (1, 2), "b": (0, 1), "c": (0, 1, 3)}, ["not a % b > c or c == 1"]),
        ({"a": (1, 2), "b": ("x", 1), "c": (0, 1, 3)}, ["a < b or c == 3"]),
        # Sums of fractions depend on the order, those of whole numbers do not.
        ({"x": (0.1,), "z": (0.4,), "y": (0.1,)}, ["x + y + z == 0.6000000000000001"]),
        ({"x": (0.1,), "z": (0.4,), "y": (0.1,)}, ["x + y + z == 0.6"]),
        ({"x": (1, 2), "z": (3, 4), "y": (2, 5)}, ["x + y + z == 6", "x * y * z > 9"]),
        # Beyond machine words, and beyond what floats can tell apart.
        ({"a": (2**61, 3), "b": (2, 2**61)}, ["a * b == 4611686018427387904"]),
        ({"a": (2**53 + 1, 2**53), "b": (1.0, 2.0**53)}, ["a == b"]),
        ({"a": (2**53 + 1, 2**53), "b": (3, 1)}, ["a / b == 9007199254740992.0"]),
    ],
)
def test_what_is_hard_for_a_diagram(axes: dict[str, Sequence[Value]], texts: list[str]) -> None:
    """Is as Python has it."""
    constraints = [read_constraint(text) for text in texts]
    diagram = solve_texts(axes, *texts)
    assert list_places(diagram) == list_valid(axes, constraints)


GEMM: dict[str, Sequence[Value]] = {
    **dict.fromkeys(("bm", "bn", "bk"), range(16, 513, 16)),
    **dict.fromkeys(("wm", "wn", "stages"), range(1, 33)),
}
LARGE = (
    "bm % wm == 0",
    "bn % wn == 0",
    "(bm * bk + bn * bk) * 2 * stages <= 233472",
    "bm * bn <= 65536",
)


@pytest.mark.slow
def test_a_billion_points_are_counted_exactly() -> None:
    """The count is that of the parts that no constraint joins to the rest, tried one by one."""
    diagram = solve_texts(GEMM, *LARGE)
    assert not diagram.is_part
    sizes = range(16, 513, 16)
    divisors = {size: sum(size % warps == 0 for warps in range(1, 33)) for size in sizes}
    expected = sum(
        divisors[bm] * divisors[bn] * min(32, 233472 // ((bm + bn) * bk * 2))
        for bm, bn, bk in itertools.product(sizes, repeat=3)
        if bm * bn <= 65536
    )
    assert diagram.size == expected
    drawn = [random.Random(seed).randrange(diagram.size) for seed in range(20)]
    assert diagram.numbers_of(diagram.places_of(drawn))[0] == drawn


def test_points_are_drawn_where_few_are_valid() -> None:
    """One in 300,000: each of them has a number, and no other point is looked at."""
    axes = dict.fromkeys("abcdef", tuple(range(8)))
    diagram = solve_texts(axes, "a + b + c + d + e + f == 41")
    assert (diagram.size, math.prod(diagram.lengths)) == (6, 8**6)
    assert {*list_places(diagram)} == {
        tuple(6 if axis == low else 7 for axis in range(6)) for low in range(6)
    }


def test_groups_that_no_constraint_joins_are_not_multiplied() -> None:
    """Whatever the order of the axes: those that belong together come one after another if need be."""
    axes = dict.fromkeys(("a0", "b0", "a1", "b1", "a2", "b2"), tuple(range(1, 13)))
    texts = ("a0 * a1 + a2 * a0 <= 96", "b0 * b1 + b2 * b0 <= 96")
    exprs = [read_constraint(text).expr for text in texts]
    assert choose_order(variables_of(axes), exprs) == (0, 2, 4, 1, 3, 5)
    one = sum(a * (b + c) <= 96 for a, b, c in itertools.product(range(1, 13), repeat=3))
    small = solve(variables_of(axes), exprs, most_steps=12**3)
    assert (small.size, small.is_part, small.order) == (one**2, False, (0, 2, 4, 1, 3, 5))
    assert solve_texts(axes, *texts).order == (0, 1, 2, 3, 4, 5)


def test_an_axis_that_no_constraint_names_is_not_listed() -> None:
    """However long it is; numbers go beyond machine words."""
    axes = {"a": range(10**9), "b": (1, 2, 3), "c": range(10**12), "d": range(10**12)}
    diagram = solve_texts(axes, "b < 3")
    assert diagram.size == 2 * 10**33
    places = np.array([(10**9 - 1, 1, 5, 10**12 - 1), (0, 2, 0, 0)])
    numbers, is_valid = diagram.numbers_of(places)
    assert is_valid.tolist() == [True, False]
    assert diagram.places_of(numbers).tolist() == [places[0].tolist(), [0, 1, 0, 0]]


def test_the_share_of_valid_points_is_estimated() -> None:
    """From points drawn at random, with bounds."""
    axes = {"a": range(10**9), "b": range(10**9)}
    exprs = [read_constraint("a < b").expr]
    low, high = estimate_share(variables_of(axes), exprs)
    assert low < 0.5 < high < low + 0.01


def test_the_fewest_constraints_that_exclude_everything_are_named() -> None:
    """One alone if there is one, and otherwise none that could be left out."""
    axes = {"a": (1, 2, 3), "b": (1, 2, 3)}
    variables = variables_of(axes)
    for texts, expected in (
        (("a < 3", "b > 3", "a > b"), (1,)),
        (("a < 3", "b < a", "b > 1"), (0, 1, 2)),
        (("a < 3", "b <= 3", "a > 2"), (0, 2)),
    ):
        exprs = [read_constraint(text).expr for text in texts]
        assert find_conflict(variables, exprs) == expected
