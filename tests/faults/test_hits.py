"""A storm of kills and stops: every kind of process, in every state of a run, through the command line."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest
from tests.faults.hit_commands import COMMANDS
from tests.faults.hits import SIGNALS, Aim, Clean, Hit, Shooter, prepare

HITS = int(os.environ.get("TILEYARD_HITS", "4"))
"""Number of processes that are hit; 300 for all."""
TUNE_HIT = 20
"""The only hit on a long command where there are few hits: the runner of ``tune`` is killed during a case."""
TUNED = Clean(
    outcomes=dict.fromkeys(("best", "block/16", "block/32", "block/64"), "passed"),
    status=0,
    seconds=0.0,
    spans={},
)
"""The end of ``tune`` without a hit, whose runs cost more than this one hit."""
ONLY = os.environ.get("TILEYARD_HITS_ONLY", "")
"""Hits to be repeated, as in ``tune:17,test:3``."""
AT_ONCE = 2
MANY = 100

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 20 * HITS)]


def aims_of(verb: str) -> Iterator[Aim]:
    """All cells of a verb with each signal, in an order that its name decides, over and over."""
    cells = [
        (kind, state, number)
        for kind, states in COMMANDS[verb].cells.items()
        for state in states
        for number in SIGNALS
    ]
    random.Random(verb).shuffle(cells)
    number = 0
    while True:
        for kind, state, sent in cells:
            yield Aim(seed=f"{verb}:{number}", kind=kind, state=state, signal=sent)
            number += 1


def verb_of(aim: Aim) -> str:
    """``tune`` of ``tune:17``."""
    return aim.seed.partition(":")[0]


def choose_aims() -> Iterator[Aim]:
    """Those that are asked for, or those of all verbs in turns, without an end."""
    streams = {verb: aims_of(verb) for verb in COMMANDS}
    if ONLY:
        names = {name.partition(":")[::2] for name in ONLY.split(",")}
        for verb, number in sorted((verb, int(number)) for verb, number in names):
            yield next(islice(aims_of(verb), number, None))
        return
    turns = [
        verb
        for verb, command in COMMANDS.items()
        for _ in range(command.weight)
        if HITS >= MANY or not command.is_long
    ]
    random.Random(0).shuffle(turns)
    if HITS < MANY:
        yield next(islice(aims_of("tune"), TUNE_HIT, None))
    for verb in cycle(turns):
        yield next(streams[verb])


def test_whatever_is_killed_or_stopped_the_run_ends_as_it_should(tmp_path: Path) -> None:
    """Each command ends, with the outcomes of a clean run, and leaves neither a process nor a file."""
    aims = choose_aims()
    first = list(islice(aims, HITS))
    verbs = sorted(set(map(verb_of, first)))
    shared = tmp_path / "shared"
    shared.mkdir()

    def begin(verb: str) -> Shooter:
        folder = shared / verb
        folder.mkdir()
        if verb == "tune" and HITS < MANY and not ONLY:
            COMMANDS[verb].setup(folder)
            return Shooter(replace(COMMANDS[verb], is_known=False), TUNED, folder)
        clean = prepare(COMMANDS[verb], tmp_path / "clean" / verb, folder)
        return Shooter(COMMANDS[verb], clean, folder)

    def shoot(aim: Aim) -> Hit:
        place = tmp_path / aim.seed.replace(":", "-")
        hit = shooters[verb_of(aim)].shoot(aim, place)
        if hit.problems:
            print("\n        ".join([str(hit), *hit.details]), flush=True)  # noqa: T201 - for a failure
        else:
            shutil.rmtree(place, ignore_errors=True)
        return hit

    with ThreadPoolExecutor(AT_ONCE) as pool:
        shooters = dict(zip(verbs, pool.map(begin, verbs), strict=True))
        hits = list(pool.map(shoot, first))
        others = (aim for aim in aims if verb_of(aim) in shooters)
        while more := list(islice(others, min(HITS - count_met(hits), 2 * HITS - len(hits)))):
            hits += pool.map(shoot, more)
    print(describe_coverage(hits))  # noqa: T201 - likewise, and with -s
    failed = [hit for hit in hits if hit.problems]
    assert not failed, "\n".join([f"{len(failed)} of {len(hits)} hits", *map(str, failed)])


def count_met(hits: list[Hit]) -> int:
    """How many were hit: the others' states were over before they were seen."""
    return sum(bool(hit.kind) for hit in hits)


def describe_coverage(hits: list[Hit]) -> str:
    """How often each kind was hit in each state, and what did not show itself."""
    cells = Counter((verb_of(hit.aim), hit.kind, hit.state) for hit in hits if hit.kind)
    told = [f"{count:4} {' | '.join(cell)}" for cell, count in sorted(cells.items())]
    return "\n".join([*told, *(f"   not met: {hit.aim}" for hit in hits if not hit.kind)])
