"""A reduction under way: what ends it, and what it has by then."""

import asyncio
from dataclasses import dataclass, field

import pytest

from tileyard.base.clock import Clock
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.verbs.reduce.command.session import Reduction, run_reduction
from tileyard.workers.failures import sign_of
from tileyard.workers.protocol import FailureFound

TEXT = """\
def f(A: float32[8], C: inout.float32[8]):
    s: shared.float32[8]

    copy(A, s)
    for i in serial(8):
        C[i] = s[i] * 2.0
    C[0] = sqrt(C[1])
    C[2] = 1.0
"""


@dataclass
class Steps(Clock):
    """A second passes with each look."""

    now_s: float = 0.0

    def monotonic_s(self) -> float:
        """The number of looks."""
        self.now_s += 1.0
        return self.now_s


@dataclass
class Roots:
    """Finds square roots, and what ``also`` is in the text; stops for ever at the candidate of a number."""

    also: tuple[str, ...] = ()
    hangs_at: int = -1
    hung: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Program] = field(default_factory=list)

    async def find(self, program: Program, limit_s: float) -> FailureFound:
        """The words that are there."""
        self.asked.append(program)
        if len(self.asked) == self.hangs_at:
            self.hung.set()
            await asyncio.Event().wait()
        text = print_program(program)
        signs = {word: f"{word} is there" for word in ("sqrt", *self.also) if word in text}
        return FailureFound(program=text, signs=signs)


def make(finder: Roots, known: tuple[str, ...] = ("sqrt",)) -> Reduction:
    """A reduction of ``TEXT`` to a square root."""
    return Reduction(
        finder=finder,
        smallest=read_program(TEXT),
        found=FailureFound(program=TEXT, signs={}),
        sign="sqrt",
        known=frozenset(known),
        clock=Steps(),
    )


def test_the_smallest_is_left() -> None:
    """Nothing smaller fails."""
    reduction = make(Roots())
    assert asyncio.run(run_reduction(reduction, 1e6)) == "nothing smaller fails"
    assert print_program(reduction.smallest).endswith("\n    C[0] = sqrt(0.0)\n")
    assert reduction.found.program == print_program(reduction.smallest)


def test_the_time_ends_it() -> None:
    """What was found by then is kept."""
    reduction = make(finder := Roots())
    assert asyncio.run(run_reduction(reduction, 6.0)) == "the time is over"
    assert len(finder.asked) == reduction.candidates == 5
    assert reduction.smallest in finder.asked


def test_ctrl_c_loses_nothing() -> None:
    """The candidate under way is given up, and the smallest one so far is left."""

    async def interrupt() -> str:
        task = asyncio.create_task(run_reduction(reduction, 1e6))
        await finder.hung.wait()
        task.cancel()
        return await task

    reduction = make(finder := Roots(hangs_at=8))
    assert asyncio.run(interrupt()) == "interrupted"
    assert reduction.smallest in finder.asked[:7]


def test_no_other_failure_comes_in() -> None:
    """One that the kernel had before may stay."""
    other = "sqrt(0.0)"
    for known, left in ((("sqrt",), "sqrt(1.0)"), (("sqrt", other), other)):
        reduction = make(Roots(also=(other,)), known)
        asyncio.run(run_reduction(reduction, 1e6))
        assert print_program(reduction.smallest).endswith(f"\n    C[0] = {left}\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "the wait of line 34 at k=0 leaves 3 groups: T.ptx_wait_group(2) would cover it",
            "the wait of an unknown line leaves 1 group: T.ptx_wait_group(0) would cover it",
        ),
        ("1 byte of C is wrong", "4,096 bytes of C is wrong"),
        ("full[0] has ended 2 phases before", "full[1] has ended 10 phases before"),
    ],
)
def test_a_sign_has_no_lines_and_no_numbers(one: str, other: str) -> None:
    """A smaller kernel has others."""
    assert sign_of(one) == sign_of(other)


def test_a_sign_of_a_refusal_has_no_names() -> None:
    """Nor what it quotes; words that are not names stay."""
    names = ("tile", "x")
    assert sign_of("copy within tile in `copy(tile, x)`", names) == "copy within _ in _"
    assert sign_of("copy within tile") == "copy within tile"
