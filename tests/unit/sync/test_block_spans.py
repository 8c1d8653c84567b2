"""The steps of a block as spans: what a role does, how long it waits, and what is in flight."""

import numpy as np

from tileyard.base.model import SourceLine
from tileyard.ir.clocks import Moment
from tileyard.ir.reader import read_program
from tileyard.ir.trace import Step
from tileyard.sync.block_spans import OneBlock, list_spans
from tileyard.sync.findings import BlockSpan

LINES = {1: SourceLine(file="k.py", line=11), 2: SourceLine(file="k.py", line=12)}


def step(actor: int, number: int, text: str, k: int = 0, **more: str) -> Step:
    """A step of an actor, which is role ``actor``, in an iteration."""
    moment = Moment(number=number, loops=(("k", k),))
    return Step(actor=actor, role=actor, moment=moment, text=text, **more)  # type: ignore[arg-type]


def shown(spans: list[BlockSpan]) -> list[tuple[int, str, int, str, int, int]]:
    """The fields of spans."""
    return [(one.role, one.unit, one.line, one.text, one.begin, one.end) for one in spans]


def test_an_operation_is_in_flight_from_its_issue_until_it_lands() -> None:
    """It belongs to the issue of its own iteration, whichever lands first; what nothing waits for stays in
    flight. A wait begins where its role has stopped.
    """
    steps = [
        step(1, 1, "issue tma A[0]", k=0),
        step(1, 1, "issue tma A[1]", k=1),
        step(2, 2, "read B"),
        step(1, 1, "A[1] arrives", k=1, unit="tma"),
        step(1, 3, "issue tma_store C"),
        step(2, 2, "wait full[1] p0", k=1),
        step(1, 1, "A[0] arrives", k=0, unit="tma"),
    ]
    assert shown(list_spans(steps, LINES)) == [
        (1, "", 11, "issue tma A[0]", 0, 1),
        (1, "tma", 11, "tma A[0]", 0, 7),
        (1, "", 11, "issue tma A[1]", 1, 2),
        (1, "tma", 11, "tma A[1]", 1, 4),
        (2, "", 12, "read B", 2, 3),
        (2, "", 12, "wait full[1] p0", 3, 6),
        (1, "", 0, "issue tma_store C", 4, 5),
        (1, "tma_store", 0, "tma_store C, which nothing waits for", 4, 7),
    ]


PLACES = """
def main(X: float32[4], Y: out.float32[4]):
    bx: grid[4]

    if bx == 2:
        Y[bx] = X[bx]
"""


def test_only_the_block_at_a_place_runs() -> None:
    """Its steps are kept, and no others have run."""
    runs = [
        OneBlock(read_program(PLACES), [np.ones(4, np.float32)], (), {"bx": at}) for at in (1, 2)
    ]
    for run in runs:
        run.grid()
    assert [run.count for run in runs] == [1, 1]
    assert [[one.text for one in run.steps] for run in runs] == [[], ["read X", "write Y"]]


def test_what_lands_without_a_kept_issue_is_a_step_of_its_unit() -> None:
    """As where only the last steps of a block are kept."""
    spans = list_spans([step(1, 1, "A[0] arrives", unit="tma")], LINES)
    assert shown(spans) == [(1, "tma", 11, "A[0] arrives", 0, 1)]
