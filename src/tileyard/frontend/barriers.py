"""Barriers in shared memory, as counts: what arrives adds to one, and who waits looks at its phase.

A phase ends with every ``expected`` arrivals. Waiting for parity ``p`` ends once the phase that goes on
is of the other one, as the hardware's test says.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.scope import Scope
from tileyard.ir.nodes import Await, Buffer, Const, Expr, Fill, Load, Op, Region, Stmt, Store
from tileyard.ir.walk import convert

COUNT = "int32"

SCOPE = "shared.barrier"


class Barriers:
    """The barriers of a kernel, and how many arrivals end a phase of each."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._expected: dict[str, tuple[int, ...]] = {}

    def allocate(self, tir: Any, expected: Sequence[int]) -> Stmt:  # noqa: ANN401 (TVM's nodes are untyped)
        """Declare a buffer of barriers; the statement that makes them ready."""
        scope = self._scope
        if not expected:
            scope.refuse(f"barrier {tir.name}", "of which nothing says who arrives is not covered")
        size = Const(len(expected), "int32")
        buffer = Buffer(scope.names.take(str(tir.name)), COUNT, (size,), "shared")
        scope.bind_buffer(tir, buffer)
        scope.buffers.append(buffer)
        self._expected[buffer.name] = tuple(expected)
        return Fill(Region(buffer.name, (Const(0, "int32"),), (size,)), Const(0, COUNT))

    def lower(self, call: Any, threads: int) -> tuple[Stmt, ...] | None:  # noqa: ANN401
        """What a call means to a barrier if ``threads`` make it; None for another call."""
        rule = _RULES.get(str(getattr(call.op, "name", "")))
        return None if rule is None else rule(self, call, threads)

    def arrive(self, call: Any, threads: int) -> tuple[Stmt, ...]:  # noqa: ANN401
        """Count the arrivals."""
        place = self._element(call.args[0])
        count = Op("add", (place, Const(threads, COUNT)), COUNT)
        return (Store(place.buffer, place.indices, count),)

    def wait(self, call: Any, _: int) -> tuple[Stmt, ...]:  # noqa: ANN401
        """Wait until a phase of that parity has ended."""
        place = self._element(call.args[0])
        parity = convert(lower_expr(self._scope, call.args[1]), COUNT)
        phases = Op("truncdiv", (place, self._expected_at(place)), COUNT)
        current = Op("bitand", (phases, Const(1, COUNT)), COUNT)
        return (Await(Op("ne", (current, parity), "bool"), f"for {place.buffer}"),)

    def _element(self, load: Any) -> Load:  # noqa: ANN401
        buffer = (
            self._scope.known_buffer(load.buffer) if type(load).__name__ == "BufferLoad" else None
        )
        if buffer is None or buffer.name not in self._expected:
            self._scope.refuse(
                "barrier", "that is no element of a buffer of barriers is not covered"
            )
        index = convert(lower_expr(self._scope, load.indices[0]), "int32")
        return Load(buffer.name, (index,), COUNT)

    def _expected_at(self, place: Load) -> Expr:
        """How many arrivals end a phase of this barrier."""
        counts = self._expected[place.buffer]
        found: Expr = Const(counts[-1], COUNT)
        for number in reversed(range(len(counts) - 1)):
            if counts[number] != counts[-1] or found != Const(counts[-1], COUNT):
                is_it = Op("eq", (place.indices[0], Const(number, "int32")), "bool")
                found = Op("select", (is_it, Const(counts[number], COUNT), found), COUNT)
        return found


def _nothing(*_: object) -> tuple[Stmt, ...]:
    """Says how many bytes a transfer brings: here it is over when it returns."""
    return ()


_RULES: dict[str, Callable[[Barriers, Any, int], tuple[Stmt, ...]]] = {
    "tirx.ptx_arrive_barrier": Barriers.arrive,
    "tirx.ptx_arrive_barrier_expect_tx": Barriers.arrive,
    "tl.ptx_cp_async_barrier_noinc": Barriers.arrive,
    "tl.mbarrier_wait_parity": Barriers.wait,
    "tl.mbarrier_expect_tx": _nothing,
}
