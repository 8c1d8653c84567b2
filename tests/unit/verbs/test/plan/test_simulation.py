"""The model of slots and launches, against a slow and obviously right one."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.verbs.test.plan.plan import simulate, simulate_chains

ticks = st.integers(0, 30)
chains = st.lists(st.lists(ticks, min_size=1, max_size=4), max_size=12)


def step_through(pieces: list[list[int]], slots: int, launch: int) -> list[int]:
    """When each piece ends, by looking at every slot in every tick."""
    ends = [0] * len(pieces)
    free_at, piece_of = [0] * slots, [-1] * slots
    left: list[list[int]] = [[] for _ in range(slots)]
    waiting, launcher_free, now = 0, 0, 0
    while waiting < len(pieces) or any(piece >= 0 for piece in piece_of):
        for slot in sorted(range(slots), key=lambda slot: (free_at[slot], slot)):
            while free_at[slot] <= now:
                if piece_of[slot] >= 0 and not left[slot]:
                    ends[piece_of[slot]] = free_at[slot]
                    piece_of[slot] = -1
                if piece_of[slot] < 0:
                    if waiting == len(pieces):
                        break
                    piece_of[slot], left[slot] = waiting, list(pieces[waiting])
                    waiting += 1
                if launcher_free > now:
                    break
                launcher_free = now + launch
                free_at[slot] = now + left[slot].pop(0)
        now += 1
    return ends


@pytest.mark.slow
@settings(deadline=None)
@given(chains, st.integers(1, 5))
def test_without_launches_a_piece_is_the_sum_of_its_cases(
    pieces: list[list[int]], slots: int
) -> None:
    """Both models say the same as the slow one."""
    expected = step_through(pieces, slots, 0)
    assert simulate_chains(pieces, slots) == expected
    assert simulate([sum(piece) for piece in pieces], slots) == expected


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.integers(3, 30), max_size=12), st.integers(1, 5))
def test_launches_come_one_after_another(lengths: list[int], slots: int) -> None:
    """No two processes start within the time that one start takes."""
    launch = 3
    ends = simulate(lengths, slots, launch)
    begins = sorted(end - length for end, length in zip(ends, lengths, strict=True))
    expected = [[length] for length in lengths]
    assert all(later - earlier >= launch for earlier, later in pairwise(begins))
    assert simulate_chains(expected, slots, launch) == ends


def test_64_starts_at_once_take_their_time() -> None:
    """The last of them begins when all the others have been started."""
    expected = 63 * 0.5 + 10.0
    assert max(simulate([10.0] * 64, 64, 0.5)) == expected


def test_a_chain_waits_for_the_launcher_at_each_of_its_cases() -> None:
    """Two slots with chains of two: starts at 0, 2, 4 and 6."""
    expected = [7.0, 9.0]
    assert simulate_chains([[3.0, 3.0], [3.0, 3.0]], 2, 2.0) == expected


def test_nothing_takes_no_time() -> None:
    """No piece, no end."""
    expected: list[float] = []
    assert simulate([], 3) == expected
    assert simulate_chains([], 3, 1.0) == expected
