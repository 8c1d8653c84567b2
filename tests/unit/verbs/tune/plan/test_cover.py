"""The fewest configs that serve all shapes, and those that serve most of them."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.verbs.tune.plan import cover
from tileyard.verbs.tune.plan.cover import choose_greedily, draw_curve, find_fewest

SHAPES = 7
TABLES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.frozensets(st.integers(0, SHAPES - 1), max_size=4),
    min_size=1,
)
WEIGHTS = st.lists(st.integers(1, 9).map(float), min_size=SHAPES, max_size=SHAPES)
TRAP = {
    "left": frozenset({0, 1, 2}),
    "right": frozenset({3, 4, 5}),
    "tempting": frozenset({1, 2, 3, 4}),
}
"""The config that serves the most shapes is in no smallest table."""


def reach(served: cover.Served, chosen: tuple[str, ...]) -> frozenset[int]:
    """The shapes that some configs serve together."""
    return frozenset().union(*(served[name] for name in chosen))


def weigh(served: cover.Served, chosen: tuple[str, ...], weights: list[float]) -> float:
    """Their weight."""
    return sum(weights[shape] for shape in reach(served, chosen))


@settings(max_examples=15)
@given(TABLES)
def test_no_smaller_table_serves_all(served: dict[str, frozenset[int]]) -> None:
    """By trying all of them."""
    found = find_fewest(served)
    everything = reach(served, tuple(served))
    assert reach(served, found) == everything
    smaller = itertools.combinations(served, max(len(found) - 1, 0))
    assert not everything or all(reach(served, chosen) != everything for chosen in smaller)


@settings(max_examples=15)
@given(TABLES, WEIGHTS)
def test_no_other_choice_serves_more(
    served: dict[str, frozenset[int]], weights: list[float]
) -> None:
    """At each point of the curve, by trying all of them."""
    curve = draw_curve(served, weights, 3)
    assert len(curve) == 3
    for count, chosen in enumerate(curve, start=1):
        assert len(chosen) <= count
        others = itertools.combinations(served, min(count, len(served)))
        assert weigh(served, chosen, weights) == max(weigh(served, one, weights) for one in others)


def test_the_greedy_choice_can_be_worse() -> None:
    """It takes the config that adds most."""
    assert choose_greedily(TRAP, [1.0] * 6) == ("tempting", "left", "right")
    assert find_fewest(TRAP) == ("left", "right")
    assert draw_curve(TRAP, [1.0] * 6, 2) == [("tempting",), ("left", "right")]


def test_weights_decide_what_is_served_first() -> None:
    """A shape that occurs often counts more than two that do not."""
    assert draw_curve(TRAP, [9.0, 1, 1, 1, 1, 1], 1) == [("left",)]


def test_without_a_solution_the_greedy_choice_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that finds nothing in its time makes nothing worse."""
    monkeypatch.setattr(cover, "milp", lambda *_, **__: type("Nothing", (), {"x": None}))
    assert find_fewest(TRAP) == ("left", "right", "tempting")
    assert draw_curve(TRAP, [1.0] * 6, 2) == [("tempting",), ("left", "tempting")]


def test_no_config_serves_no_shape() -> None:
    """Where nothing passed, the table is empty."""
    assert find_fewest({}) == ()
    assert find_fewest({"a": frozenset()}) == ()
