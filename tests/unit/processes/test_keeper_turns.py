"""Whose turn it is: users first, then their jobs, then age; and what must hold in every queue."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.processes.keeper.deciding import AGEING_NS
from tileyard.processes.keeper.turns import LAPSE_NS, Asked, put_in_order

CARD, OTHER_CARD = "0000000a00000001", "0000000a00000002"
Taken = dict[tuple[int, str, str], int]


def asked(at: int, job: str = "a", uid: int = 1, priority: int = 0, pool: str = CARD) -> Asked:
    """A request."""
    return Asked(f"{priority}.{at:020d}.{at}.f.{job}.{pool}", uid, at, 1000)


def shown(queue: list[Asked], taken: Taken | None = None) -> str:
    """The order, as the jobs and times of the requests."""
    return " ".join(f"{one.job}{one.asked_ns}" for one in put_in_order(queue, taken or {}))


@pytest.mark.parametrize(
    ("queue", "taken", "expected"),
    [
        ([asked(n) for n in (3, 1, 2)], {}, "a1 a2 a3"),
        ([asked(1), asked(2), asked(3), asked(4, "b")], {}, "a1 b4 a2 a3"),
        ([asked(3), asked(4, "b")], {(1, "a", CARD): 2, (1, "b", CARD): 1}, "b4 a3"),
        ([asked(3), asked(4, "b")], {(1, "a", CARD): 2}, "a3 b4"),
        # a user with two jobs gets no more than one with a single one
        ([asked(1), asked(2, "b"), asked(3, "c", 2), asked(4, "c", 2)], {}, "a1 c3 b2 c4"),
        ([asked(1), asked(2), asked(9, "u", priority=1)], {}, "u9 a1 a2"),
        ([asked(1), asked(AGEING_NS + 2, "u", priority=1)], {}, f"a1 u{AGEING_NS + 2}"),
        # turns on other devices of the class count, but not for ever
        ([asked(1), asked(5, "b")], {(1, "a", OTHER_CARD): 9, (1, "b", CARD): 8}, "b5 a1"),
        (
            [asked(1), asked(5, "b")],
            {(1, "a", OTHER_CARD): 9 + LAPSE_NS, (1, "b", CARD): 8 + LAPSE_NS},
            "a1 b5",
        ),
        ([asked(5), asked(6, "b")], {(1, "a", "0000000b00000001"): 9}, "a5 b6"),
    ],
)
def test_turns_go_round(queue: list[Asked], taken: Taken, expected: str) -> None:
    """Users first, then the jobs of each; within a job the oldest first, and priorities before all."""
    assert shown(queue, taken) == expected
    assert shown(queue[::-1], taken) == expected


def test_requests_of_an_earlier_version_are_one_job() -> None:
    """Their names say neither the job nor what they ask for."""
    old = Asked("0.00000000000000000001.7.f", 1, 1, 1000)
    assert (old.job, old.pool) == ("", "")
    assert put_in_order([asked(2), old], {})[0] is old


requests = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.integers(0, 1)), min_size=1, max_size=14
)


@given(requests, st.randoms(use_true_random=False))
def test_a_grant_changes_nobody_elses_place(
    kinds: list[tuple[str, int, int]], chance: random.Random
) -> None:
    """So who waits for the one ahead waits for the right one; no request of a job overtakes an older one."""
    queue = [asked(n + 1, job, uid, priority) for n, (job, uid, priority) in enumerate(kinds)]
    taken: Taken = {(1, "a", CARD): chance.randint(-9, 0), (2, "b", CARD): chance.randint(-9, 0)}
    for now in range(100, 100 + len(queue)):
        order = [one for one in put_in_order(queue, taken) if one.priority == 0]
        for job in {(one.uid, one.job) for one in order}:
            ages = [one.asked_ns for one in order if (one.uid, one.job) == job]
            assert ages == sorted(ages)
        if order:
            queue.remove(order[0])
            taken[order[0].uid, order[0].job, CARD] = now
            assert [one for one in put_in_order(queue, taken) if one.priority == 0] == order[1:]
