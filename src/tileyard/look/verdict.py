"""Which statement is wrong, as well as that can be known, and how it is known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tileyard.base.model import SourceLine
from tileyard.base.wording import count_of
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_statement
from tileyard.ir.walk import walk
from tileyard.look.records import Influence, Suspect, Verdict, Way
from tileyard.look.repairs import LARGER, Number, Repair, Search
from tileyard.sync.findings import Finding

_HOW = {"uninitialised": "undefined", "out of bounds": "failed", "deadlock": "failed"}


MOST_HINTS = 2
"""Changes with fitted numbers that are said."""


class Namer:
    """Names statements by their lines, and numbers by what has them as well."""

    def __init__(self, program: Program, lines: Mapping[int, SourceLine]) -> None:
        self._texts = [print_statement(program, stmt) for stmt in walk(program.body)]
        self._lines = lines

    def line(self, number: int) -> int:
        """The line of a statement, 0 if it is unknown."""
        return self._lines[number].line if number in self._lines else 0

    def suspect(self, number: int, how: str, why: str, repair: Repair | None = None) -> Suspect:
        """A statement that may be wrong."""
        return Suspect(
            number=number,
            line=self.line(number),
            how=how,  # type: ignore[arg-type]  # checked when it is made
            why=why,
            before=repair.before if repair else self._texts[number],
            after=repair.after if repair else "",
        )

    def explain(self, number: Number | None) -> str:
        """What a number is, with a semicolon before it; empty if that is not known."""
        if number is None or not (number.names or self.line(number.same_as)):
            return ""
        line = self.line(number.same_as)
        known = [f"is also in line {line}"] if line else []
        known += [f"equals {' and '.join(number.names)}"] if number.names else []
        wrong = [name for name in number.others if name not in number.names]
        told = f", and not {' or '.join(wrong)} (tried at {number.told_at})" if wrong else ""
        return f"; {number.value!r} {', and '.join(known)}{told}"

    def number_at(self, line: int) -> int:
        """The first statement of a line, -1 if there is none."""
        return next(
            (n for n, one in sorted(self._lines.items()) if one.line == line and n >= 0), -1
        )


def suspects_of_findings(findings: Sequence[Finding], namer: Namer) -> Iterator[Suspect]:
    """The statements that ``tileyard check`` names in the block, each once: waits, accesses, their other
    sides.
    """
    seen: set[int] = set()
    for one in findings:
        for place in (one.wait, one.access, one.other, *one.waiting):
            number = -1 if place is None else namer.number_at(place.line)
            if number >= 0 and number not in seen:
                seen.add(number)
                how = _HOW.get(one.kind, "hazard")
                why = f"{one.message} [{one.kind}]" + (f": {one.fix}" if one.fix else "")
                yield namer.suspect(number, how, why)


def suspects_of_repairs(search: Search, namer: Namer, sizes: str) -> Iterator[Suspect]:
    """The statements whose change makes all results right, each once, the more plausible change first."""
    repairs = search.repairs
    seen: set[int] = set()
    small = find_small(repairs)
    for one in sorted(repairs, key=lambda one: one.rank):
        if one.number in seen:
            continue
        seen.add(one.number)
        what = f"with `{one.after}`" if one.after else "without it"
        more = "" if one.number in small else ", but that is a larger change"
        where = _tried_at(search, [one], sizes)
        right = (
            f"{search.wrong - one.left:,} of {search.wrong:,} wrong elements are right, and no other is wrong"
            if one.left
            else "all results are right"
        )
        own = ""
        if one.own is not None:
            some = _say_some(one.own.blocks, search.own_blocks)
            own = f"; at the kernel's own sizes with `{one.own.after}`{f' (tried {some})' if some else ''}"
        why = f"{what} {right}{where}{namer.explain(one.found)}{own}{more}"
        yield namer.suspect(one.number, "change", why, one.own or one)


def suspects_of_influences(influences: Sequence[Influence], namer: Namer) -> Iterator[Suspect]:
    """The statements that read what the reference's element does not depend on."""
    by_number: dict[tuple[int, str], list[Influence]] = {}
    for one in influences:
        if one.number >= 0:
            by_number.setdefault((one.number, one.part.buffer), []).append(one)
    missed = {one.part.buffer for one in influences if one.number < 0 and one.differs}
    for (number, buffer), found in by_number.items():
        largest = max(max(abs(one.reference), abs(one.kernel)) for one in influences)
        is_unused = all(abs(one.reference) <= 1e-6 * largest for one in found)
        if is_unused and any(one.differs for one in found):
            also = f", and not those of {buffer} on which it depends" if buffer in missed else ""
            yield namer.suspect(
                number,
                "reads",
                f"it reads elements of {buffer} on which the reference's value does not depend{also}",
            )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was found about a wrong element. ``findings`` are the statements that ``tileyard check`` names
    in the block; they ``explain`` the element if it is right in the order of the text, or if something
    was undefined. It ``is_whole`` if the whole block was recorded, and ``is_compared`` with what is expected
    of it. ``reads`` are the statements that read what the reference does not depend on. ``pattern``: how
    the reference follows from the kernel's values, empty if that is not known.
    """

    findings: Sequence[Suspect] = ()
    is_whole: bool = True
    is_compared: bool = True
    explain: bool = False
    search: Search | None = None
    sizes: str = ""
    reads: Sequence[Suspect] = ()
    pattern: str = ""


def conclude(namer: Namer, way: Way | None, evidence: Evidence) -> Verdict:
    """The verdict on a wrong element, or on a block without one, from all that was found."""
    search = evidence.search
    repairs = () if search is None else tuple(suspects_of_repairs(search, namer, evidence.sizes))
    if way is None:
        sentence, found = _conclude_without(evidence, repairs)
    else:
        sentence, found = _conclude_about(namer, way, evidence, repairs)
    limits = [] if search is None else [_about_search(search), *_list_hints(search, namer)]
    if repairs:
        limits.append(
            f"Such a change was found in {count_of(len(repairs), 'statement')}; "
            "a mistake that takes a larger change cannot be excluded"
        )
        limits += [f"Line {one.line}: {one.why}" for one in evidence.reads]
    return Verdict(
        sentence=sentence,
        suspects=tuple(dict.fromkeys(found)),
        limits=tuple(f"{one}." for one in limits),
        tried=0 if search is None else search.tried,
        total=0 if search is None else search.total,
        sizes=evidence.sizes,
    )


def _conclude_without(
    evidence: Evidence, repairs: Sequence[Suspect]
) -> tuple[str, Sequence[Suspect]]:
    """The sentence and the suspects if no element is known to be wrong."""
    findings, search = evidence.findings, evidence.search
    sentence, in_this = "No element of this block is wrong", " in this run"
    if not evidence.is_compared:
        sentence, in_this = "No element of this block was compared with a reference", ""
    if not findings:
        if not evidence.is_whole:
            sentence = (
                "Only the first steps of the block could be recorded: --limit gives more time"
            )
        return f"{sentence}.", ()
    where = f"see {_at(findings)}: {findings[0].why}"
    if findings[0].how != "failed":
        return f"{sentence}{in_this}, but {where}.", findings
    if search is None or not repairs:
        return f"The block stops, {where}.", findings
    answer = _say_where(search, repairs, evidence.sizes)
    return f"The block stops, {where}; {answer}.", (*repairs, *findings)


def _conclude_about(
    namer: Namer, way: Way, evidence: Evidence, repairs: Sequence[Suspect]
) -> tuple[str, Sequence[Suspect]]:
    """The sentence and the suspects of a wrong element."""
    findings, search = evidence.findings, evidence.search
    index = ", ".join(map(str, way.index))
    wrong = f"{way.output}[{index}] is {say_number(way.got)}, and the reference has {say_number(way.want)}"
    pattern = f" {evidence.pattern[0].upper()}{evidence.pattern[1:]}." if evidence.pattern else ""
    found: Sequence[Suspect]
    if findings and evidence.explain:
        answer, found = f"see {_at(findings)}: {findings[0].why}", findings
    elif search is not None and repairs:
        answer = _say_where(search, repairs, evidence.sizes)
        found = (*repairs, *findings)
    elif search is not None and search.partial:
        best = _list_best(search)
        some = tuple(suspects_of_repairs(replace(search, repairs=best), namer, evidence.sizes))
        right = f"{search.wrong - best[0].left:,} of {search.wrong:,} wrong elements right"
        where = _tried_at(search, best, evidence.sizes)
        answer = (
            f"no change was found that makes all results right, but one in {_at(some)} makes {right}, "
            f"and no other wrong{where}"
        )
        found = (*some, *evidence.reads, *findings)
    elif evidence.reads:
        answer, found = (
            f"{_at(evidence.reads)}: {evidence.reads[0].why}",
            (*evidence.reads, *findings),
        )
    else:
        took = count_of(len(way.parts), "statement")
        answer = f"the wrong statement was not found among the {took} that took part"
        found = findings
    return f"{wrong}: {answer}.{pattern}", found


def _list_hints(search: Search, namer: Namer) -> Iterator[str]:
    """What else makes all results right, if no repair is known."""
    for one in () if search.repairs else search.hints[:MOST_HINTS]:
        yield (
            f"All results are right if line {namer.line(one.number)} has `{one.after}`, but its number was "
            "fitted to them: it may only hide the mistake"
        )


def _say_where(search: Search, repairs: Sequence[Suspect], sizes: str) -> str:
    """Which statements have a small change that makes all results right."""
    small = find_small(search.repairs)
    likely = sorted((one for one in repairs if one.number in small), key=lambda one: one.line)
    verb, each = ("is", "") if len(likely) == 1 else ("are", " each")
    where = _tried_at(search, search.repairs, sizes)
    return f"{_at(likely)} {verb} where a small change{each} makes all results right{where}"


def _list_best(search: Search) -> list[Repair]:
    """The partial repairs that leave the fewest elements wrong, and of these the smallest changes."""
    left = min(one.left for one in search.partial)
    some = [one for one in search.partial if one.left == left]
    small = find_small(some)
    return sorted((one for one in some if one.number in small), key=lambda one: one.rank)


def find_small(repairs: Sequence[Repair]) -> frozenset[int]:
    """The statements with the smallest changes."""
    least = max(min((one.rank for one in repairs), default=0), LARGER - 1)
    return frozenset(one.number for one in repairs if one.rank <= least)


def _tried_at(search: Search, repairs: Sequence[Repair], sizes: str) -> str:
    """At which sizes and in how many blocks the repairs were tried, in parentheses."""
    blocks = min(one.blocks for one in repairs)
    some = _say_some(blocks, search.blocks)
    parts = [one for one in (f"at {sizes}" if sizes else "", some) if one]
    return f" (tried {', '.join(parts)})" if parts else ""


def _say_some(blocks: int, total: int) -> str:
    return f"in {blocks} of {count_of(total, 'block')}" if blocks < total else ""


def _about_search(search: Search) -> str:
    count, more = f"All {search.total}", ""
    if not search.is_whole:
        count = f"{search.tried} of {search.total}"
        why = (
            "are larger"
            if search.has_enough
            else "were left out for lack of time (--limit gives more)"
        )
        more = f"; the others {why}"
    none = "" if search.repairs else "; none makes all results right"
    return (
        f"{count} changes of operators, indices, constants, variables, options and order, and factors and "
        "summands more, were tried, "
        f"one at a time{none}{more}"
    )


def _at(suspects: Sequence[Suspect]) -> str:
    lines = list(dict.fromkeys(one.line for one in suspects if one.line))
    if not lines:
        return "a statement without a line"
    *most, last = map(str, lines)
    return f"line {last}" if not most else f"lines {', '.join(most)} and {last}"


def say_number(value: float | None) -> str:
    """A number for people; None is one that is not finite."""
    return "no finite number" if value is None else f"{value:.6g}"
