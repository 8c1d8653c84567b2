"""A storm of kills and stops: every kind of process, in every state of a run, through the command line."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
from tests.faults.hit_commands import COMMANDS
from tests.faults.hits import SIGNALS, Aim, Hit, Shooter, prepare

HITS = int(os.environ.get("TILEYARD_HITS", "30"))
"""How many hits there are; 300 for all."""
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


def choose_aims() -> list[Aim]:
    """Those that are asked for, or the first of each verb in turns."""
    streams = {verb: aims_of(verb) for verb in COMMANDS}
    if ONLY:
        names = {name.partition(":")[::2] for name in ONLY.split(",")}
        asked = sorted((verb, int(number)) for verb, number in names)
        return [next(islice(aims_of(verb), number, None)) for verb, number in asked]
    turns = [
        verb
        for verb, command in COMMANDS.items()
        for _ in range(command.weight)
        if HITS >= MANY or not command.is_long
    ]
    random.Random(0).shuffle(turns)
    return [next(streams[turns[number % len(turns)]]) for number in range(HITS)]


def test_whatever_is_killed_or_stopped_the_run_ends_as_it_should(tmp_path: Path) -> None:
    """Each command ends, with the outcomes of a clean run, and leaves neither a process nor a file."""
    aims = choose_aims()
    verbs = sorted({aim.seed.partition(":")[0] for aim in aims})
    shared = tmp_path / "shared"
    shared.mkdir()

    def begin(verb: str) -> Shooter:
        folder = shared / verb
        folder.mkdir()
        clean = prepare(COMMANDS[verb], tmp_path / "clean" / verb, folder)
        return Shooter(COMMANDS[verb], clean, folder)

    def shoot(aim: Aim) -> Hit:
        verb, _, number = aim.seed.partition(":")
        place = tmp_path / f"{verb}-{number}"
        hit = shooters[verb].shoot(aim, place)
        if hit.problems:
            print("\n        ".join([str(hit), *hit.details]), flush=True)  # noqa: T201 - shown where the test fails
        else:
            shutil.rmtree(place, ignore_errors=True)
        return hit

    with ThreadPoolExecutor(AT_ONCE) as pool:
        shooters = dict(zip(verbs, pool.map(begin, verbs), strict=True))
        hits = list(pool.map(shoot, aims))
    print(describe_coverage(hits))  # noqa: T201 - likewise, and with -s
    failed = [hit for hit in hits if hit.problems]
    assert not failed, "\n".join([f"{len(failed)} of {len(hits)} hits", *map(str, failed)])


def describe_coverage(hits: list[Hit]) -> str:
    """How often each kind was hit in each state, and what did not show itself."""
    cells = Counter(
        (hit.aim.seed.partition(":")[0], hit.kind, hit.state) for hit in hits if hit.kind
    )
    told = [f"{count:4} {' | '.join(cell)}" for cell, count in sorted(cells.items())]
    return "\n".join([*told, *(f"   not met: {hit.aim}" for hit in hits if not hit.kind)])
