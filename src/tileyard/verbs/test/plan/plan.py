"""Plans: which cases run together, in which order, and when the run ends. The longest piece starts first, the
next free slot takes the next. Testcases are only divided, which costs start-ups, where that saves time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from math import inf, log2
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.verbs.test.plan.lanes import Room, Timed, simulate_steps
from tileyard.verbs.test.plan.pieces import (
    NO_COSTS,
    Costs,
    Cuts,
    Shard,
    Work,
    cut,
    gather,
    to_pieces,
)
from tileyard.verbs.test.result.result import Expected, LeftOut, Piece, Plan

Split = Literal["auto", "off"] | float
"""Maximum length of a piece, in seconds; ``auto`` searches for it, ``off`` does not split testcases."""

GOOD_ENOUGH = 1.05
"""Whole testcases within this factor of the bound of their total are not split."""

TIE = 0.005
"""Of splits that differ by no more than this share, the one with the fewest pieces is taken."""

FINEST = 128
"""The shortest piece that is tried is this fraction (1/128) of the ideal wall time, plus its start-up."""

STEPS = 16
"""Number of lengths tried between one and its double; a quarter of them at first."""

EFFORT = 250_000
"""Maximum number of pieces simulated in search of the best length: a fraction of a second."""

FIXED_S = 300.0

SPREAD = {"history": 1.0, "family": 3.0, "default": 10.0}
"""Factor by which a time may be wrong, in either direction, by its source."""

MOST_SIMULATED = 20_000
"""Above this number of cases the steps beside the devices are only summed up."""


class WhatIf(Record):
    """The prediction for another way to run the same cases."""

    name: str
    pieces: int
    predicted_s: float


class Prediction(Record):
    """A plan beside other ways to run the same cases. ``floor_s``, max(longest case, total / slots) without
    start-up, is no split's to beat. ``sources`` counts where expected times come from, ``file`` is it if not
    the store. ``shards_s`` is each shard's total. ``then`` runs afterwards: programs and kernels are parts of
    a run. ``notes`` are the selection's.
    """

    cases: int
    testcases: int
    floor_s: float
    plan: Plan
    instead: tuple[WhatIf, ...]
    sources: dict[str, int]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    shard: Shard | None = None
    shards_s: tuple[float, ...] = ()
    then: tuple["Prediction", ...] = ()
    file: str = ""

    @property
    def predicted_s(self) -> float:
        """The end of the last part, in seconds."""
        return self.plan.predicted_s + sum(part.predicted_s for part in self.then)


class _Tried(NamedTuple):
    """The result of a length of pieces; the least is the best."""

    predicted_s: float
    pieces: int
    limit_s: float


def make_plan(
    expected: Sequence[Expected], slots: int, split: Split = "auto", costs: Costs = NO_COSTS
) -> Plan:
    """The plan for cases that take as long as expected. Raises UsageError if none can be made."""
    _require(expected, slots, split)
    work = gather(expected, costs)
    whole = inf if split == "off" else split
    limit_s = _search(work, slots, costs) if whole == "auto" else whole
    plan = _plan_of(work, cut(work, costs, limit_s), limit_s, slots=slots, costs=costs)
    guessed = sum(one.source == "default" for one in expected)
    if not guessed:
        return plan
    total_s = sum(one.seconds for one in expected)
    ratios = [sum(one.seconds * SPREAD[one.source] ** sign for one in expected) for sign in (-1, 1)]
    low_s, high_s = (plan.predicted_s * ratio / total_s if total_s else 0.0 for ratio in ratios)
    return replace(plan, guessed=guessed, low_s=low_s, high_s=high_s)


def compare(
    expected: Sequence[Expected], slots: int, costs: Costs = NO_COSTS, fixed_s: float = FIXED_S
) -> tuple[WhatIf, ...]:
    """The usual alternatives: whole testcases by name, or longest first, and pieces of one length. Raises
    UsageError as ``make_plan`` does.
    """
    _require(expected, slots, fixed_s)
    work = gather(expected, costs)
    whole, fixed = cut(work, costs), cut(work, costs, fixed_s)
    owners = np.searchsorted(work.bounds, whole.begins)
    by_name = np.array(sorted(range(len(whole)), key=lambda i: work.testcases[owners[i]]))
    named = Cuts(
        begins=whole.begins[by_name],
        ends=whole.ends[by_name],
        lengths_s=whole.lengths_s[by_name],
    )
    ways = {
        "whole testcases, by name": named,
        "whole testcases, longest first": whole,
        f"pieces of at most {say_seconds(fixed_s)}, longest first": fixed,
    }
    return tuple(
        WhatIf(name=name, pieces=len(cuts), predicted_s=_predict_s(work, cuts, slots, costs))
        for name, cuts in ways.items()
    )


def predict(
    expected: Sequence[Expected], slots: int, split: Split = "auto", costs: Costs = NO_COSTS
) -> Prediction:
    """The plan for these cases, and the usual alternatives. Raises UsageError if no plan can be made."""
    plan = make_plan(expected, slots, split, costs)
    return Prediction(
        cases=len(expected),
        testcases=len({one.testcase for one in expected}),
        floor_s=find_floor_s(expected, slots),
        plan=plan,
        instead=compare(expected, slots, costs),
        sources=dict(Counter(one.source for one in expected)),
    )


def find_floor_s(expected: Sequence[Expected], slots: int) -> float:
    """No split of testcases and no order of their cases can be faster than this."""
    seconds = [one.seconds for one in expected]
    return max(*seconds, sum(seconds) / slots)


def _require(expected: Sequence[Expected], slots: int, split: Split) -> None:
    if not expected:
        raise UsageError("no case is selected, so there is nothing to plan")
    if slots < 1:
        raise UsageError(f"{slots} slots run nothing", "there must be at least one")
    if not isinstance(split, str) and not split > 0:
        raise UsageError(f"pieces of {split:g} s hold no case", "give a time, auto or off")


def _predict_s(work: Work, cuts: Cuts, slots: int, costs: Costs) -> float:
    """The end of the last piece, and of the last step beside the devices."""
    pieces_s = _predict_pieces_s(work, cuts, slots, costs)
    return max(pieces_s, _predict_steps_s(work, cuts, slots, costs))


def _predict_steps_s(work: Work, cuts: Cuts, slots: int, costs: Costs) -> float:
    """The end of the last step beside the devices; 0 if there is none."""
    if not costs.lanes or not work.has_steps:
        return 0.0
    places = max(slots, costs.lanes) if costs.shares_cores else slots + costs.lanes
    if len(work.cases) > MOST_SIMULATED:
        steps_s = sum(work.goldens_s) + sum(work.checks_s)
        all_s = steps_s + float(cuts.lengths_s.sum())
        return costs.lead_s + max(steps_s / costs.lanes, all_s / places)
    begins = set(cuts.begins.tolist())
    runs_s = np.diff(work.ends_s).tolist()
    makers = {golden: case for case, golden in enumerate(work.goldens) if work.goldens_s[case]}
    cases = [
        Timed(
            golden_s=golden_s,
            run_s=runs_s[case] + (costs.piece_s if case in begins else 0.0),
            check_s=work.checks_s[case],
            golden=makers.get(work.goldens[case], -1),
        )
        for case, golden_s in enumerate(work.goldens_s)
    ]
    pieces = [range(*span) for span in zip(cuts.begins.tolist(), cuts.ends.tolist(), strict=True)]
    return costs.lead_s + simulate_steps(cases, pieces, Room(slots, costs.lanes, places))


def _predict_pieces_s(work: Work, cuts: Cuts, slots: int, costs: Costs) -> float:
    """The end of the last piece, ignoring steps beside the devices."""
    has_chains = costs.per == "case" and len(cuts) < len(work.cases)
    if has_chains and costs.launch_s:
        seconds = np.diff(work.ends_s).tolist()
        spans = zip(cuts.begins.tolist(), cuts.ends.tolist(), strict=True)
        chains = [seconds[begin:end] for begin, end in spans]
        return costs.lead_s + max(simulate_chains(chains, slots, costs.launch_s))
    return costs.lead_s + max(simulate(cuts.lengths_s.tolist(), slots, costs.launch_s))


def simulate(lengths_s: Sequence[float], slots: int, launch_s: float = 0.0) -> list[float]:
    """The end of each piece, in seconds from the start; one process per piece, in the order given.
    ``launch_s`` is the first part of each length.
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
    """The end of each piece if it is a chain of processes, one for each of its cases."""
    ends_s = [0.0] * len(chains_s)
    launcher_s, waiting = 0.0, 0
    # When a slot is free, its number (ties go to the first), and what it continues with.
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


