"""Nests for all lanes at once: the same bits as one lane after the other, or nothing at all."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.samples import IS_WHOLE

from tileyard.base.errors import KernelFault
from tileyard.base.model import Value
from tileyard.ir.dtypes import DTYPES, find_dtype
from tileyard.ir.interpret import Run, interpret
from tileyard.ir.lane_conflicts import Access, Conflict, meaning_of_lanes
from tileyard.ir.lanes import Lanes, Report, interpret_lanes
from tileyard.ir.meanings import MEANINGS, OPS
from tileyard.ir.nodes import (
    Atomic,
    Await,
    Buffer,
    Const,
    Expr,
    Fill,
    For,
    If,
    LoopKind,
    Op,
    Program,
    Scalar,
    Stmt,
    Var,
)
from tileyard.ir.printer import print_statement
from tileyard.ir.reader import read_program
from tileyard.ir.tiles import Memory
from tileyard.testing.programs import _Maker, _params
from tileyard.testing.target_cases import OPERATIONS, TargetCase, random_arrays
from tileyard.testing.targets import CASES

Array = NDArray[Any]
Touched = set[tuple[str, int, bool]]


class _NotedMemory(Memory):
    """Memory that notes which elements were read and written."""

    touched: Touched

    def load(self, buffer: str, indices: tuple[int, ...]) -> np.generic:
        """One element."""
        if self.is_inside(buffer, indices):
            self.touched.add((buffer, self._place(buffer, indices), False))
        return super().load(buffer, indices)

    def store(self, buffer: str, indices: tuple[int, ...], value: np.generic) -> None:
        """Write one element."""
        self.touched.add((buffer, self._place(buffer, indices), True))
        super().store(buffer, indices, value)

    def _place(self, buffer: str, indices: tuple[int, ...]) -> int:
        return int(np.ravel_multi_index(indices, self.array(buffer).shape)) if indices else 0


class _LaneRun(Run):
    """A run whose nests run for all lanes at once where they can. Without ``is_fast`` none is tried."""

    is_fast = True

    def _make_memory(self, storage: dict[str, Array]) -> Memory:
        plain = super()._make_memory(storage)
        self.memory = _NotedMemory(plain.parameters, plain.tensor_floats)
        self.memory.touched = set()
        self.lanes: Lanes | None = None
        self.reports: list[Report] = []
        self.nests: list[Touched] = []
        self._depth = 0
        return self.memory

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Await, None, bool]:
        for stmt in body:
            is_nest = isinstance(stmt, For) and stmt.kind in ("parallel", "vectorized")
            if not is_nest or self._depth:
                if (yield from super()._body((stmt,))):
                    return True
                continue
            assert isinstance(stmt, For)
            self.memory.touched = set()
            if self._runs_fast(stmt):
                continue
            self._depth += 1
            yield from super()._body((stmt,))
            self._depth -= 1
            self.nests.append(self.memory.touched.copy())
        return False

    def _runs_fast(self, stmt: For) -> bool:
        if not self.is_fast:
            return False
        self.lanes = self.lanes or Lanes(self._memory, self._values)
        before = {name: array.copy() for name, array in self._arrays().items()}
        report = self.lanes.run(stmt)
        self.reports.append(report)
        if report.refusal is None:
            self.nests.append(self.memory.touched | touched(report))
            return True
        for name, array in self._arrays().items():
            assert array.tobytes() == before[name].tobytes()
        return False

    def _arrays(self) -> dict[str, Array]:
        return {**self._memory.parameters, **self._memory.tiles}


class _SlowRun(_LaneRun):
    is_fast = False


def touched(report: Report) -> Touched:
    """What the report says about elements; updates read and write, except exchanges that bind nothing."""

    def reads(access: Access) -> bool:
        is_exchange = isinstance(access.stmt, Atomic) and access.stmt.kind == "exchange"
        return not access.is_write or (access.is_update and not is_exchange)

    return {
        (access.buffer, int(element), is_write)
        for access in report.accesses
        for element in access.elements
        for is_write in (True, False)
        if (access.is_write if is_write else reads(access))
    }


def same(left: Array, right: Array) -> bool:
    """Whether two arrays have the same bits, those of NaNs aside."""
    assert left.dtype == right.dtype
    width = f"u{left.dtype.itemsize}"
    is_same = left.view(width) == right.view(width)
    return bool(np.all(is_same | ((left != left) & (right != right))))


def compare(program: Program, arrays: list[Array], scalars: tuple[Value, ...] = ()) -> list[Report]:
    """Run a Program in both ways, hold one against the other, and return the reports."""
    slow = _SlowRun(program, arrays, scalars, lambda _: None)
    fast = _LaneRun(program, arrays, scalars, lambda _: None)
    slow.grid()
    fast.grid()
    assert all(map(same, fast.written(), slow.written()))
    assert fast.nests == slow.nests
    return fast.reports


def inputs(*lines: str, head: str = "") -> tuple[Program, list[Array]]:
    """Statements on X and Y, eight floats each, Z, four times eight integers, and a tile t."""
    text = (
        "def f(X: float32[8], Y: inout.float32[8], Z: inout.int32[4, 8]):\n"
        "    t: shared.float32[8]\n"
        f"{head}\n    fill(t, 1.0)\n" + "".join(f"    {line}\n" for line in lines)
    )
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(8).astype(np.float32) for _ in range(2)]
    return read_program(text), [*arrays, rng.integers(0, 8, (4, 8)).astype(np.int32)]


def report(*lines: str, head: str = "") -> Report:
    """The report of the one nest that the statements are."""
    (found,) = compare(*inputs(*lines, head=head))
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_and_conversion_on_every_type(name: str) -> None:
    """Each scalar operation gives the bits that it gives for a single element."""
    case = OPERATIONS[name]
    (found,) = compare(case.program, case.arrays())
    assert found.refusal is None


@pytest.mark.parametrize("name", [name for name in CASES if name not in OPERATIONS])
def test_programs_of_the_targets(name: str) -> None:
    """Every Program that targets are tested with has the result of the interpreter."""
    case: TargetCase = CASES[name]
    compare(case.program, case.arrays(), tuple(case.scalars))
    expected = interpret(case.program, case.arrays(), case.scalars, lambda _: None)
    got = interpret_lanes(case.program, case.arrays(), case.scalars)
    assert all(same(*pair) for pair in zip(got, expected, strict=True))


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bool"])
@pytest.mark.parametrize(
    "name", ["add", "div", "min", "max", "exp", "pow", "floordiv", "truncmod", "shr"]
)
def test_operations_on_numbers_of_all_sizes(name: str, dtype: str) -> None:
    """Many random pairs of numbers, as arrays and one by one, give the same bits."""
    kind, rng = find_dtype(dtype), np.random.default_rng(5)
    row = OPS[name]
    if (row.accepts == "float") > kind.is_float or (row.accepts == "integer") > kind.is_integer:
        return
    numbers = rng.integers(0, 256, (row.arity, 2000, kind.numpy.itemsize)).astype(np.uint8)
    args = [part.reshape(-1).view(kind.numpy) for part in numbers]
    if name == "pow":
        args[1][::2] = 2  # for which NumPy has a way of its own
        args[0] = np.random.default_rng(6).standard_normal(2000).astype(kind.numpy)
    elif name == "shr":
        args[1] = (np.abs(args[1].astype(np.float64)) % kind.bits).astype(kind.numpy)
    elif row.accepts == "integer":
        args[1][args[1] == 0] = 3
    with np.errstate(all="ignore"):
        got = meaning_of_lanes(name)(*args)
        expected = np.array([MEANINGS[name](*pair) for pair in zip(*args, strict=True)], got.dtype)
    assert same(got, expected)


class _NestMaker(_Maker):
    """Draws what a nest may hold. Most indices are loop variables, so that many lanes are independent."""

    def indices(self, buffer: Buffer, depth: int = 1) -> tuple[Expr, ...]:
        loops = [var for var in self.vars if var.name.startswith("i")]
        if not loops or not self.draw(st.integers(0, 4)):
            return super().indices(buffer, depth)
        start = self.draw(st.integers(0, len(loops) - 1))
        found: list[Expr] = []
        for place, extent in enumerate(buffer.shape):
            index: Expr = loops[(start + place) % len(loops)]
            if buffer.scope != "global":
                index = Op("floormod", (index, extent), "int32")
            found.append(index)
        return tuple(found)

    def stmts(self, depth: int, loops: int) -> list[Stmt]:
        choices = [self._store, self._store, self._let, self._update]
        if depth:
            choices += [lambda: self._inner(depth), lambda: self._either(depth)]
        return self.draw(st.sampled_from(choices))()

    def _update(self) -> list[Stmt]:
        (stmt,) = self._atomic()
        if isinstance(stmt, Atomic) and stmt.var is not None:
            self.vars.remove(stmt.var)
            return [Atomic(stmt.buffer, stmt.indices, stmt.value, stmt.kind)]
        return [stmt]

    def _either(self, depth: int) -> list[Stmt]:
        cond = self.expr("bool", 2)
        return [If(cond, self.body(depth - 1, 0), self.body(depth - 1, 0))]

    def _inner(self, depth: int) -> list[Stmt]:
        return [self.loop(self.draw(st.sampled_from(("serial", "parallel"))), depth - 1)]

    def loop(self, kind: LoopKind, depth: int) -> For:
        """A loop around what a nest may hold."""
        var = Var(self.name("i"), "int32")
        start, extent = (Const(self.draw(st.integers(0, most)), "int32") for most in (1, 4))
        self.vars.append(var)
        body = self.body(depth, 1)
        self.vars.remove(var)
        return For(var, start, extent, kind, body)


@st.composite
def nests(draw: st.DrawFn) -> Program:
    """A Program of two nests over parameters, a tile, and the bytes of that tile read otherwise."""
    maker = _NestMaker(draw, is_exact=False)
    params = _params(maker)
    tile = maker.tile(draw(st.sampled_from(("float32", "int32", "bfloat16"))), (2, 4))
    count = Const(8 * find_dtype(tile.dtype).numpy.itemsize, "int32")
    view = Buffer("bytes", "uint8", (count,), tile.scope, view_of=tile.name)
    maker.buffers.append(view)
    body = (Fill(maker.whole(tile), Const(1, "int32")), *(maker.loop("parallel", 2) for _ in "ab"))
    return Program("nests", tuple(params), (), (), (), (tile, view), body)


def _compare_generated(program: Program) -> list[Report]:
    arrays = random_arrays(np.random.default_rng(1), program, {})
    scalars = tuple(2 for param in program.params if isinstance(param, Scalar))
    return compare(program, arrays, scalars)


EXAMPLES = 400 if IS_WHOLE else 60


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests())
def test_generated_nests(program: Program) -> None:
    """A nest has the bits, and touches the elements, as lane by lane, or is refused unchanged."""
    _compare_generated(program)


@pytest.mark.parametrize(
    "lines",
    [
        ("Y[i] = X[i] * 2.0", "t[i] = Y[i] + 1.0", "Y[i] = t[i] * t[i]"),
        ("Y[i - 3] = X[i - 2] + X[i + 1]",),
        ("if X[i] > 0.0:", "    Y[i] = sqrt(X[i])", "else:", "    Y[i] = t[7 - i]"),
        ("Y[i] = t[i - 4] if i >= 4 else 0.5",),
        ("Y[i] = 1.0 if i < 4 and t[i + 4] > 0.0 or i == 7 else 2.0",),
        ("Y[i] = float32(7 // i) if i > 0 else 1.0",),
        ("a = X[i]", "if a > 0.0:", "    b = a * 2.0", "    Y[i] = a + b"),
        ("for k in serial(3):", "    Y[i] = Y[i] * 0.5 + X[i + k]"),
        ("for k in serial(Z[0, i], start=1):", "    Y[i] = Y[i] + X[i - k]"),
        ("for k in serial(i - 3, start=1):", "    if i > 3:", "        Y[i] = Y[i] + float32(k)"),
        ("for j in parallel(8):", "    Z[i - 4, j] = Z[i - 4, j] * 2 + j"),
        ("for j in parallel(i):", "    Z[i, j] = Z[i, j] + 1"),
        ("for j in parallel(Z[0, i]):", "    Y[i] = float32(j)"),
        ("t[i] = X[i]", "b[i * 4 + 1] = uint8(i)", "Y[i] = t[i]"),
        ("r = X[i]", "for j in parallel(4):", "    Z[j, i] = int32(r) + j"),
        ("for j in parallel(2):", "    Z[0, i] = Z[0, i] + j", "Y[i] = 1.0"),
        ("atomic_add(Z[0, i // 3], i)",),
        ("atomic_add(Y[i // 3], X[i])",),
        ("atomic_max(Y[i // 3], X[i])",),
        ("atomic_exchange(Y[i // 4], X[i])",),
        ("for k in serial(3):", "    atomic_xor(Z[1, k], i * 5 + k)"),
        ("atomic_add(Y[i + 5], X[i])",),
        ("if i > 9:", "    Y[i] = 1.0"),
    ],
)  # fmt: skip
def test_nests_that_run_at_once(lines: tuple[str, ...]) -> None:
    """Own results, masks, edges, inner loops and atomic updates are as lane by lane."""
    head = "    b: shared.uint8[32] = t\n"
    found = report("for i in parallel(8):", *(f"    {line}" for line in lines), head=head)
    assert (found.refusal, found.conflicts) == (None, ())


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        (("Y[i] = Y[i + 1]",), "conflict"),
        (("Y[i] = X[i]", "t[i] = Y[7 - i]"), "conflict"),
        (("Y[i // 2] = X[i]",), "conflict"),
        (("atomic_add(Y[i // 2], X[i])", "t[i] = Y[i]"), "conflict"),
        (("r[i] = 1", "t[7 - i] = 2.0"), "conflict"),
        (("for k in serial(2):", "    atomic_add(Y[0], X[i])"), "order"),
        (("atomic_add(Z[0, 0], i)", "atomic_max(Z[0, 0], 3)"), "order"),
        (("old = atomic_add(Z[0, 0], i)", "Z[1, i] = old"), "statement"),
        (("print(\"{}\", i)",), "statement"),
        (("assert i < 8",), "statement"),
        (("Z[0, i] = i", "while Z[0, i] > 0:", "    Z[0, i] = Z[0, i] - 1"), "statement"),
        (("for k in serial(3):", "    Y[i] = 1.0", "    break"), "statement"),
        (("for k in serial(2, start=i):", "    Y[i] = X[k]"), "bounds"),
    ],
)  # fmt: skip
def test_nests_that_are_refused(lines: tuple[str, ...], refusal: str) -> None:
    """What only the order of lanes decides, and what is not known here, is refused and undone."""
    head = "    r: shared.int32[8] = t\n"
    found = report("for i in parallel(8):", *(f"    {line}" for line in lines), head=head)
    assert found.refusal == refusal


@pytest.mark.parametrize(
    "line",
    ["t[i + 1] = 1.0", "Y[i] = t[i + 1]", "Z[0, i] = 7 // (i - 3)", "Z[0, i] = 1 << i + 25",
     "Z[0, i] = 7 % (Z[1, 0] - Z[1, 0])"],
)  # fmt: skip
def test_faults_are_left_to_the_interpreter(line: str) -> None:
    """A nest in which a lane has a fault is refused, and lane by lane it raises that fault."""
    run = _LaneRun(*inputs("for i in parallel(8):", "    Y[i] = 5.0", f"    {line}"))
    with pytest.raises(KernelFault) as caught:
        run.grid()
    assert [found.refusal for found in run.reports] == ["fault"]
    assert f"in `{line}`" in caught.value.message


def _only(found: Report) -> Conflict:
    (conflict,) = found.conflicts
    return conflict


def test_a_conflict_names_both_statements_their_loops_and_the_element() -> None:
    """A race between lanes is reported with everything that a message about it needs."""
    conflict = _only(
        report(
            "for i in parallel(4):",
            "    for k in serial(2):",
            "        if i == 2 and k == 1:",
            "            Z[3, 5] = 7",
            "        if i == 1 and k == 0:",
            "            Y[0] = float32(Z[3, 5])",
        )
    )
    assert (conflict.buffer, conflict.indices, conflict.is_benign) == ("Z", (3, 5), False)
    program = read_program("def f(Z: inout.int32[4, 8], Y: out.float32[8]):\n    Z[3, 5] = 7\n")
    assert print_statement(program, conflict.first.stmt) == "Z[3, 5] = 7"
    assert conflict.first.is_write
    assert conflict.first.loops == (("i", 2), ("k", 1))
    assert not conflict.second.is_write
    assert conflict.second.loops == (("i", 1), ("k", 0))


def test_lanes_that_store_the_same_conflict_without_harm() -> None:
    """Several lanes may give one element the same value: the nest runs, and reports it."""
    found = report("for i in parallel(8):", "    Y[i // 4] = 3.0")
    assert found.refusal is None
    assert _only(found).is_benign


def test_one_other_value_makes_a_conflict_harmful() -> None:
    """Among many lanes that store the same value the one that does not is found."""
    found = report("for i in parallel(8):", "    Y[0] = 3.0 if i != 5 else 2.0")
    assert found.refusal == "conflict"
    conflict = _only(found)
    assert not conflict.is_benign
    assert 5 in (conflict.first.lane, conflict.second.lane)


def test_the_same_value_read_by_another_lane_is_harmful() -> None:
    """What a lane reads of an element that all lanes write depends on their order."""
    found = report("for i in parallel(8):", "    Y[0] = 3.0", "    t[i] = Y[0]")
    assert found.refusal == "conflict"
    assert [conflict.is_benign for conflict in found.conflicts] == [True, False]


def test_each_two_statements_in_conflict_are_told() -> None:
    """That a lane reads what it has written itself does not hide that another one writes it, too."""
    found = report(
        "for i in parallel(8):",
        "    if i == 0 or i == 5:",
        "        Y[0] = 3.0",
        "    if i == 0:",
        "        t[0] = Y[0]",
    )
    sides = [(conflict.first.lane, conflict.second.lane) for conflict in found.conflicts]
    assert (found.refusal, sides) == ("conflict", [(5, 0), (5, 0)])


def test_accesses_name_lanes_in_the_order_of_the_loops() -> None:
    """Each access says which lane touched which element, and only those that did."""
    found = report(
        "for i, j in parallel(2, 8):", "    if j % 2 == i:", "        Z[i, j] = int32(X[j + 1])"
    )

    def pairs(access: Access) -> list[tuple[int, int]]:
        return list(zip(access.lanes.tolist(), access.elements.tolist(), strict=True))

    read, written = found.accesses
    lanes = [0, 2, 4, 6, 9, 11, 13, 15]
    assert (read.buffer, read.is_write) == ("X", False)
    assert pairs(read) == [(lane, lane % 8 + 1) for lane in lanes[:-1]]
    assert (written.buffer, written.is_write) == ("Z", True)
    assert pairs(written) == [(lane, lane) for lane in lanes]
    assert written.values is not None


def test_a_nest_of_no_lanes_does_nothing() -> None:
    """A loop that does not run touches nothing."""
    found = report("for i in parallel(0):", "    Y[i] = t[9]")
    assert (found.refusal, found.accesses) == (None, ())
