"""Looks inside one block: chooses it, records it, and follows its first wrong elements back."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from tileyard.base.errors import KernelFault
from tileyard.base.model import SourceLine
from tileyard.base.wording import count_of
from tileyard.ir.nodes import Program, Stmt
from tileyard.ir.printer import print_statement
from tileyard.ir.specs import evaluate_size
from tileyard.ir.tiles import Array
from tileyard.ir.walk import bodies, walk
from tileyard.look.block_run import BlockRun
from tileyard.look.changes import with_outer
from tileyard.look.groups import Group, describe_group, group_wrong
from tileyard.look.history import Flat, History
from tileyard.look.layouts import find_layouts
from tileyard.look.patterns import MOST_COMPARED, Compared
from tileyard.look.quick_run import (
    Block,
    Expects,
    QuickRun,
    are_blocks_apart,
    find_wrong,
    list_blocks,
)
from tileyard.look.records import About, Influence, Look, ShownOutput, ShownStatement, Verdict, Way
from tileyard.look.repairs import Problem, Repair, Search, Seeker
from tileyard.look.shown import Shown, pack, with_source_names
from tileyard.look.slices import slice_back
from tileyard.look.verdict import (
    Evidence,
    Namer,
    conclude,
    suspects_of_findings,
    suspects_of_influences,
)
from tileyard.look.ways import Ablation, Refer, describe_way
from tileyard.reduce.edits import all_buffers
from tileyard.sync.words import Words

SEARCH_S, RECORD_S, REPAIR_S, INFLUENCE_S, FOLLOW_S = 1.0, 3.0, 2.5, 1.0, 1.0
"""CPU seconds for the search for a wrong block, its record, the search for a repair, influences, and
following elements back: first to group them, then one of each group but the first.
"""
BLOCK_S = 3.0
"""CPU seconds that a block may take longer than the search for a wrong one: it may never end."""
MOST_WAYS = 8
"""Groups of wrong elements of which one element is followed back."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A Program without open sizes or scalars, its source lines and inputs; ``expected`` and ``refer``
    are None without a reference. ``sizes`` are its own in words, ``notes`` what is to be said about it.
    ``architecture``: what it is planned for, empty if it is not. ``numbers``: its sizes and config by name.
    """

    program: Program
    lines: Mapping[int, SourceLine]
    arrays: Sequence[Array]
    expected: Sequence[Expects] | None = None
    refer: Refer | None = None
    sizes: str = ""
    about: About = field(default_factory=About)
    notes: tuple[str, ...] = ()
    architecture: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Others:
    """The same kernel with other sizes: ``smaller`` ones, the smallest first, on which changes take less
    time, and ``different`` ones, of which no two are equal.
    """

    smaller: Callable[[], Iterable[Subject]] = tuple
    different: Callable[[], Subject | None] = lambda: None


class Looker:
    """Looks inside a block of a subject, within limits of CPU seconds, by ``now``, times ``patience``."""

    def __init__(
        self,
        subject: Subject,
        now: Callable[[], float],
        others: Others = Others(),
        patience: float = 1.0,
    ) -> None:
        self._subject = subject
        self._now = now
        self._patience = patience
        self._sizes = others
        self._notes = list(subject.notes)
        share = max((one.share for one in subject.expected or ()), default=0.0)
        if share:
            self._notes.append(
                f"By the kernel's tolerance {100 * share:.3g} % of an output's elements may be wrong: "
                "so few do not count as wrong here."
            )
        self._missing: tuple[str, int] | None = None
        self._fails = False
        self._is_shared = not are_blocks_apart(subject.program)
        self._others: QuickRun | None = None
        self._pattern = ""
        self._namer = Namer(subject.program, subject.lines)

    def look(self, block: Block | None = None) -> Look:
        """Look inside this block, else the one with the first wrong element, else the middle one."""
        subject = self._subject
        blocks = list(list_blocks(subject.program))
        first = self._choose(blocks)
        chosen = first if block is None else block
        run = BlockRun(
            subject.program,
            subject.arrays,
            chosen,
            self._within(RECORD_S),
            self._find_before(chosen, blocks) if self._is_shared else None,
        )
        run.record()
        if not run.is_whole:
            self._notes.append("The block takes too long: only its first steps were recorded.")
        shown = pack(subject.program, run.history, list(run.outputs()))
        wrong = self._find_wrong(run, blocks.index(chosen) + 1 if blocks else 1)
        is_late = self._within(FOLLOW_S)
        groups = [
            group
            for output, places in wrong.items()
            for group in group_wrong(
                run.history, output, places, run.outputs()[output].reshape(-1), is_late
            )
        ]
        ways, verdict = self._judge(run, chosen, groups)
        layouts = find_layouts(subject.program, subject.architecture)
        found = Look(
            about=subject.about,
            block=chosen,
            grid=tuple(evaluate_size(axis.extent, {}) for axis in subject.program.grid),
            statements=tuple(
                replace(one, conflicts=layouts.conflicts.get(one.number, ()))
                for one in self._list_statements()
            ),
            buffers=tuple(
                replace(one, layout=layouts.words.get(one.name, "")) for one in shown.buffers
            ),
            steps=tuple(shown.steps),
            states=tuple(shown.states),
            copies=tuple(shown.copies),
            outputs=tuple(self._show_outputs(run, shown, wrong)),
            contents=tuple(shown.contents.texts),
            ways=ways,
            verdict=verdict,
            groups=len(groups) or len(ways),
            notes=tuple(self._notes),
            layouts=layouts.sentence,
            total_steps=len(run.history.steps),
        )
        return with_source_names(found, all_buffers(subject.program))

    def _within(self, seconds: float) -> Callable[[], bool]:
        ends_at = self._now() + seconds * self._patience
        return lambda: self._now() > ends_at

    # ---- the block --------------------------------------------------------------------------

    def _choose(self, blocks: Sequence[Block]) -> Block:
        """The block with the first wrong element, of as many blocks as there is time for."""
        subject, middle = self._subject, blocks[len(blocks) // 2] if blocks else ()
        if subject.expected is None or not blocks:
            return middle
        run = QuickRun(subject.program, subject.arrays, self._within(SEARCH_S + BLOCK_S))
        done: list[Block] = []
        is_late = self._within(SEARCH_S)
        try:
            for one in blocks:
                if is_late():
                    break
                done.append(one)
                run.run_block(one)
        except KernelFault:
            self._fails = not run.is_late()
            if len(done) == 1 or self._fails:
                return done[-1]
            middle = done.pop()
            run.forget_block()
        if len(done) < len(blocks) and self._is_shared:
            self._notes.append(
                "Blocks see what others wrote, and there was no time to run them all: no element is compared."
            )
            return middle
        self._others = run
        self._pattern = next(filter(None, self._find_patterns(run)), "")
        if len(done) < len(blocks):
            self._notes.append(
                f"{len(done)} of {len(blocks)} blocks were run to look for a wrong element: there was no "
                "time for the others."
            )
        for name, places in run.wrong(subject.expected).items():
            return done[int(run.writers[name].reshape(-1)[places[0]]) - 1]
        if len(done) == len(blocks):
            for name, places in run.missing(subject.expected).items():
                self._missing = name, int(places[0])
                self._notes.append(
                    f"{count_of(places.size, 'element')} of {name} are written by no block."
                )
        return middle

    def _find_patterns(self, run: QuickRun) -> Iterator[str]:
        """How the reference follows from the kernel's values, for each output with wrong elements."""
        expected = dict(zip(run.writers, self._subject.expected or (), strict=True))
        for name in run.wrong(list(expected.values())):
            places, got = run.results(name, MOST_COMPARED)
            shape = run.writers[name].shape
            compared = Compared(
                shape=shape,
                places=places,
                got=got.astype(np.float64),
                expected=expected[name],
            )
            yield compared.describe(self._subject.numbers)

    def _run_to(
        self, block: Block, blocks: Sequence[Block], *, is_before: bool = False
    ) -> QuickRun:
        """A run of this block, if blocks see what others wrote after all earlier ones; or only of these."""
        is_late = self._within(SEARCH_S + BLOCK_S)
        run = QuickRun(self._subject.program, self._subject.arrays, is_late)
        for one in itertools.takewhile(lambda one: one != block, blocks if self._is_shared else ()):
            run.run_block(one)
        if not is_before:
            run.run_block(block)
        return run

    def _find_before(self, block: Block, blocks: Sequence[Block]) -> dict[str, Array] | None:
        """What this block sees of earlier ones; None if one of these fails or does not end."""
        try:
            return self._run_to(block, blocks, is_before=True).take_globals()
        except KernelFault as fault:
            self._notes.append(
                f"A block before this one fails: {fault.message}. The record begins as if it were the first."
            )
            return None

    @property
    def _is_compared(self) -> bool:
        """Whether it is known what the block should have written."""
        return self._subject.expected is not None and (
            self._others is not None or not self._is_shared
        )

    def _find_wrong(self, run: BlockRun, number: int) -> dict[str, Flat]:
        """The wrong elements of those that the block has written, by output; if blocks see what others
        wrote, of those that it has written last.
        """
        others = self._others
        if not self._is_compared:
            return {}
        found = {}
        for (name, array), expected in zip(
            run.outputs().items(), self._subject.expected or (), strict=True
        ):
            written = [access.places() for _, access in run.history.written(name)]
            if written:
                places = np.unique(np.concatenate(written))
                if self._is_shared and others is not None:
                    places = places[others.writers[name].reshape(-1)[places] == number]
                known, got = places, array.reshape(-1)[places]
                if expected.share and others is not None:
                    rest, values = others.results(name)
                    is_other = ~np.isin(rest, places)
                    known = np.concatenate((places, rest[is_other]))
                    got = np.concatenate((got, values[is_other]))
                wrong = np.intersect1d(places, find_wrong(expected, known, got))
                if wrong.size:
                    found[name] = wrong
        return found

    # ---- the verdict ------------------------------------------------------------------------

    def _judge(
        self, run: BlockRun, block: Block, groups: Sequence[Group]
    ) -> tuple[tuple[Way, ...], Verdict]:
        namer = self._namer
        words = Words(dict(self._subject.lines))
        hazards = [
            words.describe(hazard, run.traces.get(key, ())) for key, hazard in run.hazards.items()
        ]
        findings = list(suspects_of_findings(hazards, namer))
        if run.fault:
            number = run.number_at()
            findings.insert(
                0, namer.suspect(max(number, 0), "failed", f"the kernel fails here: {run.fault}")
            )
        stops = [one.number for one in findings if one.how == "failed"]
        if not groups and self._missing is not None:
            return self._judge_missing(run, block, *self._missing)
        if not groups:
            search, sizes = None, ""
            if stops and self._fails:
                search, sizes = self._search(block, "", -1, stops, tries_all=True)
            evidence = Evidence(
                findings=findings,
                is_whole=run.is_whole,
                is_compared=self._is_compared,
                search=search,
                sizes=sizes,
            )
            return (), conclude(namer, None, evidence)
        output, first = groups[0].output, int(groups[0].places[0])
        is_undefined = any(one.how in ("failed", "undefined") for one in findings)
        is_order = bool(findings) and self._is_right_in_order(block, output, first)
        search, sizes = None, ""
        measured: tuple[Influence, ...] = ()
        if not is_order:
            measured = self._measure(run.history, block, output, first)
            numbers = [*stops, *groups[0].numbers]
            search, sizes = self._search(block, output, first, numbers, tries_all=is_undefined)
        explain = is_order or (is_undefined and search is not None and not search.repairs)
        evidence = Evidence(
            findings=findings,
            explain=explain,
            search=search,
            sizes=sizes,
            reads=tuple(suspects_of_influences(measured, namer)),
            pattern="" if is_order else self._pattern,
        )
        is_late = self._within(FOLLOW_S)
        ways = tuple(
            replace(
                self._way(
                    run, one.output, int(one.places[0]), measured if one is groups[0] else ()
                ),
                group=describe_group(run.history, one),
            )
            for one in groups[:MOST_WAYS]
            if one is groups[0] or not is_late()
        )
        return ways, conclude(namer, ways[0], evidence)

    def _is_right_in_order(self, block: Block, output: str, place: int) -> bool:
        """Whether an element is right if everything happens in the order of the text."""
        try:
            run = self._run_to(block, list(list_blocks(self._subject.program)))
        except KernelFault:
            return False
        wrong = run.wrong(self._subject.expected or ())
        return place not in wrong.get(output, ())

    def _way(
        self, run: BlockRun, output: str, place: int, influences: tuple[Influence, ...]
    ) -> Way:
        array, expected = run.outputs()[output], self._subject.expected or ()
        at = list(run.outputs()).index(output)
        return Way(
            output=output,
            index=tuple(int(i) for i in np.unravel_index(place, array.shape)),
            got=_plain(array.reshape(-1)[place]),
            want=_plain(float(expected[at].values(np.array([place]))[0])),
            parts=describe_way(run.history, slice_back(run.history, output, place)),
            influences=influences,
        )

    def _judge_missing(
        self, run: BlockRun, block: Block, output: str, place: int
    ) -> tuple[tuple[Way, ...], Verdict]:
        """The verdict on an element that no block writes."""
        numbers = list(dict.fromkeys(step.number for step, _ in run.history.written(output)))
        search, sizes = self._search(block, output, place, numbers)
        way = self._way(run, output, place, ())
        why = f"it writes {output}, of which no block writes this element"
        writers = [self._namer.suspect(number, "undefined", why) for number in numbers]
        evidence = Evidence(
            findings=writers,
            explain=search is None or not search.repairs,
            search=search,
            sizes=sizes,
        )
        return (way,), conclude(self._namer, way, evidence)

    def _measure(
        self, history: History, block: Block, output: str, place: int
    ) -> tuple[Influence, ...]:
        subject = self._subject
        if subject.refer is None or self._is_shared:
            return ()
        ablation = Ablation(
            program=subject.program,
            arrays=subject.arrays,
            refer=subject.refer,
            block=block,
            output=output,
            place=place,
            begin_limit=lambda: self._within(INFLUENCE_S),
        )
        return ablation.measure(history, slice_back(history, output, place))

    def _search(
        self,
        block: Block,
        output: str,
        place: int,
        numbers: Sequence[int],
        *,
        tries_all: bool = False,
    ) -> tuple[Search | None, str]:
        """Try changes, with smaller sizes if the mistake shows there, too; None if a block does not end."""
        own, problem = self._state(self._subject, block, output, place), self._shrink()
        is_late = self._within(REPAIR_S)
        wanted = with_outer(self._subject.program, numbers)
        try:
            seeker = Seeker(problem or own, self._now, is_late)
        except KernelFault as fault:
            self._notes.append(
                f"No change was tried, as one of the blocks does not end: {fault.message}."
            )
            return None, (problem or own).sizes
        search = seeker.search(wanted, tries_all=tries_all)
        self._name(search)
        if problem is not None and any(one.found for one in search.repairs):
            search.own_blocks = len(list(list_blocks(own.program)))
            search.repairs = [
                dataclasses.replace(one, own=self._retry(one, own)) for one in search.repairs
            ]
        return search, (problem or own).sizes

    def _name(self, search: Search) -> None:
        """Leave one name of a number that has several, if it is right with other sizes, too, by this name."""
        if not any(one.found and len(one.found.names) > 1 for one in search.repairs):
            return
        subject = self._sizes.different()
        if subject is None or not _is_alike(subject.program, self._subject.program):
            return
        problem = self._restate(subject, self._within(SEARCH_S))
        for at, one in enumerate(search.repairs):
            other = None if problem is None else self._retry(one, problem)
            if problem is not None and one.found and other and other.found:
                names, told_at = other.found.names, problem.sizes
                found = dataclasses.replace(
                    one.found, names=names, others=one.found.names, told_at=told_at
                )
                search.repairs[at] = dataclasses.replace(one, found=found)

    def _retry(self, repair: Repair, problem: Problem) -> Repair | None:
        """The same repair in another problem; None if it is none there, or if there is no time."""
        try:
            return Seeker(problem, self._now, self._within(SEARCH_S)).retry(repair)
        except KernelFault:
            return None

    def _state(self, subject: Subject, block: Block, output: str, place: int) -> Problem:
        blocks = list(list_blocks(subject.program))
        some = dict.fromkeys((block, blocks[-1], blocks[0]))
        has_all = self._is_shared or len(blocks) <= len(some)
        tried = blocks if self._is_shared else list(some)
        return self._pose(subject, tried, output, place, rest=() if has_all else blocks)

    def _pose(
        self,
        subject: Subject,
        blocks: Sequence[Block],
        output: str,
        place: int,
        rest: Sequence[Block] = (),
    ) -> Problem:
        """The problem of an element of a subject, with the blocks to try and the others."""
        return Problem(
            program=subject.program,
            arrays=subject.arrays,
            expected=subject.expected or (),
            blocks=blocks,
            rest=rest,
            output=output,
            place=place,
            is_whole=not rest,
            needs_all=self._is_shared or _has_share(subject),
            sizes=subject.sizes,
            numbers=subject.numbers,
            is_scaled=bool(self._pattern),
        )

    def _shrink(self) -> Problem | None:
        """The problem with the smallest sizes that show it, in as many dimensions of the grid."""
        own = self._subject.program
        is_late = self._within(SEARCH_S)
        for subject in self._sizes.smaller():
            if is_late():
                return None
            has_few = any(
                evaluate_size(one.extent, {}) < min(evaluate_size(other.extent, {}), 2)
                for one, other in zip(subject.program.grid, own.grid, strict=True)
            )
            if not has_few and _is_alike(subject.program, own):
                problem = self._restate(subject, is_late)
                if problem is not None:
                    return problem
        return None

    def _restate(self, subject: Subject, is_late: Callable[[], bool]) -> Problem | None:
        """The problem as it shows in another subject; None if it doesn't before it is late."""
        run = QuickRun(subject.program, subject.arrays, is_late)
        blocks = list(list_blocks(subject.program))
        has_failed = False
        try:
            for one in blocks:
                run.run_block(one)
        except KernelFault:
            if not self._fails or is_late():
                return None
            has_failed = True
        wrong = run.wrong(subject.expected or ())
        leaves_out = self._missing is None and run.missing(subject.expected or ())
        if not has_failed and (leaves_out or not wrong):
            return None
        name, place = next(((name, int(some[0])) for name, some in wrong.items()), ("", -1))
        number = int(run.writers[name].reshape(-1)[place]) if wrong else run.count
        first = blocks[number - 1]
        tried = blocks if self._is_shared else sorted(blocks, key=lambda one: one != first)
        return self._pose(subject, tried, name, place)

    # ---- what is shown ----------------------------------------------------------------------

    def _show_outputs(
        self, run: BlockRun, shown: Shown, wrong: dict[str, Flat]
    ) -> Iterator[ShownOutput]:
        windows = {one.name: (one.starts, one.extents) for one in shown.buffers}
        expected = self._subject.expected
        for at, (name, array) in enumerate(run.outputs().items()):
            if name not in windows:
                continue
            written = [access.places() for _, access in run.history.written(name)]
            places = np.unique(np.concatenate(written)).size if written else 0
            if expected is None:
                yield ShownOutput(name=name, total=places, wrong=0)
                continue
            box = tuple(slice(s, s + e) for s, e in zip(*windows[name], strict=True))
            flat = np.arange(array.size).reshape(array.shape)[box]
            want = expected[at].values(flat.reshape(-1))
            mask = np.zeros(array.size, np.float32)
            mask[wrong.get(name, np.zeros(0, np.int64))] = 1
            yield ShownOutput(
                name=name,
                total=places,
                wrong=int(mask.sum()),
                want=shown.contents.add(want.reshape(flat.shape)),
                mask=shown.contents.add(mask[flat]),
            )

    def _list_statements(self) -> Iterator[ShownStatement]:
        program, namer = self._subject.program, self._namer
        numbers = itertools.count()

        def inside(body: tuple[Stmt, ...], depth: int) -> Iterator[ShownStatement]:
            for stmt in body:
                number = next(numbers)
                text = print_statement(program, stmt)
                yield ShownStatement(number=number, line=namer.line(number), text=text, depth=depth)
                for inner in bodies(stmt):
                    yield from inside(inner, depth + 1)

        return inside(program.body, 0)


def _plain(value: float) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _has_share(subject: Subject) -> bool:
    return any(one.share for one in subject.expected or ())


def _is_alike(one: Program, other: Program) -> bool:
    """Whether two Programs have the same statements, but for their expressions."""
    kinds, others = ([type(stmt) for stmt in walk(program.body)] for program in (one, other))
    return kinds == others