def _search(work: Work, slots: int, costs: Costs) -> float:
    """Maximum length of pieces: shorter and shorter ones are tried while they can be better."""
    costs = replace(
        costs, lead_s=0.0, lanes=0
    )  # these and launches are the same however testcases are split
    if costs.per == "case":
        costs = replace(costs, launch_s=0.0, startup_s=costs.process_s)
    totals_s, counts, extra_s = work.totals_s, work.counts, costs.piece_s
    work_s = float(totals_s.sum())
    longest_case_s = float(np.diff(work.ends_s).max()) + extra_s

    def hope_s(pieces: int) -> float:
        """No order of this number of pieces can be faster."""
        return max(longest_case_s, (work_s + pieces * extra_s) / slots, pieces * costs.launch_s)

    whole_s = _predict_s(work, cut(work, costs), slots, costs)
    if whole_s <= GOOD_ENOUGH * hope_s(len(counts)):
        return inf
    longest_s = float(np.max(totals_s, where=counts > 1, initial=0.0)) + extra_s
    finest_s = work_s / slots / FINEST + extra_s
    tried = [_Tried(whole_s, len(counts), inf)]
    effort = 0
    for limit_s in _limits(longest_s, finest_s):
        least = np.ceil(totals_s / (limit_s - extra_s))
        if hope_s(int(np.clip(least, 1, counts).sum())) < min(tried).predicted_s:
            cuts = cut(work, costs, limit_s)
            tried.append(_Tried(_predict_s(work, cuts, slots, costs), len(cuts), limit_s))
            effort += len(cuts)
            if effort > EFFORT:
                break
    close_s = min(tried).predicted_s * (1 + TIE)
    return min((t for t in tried if t.predicted_s <= close_s), key=lambda t: t.pieces).limit_s


