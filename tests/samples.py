"""Samples of sweeps: what a case contains, and few cases that together contain everything.

``make test`` runs a sample, always the same one; ``make test-all`` runs all cases.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from tileyard.ir.nodes import Node, Op, Program

IS_WHOLE = "TILEYARD_SWEEPS" in os.environ
"""Whether everything runs of which a sample is run otherwise."""


def list_contents(program: Program) -> set[str]:
    """Every scalar operation, scalar type, and kind of statement, loop, reduction and atomic update."""
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
    """Few cases that have everything which any case has. One after another: always the one that adds most,
    and of these the smallest.
    """
    left = set().union(*contents.values())
    chosen: list[str] = []
    while left:
        chosen.append(
            min(contents, key=lambda one: (-len(contents[one] & left), len(contents[one]), one))
        )
        left -= contents[chosen[-1]]
    return chosen


def check_sample(cases: Iterable[Any], sample: Iterable[Any]) -> None:
    """Raise ValueError if a sample is empty or has what is no case, as when a case was renamed."""
    known, kept = list(cases), list(sample)
    if not kept:
        raise ValueError("the sample is empty")
    if unknown := [one for one in kept if one not in known]:
        raise ValueError(f"the sample has what is no case: {unknown}")


def sampled(cases: Iterable[Any], sample: Iterable[Any]) -> list[Any]:
    """Values for ``parametrize``: those that are not in ``sample`` run in ``make test-all`` alone. Raises
    ValueError if the sample is empty or has what is no case.
    """
    known, kept = list(cases), list(sample)
    check_sample(known, kept)
    return [
        case
        if case in kept
        else pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.sweep(0)
        )
        for case in known
    ]
