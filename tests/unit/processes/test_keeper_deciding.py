"""Who gets what: tables for the rules, and random queues for what must never happen."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.processes.keeper.deciding import (
    AGEING_NS,
    Choice,
    Wish,
    decide,
    find_due,
    order_key,
    parts_of,
)

A, B, C = (Choice(name, (name,)) for name in "abc")
ALL = Choice("all", ("a", "b", "c"))


def names(choices: Sequence[Choice]) -> list[str]:
    """The devices' names."""
    return [choice.device for choice in choices]


@pytest.mark.parametrize(
    ("wish", "ahead", "busy", "expected"),
    [
        (Wish((A,)), [], "", ["a"]),
        (Wish((A, B)), [], "a", ["b"]),
        (Wish((A, B)), [], "ab", []),
        (Wish((A, B), 2), [], "", ["a", "b"]),
        (Wish((A, B), 2), [], "b", []),
        (Wish((ALL,)), [], "c", []),
        (Wish((ALL, A, B), 2), [], "", ["a", "b"]),
        (Wish((A,)), [Wish((A,))], "", []),
        (Wish((A,)), [Wish((B,))], "b", ["a"]),
        (Wish((A,)), [Wish((A, B), 2)], "b", []),
        (Wish((B,)), [Wish((A, B))], "a", []),
        (Wish((C,)), [Wish((ALL,))], "a", []),
        (Wish((A, C)), [Wish((A, B), 2)], "b", ["c"]),
    ],
)
def test_a_request_gets_what_nobody_has_or_claims(
    wish: Wish, ahead: list[Wish], busy: str, expected: list[str]
) -> None:
    """All that is wished for, from the first choices that are free and unclaimed, or nothing."""
    assert names(decide(wish, ahead, set(busy), set()).devices) == expected


def test_a_chain_waits_for_the_one_right_ahead() -> None:
    """The first of a chain waits for the holder; the others each for one request, the nearest."""
    queue = [Wish((A,)), Wish((A,)), Wish((A,))]
    first = decide(queue[0], [], {"a"}, set())
    third = decide(queue[2], [queue[1], queue[0]], {"a"}, set())
    assert (first.parts, first.ahead) == (("a",), ())
    assert (third.parts, third.ahead) == ((), (0,))


def test_a_request_for_two_devices_waits_for_both_chains() -> None:
    """Where the chains differ, it is woken by a change in either."""
    decision = decide(Wish((A, B, C), 2), [Wish((B,)), Wish((A,))], {"a", "b", "c"}, set())
    assert (decision.parts, decision.ahead) == (("c",), (0, 1))


def test_only_the_nearest_of_each_chain_counts() -> None:
    """Those further ahead are the business of those in between."""
    ahead = [Wish((A,)), Wish((A,)), Wish((B,)), Wish((B,))]
    expected = (0, 2)
    assert decide(Wish((A, B), 2), ahead, set(), set()).ahead == expected


def test_sick_devices_are_no_choice() -> None:
    """What is in quarantine is neither given nor claimed, and waiting for nothing else is refused."""
    assert names(decide(Wish((A, B)), [], set(), {"a"}).devices) == ["b"]
    assert names(decide(Wish((B,)), [Wish((A, B), 2)], set(), {"a"}).devices) == ["b"]
    hopeless = decide(Wish((A, B), 2), [], {"b"}, {"a"})
    assert (hopeless.devices, hopeless.parts, hopeless.ahead) == ((), (), ())


def test_a_device_that_contains_a_sick_part_is_sick() -> None:
    """All cores are not fit for use while one of them is not."""
    assert names(decide(Wish((ALL, B)), [], set(), {"a"}).devices) == ["b"]


@pytest.mark.parametrize(
    ("priority", "waited", "other", "other_waited", "is_first"),
    [
        (0, 2.0, 0, 1.0, True),
        (1, 0.0, 0, 0.5, True),
        (1, 0.0, 0, 1.5, False),
        (-1, 5.0, 0, 0.0, True),
        (3, 0.0, 1, 2.5, False),
    ],
)
def test_waiting_counts_as_much_as_priority(
    priority: int, waited: float, other: int, other_waited: float, is_first: bool
) -> None:
    """One step of priority is worth one ageing interval, so nobody is overtaken for ever."""
    now = 10**18
    mine = order_key(priority, now - int(waited * AGEING_NS))
    theirs = order_key(other, now - int(other_waited * AGEING_NS))
    assert (mine < theirs) == is_first