def _limits(longest_s: float, finest_s: float) -> Iterator[float]:
    """Lengths between the two, in large steps from the longest on, then those between these."""
    steps = int(log2(longest_s / finest_s) * STEPS) if longest_s > finest_s else 0
    for stride, first in ((4, 4), (4, 2), (2, 1)):
        for step in range(first, steps, stride):
            yield longest_s / 2 ** (step / STEPS)


def _plan_of(work: Work, cuts: Cuts, limit_s: float, *, slots: int, costs: Costs) -> Plan:
    total_s, longest_s = float(cuts.lengths_s.sum()), float(cuts.lengths_s[0])
    bound_s = max(longest_s, total_s / slots)
    devices_s = unhurried_s = _predict_pieces_s(work, cuts, slots, costs)
    predicted_s = max(devices_s, _predict_steps_s(work, cuts, slots, costs))
    if costs.launch_s:
        unhurried_s = _predict_pieces_s(work, cuts, slots, replace(costs, launch_s=0.0))
    steps = _say_steps(work, predicted_s, devices_s, bound_s, costs.lanes)
    pieces = to_pieces(work, cuts)
    return Plan(
        slots=slots,
        pieces=pieces,
        startup_s=costs.startup_s,
        total_s=total_s,
        longest_s=longest_s,
        bound_s=bound_s,
        predicted_s=max(predicted_s, bound_s),  # sums in two orders differ in their last digits
        split_s=limit_s if len(pieces) > len(work.testcases) else 0.0,
        reason="; ".join(
            [
                *_say_bound(pieces[0], total_s / slots),
                *([] if steps else _say_gap(bound_s, devices_s, unhurried_s, costs)),
                *steps,
            ]
        ),
    )


def _say_bound(longest: Piece, share_s: float) -> list[str]:
    """The piece that takes longer than each slot's share, if there is one."""
    if longest.expected_s <= share_s:
        return []
    size = len(longest.cases)
    which = "a single case" if size == 1 else f"{size} cases in one piece"
    return [
        f"{longest.testcase} ({which}) takes {say_seconds(longest.expected_s)},"
        f" more than the {say_seconds(share_s)} that each slot has to do"
    ]


def _say_steps(
    work: Work, predicted_s: float, devices_s: float, bound_s: float, lanes: int
) -> list[str]:
    """The time that golden and check steps add, if it is notable."""
    if predicted_s - devices_s <= TIE * bound_s:
        return []
    shown = [
        f"{count_of(sum(map(bool, steps_s)), f'{kind} step')} ({say_seconds(sum(steps_s))})"
        for kind, steps_s in (("golden", work.goldens_s), ("check", work.checks_s))
        if any(steps_s)
    ]
    late = say_seconds(predicted_s - devices_s)
    how = f"delay the end by {late}" if any(work.goldens_s) else f"finish {late} after the last run"
    return [f"{' and '.join(shown)} on {count_of(lanes, 'lane')} {how}"]


def _say_gap(bound_s: float, predicted_s: float, unhurried_s: float, costs: Costs) -> list[str]:
    """The causes of the time between the bound and the end of the last piece."""
    gap_s = predicted_s - bound_s
    if gap_s <= TIE * bound_s:
        return ["no time to speak of is lost by order or start-up"]
    launches_s, uneven_s = predicted_s - unhurried_s, unhurried_s - bound_s - costs.lead_s
    sentences = []
    if costs.lead_s > 0.1 * gap_s:
        sentences.append(f"{say_seconds(costs.lead_s)} pass before the first process can start")
    if launches_s > 0.1 * gap_s:
        sentences.append(
            f"{say_seconds(launches_s)} are lost because processes start one after another,"
            f" {say_seconds(costs.launch_s)} apart"
        )
    if uneven_s > 0.1 * gap_s:
        sentences.append(
            f"pieces end unevenly: the last one ends {say_seconds(uneven_s)} later"
            " than if the work could be spread evenly"
        )
    return sentences


def say_seconds(seconds: float) -> str:
    """A time with three digits, in a suitable unit, as written in reasons."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
