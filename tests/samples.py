"""Samples of sweeps: what a case contains, and few cases that together contain everything.

``make test`` runs a sample, always the same one; ``make test-all`` runs all cases.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from tileyard.ir.nodes import Node, Op, Program


def list_contents(program: Program) -> set[str]:
    """Every scalar operation, scalar type, and kind of statement, loop, reduction and atomic update in a Program."""
    found: set[str] = set()
    for node in walk_nodes(program):
        tag = str(node.__struct_config__.tag)
        found.add(f"{tag} {getattr(node, 'kind', '')}".strip())
        if isinstance(node, Op):
            found.add(f"operation {node.name}")
        if dtype := getattr(node, "dtype", ""):
            found.add(f"type {dtype}")
    return found


def walk_nodes(part: object) -> Iterator[Node]:
    """All nodes of a Program, or of a part of it."""
    if isinstance(part, tuple):
        for one in part:
            yield from walk_nodes(one)
    elif isinstance(part, Node):
        yield part
        for name in part.__struct_fields__:
            yield from walk_nodes(getattr(part, name))


def choose_cases(contents: Mapping[str, set[str]]) -> list[str]:
    """Few cases that have everything which any case has: again and again the one that adds most, and of these the smallest."""
    left = set().union(*contents.values())
    chosen: list[str] = []
    while left:
        chosen.append(
            min(contents, key=lambda one: (-len(contents[one] & left), len(contents[one]), one))
        )
        left -= contents[chosen[-1]]
    return chosen


def sampled(cases: Iterable[Any], sample: Iterable[Any]) -> list[Any]:
    """Values for ``parametrize``: those that are not in ``sample`` run in ``make test-all`` alone."""
    kept = list(sample)
    return [
        case
        if case in kept
        else pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.sweep(0)
        )
        for case in cases
    ]
