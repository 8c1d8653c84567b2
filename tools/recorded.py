"""What is recorded of the tests, in ``tests/recorded.json``: what they cost, and which of them cover each
module best.

A test file has the CPU seconds of its quick tests, unless these can reach all modules, and those of all its
tests. A test that covers a module has its own CPU seconds, what it needs of what others need, too, and the
lines that it adds to those of the tests chosen before it. A module is named without ``tileyard``.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

FILE = Path("tests/recorded.json")
MOST_TESTS = 12
MOST_CPU_S = 120.0
LEAST_CPU_S = 0.05
"""What each test costs at least, if nothing could be measured."""
REPEATED = 0.2
"""What a line counts that another test has run already, instead of 1."""
LEAST_LINES = 0.5
SAME = 1.3
"""Costs that differ by less than this factor are the same, so that a new recording changes few lines of
the file."""


class CoveringTest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A test that covers modules."""

    cpu_s: float
    needs: tuple[str, ...] = ()
    covers: dict[str, int] = {}


class Recorded(msgspec.Struct, frozen=True):
    """All that is recorded. ``shared`` are the CPU seconds of what several tests need, by name."""

    shared: dict[str, float] = {}
    files: dict[str, float] = {}
    whole_files: dict[str, float] = {}
    tests: dict[str, CoveringTest] = {}

    def price(self, test: CoveringTest, paid: set[str]) -> float:
        """The CPU seconds of a test beside others that have paid for what they need."""
        return test.cpu_s + sum(
            self.shared.get(name, 0.0) for name in test.needs if name not in paid
        )


def read_recorded(path: Path = FILE) -> Recorded:
    """What the file says; nothing if there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Recorded) if path.exists() else Recorded()


def write_recorded(recorded: Recorded, path: Path = FILE) -> None:
    """Write the file, sorted, a line for each number."""
    text = json.dumps(msgspec.to_builtins(recorded), indent=1, sort_keys=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def settle(cost_s: float, before_s: float | None) -> float:
    """A cost to two digits; what it was before if that is about the same."""
    if before_s and 1 / SAME < max(cost_s, LEAST_CPU_S) / before_s < SAME:
        return before_s
    return float(f"{max(cost_s, LEAST_CPU_S):.2g}")


def cover(
    ran: "np.ndarray[Any, np.dtype[np.bool_]]",
    costs: Sequence[tuple[float, Sequence[str]]],
    shared: Mapping[str, float],
) -> list[tuple[int, int]]:
    """The tests that cover lines at the least cost, best first, each with the lines that it adds, at least 1.
    ``ran`` has a row for each test and a column for each line, ``costs`` has a test's own CPU seconds and
    what it needs of ``shared``. Each test chosen has the most new lines per CPU second; lines that ran before
    count a little.
    """
    worth = np.ones(ran.shape[1])
    chosen: list[tuple[int, int]] = []
    paid: set[str] = set()
    spent_s = 0.0
    while len(chosen) < MOST_TESTS:
        prices = np.array(
            [own + sum(shared[name] for name in needs if name not in paid) for own, needs in costs]
        )
        gains = ran @ worth
        gains[[index for index, _ in chosen]] = 0.0
        gains[(gains < LEAST_LINES) | (spent_s + prices > MOST_CPU_S)] = 0.0
        if not gains.any():
            break
        best = int(np.argmax(gains / prices))
        chosen.append((best, max(1, round(float(gains[best])))))
        spent_s += float(prices[best])
        paid.update(costs[best][1])
        worth[ran[best]] *= REPEATED
    return chosen
