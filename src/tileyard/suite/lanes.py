"""Simulates when a run ends if golden and check steps share lanes beside the slots on which cases run."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class Timed(NamedTuple):
    """A case: the times of its golden step (0 if that is made), its run and its check step; and whose data it shares.

    ``golden`` names the case whose golden step this one waits for, -1 for none.
    """

    golden_s: float
    run_s: float
    check_s: float
    golden: int


class _Simulation:
    """Pieces on slots; golden steps in the order of the pieces, and checks before them, on lanes."""

    def __init__(
        self, cases: Sequence[Timed], pieces: Sequence[range], slots: int, lanes: int
    ) -> None:
        self._cases = cases
        self._pieces = deque(deque(piece) for piece in pieces)
        order = (case for piece in pieces for case in piece)
        self._goldens = deque(case for case in order if cases[case].golden_s)
        self._checks: deque[int] = deque()
        self._lanes = lanes
        self._made = {-1}
        self._waiting: dict[int, list[deque[int]]] = {}
        self._events: list[tuple[float, int, str, int]] = []
        self._chains: dict[int, deque[int]] = {}
        self._count = 0
        self._free = slots

    def run(self) -> float:
        """The end of the last step, in seconds from the start."""
        now_s = 0.0
        self._fill_lanes(now_s)
        while self._free and self._pieces:
            self._free -= 1
            self._go_on(deque(), now_s)
        while self._events:
            now_s, number, kind, case = heappop(self._events)
            if kind == "run":
                if self._cases[case].check_s:
                    self._checks.append(case)
                self._go_on(self._chains.pop(number), now_s)
            else:
                self._lanes += 1
            if kind == "golden":
                self._made.add(case)
                for chain in self._waiting.pop(case, ()):
                    self._go_on(chain, now_s)
            self._fill_lanes(now_s)
        return now_s

    def _add(self, at_s: float, kind: str, case: int) -> int:
        self._count += 1
        heappush(self._events, (at_s, self._count, kind, case))
        return self._count

    def _fill_lanes(self, now_s: float) -> None:
        while self._lanes and (self._checks or self._goldens):
            self._lanes -= 1
            if self._checks:
                case = self._checks.popleft()
                self._add(now_s + self._cases[case].check_s, "check", case)
            else:
                case = self._goldens.popleft()
                self._add(now_s + self._cases[case].golden_s, "golden", case)

    def _go_on(self, chain: deque[int], now_s: float) -> None:
        """A slot continues with the next case of its piece, then with the next piece, or waits for golden data."""
        if not chain:
            if not self._pieces:
                return
            chain = self._pieces.popleft()
        timed = self._cases[chain[0]]
        if timed.golden not in self._made:
            self._waiting.setdefault(timed.golden, []).append(chain)
            return
        number = self._add(now_s + timed.run_s, "run", chain.popleft())
        self._chains[number] = chain


def simulate_steps(
    cases: Sequence[Timed], pieces: Sequence[range], slots: int, lanes: int
) -> float:
    """The end of the last step, in seconds from the start; ``pieces`` are ranges of cases in the order in which they start."""
    return _Simulation(cases, pieces, slots, lanes).run()
