"""Looks for the wrong statement: which small change of one statement makes all results right."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tileyard.base.errors import BindError, InvalidProgramError, KernelFault
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_statement
from tileyard.ir.tiles import Array
from tileyard.ir.verify import verify
from tileyard.ir.walk import number_statements, walk
from tileyard.look.changes import Change, Changes
from tileyard.look.quick_run import Block, Expects, QuickRun

LARGER = 2
"""The rank from which on changes are larger: they count only if there is no smaller one."""
SLOWER, SPARE_S = 10.0, 0.05
"""How many times as long as the kernel a changed one may take, and how many seconds more."""
MOST_STEPS = 6
"""Numbers that are tried in the place of one constant."""
_FAILURES = (InvalidProgramError, BindError, KernelFault, ArithmeticError)


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A change of one statement with which all results are right: the statement ``before`` and ``after`` as
    text, empty ``after`` if it is left out.
    """

    number: int
    before: str
    after: str
    rank: int


@dataclass(kw_only=True)
class Search:
    """The result of a search: the ``repairs``, and how many of ``total`` changes were ``tried``. It
    ``has_enough`` if it tried no larger change after it had found a small one.
    """

    repairs: list[Repair] = field(default_factory=list)
    tried: int = 0
    total: int = 0
    has_enough: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether there was time for all changes."""
        return self.tried == self.total


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Wrong results: the Program, its inputs, what is expected, the ``blocks`` that have to be right, and
    one wrong element. With ``is_whole`` these are all blocks, and no element may be missing; else a
    change is also tried on the ``rest``, if there is time. With ``is_shared`` blocks see what others
    wrote, so results count once all have run. ``sizes`` are in words.
    """

    program: Program
    arrays: Sequence[Array]
    expected: Sequence[Expects]
    blocks: Sequence[Block]
    output: str
    place: int
    is_whole: bool
    is_shared: bool = False
    rest: Sequence[Block] = ()
    sizes: str = ""


class Seeker:
    """Tries changes on the ``blocks`` of a problem, the one with the wrong element first."""

    def __init__(
        self, problem: Problem, now: Callable[[], float], is_late: Callable[[], bool]
    ) -> None:
        self._problem = problem
        self._now = now
        self._is_late = is_late
        self._is_strict = False
        self._most_s = math.inf
        began_s = now()
        own = self._run(problem.program, problem.blocks)
        self._most_s = SLOWER * (now() - began_s) + SPARE_S
        self._least, self._is_strict = own.written_count(), not own.has_slow
        self._want = problem.expected[list(own.writers).index(problem.output)].value(problem.place)

    def _run(self, program: Program, blocks: Sequence[Block]) -> QuickRun:
        run = self._open(program)
        for block in blocks:
            run.run_block(block)
        return run

    def _open(self, program: Program) -> QuickRun:
        run = QuickRun(program, self._problem.arrays)
        run.is_strict = self._is_strict
        ends_at = self._now() + self._most_s
        run.is_late = lambda: self._now() > ends_at
        return run

    def search(self, numbers: Sequence[int], *, tries_all: bool = False) -> Search:
        """Try changes of these statements, and then of the others, until it is late; larger ones only if
        there is no smaller one, or if it ``tries_all``.
        """
        all_changes, program = Changes(self._problem.program), self._problem.program
        others = [n for n, _ in number_statements(program) if n not in numbers]
        changes = all_changes.of(numbers) + all_changes.of(others)
        found = Search(total=len(changes))
        for change in changes:
            least = min((one.rank for one in found.repairs), default=change.rank)
            if change.rank > max(least, LARGER - 1) and not tries_all:
                found.has_enough = True
            if found.has_enough or self._is_late():
                break
            found.tried += 1
            solved = self._solve(change)
            if solved is not None and self._is_right_elsewhere(solved):
                found.repairs.append(self._describe(change, solved))
        return found

    def _describe(self, change: Change, program: Program) -> Repair:
        own = self._problem.program
        before = list(walk(own.body))[change.number]
        after = ""
        if change.stmts:
            after = print_statement(program, list(walk(program.body))[change.number])
        if change.others:
            after += ", before this statement"
        return Repair(
            number=change.number,
            before=print_statement(own, before),
            after=after,
            rank=change.rank,
        )

    def _solve(self, change: Change) -> Program | None:
        """The Program with the change if all is right then, else None."""
        if change.hole is not None:
            return self._solve_hole(change)
        program = change.apply(self._problem.program)
        return program if self._is_right(program) else None

    def _is_right(self, program: Program) -> bool:
        problem = self._problem
        try:
            verify(program)
            run = self._open(program)
            for block in problem.blocks:
                run.run_block(block)
                if not problem.is_shared and run.wrong(problem.expected):
                    return False
            if run.wrong(problem.expected):
                return False
        except _FAILURES:
            return False
        if problem.is_whole and run.has_missing():
            return False
        return run.written_count() >= self._least

    def _is_right_elsewhere(self, program: Program) -> bool:
        """Whether all other blocks are right too, as far as there is time for them."""
        problem = self._problem
        if not problem.rest:
            return True
        own, run = (QuickRun(one, problem.arrays) for one in (problem.program, program))
        is_whole = True
        for block in problem.rest:
            if self._is_late():
                is_whole = False
                break
            own.run_block(block)
            try:
                run.run_block(block)
            except _FAILURES:
                return False
        if run.wrong(problem.expected) or (is_whole and run.has_missing()):
            return False
        return run.written_count() >= own.written_count()

    def _solve_hole(self, change: Change) -> Program | None:
        """Look for a number, by the secant method, with which the wrong element is right."""
        output, place, want = self._problem.output, self._problem.place, self._want

        def miss(value: float) -> float:
            program = change.apply(self._problem.program, value)
            try:
                blocks = self._problem.blocks[: None if self._problem.is_shared else 1]
                return self._run(program, blocks).value(output, place) - want
            except _FAILURES:
                return math.nan

        left = change.start
        right = left * 1.25 if left else 1.0
        at_left, at_right = miss(left), miss(right)
        for _ in range(MOST_STEPS):
            if not math.isfinite(at_left) or not math.isfinite(at_right) or at_left == at_right:
                return None
            value = right - at_right * (right - left) / (at_right - at_left)
            if not math.isfinite(value) or abs(value) > 1e30:
                return None
            left, at_left, right, at_right = right, at_right, value, miss(value)
            if abs(at_right) <= 1e-6 * max(abs(want), 1e-30):
                break
        for value in (
            float(f"{right:.3g}"),
            float(f"{right:.5g}"),
            right,
        ):  # a short one if that will do
            program = change.apply(self._problem.program, value)
            if self._is_right(program):
                return program
        return None
