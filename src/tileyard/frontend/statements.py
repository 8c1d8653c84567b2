"""Lowers the statements of a TileLang kernel's body, and notes the line of each."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from tileyard.base.model import SourceLine
from tileyard.frontend.expressions import buffer_of, lower_expr
from tileyard.frontend.externs import is_mark, lower_extern
from tileyard.frontend.hints import (
    AT_ONCE,
    ATTRIBUTE_HINTS,
    CALL_HINTS,
    LOOP_HINTS,
    LOST_HINTS,
    is_block_hint,
    read_depths,
    with_layout,
    with_pipeline,
)
from tileyard.frontend.lockstep import Lockstep, Lowering
from tileyard.frontend.rewrites import without_continue, without_return
from tileyard.frontend.scope import Scope, key_of
from tileyard.frontend.synchronization import BARRIERS, allocate_barriers, lower_synchronization
from tileyard.frontend.thread_code import ThreadCode
from tileyard.frontend.threads import RoleLowering, Threads
from tileyard.frontend.tile_ops import lower_call
from tileyard.frontend.tir_queries import (
    ISSUED,
    THREAD_BINDING,
    THREAD_INDEX,
    bodies_of,
    call_name,
    count_launches,
    dimension_of,
    extern_name,
    free_vars,
    heads_of,
    is_bound_to_threads,
    is_idle_mark,
    is_issued,
    is_load,
    is_loop,
    is_one,
    is_zero,
    nodes_of,
    without_dead_branches,
)
from tileyard.ir.dtypes import is_integer
from tileyard.ir.nodes import (
    Assert,
    Axis,
    Break,
    Buffer,
    Const,
    Fill,
    For,
    If,
    Issue,
    Let,
    Load,
    LoopKind,
    Region,
    Stmt,
    Store,
    While,
)
from tileyard.ir.specs import variables_in
from tileyard.ir.walk import bodies, buffer_effects, own_effects, walk, walk_expr

_Begin = Literal["written", "maybe", "read"]
"""The first use of a variable: it is written; it may be written, and is not read before; it may be read."""
_Begins = dict[object, _Begin]
"""For each variable that a part of a kernel uses, by the identity of its memory."""
CARRIED = "is handed from one iteration of a parallel loop to another, and each thread has its own"
_KINDS: dict[int, LoopKind] = {0: "serial", 1: "parallel", 2: "vectorized", 3: "unroll"}
_LAUNCH = "tilelang_root"
"""The name of the block that is a whole launch."""
_DEFAULT_THREADS = (128, 1, 1)
"""Threads of a block if the user has not set them."""
_GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def unset_variables(body: Any) -> set[object]:  # noqa: ANN401 (TVM's nodes are untyped)
    """The variables that ``body`` may read before it writes them, by the identity of their memory.

    TileLang declares those of ``T.alloc_var`` with the value 0.
    """
    return {data for data, begin in _begins(body).items() if begin == "read"}


def _begins(stmt: Any) -> _Begins:  # noqa: ANN401
    inner = bodies_of(stmt)
    match type(stmt).__name__:
        case "BufferStore":
            reads = _reads(stmt.value, *stmt.indices)
            is_variable = str(stmt.buffer.scope()) == "local.var"
            return _in_order((reads, {key_of(stmt.buffer.data): "written"} if is_variable else {}))
        case "SeqStmt" | "SBlockRealize" | "AttrStmt":
            return _in_order(map(_begins, inner))
        case "IfThenElse":
            sides = [*map(_begins, inner), {}][:2]
            return _in_order((_reads(*heads_of(stmt)), _either(*sides)))
        case "For" | "While":  # perhaps without iterations
            return _in_order((_reads(*heads_of(stmt)), _either(_begins(stmt.body), {})))
        case _:
            return _reads(stmt)


def _reads(*parts: Any) -> _Begins:  # noqa: ANN401
    loads = (node.buffer for part in parts for node in nodes_of(part) if is_load(node))
    return {key_of(one.data): "read" for one in loads if str(one.scope()) == "local.var"}


def _in_order(parts: Iterable[_Begins]) -> _Begins:
    found: _Begins = {}
    for part in parts:
        found |= {
            data: begin for data, begin in part.items() if found.get(data, "maybe") == "maybe"
        }
    return found


def _either(one: _Begins, other: _Begins) -> _Begins:
    found: _Begins = {}
    for data in {**one, **other}:
        both = one.get(data, "maybe"), other.get(data, "maybe")
        found[data] = (
            "read" if "read" in both else "written" if set(both) == {"written"} else "maybe"
        )
    return found


def find_carried(nest: For, variables: Iterable[str]) -> list[str]:
    """The ``variables`` that iterations write, and read before they have written them themselves."""
    if not _loops_of(nest):
        return []
    early, _ = _read_early(nest.body, frozenset())
    written = buffer_effects(nest.body).written
    return [name for name in variables if name in early & written]


def find_summed(nest: For, fragments: Mapping[str, Buffer]) -> Iterator[tuple[str, str]]:
    """The fragments whose elements several iterations update from another fragment, and that one:
    its layout decides which threads do so. Every thread knows the only element of a fragment.
    """
    loops = _loops_of(nest)
    for stmt in walk((nest,)):
        if not isinstance(stmt, Store) or stmt.buffer not in fragments:
            continue
        loads = [part for part in walk_expr(stmt.value) if isinstance(part, Load)]
        is_update = any((one.buffer, one.indices) == (stmt.buffer, stmt.indices) for one in loads)
        if not is_update or all(
            extent == Const(1, "int32") for extent in fragments[stmt.buffer].shape
        ):
            continue
        shared = loops.difference(*map(variables_in, stmt.indices))
        for one in loads:
            if one.buffer in fragments and any(shared & variables_in(at) for at in one.indices):
                yield stmt.buffer, one.buffer


def _loops_of(nest: For) -> set[str]:
    """The variables of its parallel loops, without those of one iteration."""
    loops = (one for one in walk((nest,)) if isinstance(one, For) and one.kind == "parallel")
    return {one.var.name for one in loops if one.extent != Const(1, one.extent.dtype)}


def _read_early(
    body: tuple[Stmt, ...], known: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """What ``body`` reads before it is written, and what it certainly writes, given what is ``known``."""
    early: frozenset[str] = frozenset()
    for stmt in body:
        own = own_effects(stmt)
        early |= own.read - known
        known |= own.written
        inside = [_read_early(part, known) for part in bodies(stmt)]
        early = early.union(*(part for part, _ in inside))
        if isinstance(stmt, If) or (isinstance(stmt, For) and _runs(stmt)):
            known = frozenset.intersection(*(part for _, part in inside))
    return early, known


def _runs(loop: For) -> bool:
    return isinstance(loop.extent, Const) and loop.extent.value > 0


class BodyLowering:
    """Lowers one body, and fills ``grid``, ``threads`` and ``lines``. Statements are made in
    pre-order: one's number is that of the statements before it.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._count = 0
        self._checks = 0
        self._reducers: dict[object, str] = {}
        self._old_reducers: set[object] = set()
        self._unset: set[object] = set()
        self._has_phases = False
        self._threads = Threads(scope)
        self._arrivals: dict[object, tuple[int, ...]] = {}
        self._roles = RoleLowering(scope, self._threads, self.lower, self._note)
        self._code = ThreadCode(self._threads)
        lowering = Lowering(self.lower, self._lower_plain, self._numbered, self._note)
        self._lockstep = Lockstep(scope, self._code, self._threads, self._roles, lowering)
        self.grid: dict[str, Axis] = {}
        self.threads: tuple[int, ...] = ()
        self.lines: dict[int, SourceLine] = {}

    def lower_body(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401 (TVM's nodes are untyped)
        """The statements of a whole function; raises UnsupportedError. Several successive launches
        become loops over their blocks in a Program without a grid.
        """
        stmt = without_dead_branches(stmt)
        self._unset = unset_variables(stmt)
        self._has_phases = count_launches(stmt) > 1
        if self._scope.has_threads:
            self._code.study(stmt)
        lowered = self.lower(stmt)
        self._roles.require_own_registers()
        self._scope.buffers = [with_layout(self._scope, one) for one in self._scope.buffers]
        return lowered

    def lower(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        """The statements for ``stmt``; raises UnsupportedError."""
        before = self._scope.enter(stmt)
        is_for_threads = self._lockstep.takes(stmt)
        lowered = self._lockstep.lower(stmt) if is_for_threads else self._lower_plain(stmt)
        self._scope.where = before
        return lowered

    def _lower_plain(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        kind = type(stmt).__name__
        rule = getattr(self, f"_lower_{kind}", None)
        if rule is None:
            self._scope.refuse(f"statement {kind}")
        lowered: tuple[Stmt, ...] = rule(stmt)
        return lowered

    def _number(self) -> tuple[Stmt, ...]:
        """Number the next statement, after those that have to run before it."""
        first = self._numbered(self._scope.take_hoisted())
        self._note()
        return first

    def _numbered(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """``stmts`` and all statements in them, with numbers and the current line."""
        position = self._scope.position
        if not (position.is_spread or position.is_single):
            self._roles.require_one_update(stmts)
        for _ in walk(stmts):
            self._note()
        return stmts

    def _note(self) -> None:
        if self._scope.where is not None:
            self.lines[self._count] = self._scope.where
        self._count += 1

    # ---- structure --------------------------------------------------------------------------

    def _lower_SeqStmt(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        return tuple(part for inner in stmt.seq for part in self.lower(inner))

    def _lower_SBlockRealize(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        block = stmt.block
        self._scope.require(
            block.init is None and not len(block.iter_vars) and not len(block.match_buffers),
            f"block {block.name_hint} with iterators",
        )
        self._scope.require(is_one(stmt.predicate), f"block {block.name_hint} with a predicate")
        for key, value in block.annotations.items():
            self._annotate(str(key), value)
        if block.name_hint == _LAUNCH and "tl.launch_threads" not in block.annotations:
            self._launch_threads(_DEFAULT_THREADS)
        ready = tuple(part for buffer in block.alloc_buffers for part in self._allocate(buffer))
        first = self._numbered(ready)
        body = without_return(block.body) if block.name_hint == _LAUNCH else block.body
        lower = self._roles.body if self._roles.are_in(body) else self.lower
        return (*first, *lower(body))

    def _annotate(self, name: str, value: Any) -> None:  # noqa: ANN401
        match name:
            case "tl.launch_threads":
                self.threads = tuple(int(extent) for extent in value)
                self._launch_threads(self.threads)
            case "pragma_import_c":
                self._scope.imported = str(value)
            case "barrier_init":
                counts = {key_of(data): tuple(map(int, given)) for data, given in value.items()}
                self._arrivals |= counts
            case "layout_map":
                self._scope.layouts += value.items()
            case "tl.ws_schedule":
                self._scope.depths |= read_depths(value)
            case "reducer_info_v2":
                self._reducers |= {key_of(data): str(info["op"]) for data, info in value.items()}
            case "reducer_info":  # those of before: finalizing one adds the threads' parts
                self._old_reducers |= set(map(key_of, value))
            case _ if not is_block_hint(name, value):
                self._scope.refuse(f"annotation {name}")
            case _ if name in LOST_HINTS:
                self._scope.lose(name)
            case _:
                pass

    def _launch_threads(self, extents: tuple[int, ...]) -> None:
        self._threads.launch(extents if self._scope.has_threads else (1, 1, 1))
        wide = (Const(extents[i], "int32") for i in self._threads.wide)
        self._scope.position.extents = tuple(wide)

    def _lower_AllocBuffer(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        return self._numbered(self._allocate(stmt.buffer))

    def _allocate(self, tir: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        """Declare a buffer; returns the statements that must run before it can be used."""
        scope = self._scope
        with scope.at_buffer(tir) as where:
            if str(tir.scope()) == BARRIERS:
                return (allocate_barriers(scope, tir, self._arrivals.get(key_of(tir.data), ())),)
            storage = scope.storage_scope(tir)
            scope.require(not len(tir.strides), f"buffer {tir.name} with strides")
            shape = tuple(lower_expr(scope, extent) for extent in tir.shape)
            scope.require(
                all(isinstance(extent, Const) for extent in shape),
                f"buffer {tir.name} of a size that is not constant",
            )
            is_own = self._code.is_own(tir)
            buffer = Buffer(
                scope.names.take(str(tir.name)),
                scope.dtype(tir.dtype, str(tir.name)),
                (*scope.position.extents, *shape) if is_own else shape,
                storage,  # type: ignore[arg-type]
            )
        scope.bind_buffer(tir, buffer)
        scope.buffers.append(buffer)
        scope.variables += [buffer.name] if str(tir.scope()) == "local.var" else []
        if where is not None:
            scope.allocated[buffer.name] = where
        if is_own:
            scope.position.own.add(buffer.name)
        if key_of(tir.data) in self._reducers:
            scope.reducers[buffer.name] = self._reducers[key_of(tir.data)]
        elif storage == "fragment" and key_of(tir.data) not in self._old_reducers:
            scope.fragments[buffer.name] = buffer
        if key_of(tir.data) in self._unset:
            starts = tuple(Const(0, "int32") for _ in buffer.shape)
            return (Fill(Region(buffer.name, starts, buffer.shape), Const(0, buffer.dtype)),)
        return ()

    def _lower_AttrStmt(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        name = str(stmt.attr_key)
        self._scope.require(name in ATTRIBUTE_HINTS, f"attribute {name}")
        if name == "threadblock_swizzle_pattern":
            function, panel = (arg.value for arg in stmt.value.args)
            self._scope.swizzle = (str(function), int(panel))
        elif name in LOST_HINTS:
            self._scope.lose(name)
        return self.lower(stmt.body)

    # ---- loops and branches -----------------------------------------------------------------

    def _lower_For(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        if is_loop(stmt, THREAD_BINDING):
            return self._launch(stmt)
        scope = self._scope
        position, outside = scope.position, scope.position.is_spread
        becomes_issue = is_issued(stmt)
        hints = LOOP_HINTS | {ISSUED} if becomes_issue or is_idle_mark(stmt) else LOOP_HINTS
        unknown = [str(key) for key in stmt.annotations if str(key) not in hints]
        scope.require(not unknown, f"loop with {', '.join(unknown)}")
        for key in stmt.annotations:
            if str(key) in LOST_HINTS:
                scope.lose(f"a loop with {key}")
        scope.require(stmt.step is None or is_one(stmt.step), f"loop with step {stmt.step}")
        start, extent = lower_expr(scope, stmt.min), lower_expr(scope, stmt.extent)
        first = self._number()
        if becomes_issue and not outside:
            self._note()
        var = scope.bind_var(stmt.loop_var)
        kind = _KINDS[int(stmt.kind)]
        position.is_spread = outside or kind == "parallel"
        body, position.is_spread = self.lower(without_continue(stmt.body)), outside
        loop = For(var, start, extent, kind, body)
        if kind == "parallel" and not (outside or position.is_single):
            for name in find_carried(loop, scope.variables):
                scope.note_race(name, CARRIED)
            for name, other in find_summed(loop, scope.fragments):
                why = (
                    f"is updated by threads that read {other}, each only the elements that it holds"
                )
                scope.note_race(name, why)
        if kind == "serial":
            loop = with_pipeline(scope, loop, stmt.annotations)
        return (*first, Issue("cp_async", (loop,)) if becomes_issue and not outside else loop)

    def _launch(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        tag = str(stmt.thread_binding.thread_tag)
        if is_bound_to_threads(stmt) and self._threads.extents:
            return self._bind_threads(stmt)
        self._scope.require(tag in _GRID, f"loop bound to {tag}")
        if self._has_phases and len(stmt.annotations) == 0:
            start, extent = (lower_expr(self._scope, bound) for bound in (stmt.min, stmt.extent))
            first = self._number()
            var = self._scope.bind_block(tag, stmt.loop_var)
            return (*first, For(var, start, extent, "blocks", self.lower(stmt.body)))
        self._scope.require(
            tag not in self.grid and self._count <= self._checks,
            "second kernel launch",
            "in one function is not covered",
        )
        self._scope.require(
            is_zero(stmt.min) and not len(stmt.annotations), f"{tag} with annotations"
        )
        extent = lower_expr(self._scope, stmt.extent)
        self.grid[tag] = Axis(self._scope.bind_block(tag, stmt.loop_var), extent)
        return self.lower(stmt.body)

    def _bind_threads(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        """A loop whose variable is the thread's index: the threads run its body side by side."""
        dimension, extent = dimension_of(stmt), self._scope.simplify(stmt.extent)
        count = int(extent.value) if type(extent).__name__ == "IntImm" else -1  # type: ignore[attr-defined]
        self._scope.require(
            is_zero(stmt.min) and (*self._threads.extents, 1, 1)[dimension] == count,
            f"loop bound to {stmt.thread_binding.thread_tag}",
            "for some of the threads is not covered",
        )
        self._scope.bind_thread(stmt.loop_var)
        self._threads.bind(stmt.loop_var, dimension)
        return self.lower(stmt.body)

    def _lower_IfThenElse(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        if not self._scope.position.is_single and self._threads.decides(stmt.condition):
            return self._roles.branch(stmt)
        cond = lower_expr(self._scope, stmt.condition)
        first = self._number()
        then = self.lower(stmt.then_case)
        orelse = self.lower(stmt.else_case) if stmt.else_case is not None else ()
        return (*first, If(cond, then, orelse))

    def _lower_While(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        scope = self._scope
        outside, scope.in_while = scope.in_while, True
        cond = lower_expr(scope, stmt.condition)
        if self._number():
            scope.refuse("while", "with a condition that is more than an expression is not covered")
        body = self.lower(without_continue(stmt.body))
        scope.in_while = outside
        return (While(cond, body),)

    # ---- leaves -----------------------------------------------------------------------------

    def _lower_Bind(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        value = stmt.value
        if call_name(value) == THREAD_INDEX:
            self._scope.bind_thread(stmt.var)
            if self._scope.has_threads:
                self._threads.bind(stmt.var, int(value.args[0].value))
            return ()
        if self._threads.decides(value):
            self._scope.bind_thread(stmt.var)
            self._threads.bind_value(stmt.var, value)
            self._scope.defer(stmt.var, value, is_ready=True)
            return ()
        is_ahead = any(self._scope.is_unbound(var) for var in free_vars(value))
        if is_ahead or self._scope.macro in AT_ONCE:
            # Tile schedulers bind a tile's position before the loop whose variable it depends on.
            self._scope.defer(stmt.var, value)
            return ()
        lowered = lower_expr(self._scope, value)
        first = self._number()
        if is_integer(lowered.dtype) and not any(isinstance(p, Load) for p in walk_expr(lowered)):
            self._scope.analyzer.bind(stmt.var, value)
        return (*first, Let(self._scope.bind_var(stmt.var), lowered))

    def _lower_BufferStore(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        buffer = buffer_of(self._scope, stmt.buffer)
        self._scope.require(stmt.predicate is None, f"predicated store to {buffer.name}")
        self._roles.require_one(f"store to {buffer.name}")
        indices = tuple(lower_expr(self._scope, index) for index in stmt.indices)
        indices = self._scope.place(buffer, indices)
        store = Store(buffer.name, indices, lower_expr(self._scope, stmt.value))
        first = self._number()
        self._roles.note_registers((*first, store))
        position = self._scope.position
        is_for_all = not (position.is_single or position.is_spread) and len(self._threads.asked) > 1
        if is_for_all and buffer.scope in ("global", "shared"):
            reads = {part.buffer for part in walk_expr(store.value) if isinstance(part, Load)}
            if buffer.name in reads:
                why = "is read and written by every thread of the block, and nothing orders them"
                self._scope.note_race(buffer.name, why)
        return (*first, store)

    def _lower_AssertStmt(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        cond = lower_expr(self._scope, stmt.condition)
        message = "".join(str(part.value) for part in stmt.message_parts)
        self._checks += 1
        return (*self._number(), Assert(cond, message))

    def _lower_Evaluate(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401, N802
        value = stmt.value
        if type(value).__name__ == "IntImm":
            return ()
        self._scope.require(
            type(value).__name__ == "Call", f"expression {type(value).__name__} as a statement"
        )
        name = str(getattr(value.op, "name", value.op))
        if name == "tl.set_max_nreg":
            self._roles.ask_for_registers(int(value.args[0].value))
        elif name in LOST_HINTS:
            self._scope.lose(name)
        if name in CALL_HINTS or is_mark(value):
            return ()
        if name in ("tirx.break_loop", "tl.loop_break"):
            self._note()
            return (Break(),)
        threads = len(self._threads.running), len(self._threads.everyone)
        lowered = lower_synchronization(self._scope, value, *threads)
        if lowered is not None:
            return self._numbered(lowered)
        self._roles.require_one(name)
        lowered = lower_call(self._scope, value)
        if lowered is None:
            self._scope.lose(extern_name(value) or name)
            lowered = lower_extern(self._scope, value)
        if lowered is None:
            extern = extern_name(value)
            return self._scope.refuse(f"call_extern {extern}" if extern else name)
        whole = (*self._scope.take_hoisted(), *lowered)
        self._roles.note_registers(whole)
        return self._numbered(whole)
