"""Looks for the wrong statement: which small change of one statement makes all results right."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tileyard.base.errors import BindError, InvalidProgramError, KernelFault
from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import Const, Program, Store
from tileyard.ir.printer import print_statement
from tileyard.ir.tiles import Array
from tileyard.ir.verify import verify
from tileyard.ir.walk import expressions, number_statements, walk, walk_expr
from tileyard.look.changes import Change, Changes
from tileyard.look.history import Flat
from tileyard.look.patterns import list_names, name_numbers
from tileyard.look.quick_run import Block, Expects, QuickRun, list_blocks

LARGER = 2
"""The rank from which on changes are larger: they count only if there is no smaller one."""
SLOWER, SPARE_S = 10.0, 0.05
"""How many times as long as the kernel a changed one may take, and how many seconds more."""
CLOSE = 1e-4
"""Relative difference up to which another number is tried in the place of a solution."""
LEAST_RIGHT = 4
"""Elements that a change makes right at least if others stay wrong: one number makes one element right."""
MOST_STEPS = 8
"""Numbers that are tried in the place of one constant."""
SMALL, LARGE = 9, 64
"""Below the one and up to the other are the whole numbers of a ratio that an author may have written."""
_FAILURES = (InvalidProgramError, BindError, KernelFault, ArithmeticError)


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number that was found, the statement that has it, too, or -1, and what it is in terms of sizes. Of
    the ``others`` only ``names`` are right with the sizes ``told_at``. It ``is_fitted`` if it is none that an
    author is likely to write there.
    """

    value: float
    same_as: int = -1
    names: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    told_at: str = ""
    is_fitted: bool = False


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A change of one statement with which all results are right in ``blocks`` blocks, but for ``left``
    elements: the statement ``before`` and ``after`` as text, empty ``after`` if it is left out. ``found``
    is a new number in it, and ``hole`` says which of those that are looked for in the statement. ``own`` is
    the same repair at the kernel's own sizes, None if it was not tried there, or is none.
    """

    number: int
    before: str
    after: str
    rank: int
    blocks: int = 0
    left: int = 0
    found: Number | None = None
    hole: int = -1
    own: "Repair | None" = None


@dataclass(kw_only=True)
class Search:
    """The result of a search: the ``repairs``, and how many of ``total`` changes were ``tried``. It
    ``has_enough`` if it tried no larger change after it had found a small one. The Program has ``blocks``
    blocks, with the kernel's own sizes ``own_blocks``, and ``wrong`` elements; ``partial`` repairs make some
    of them right, and none wrong. ``hints`` make all right with a number that was fitted to the results,
    which shows little.
    """

    repairs: list[Repair] = field(default_factory=list)
    tried: int = 0
    total: int = 0
    has_enough: bool = False
    blocks: int = 1
    own_blocks: int = 1
    wrong: int = 0
    partial: list[Repair] = field(default_factory=list)
    hints: list[Repair] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether there was time for all changes."""
        return self.tried == self.total


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Wrong results: the Program, its inputs, what is expected, the ``blocks`` that have to be right, and
    one wrong element, ``place`` -1 if the Program fails before it has written one. With ``is_whole`` these
    are all blocks, and no element may be missing; else a change is also tried on the ``rest``, if there is
    time. If it ``needs_all``, results count once all ``blocks`` have run: they see what others wrote, or a
    share of the elements may be wrong. ``sizes`` are in words, ``numbers`` by name. It ``is_scaled`` if the
    reference is known to be the kernel's value with a factor or summand.
    """

    program: Program
    arrays: Sequence[Array]
    expected: Sequence[Expects]
    blocks: Sequence[Block]
    output: str
    place: int
    is_whole: bool
    needs_all: bool = False
    rest: Sequence[Block] = ()
    sizes: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    is_scaled: bool = False


@dataclass(frozen=True, kw_only=True)
class _Solved:
    """A changed Program, a new number in it, and how many elements are ``left`` that are wrong."""

    program: Program
    left: int
    number: Number | None = None


class Seeker:
    """Tries changes on the ``blocks`` of a problem, the one with the wrong element first. Raises KernelFault
    if the Program itself does not end before it is late.
    """

    def __init__(
        self, problem: Problem, now: Callable[[], float], is_late: Callable[[], bool]
    ) -> None:
        self._problem = problem
        self._now = now
        self._is_late = is_late
        began_s = now()
        own = QuickRun(problem.program, problem.arrays, is_late)
        self._fails = not all(_try(own, block) for block in problem.blocks)
        if self._fails and is_late():
            raise KernelFault("it takes too long")
        self._most_s = SLOWER * (now() - began_s) + SPARE_S
        if self._fails:  # how long it would have taken is not known
            self._most_s *= SLOWER
        self._least, self._is_strict = own.written_count(), not own.has_slow and not self._fails
        self._wrong = own.wrong(problem.expected)
        self._total = _count(self._wrong)
        self._want = math.nan
        if problem.place >= 0:
            expects = problem.expected[list(own.writers).index(problem.output)]
            self._want = float(expects.values(np.array([problem.place]))[0])
        self._known = {
            float(part.value): number
            for number, stmt in number_statements(problem.program)
            for expr in expressions(stmt)
            for part in walk_expr(expr)
            if isinstance(part, Const) and is_float(part.dtype)
        }

    def _open(self, program: Program) -> QuickRun:
        ends_at = self._now() + self._most_s
        run = QuickRun(
            program, self._problem.arrays, lambda: self._now() > ends_at or self._is_late()
        )
        run.is_strict = self._is_strict
        return run

    def search(self, numbers: Sequence[int], *, tries_all: bool = False) -> Search:
        """Try changes of these statements, and then of the others, until it is late; then larger ones if
        there is no smaller one, or if it ``tries_all``.
        """
        program = self._problem.program
        all_changes = Changes(program, is_scaled=self._problem.is_scaled)
        others = [n for n, _ in number_statements(program) if n not in numbers]
        changes = all_changes.of(numbers) + all_changes.of(others)
        changes.sort(key=lambda one: one.rank >= LARGER)
        blocks = len(list(list_blocks(program)))
        found = Search(total=len(changes), blocks=blocks, wrong=self._total)
        holes: Counter[int] = Counter()
        for change in changes:
            holes[change.number] += change.hole is not None
            least = min((one.rank for one in found.repairs), default=change.rank)
            if change.is_extra and least < change.rank < LARGER:
                found.total -= 1  # a better number for a constant is the same factor
                continue
            if change.rank > max(least, LARGER - 1) and not tries_all:
                found.has_enough = True
            if found.has_enough or self._is_late():
                break
            is_solved = False
            for solved in self._solve(change):
                is_solved = True
                blocks = self._count_right(solved)
                if blocks:
                    repair = replace(self._describe(change, solved.program), blocks=blocks)
                    kind = found.partial if solved.left else found.repairs
                    if solved.number is not None and solved.number.is_fitted:
                        kind = [] if solved.left else found.hints
                    hole = holes[change.number] - 1 if solved.number else -1
                    kind.append(replace(repair, found=solved.number, left=solved.left, hole=hole))
            found.tried += is_solved or not self._is_late()
        return found

    def retry(self, repair: Repair) -> Repair | None:
        """A repair that was found with other sizes, in terms of these; None if not all is right with it."""
        problem, found = self._problem, repair.found
        if found is None:
            return None
        changes = Changes(problem.program, is_scaled=problem.is_scaled).of([repair.number])
        holes = [one for one in changes if one.hole is not None]
        if repair.hole >= len(holes):
            return None
        change, named = holes[repair.hole], name_numbers(problem.numbers)
        for value in dict.fromkeys(named[name] for name in found.names if name in named):
            program = change.apply(problem.program, value)
            if self._count_wrong(program) == 0:
                blocks = self._count_right(_Solved(program=program, left=0))
                if blocks:
                    own = replace(self._describe(change, program), blocks=blocks)
                    names = [one for one in found.names if named.get(one) == value]
                    return replace(own, found=Number(value=value, names=tuple(names)))
        return None

    def _describe(self, change: Change, program: Program) -> Repair:
        own = self._problem.program
        before = list(walk(own.body))[change.number]
        inner = list(walk(program.body))[change.number :]
        after = ""
        if change.adds:
            made = next(one for one in inner if isinstance(one, Store))
            after = f"{print_statement(program, made)}, {change.adds} this statement"
        elif change.stmts:
            after = print_statement(program, inner[0])
        if change.others:
            after += ", before this statement"
        return Repair(
            number=change.number,
            before=print_statement(own, before),
            after=after,
            rank=change.rank,
        )

    def _solve(self, change: Change) -> Iterator[_Solved]:
        """The Program with the change if all is right then, or more than before and nothing wrong."""
        if change.hole is not None:
            yield from self._solve_hole(change)
            return
        program = change.apply(self._problem.program)
        left = self._count_wrong(program)
        if left is not None:
            yield _Solved(program=program, left=left)

    def _count_wrong(self, program: Program) -> int | None:
        """How many elements are wrong; None if one of them was right before, or almost none is right now."""
        problem = self._problem
        try:
            verify(program)
            run = self._open(program)
            for block in problem.blocks:
                run.run_block(block)
                if not problem.needs_all and not self._is_better(run.wrong(problem.expected)):
                    return None
            wrong = run.wrong(problem.expected)
        except _FAILURES:
            return None
        left = _count(wrong)
        is_missing = problem.is_whole and run.missing(problem.expected)
        if is_missing or run.written_count() < self._least or not self._is_better(wrong):
            return None
        return left if not left or self._total - left >= LEAST_RIGHT else None

    def _is_better(self, wrong: Mapping[str, Flat]) -> bool:
        """Whether nothing is wrong, or only what was wrong before but for the wanted element."""
        if not wrong or not self._problem.is_whole or self._fails:
            return not wrong
        return self._problem.place not in wrong.get(self._problem.output, ()) and all(
            np.isin(places, self._wrong.get(name, ())).all() for name, places in wrong.items()
        )

    def _count_right(self, solved: _Solved) -> int:
        """The number of blocks that are right, of all for which there is time; 0 if one of them is wrong. If
        the Program itself fails, nothing but all blocks shows that no element is missing.
        """
        problem, program = self._problem, solved.program
        if not problem.rest:
            return len(problem.blocks)
        own, run = (
            QuickRun(one, problem.arrays, self._is_late) for one in (problem.program, program)
        )
        fails = self._fails
        for block in problem.rest:
            has_failed = not fails and not _try(own, block)
            is_right = _try(run, block)
            if self._is_late():  # it may have been cut off
                own.forget_block()
                run.forget_block()
                break
            fails = fails or has_failed
            if not is_right:
                return 0
        is_whole = run.count == len(problem.rest)
        if run.wrong(problem.expected) or (is_whole and run.missing(problem.expected)):
            return 0
        if fails and not is_whole:
            return 0
        if run.written_count() < own.written_count():
            return 0
        return max(run.count, len(problem.blocks))

    def _solve_hole(self, change: Change) -> Iterator[_Solved]:
        """Look for a number, by the secant method, with which the wrong element is right."""
        output, place, want = self._problem.output, self._problem.place, self._want
        if not math.isfinite(want):
            return

        def miss(value: float) -> float:
            program = change.apply(self._problem.program, value)
            try:
                run = self._open(program)
                for block in self._problem.blocks[: None if self._problem.needs_all else 1]:
                    run.run_block(block)
                return run.value(output, place) - want
            except _FAILURES:
                return math.nan

        left = change.start
        right = left * 1.25 if left else 1.0
        at_left, at_right = miss(left), miss(right)
        if at_left == at_right:
            return
        for _ in range(MOST_STEPS):
            if not math.isfinite(at_left + at_right) or at_left == at_right:
                break
            value = right - at_right * (right - left) / (at_right - at_left)
            if not math.isfinite(value) or abs(value) > 1e30:
                break
            left, at_left, right, at_right = right, at_right, value, miss(value)
            if abs(at_right) <= 1e-6 * max(abs(want), 1e-30):
                break
        best: _Solved | None = None
        for number in self._candidates(change, right):
            if self._is_late():
                break
            program = change.apply(self._problem.program, number.value)
            wrong = self._count_wrong(program)
            if wrong is not None and (best is None or wrong < best.left):
                best = _Solved(program=program, number=number, left=wrong)
                if not wrong:
                    break
        if best is not None:
            yield best

    def _candidates(self, change: Change, found: float) -> Iterator[Number]:
        """Numbers near the solution: those of the Program and of the sizes, ratios, round ones; then itself.
        Last all numbers of the sizes, as the solution may not be one, or not the only one.
        """
        sizes = self._problem.numbers
        named = list(name_numbers(sizes).values())
        short = [float(f"{found:.3g}")] if change.rank == 0 or self._problem.is_scaled else []
        likely = [*self._known, *named, *_ratios(found), *short]
        near = [value for value in likely if abs(value - found) <= CLOSE * abs(found)]
        if abs(found) <= CLOSE * abs(change.start) and not change.is_extra:
            near.append(0.0)
        for value in dict.fromkeys([*near, float(f"{found:.6g}"), found, *named]):
            names = tuple(list_names(value, sizes))
            yield Number(
                value=value,
                same_as=self._known.get(value, -1),
                names=names,
                is_fitted=value not in near and value not in named,
            )


def _ratios(number: float) -> Iterator[float]:
    """The nearest ratios of small whole numbers."""
    for part in range(1, SMALL):
        for value in (number, 1 / number if number else 0.0):
            whole = round(value * part)
            if 0 < abs(whole) <= LARGE:
                yield whole / part if value == number else part / whole


def _try(run: QuickRun, block: Block) -> bool:
    """Run a block; whether it did not fail."""
    try:
        run.run_block(block)
    except _FAILURES:
        return False
    return True


def _count(wrong: Mapping[str, Flat]) -> int:
    return sum(places.size for places in wrong.values())
