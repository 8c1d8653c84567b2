"""Runs of ``regress`` as the store has them."""

import random
from collections.abc import Sequence
from pathlib import Path

from tileyard.base.model import BuildKey, Keys, Measurement, Outcome, Trial
from tileyard.store.trials import TrialStore

BASE_NS = 2000.0
REVISIONS = tuple(f"{number:02x}" * 20 for number in range(1, 100))


def record_runs(
    home: Path,
    times_ns: Sequence[float | None],
    *,
    case: str = "scale/config-1",
    revisions: Sequence[str] = REVISIONS,
    first: int = 0,
) -> None:
    """A run for each time of head, one a day from the ``first`` on; of None the binary is base's, and nothing
    was timed.
    """
    noise = random.Random(7)
    with TrialStore.open(home) as store:
        for day, time_ns in enumerate(times_ns, first):
            head = BASE_NS if time_ns is None else time_ns
            build = "base" if time_ns is None else f"of {head}"
            sides = {"base": (BASE_NS, "base"), "head": (head, build)}
            trials = []
            for side, (_, binary) in sides.items():
                trials.append(
                    make(day, f"{case}/{side}", f"{case}/{side}", side, binary, revisions)
                )
            for process in range(4) if time_ns is not None else ():
                batch = f"{case}/{process + 1}"
                for slot in ("base", "head", "control"):
                    side = "base" if slot == "control" else slot
                    own, binary = sides[side]
                    own *= noise.gauss(1, 0.002)
                    trials.append(make(day, f"{batch}/{slot}", batch, side, binary, revisions, own))
            store.record_all(trials)


def make(  # noqa: PLR0913 - the columns of a trial
    day: int,
    case: str,
    batch: str,
    side: str,
    binary: str,
    revisions: Sequence[str],
    time_ns: float | None = None,
) -> Trial:
    """A trial as the engine records it."""
    samples = () if time_ns is None else (time_ns,) * 8
    return Trial(
        id=f"run{day}.{case}",
        run=f"run{day}",
        case=case,
        batch=batch,
        kernel="scale",
        target="cpu",
        side=side,
        revision="v1" if side == "base" else revisions[day],
        outcome=Outcome.SKIPPED if time_ns is None else Outcome.PASSED,
        control=case.endswith("/control"),
        device="" if time_ns is None else "cpu:0",
        silicon="" if time_ns is None else "a CPU",
        # Only trials of builds have the name of the binary.
        keys=Keys(build=BuildKey(f"{side} {binary}"), binary="" if samples else binary),
        started_at=1.8e9 + 86400 * day,
        measurement=None
        if time_ns is None
        else Measurement(
            median_ns=time_ns,
            low_ns=time_ns,
            high_ns=time_ns,
            confidence=0.95,
            samples_ns=samples,
        ),
    )
