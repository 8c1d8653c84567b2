"""Compile steps shared out among processes."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from tileyard.pytest_plugin.far_records import FunctionStep, Step, StepResult
from tileyard.pytest_plugin.preparing import prepare_shares, read_shares

STEPS = [FunctionStep(id=f"s{n}", function=print, values={}, limit_s=1.0) for n in range(5)]


class Maker:
    """Notes what it was asked to make."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []

    def __call__(self, steps: Sequence[Step]) -> list[StepResult]:
        """Make them."""
        self.made.append([step.id for step in steps])
        return [StepResult(step=step.id) for step in steps]


def test_the_own_share_is_made_first_and_nothing_twice(tmp_path: Path) -> None:
    """A process makes what nobody has begun; the next finds all of it."""
    first, second = Maker(), Maker()
    results = prepare_shares(STEPS, tmp_path, 1, 2, first)
    again = prepare_shares(STEPS, tmp_path, 0, 2, second)
    expected = [["s1", "s3"], ["s0", "s2", "s4"]]
    assert first.made == expected
    assert second.made == []
    assert {r.step for r in results} == {r.step for r in again} == {step.id for step in STEPS}


def test_a_share_whose_maker_died_is_made_by_another(tmp_path: Path) -> None:
    """A lock without a process is free, and half a file counts for nothing."""
    (tmp_path / "share-0.draft").write_bytes(b"half")
    lock = os.open(tmp_path / "share-0.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(lock)
    maker = Maker()
    prepare_shares(STEPS, tmp_path, 1, 2, maker)
    expected = 5
    assert len(list(read_shares(tmp_path))) == expected
