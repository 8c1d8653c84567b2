"""Decides who gets which devices: a pure function of the requests, their order, and what is taken.
A request asks for ``count`` devices, each with parts that one lease at a time can hold. In order,
each request claims every part it could use, and no later one may take these: nobody starves. It
receives all in one step: nobody waits while holding. The first in the chain of a part waits for its
holder, others for the one ahead: each change wakes one.
"""

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Iterable

AGEING_NS = 60 * 10**9
"""Nanoseconds of waiting that weigh as much as one step of priority."""


class Choice:
    """A suitable device, and its parts."""

    def __init__(self, device: str, parts: tuple[str, ...]) -> None:
        self.device = device
        self.parts = parts


class Wish:
    """``count`` devices of ``choices``, the first ones preferred."""

    def __init__(self, choices: tuple[Choice, ...], count: int = 1) -> None:
        self.choices = choices
        self.count = count


class Decision:
    """The result for a request: ``devices``, or what it waits for: taken ``parts`` for which it is
    next, or indexes of requests ``ahead``, 0 for the nearest. Both empty: too few devices are well.
    """

    def __init__(
        self,
        devices: tuple[Choice, ...] = (),
        parts: tuple[str, ...] = (),
        ahead: tuple[int, ...] = (),
    ) -> None:
        self.devices = devices
        self.parts = parts
        self.ahead = ahead


def order_key(priority: int, asked_ns: int) -> int:
    """A request's sort key, lower first. A higher priority is a lead in time: the order never changes."""
    return asked_ns - priority * AGEING_NS


def pick(wish: Wish, taken: set[str]) -> tuple[Choice, ...]:
    """``count`` devices without ``taken`` parts, fewest parts first if several; empty if too few."""
    choices = sorted(wish.choices, key=lambda c: len(c.parts)) if wish.count > 1 else wish.choices
    used = set(taken)
    picked: list[Choice] = []
    for choice in choices:
        if used.isdisjoint(choice.parts):
            used.update(choice.parts)
            picked.append(choice)
            if len(picked) == wish.count:
                return tuple(picked)
    return ()


def parts_of(wish: Wish, sick: set[str]) -> set[str]:
    """All parts that the wish claims; none if too few of its devices are well."""
    if not pick(wish, sick):
        return set()
    return {p for c in wish.choices if sick.isdisjoint(c.parts) for p in c.parts}


def decide(wish: Wish, ahead: "Iterable[Wish]", busy: set[str], sick: set[str]) -> Decision:
    """The result for a wish, given ``busy`` and ``sick`` parts, and the wishes ``ahead``, nearest first."""
    wanted = parts_of(wish, sick)
    if not wanted:
        return Decision()
    claims: dict[str, int] = {}  # for each part, the index of the request directly ahead
    for index, other in enumerate(ahead):
        for part in parts_of(other, sick) & wanted:
            claims.setdefault(part, index)
        if len(claims) == len(wanted):
            break
    devices = pick(wish, busy | sick | claims.keys())
    if devices:
        return Decision(devices)
    return Decision(
        parts=tuple(sorted(p for p in wanted & busy if p not in claims)),
        ahead=tuple(sorted(set(claims.values()))),
    )


def find_due(wishes: list[Wish], busy: set[str], sick: set[str]) -> list[int]:
    """The wishes, in order, that could be granted now: an owner who does not look blocks those after it."""
    due = []
    claimed: set[str] = set()
    for index, wish in enumerate(wishes):
        if pick(wish, busy | sick | claimed):
            due.append(index)
        claimed |= parts_of(wish, sick)
    return due
