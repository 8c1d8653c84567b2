"""Finds checks that several jobs run on identical content, and decides which job keeps each of them."""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

from msgspec.structs import replace

from tileyard.base.model import Digest, Record
from tileyard.verbs.ci.plan.jobs import Check, CiJob

EXACT = 12
"""Up to this number of jobs that may end up empty, all sets of jobs are compared."""


class Duplicate(Record):
    """A check that several jobs run. ``keeper`` continues to, the others dropping it ``saves_s``.
    ``independent`` jobs run it as well and are not changed.
    """

    identity: Digest
    name: str
    jobs: tuple[str, ...]
    keeper: str
    saves_s: float
    is_guess: bool = False
    independent: tuple[str, ...] = ()


class Spot(Record):
    """Where something is done: job, ``file:line``, command, and conditions. Only a job that ``can_keep`` it,
    as it always runs when the others do, can do it for them. At the events ``still`` it is no duplicate.
    """

    job: str
    where: str
    command: str
    seconds: float = 0.0
    is_guess: bool = False
    conditions: tuple[str, ...] = ()
    can_keep: bool = True
    still: tuple[str, ...] = ()


class Finding(Record):
    """Something that several jobs do (``build``, ``tests``, ``command``, ``label``), or tests in two trees
    (``copies``). ``differences`` are those between the places. Jobs that never run ``together`` save nothing.
    Of the common ``tests`` ``differing`` have other files. ``because``: why no job can keep it for the
    others.
    """

    kind: str
    what: str
    spots: tuple[Spot, ...]
    identity: Digest
    differences: dict[str, tuple[str, ...]] = {}
    together: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    differing: int = 0
    keeper: str = ""
    because: str = ""


class JobShare(Record):
    """The part of a job that runs elsewhere too. A job without ``rest`` can be removed, with its set-up."""

    name: str
    checks: int
    seconds: float
    dropped: tuple[str, ...] = ()
    saves_s: float = 0.0
    is_independent: bool = False

    @property
    def rest(self) -> int:
        """Number of checks that it keeps."""
        return self.checks - len(self.dropped)


class Duplicates(Record):
    """All jobs as named, and all duplicates, of which ``guessed`` never ran, so their savings are a guess.
    ``also_independent`` checks are run by an independent and one other job, and not reported. ``findings``
    are those in workflows; ``unseen`` are commands whose tests cannot be seen.
    """

    jobs: tuple[JobShare, ...]
    duplicates: tuple[Duplicate, ...]
    seconds: float
    saves_s: float
    guessed: int = 0
    also_independent: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unseen: tuple[Spot, ...] = ()


def find_duplicates(jobs: Sequence[CiJob]) -> Duplicates:
    """Work that jobs do on identical content, and the cheapest way to keep each check once: the least work,
    set-up included, then the fewest jobs, then what was named first. Independent jobs are not included.
    """
    own = [_merge(job.checks) for job in jobs]
    owners: dict[Digest, list[int]] = {}
    spared: dict[Digest, list[str]] = {}
    for number, job in enumerate(jobs):
        for identity in own[number]:
            if job.is_independent:
                spared.setdefault(identity, []).append(job.name)
            else:
                owners.setdefault(identity, []).append(number)
    shared = {
        identity: found
        for identity, found in owners.items()
        if len(found) > 1 and any(own[number][identity].can_keep for number in found)
    }
    keepers = _choose_keepers(jobs, own, owners, shared)
    duplicates = tuple(
        Duplicate(
            identity=identity,
            name=own[keepers[identity]][identity].name,
            jobs=tuple(jobs[number].name for number in found),
            keeper=jobs[keepers[identity]].name,
            saves_s=sum((own[n][identity].seconds for n in found if n != keepers[identity]), 0.0),
            is_guess=any(own[number][identity].is_guess for number in found),
            independent=tuple(spared.get(identity, ())),
        )
        for identity, found in shared.items()
    )
    shares = tuple(_share(job, own[n], n, keepers) for n, job in enumerate(jobs))
    return Duplicates(
        jobs=shares,
        duplicates=duplicates,
        seconds=sum((share.seconds for share in shares), 0.0),
        saves_s=sum((share.saves_s for share in shares), 0.0),
        guessed=sum(duplicate.is_guess for duplicate in duplicates),
        also_independent=tuple(
            own[found[0]][identity].name
            for identity, found in owners.items()
            if identity in spared and len(found) == 1
        ),
    )


