"""A storm of faults: cases that hang, crash, grow, detach or lose their runner, among healthy ones."""

import random
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.model import Outcome

OUTCOME_OF: dict[str, Outcome] = {
    "": Outcome.PASSED,
    "wrong": Outcome.MISMATCH,
    "error": Outcome.RUNTIME_ERROR,
    "hang": Outcome.TIMEOUT,
    "segv": Outcome.CRASHED,
    "abort": Outcome.CRASHED,
    "memory": Outcome.OUT_OF_MEMORY,
    "detach": Outcome.PASSED,
    "killed_once": Outcome.PASSED,
    "killed": Outcome.INFRA_ERROR,
    "refused": Outcome.COMPILE_ERROR,
    "build_hang": Outcome.TIMEOUT,
    "build_crash": Outcome.CRASHED,
}
"""How a case with a fault ends; what ends its runner by a signal from outside is tried again."""

RARE = ("hang", "killed", "build_hang")
"""Faults that cost seconds each."""


def plant_faults(count: int, folder: Path, seed: int = 0) -> Iterator[dict[str, str | int | float]]:
    """Configs of ``count`` cases in random order, two in five of them faulty, every fault among them."""
    generator = random.Random(seed)
    kinds = [fault for fault in OUTCOME_OF if fault]
    often = [fault for fault in kinds if fault not in RARE]
    faulty = max(len(kinds), count * 2 // 5)
    faults = [
        *kinds,
        *RARE,
        *(generator.choice(often) for _ in range(faulty - len(kinds) - len(RARE))),
    ]
    faults += [""] * (count - len(faults))
    generator.shuffle(faults)
    for number, fault in enumerate(faults):
        yield {
            "n": number,
            "fault": fault,
            "sample_ns": 1000.0 + number,
            "note": str(folder / f"killed-{number}") if fault == "killed_once" else "",
        }
