"""How times depend on parameters, computed from configs."""

import math
from itertools import product

import pytest

from tileyard.verbs.tune.view.picture import (
    MOST_LEVELS,
    Cell,
    Tried,
    find_effects,
    list_values,
    map_parameters,
)


def try_all(times_ns: dict[tuple[int, int], float | None]) -> list[Tried]:
    """Configs of two parameters."""
    return [Tried(config={"a": a, "b": b}, time_ns=ns) for (a, b), ns in times_ns.items()]


def test_the_parameter_that_decides_is_the_first() -> None:
    """One that explains all has a share of 1, one without effect 0; one with a single value is left out."""
    tried = [
        Tried(config={"idle": b, "only": 1, "decides": a}, time_ns=float(2**a))
        for a, b in product(range(3), range(4))
    ]
    found = find_effects(tried, list_values(tried))
    assert [(one.parameter, round(one.share, 12)) for one in found] == [
        ("decides", 1.0),
        ("idle", 0.0),
    ]
    assert [level.name for level in found[0].levels] == ["0", "1", "2"]
    assert [level.times_ns for level in found[0].levels] == [(1.0,) * 4, (2.0,) * 4, (4.0,) * 4]


def test_the_share_is_the_adjusted_r_squared() -> None:
    """By hand: of the logarithms 0, 1 and 2, 3 the sum of squares is 1 within the groups, and 5 in all."""
    tried = try_all({(a, b): math.exp(2 * a + b) for a in (0, 1) for b in (0, 1)})
    assert find_effects(tried, list_values(tried))[0].share == pytest.approx(1 - (1 / 2) / (5 / 3))


def test_a_value_for_each_config_explains_nothing() -> None:
    """Its groups have one time each, which says nothing of the spread within."""
    tried = [Tried(config={"a": a}, time_ns=1.0 + a) for a in range(MOST_LEVELS)]
    assert [one.share for one in find_effects(tried, list_values(tried))] == [0.0]


def test_many_values_are_joined_to_neighbours() -> None:
    """Each config is in one level, in the order of the values, which are numbers here."""
    tried = [Tried(config={"a": a}, time_ns=1.0) for a in reversed(range(100))]
    (effect,) = find_effects(tried, list_values(tried))
    assert len(effect.levels) == MOST_LEVELS
    assert (effect.levels[0].name, effect.levels[-1].name) == ("0..11", "87..99")
    assert sum(level.tried for level in effect.levels) == 100


def test_values_that_print_alike_differ() -> None:
    """A truth value is no number, and a text none either."""
    tried = [Tried(config={"a": a}, time_ns=1.0) for a in (True, 1, "x")]
    assert [level.name for level in find_effects(tried, list_values(tried))[0].levels] == [
        "True",
        "1",
        "x",
    ]


def test_a_map_has_the_best_time_of_each_cell() -> None:
    """A cell of failures has none, and neither has one that nothing was tried in; these differ."""
    tried = [*try_all({(0, 0): 3.0, (0, 1): None, (1, 1): 5.0}), *try_all({(0, 0): 2.0})]
    found = map_parameters(tried, list_values(tried), "a", "b")
    assert (found.columns, found.rows) == (("0", "1"), ("0", "1"))
    assert found.cells == (
        (Cell(tried=2, best_ns=2.0), Cell(tried=0, best_ns=None)),
        (Cell(tried=1, best_ns=None), Cell(tried=1, best_ns=5.0)),
    )


def test_a_conditional_parameter_counts_where_it_is() -> None:
    """Configs without it are in none of its levels."""
    tried = [Tried(config={"a": 1, "b": b}, time_ns=1.0) for b in (1, 2)]
    tried.append(Tried(config={"a": 1}, time_ns=1.0))
    (effect,) = find_effects(tried, list_values(tried))
    assert [(level.name, level.tried) for level in effect.levels] == [("1", 1), ("2", 1)]
