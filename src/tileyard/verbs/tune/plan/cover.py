"""Chooses few configs that serve all shapes, or most: set cover and maximum coverage, as integer programs.
288 shapes of a GPU's kernel take hundredths of a second; out of time, the best choice so far counts, the
greedy one or better.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, eye_array, hstack

Served = Mapping[str, frozenset[int]]
"""The numbers of the shapes that each config serves well enough, by the config's name."""
LIMIT_S = 20.0
SHORT_S = 0.05


def find_fewest(served: Served) -> tuple[str, ...]:
    """The fewest configs that serve all shapes that any config serves, in the order of their names."""
    useful = _drop_dominated(served)
    shapes = sorted(frozenset().union(*useful.values()))
    greedy = choose_greedily(served, [1.0] * (max(shapes, default=-1) + 1))
    if len(greedy) < 2:
        return greedy
    rows = _rows(useful, shapes)
    found = _solve(np.ones(len(useful)), [LinearConstraint(rows, 1)], len(useful), LIMIT_S)
    chosen = [name for name, is_in in zip(useful, found, strict=False) if is_in]
    is_better = len(chosen) < len(greedy) and _serves(served, chosen) == frozenset(shapes)
    return tuple(sorted(chosen if is_better else greedy))


def draw_curve(
    served: Served, weights: Sequence[float], count: int, limit_s: float = LIMIT_S
) -> list[tuple[str, ...]]:
    """The configs that serve the most shapes, by weight, for 1, 2, ... ``count`` configs; a choice need not
    contain the one before. After ``limit_s`` seconds a point is the solver's best so far, a greedy choice, or
    the point before and the config that adds most, whichever serves more.
    """
    useful = _drop_dominated(served)
    greedy = choose_greedily(served, weights)
    if len(greedy) < 2:
        return [greedy] * count
    # Shapes that the same configs serve are merged.
    alike: dict[tuple[str, ...], float] = {}
    for shape in sorted(frozenset().union(*useful.values())):
        by = tuple(name for name, shapes in useful.items() if shape in shapes)
        alike[by] = alike.get(by, 0.0) + weights[shape]
    groups = {name: frozenset(i for i, by in enumerate(alike) if name in by) for name in useful}
    rows = hstack([_rows(groups, range(len(alike))), -eye_array(len(alike))])
    gains = np.concatenate([np.zeros(len(useful)), -np.array([*alike.values()])])
    chosen = np.concatenate([np.ones(len(useful)), np.zeros(len(alike))])
    curve: list[tuple[str, ...]] = []
    end_s = time.monotonic() + limit_s
    for number in range(1, count + 1):
        best = greedy[:number]
        if 1 < number < len(greedy):  # otherwise there is nothing better
            grown = ((*curve[-1], name) for name in useful)
            limits = [LinearConstraint(rows, 0), LinearConstraint(chosen[None, :], 0, number)]
            left_s = max(end_s - time.monotonic(), SHORT_S)
            found = _solve(gains, limits, len(useful), left_s)
            solved = tuple(name for name, is_in in zip(useful, found, strict=False) if is_in)
            best = max(best, solved, *grown, key=lambda names: _weigh(served, names, weights))
        curve.append(tuple(sorted(set(best))))
    return curve


def choose_greedily(served: Served, weights: Sequence[float]) -> tuple[str, ...]:
    """Configs until all shapes are served, each the one that adds most; ties go to the first name."""
    left, chosen = frozenset().union(*served.values()), []
    names = sorted(served)
    while left:
        chosen.append(max(names, key=lambda name: sum(weights[i] for i in served[name] & left)))
        left -= served[chosen[-1]]
    return tuple(chosen)


def _drop_dominated(served: Served) -> dict[str, frozenset[int]]:
    """``served`` without configs whose shapes another one serves as well; ties keep the first name."""
    kept: dict[str, frozenset[int]] = {}
    for name, shapes in sorted(served.items(), key=lambda one: (-len(one[1]), one[0])):
        if shapes and not any(shapes <= other for other in kept.values()):
            kept[name] = shapes
    return kept


def _rows(served: Served, shapes: Iterable[int]) -> csr_array:
    """A row per shape, with a 1 for each config that serves it."""
    return csr_array(np.array([[i in by for by in served.values()] for i in shapes], dtype=float))


def _solve(
    costs: np.ndarray, limits: list[LinearConstraint], count: int, limit_s: float
) -> Sequence[bool]:
    """Which of the first ``count`` binary unknowns are 1 at least cost; empty if none found in time."""
    whole = np.concatenate([np.ones(count), np.zeros(len(costs) - count)])
    done = milp(
        costs,
        integrality=whole,
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"time_limit": limit_s},
    )
    return [] if done.x is None else [bool(one > 0.5) for one in done.x[:count]]


def _serves(served: Served, chosen: Iterable[str]) -> frozenset[int]:
    return frozenset().union(*(served[name] for name in chosen))


def _weigh(served: Served, chosen: Iterable[str], weights: Sequence[float]) -> float:
    return sum(weights[i] for i in sorted(_serves(served, chosen)))
