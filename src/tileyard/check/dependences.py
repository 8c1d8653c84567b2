"""Finds dependences that a rewritten Program reorders: statements that read what another execution has written.

A rewrite that pipelines a loop keeps the order in which each single statement is executed, wherever its copies stand: so the
n-th execution of a statement has to read what the n-th one read before.
"""

from collections.abc import Sequence

from tileyard.check.blocks import corners
from tileyard.check.findings import Finding
from tileyard.check.recorder import Execution, Form, Recorder
from tileyard.errors import KernelFault
from tileyard.ir.tiles import Array
from tileyard.model import Value


def find_reordered(
    written: Form, planned: Form, arrays: Sequence[Array], scalars: Sequence[Value] = ()
) -> tuple[Finding, ...]:
    """Run the same blocks of both as ``check_program``; the first dependence that ``planned`` reorders.

    Where one of them fails nothing is found: that is a mistake by itself.
    """
    runs = [Recorder(form, arrays, scalars, corners) for form in (written, planned)]
    try:
        for run in runs:
            run.grid()
    except KernelFault:
        return ()
    found = compare(*runs)
    return () if found is None else (found,)


def compare(written: Recorder, planned: Recorder) -> Finding | None:
    """The first execution of ``planned`` that reads what another one has written than in ``written``; None for none.

    Both have run. Statements and buffers that are in one of them only say nothing.
    """
    known: dict[tuple[Execution, str], dict[int, set[Execution | None]]] = {}
    for (execution, buffer, role), writers in written.reads.items():
        known.setdefault((execution, buffer), {})[role] = writers
    for (execution, buffer, role), writers in planned.reads.items():
        before = known.get((execution, buffer))
        if before is None:
            continue
        expected = before.get(role, next(iter(before.values())))
        if writers != expected:
            return _describe(execution, buffer, expected, writers)
    return None


def _describe(
    execution: Execution,
    buffer: str,
    expected: set[Execution | None],
    found: set[Execution | None],
) -> Finding:
    as_written = _first(expected - found or expected)
    as_planned = _first(found - expected or found)
    number = f" in execution {execution.number} of this line" if execution.number > 1 else ""
    return Finding(
        kind="dependence reordered",
        message=(
            f"{buffer} is read{number} with {_what(as_planned)}; as the kernel is written, with {_what(as_written)}"
        ),
        fix="TileLang's pipelining does not keep this dependence: T.serial, or num_stages=0, keeps the order",
        buffer=buffer,
        block=execution.block,
        access=execution.source.line,
        other=None if as_written is None else as_written.source.line,
    )


def _first(executions: set[Execution | None]) -> Execution | None:
    known = [one for one in executions if one is not None]
    return min(known, key=lambda one: (one.source.line.line, one.number)) if known else None


def _what(execution: Execution | None) -> str:
    if execution is None:
        return "what was there before"
    return f"what line {execution.source.line.line} wrote in its execution {execution.number}"
