"""Finds dependences that a rewritten Program reorders: statements that read from another execution.
Pipelining a loop keeps each single statement's order, so its n-th execution must read what the n-th
read before.
"""

from collections.abc import Sequence

import numpy as np

from tileyard.base.errors import KernelFault
from tileyard.base.model import Value
from tileyard.ir.tiles import Array
from tileyard.sync.blocks import choose_blocks
from tileyard.sync.findings import Finding
from tileyard.sync.recorder import Execution, Form, Recorder, Source


def find_reordered(
    written: Form, planned: Form, arrays: Sequence[Array], scalars: Sequence[Value] = ()
) -> tuple[Finding, ...]:
    """Run ``check_program``'s blocks of both; returns the first dependence that ``planned``
    reorders. Nothing if one fails: that is a separate mistake.
    """
    runs = [Recorder(form, arrays, scalars, choose_blocks) for form in (written, planned)]
    try:
        for run in runs:
            run.grid()
    except KernelFault:
        return ()
    found = compare(*runs)
    return () if found is None else (found,)


def compare(written: Recorder, planned: Recorder) -> Finding | None:
    """The first execution of ``planned`` that reads from another one than in ``written``; None for
    none. Both have run. Statements and buffers of only one are ignored, and so are numbers of
    executions if one has more, as when a pass wraps a statement in a distributed loop.
    """
    both = (written.totals, planned.totals)
    sources = [{source for _, source in totals} for totals in both]
    uneven = {key for one, other in (both, both[::-1]) for key in one if one[key] != other.get(key)}

    def known(executions: set[Execution | None]) -> set[Execution | None]:
        return {one and (_any(one) if one[:2] in uneven else one) for one in executions}

    before: dict[tuple[Execution, str], dict[int, set[Execution | None]]] = {}
    for (execution, buffer, role), writers in written.reads.items():
        before.setdefault((execution, buffer), {})[role] = known(writers)
    for (execution, buffer, role), writers in planned.reads.items():
        roles = before.get((execution, buffer))
        if roles is None or execution[:2] in uneven:
            continue
        expected, found = roles.get(role, next(iter(roles.values()))), known(writers)
        if found != expected and _are_in(sources, expected | found):
            number = f" in execution {execution.number} of this line"
            read = f"is read{number if execution.number > 1 else ''}"
            return _describe(buffer, read, (expected, found), execution)
    return _compare_outputs(written, planned, sources)


def _are_in(sources: list[set[Source]], executions: set[Execution | None]) -> bool:
    return all(one is None or all(one.source in known for known in sources) for one in executions)


def _any(execution: Execution) -> Execution:
    return execution._replace(number=0)


def _compare_outputs(
    written: Recorder, planned: Recorder, sources: list[set[Source]]
) -> Finding | None:
    """An element whose last writer is another statement; the order of atomic updates is open."""
    left = planned.left()
    for name, (marks, events) in written.left().items():
        if name not in left:
            continue
        other_marks, other_events = left[name]
        size = len(other_events)
        for pair in np.unique(marks.astype(np.int64) * size + other_marks).tolist():
            before, after = events[pair // size], other_events[pair % size]
            is_open = all(e is not None and e.source.kind == "atomic" for e in (before, after))
            is_other = (before and _any(before)) != (after and _any(after))
            if is_other and not is_open and _are_in(sources, {before, after}):
                return _describe(name, "is left", ({before}, {after}), after or before)
    return None


def _describe(
    buffer: str,
    what: str,
    writers: tuple[set[Execution | None], set[Execution | None]],
    execution: Execution | None,
) -> Finding:
    """The finding that ``execution`` accesses other writers' values of ``buffer``: as written, as planned."""
    expected, found = writers
    before, after = _first(expected - found or expected), _first(found - expected or found)
    return Finding(
        kind="dependence reordered",
        message=f"{buffer} {what} with {_what(after)}; as the kernel is written, with {_what(before)}",
        fix="TileLang's pipelining does not keep this dependence: T.serial, or num_stages=0, keeps the order",
        buffer=buffer,
        block=() if execution is None else execution.block,
        access=None if execution is None else execution.source.line,
        other=None if before is None else before.source.line,
    )


def _first(executions: set[Execution | None]) -> Execution | None:
    known = [one for one in executions if one is not None]
    return min(known, key=lambda one: (one.source.line.line, one.number)) if known else None


def _what(execution: Execution | None) -> str:
    if execution is None:
        return "what was there before"
    number = f" in its execution {execution.number}" if execution.number else ""
    return f"what line {execution.source.line.line} wrote{number}"
