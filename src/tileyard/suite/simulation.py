"""When pieces end on a number of slots, computed and not run: the model behind every prediction.

One queue in a given order; whichever slot is free first takes the next piece. A process takes
``launch_s`` to be started, and nothing else can be started meanwhile, as on a host with few cores.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace


def simulate(lengths_s: Sequence[float], slots: int, launch_s: float = 0.0) -> list[float]:
    """When each piece ends, in seconds from the start; one process a piece, in the order given.

    ``launch_s`` is a part of each length, the first.
    """
    free_s = [0.0] * min(slots, len(lengths_s))
    launcher_s = 0.0
    ends_s = []
    for length_s in lengths_s:
        begin_s = free_s[0]
        if launch_s:
            begin_s = max(begin_s, launcher_s)
            launcher_s = begin_s + launch_s
        ends_s.append(begin_s + length_s)
        heapreplace(free_s, begin_s + length_s)
    return ends_s


def simulate_chains(
    chains_s: Sequence[Sequence[float]], slots: int, launch_s: float = 0.0
) -> list[float]:
    """When each piece ends where it is a chain of processes, one for each of its cases."""
    if not launch_s:
        return simulate([sum(chain) for chain in chains_s], slots)
    ends_s = [0.0] * len(chains_s)
    launcher_s, waiting = 0.0, 0
    # When a slot is free, who it is (ties go to the first), and what it goes on with.
    busy = [(0.0, slot, -1, 0) for slot in range(min(slots, len(chains_s)))]
    heapify(busy)
    while busy:
        now_s, slot, piece, place = busy[0]
        if piece >= 0 and place == len(chains_s[piece]):
            ends_s[piece] = now_s
            piece = -1
        if piece < 0:
            if waiting == len(chains_s):
                heappop(busy)
                continue
            piece, place, waiting = waiting, 0, waiting + 1
        begin_s = max(now_s, launcher_s)
        launcher_s = begin_s + launch_s
        heapreplace(busy, (begin_s + chains_s[piece][place], slot, piece, place + 1))
    return ends_s