def _merge(checks: Sequence[Check]) -> dict[Digest, Check]:
    """The checks by identity; one that a job runs twice has twice the time."""
    merged: dict[Digest, Check] = {}
    for check in checks:
        before = merged.get(check.identity)
        if before is None:
            merged[check.identity] = check
        else:
            merged[check.identity] = replace(
                before,
                seconds=before.seconds + check.seconds,
                is_guess=before.is_guess or check.is_guess,
                can_keep=before.can_keep or check.can_keep,
            )
    return merged


def _share(
    job: CiJob, own: Mapping[Digest, Check], number: int, keepers: Mapping[Digest, int]
) -> JobShare:
    dropped: tuple[Check, ...] = ()
    if not job.is_independent:
        dropped = tuple(one for key, one in own.items() if keepers.get(key, number) != number)
    saves_s = sum((one.seconds for one in dropped), 0.0)
    if dropped and len(dropped) == len(own):
        saves_s += job.setup_s
    return JobShare(
        name=job.name,
        checks=len(own),
        seconds=job.setup_s + sum(one.seconds for one in own.values()),
        dropped=tuple(one.name for one in dropped),
        saves_s=saves_s,
        is_independent=job.is_independent,
    )


# ---- who keeps what -------------------------------------------------------------------------


_Groups = Mapping[tuple[int, ...], Sequence[float]]
"""Of checks of the same jobs, by the order in which these best keep them: the time that each job needs."""


def _choose_keepers(
    jobs: Sequence[CiJob],
    own: Sequence[Mapping[Digest, Check]],
    owners: Mapping[Digest, Sequence[int]],
    shared: Mapping[Digest, Sequence[int]],
) -> dict[Digest, int]:
    orders = {
        identity: tuple(
            sorted(
                (n for n in found if own[n][identity].can_keep),
                key=lambda n: (own[n][identity].seconds, n),
            )
        )
        for identity, found in shared.items()
    }
    totals: dict[tuple[int, ...], list[float]] = {}
    for identity, order in orders.items():
        sums = totals.setdefault(order, [0.0] * len(order))
        for rank, number in enumerate(order):
            sums[rank] += own[number][identity].seconds
    needed = {found[0] for found in owners.values() if len(found) == 1}
    loose = sorted({number for order in totals for number in order} - needed)
    setups_s = {number: jobs[number].setup_s for number in loose}
    kept = needed | set(_choose_open(totals, needed, setups_s))
    return {
        identity: next(number for number in order if number in kept)
        for identity, order in orders.items()
    }


def _choose_open(
    groups: _Groups, needed: set[int], setups_s: Mapping[int, float]
) -> tuple[int, ...]:
    if len(setups_s) <= EXACT:
        sizes = range(len(setups_s) + 1)
        sets = chain.from_iterable(combinations(setups_s, size) for size in sizes)
        return min(sets, key=lambda some: _cost(groups, needed, setups_s, some))
    some = tuple(setups_s)
    while True:  # too many sets: leave out the job that costs most, as long as that saves time
        fewer = [tuple(n for n in some if n != out) for out in some]
        best = min(fewer, key=lambda few: _cost(groups, needed, setups_s, few), default=some)
        if _cost(groups, needed, setups_s, best) >= _cost(groups, needed, setups_s, some):
            return some
        some = best


def _cost(
    groups: _Groups, needed: set[int], setups_s: Mapping[int, float], some: tuple[int, ...]
) -> tuple[float, int, tuple[int, ...]]:
    """Remaining time if only these of the loose jobs are kept; infinite if a check is lost."""
    kept = needed.union(some)
    total_s = sum(setups_s[number] for number in some)
    for order, sums in groups.items():
        costs_s = zip(order, sums, strict=True)
        total_s += next((seconds for number, seconds in costs_s if number in kept), float("inf"))
    return round(total_s, 6), len(some), some