def test_who_only_has_to_look_is_due() -> None:
    """A request that could be granted is told from one that rightly waits."""
    queue = [Wish((A, B), 2), Wish((B,)), Wish((C,))]
    expected = [2]
    assert find_due(queue, {"a"}, set()) == expected


# ---- queues of all kinds ----------------------------------------------------------------------

choices = st.lists(st.sampled_from([A, B, C, ALL, Choice("bc", ("b", "c"))]), min_size=1,
                   unique=True)  # fmt: skip
wishes = st.builds(
    lambda several, count: Wish(tuple(several), count), choices, st.integers(1, 2)
).filter(lambda wish: bool(parts_of(wish, set())))


class Host:
    """A host on which everybody looks again only when what they wait for has changed."""

    def __init__(self, queue: list[Wish]) -> None:
        self.queue = list(enumerate(queue))
        self.held: dict[int, set[str]] = {}
        self.waits: dict[int, tuple[set[str], set[int]]] = {}
        self.served: list[int] = []
        for index, _ in list(self.queue):
            self.look(index)

    @property
    def busy(self) -> set[str]:
        """All parts that are held."""
        return {part for parts in self.held.values() for part in parts}

    def look(self, index: int) -> None:
        """One of them decides; who waited for its place looks next."""
        place = [number for number, _ in self.queue].index(index)
        ahead = list(reversed(self.queue[:place]))
        decision = decide(dict(self.queue)[index], [wish for _, wish in ahead], self.busy, set())
        if not decision.devices:
            self.waits[index] = set(decision.parts), {ahead[i][0] for i in decision.ahead}
            assert self.waits[index] != (set(), set())
            return
        parts = {part for choice in decision.devices for part in choice.parts}
        assert self.busy.isdisjoint(parts)
        assert sum(len(choice.parts) for choice in decision.devices) == len(parts)
        self.held[index] = parts
        self.served.append(index)
        self.leave(index)

    def leave(self, index: int) -> None:
        """A request leaves the queue, granted or not."""
        self.queue = [(number, wish) for number, wish in self.queue if number != index]
        self.waits.pop(index, None)
        for other in [n for n, (_, ahead) in self.waits.items() if index in ahead]:
            if other in self.waits:
                self.look(other)

    def release(self, index: int) -> None:
        """A holder gives back what it had."""
        parts = self.held.pop(index)
        woken = [n for n, (waited, _) in self.waits.items() if waited & parts]
        assert len(woken) <= len(parts)  # nobody is woken for nothing
        for other in woken:
            if other in self.waits:
                self.look(other)


@given(st.lists(wishes, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_everybody_is_served_with_no_look_but_when_woken(
    queue: list[Wish], chance: random.Random
) -> None:
    """No double grant, no deadlock, no starvation and no lost wake-up, whatever is wished for."""
    host = Host(queue)
    while host.held or host.queue:
        assert host.held, "everybody waits and nobody holds"
        if host.queue and chance.random() < 0.2:
            gone = chance.choice(host.queue)[0]
            host.leave(gone)
            host.served.append(gone)
        else:
            host.release(chance.choice(sorted(host.held)))
    assert sorted(host.served) == list(range(len(queue)))


@given(st.lists(wishes, min_size=2, max_size=10), st.randoms(use_true_random=False))
def test_equal_wishes_are_served_in_order(queue: list[Wish], chance: random.Random) -> None:
    """Who asked first is served first, among those who want the same."""
    host = Host(queue)
    while host.held:
        host.release(chance.choice(sorted(host.held)))
    for wish in queue:
        equal = [
            i for i, q in enumerate(queue) if (q.choices, q.count) == (wish.choices, wish.count)
        ]
        assert [index for index in host.served if index in equal] == equal
