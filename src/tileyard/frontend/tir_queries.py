"""Queries on TIR statements and expressions before they are lowered, and their accesses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilelang import env, tvm
from tilelang import ir as tl_ir
from tilelang.backend.target import determine_target

from tileyard.frontend.scope import key_of

PARALLEL = 1
"""The kind of a TIR loop whose iterations are spread over the threads."""
THREAD_BINDING = 4
"""The kind of a TIR loop that is one dimension of a launch."""
REGISTERS = ("local", "local.var")
ALLREDUCE = "tirx.tvm_thread_allreduce"
POINTERS = ("tl.access_ptr", "tirx.address_of")
THREAD_INDEX = "tl.launch_thread_idx"
TILE_OPS = "tl.tileop."
"""Prefix of the names of tile operations."""
ISSUED = "parallel_async_without_async_commit_wait"
TARGET_MARK = "target"
"""The attribute by which TVM marks a function's target."""
_POINTERS = {"tl.access_ptr": 2, "tl.region": 1}
"""Calls that state how an element or box is accessed, with the position of the access mask."""
_SYNCS = frozenset(
    {"tirx.tvm_storage_sync", "tl.named_barrier_arrive", "tirx.ptx_wait_group", "tl.sync_grid"}
)
Interval = tuple[int, int] | None
"""Start and end, the end excluded; None if not constant."""


def is_one(expr: Any) -> bool:  # noqa: ANN401 (TVM's nodes are untyped)
    """Whether a TIR expression is the number 1."""
    return type(expr).__name__ == "IntImm" and int(expr.value) == 1


def is_zero(expr: Any) -> bool:  # noqa: ANN401
    """Whether a TIR expression is the number 0."""
    value = getattr(expr, "value", expr)
    return isinstance(value, int | float) and value == 0


def constant_of(condition: Any) -> bool | None:  # noqa: ANN401
    """The value of a condition that is always the same and has no effect; None for any other condition."""
    has_calls = any(type(node).__name__ == "Call" for node in nodes_of(condition))
    simple = condition if has_calls else tvm.arith.Analyzer().simplify(condition)
    return bool(int(simple.value)) if type(simple).__name__ == "IntImm" else None


def without_dead_branches(body: Any) -> Any:  # noqa: ANN401
    """``body`` without branches whose conditions never hold for the elaborated values."""

    def choose(stmt: Any) -> Any:  # noqa: ANN401
        chosen = constant_of(stmt.condition)
        if chosen is None:
            return None
        side = stmt.then_case if chosen else stmt.else_case
        return tvm.tirx.Evaluate(0) if side is None else side

    transform = tvm.tirx.stmt_functor.ir_transform
    return transform(body, lambda _: None, choose, ["tirx.IfThenElse"])


def count_launches(stmt: Any) -> int:  # noqa: ANN401
    """The number of grids that a function launches."""
    bindings = (node.thread_binding for node in nodes_of(stmt) if is_loop(node, THREAD_BINDING))
    return sum(str(binding.thread_tag) == "blockIdx.x" for binding in bindings)


# ---- statements of threads ----------------------------------------------------------------------

_OWN_TILE_OPS = frozenset({"tl.tileop.fill", "tl.tileop.copy"})
"""Tile operations that each thread does by itself if registers take part."""


def bodies_of(stmt: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The statements inside a statement."""
    match type(stmt).__name__:
        case "SeqStmt":
            return tuple(stmt.seq)
        case "SBlockRealize":
            return (stmt.block.body,)
        case "IfThenElse":
            both = (stmt.then_case, stmt.else_case)
            return tuple(body for body in both if body is not None)
        case "For" | "While" | "AttrStmt":
            return (stmt.body,)
        case _:
            return ()


def heads_of(stmt: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The expressions that decide whether and how often the bodies of a statement run."""
    match type(stmt).__name__:
        case "For":
            return (stmt.min, stmt.extent)
        case "IfThenElse" | "While":
            return (stmt.condition,)
        case _:
            return ()


def call_name(expr: Any) -> str:  # noqa: ANN401
    """The operation that an expression calls; empty for another expression."""
    return str(getattr(getattr(expr, "op", None), "name", ""))


def extern_name(call: Any) -> str:  # noqa: ANN401
    """The function that ``call_extern`` calls, empty for another expression."""
    is_extern = call_name(call) in ("tirx.call_extern", "tirx.call_pure_extern")
    return str(call.args[0].value) if is_extern else ""


def dimension_of(loop: Any) -> int:  # noqa: ANN401
    """The dimension of a block that a loop over threads runs over."""
    return "xyz".index(str(loop.thread_binding.thread_tag)[-1])


def is_alone(stmt: Any) -> bool:  # noqa: ANN401
    """Whether a thread can do ``stmt`` by itself: nothing in it requires all threads of the block."""
    match type(stmt).__name__:
        case "For" if int(stmt.kind) in (PARALLEL, THREAD_BINDING):
            return False
        case "AttrStmt":
            return False
        case "Evaluate":
            name = call_name(stmt.value)
            if name in _OWN_TILE_OPS:
                return any(map(_is_register, list(stmt.value.args)[:2]))
            return not (name == ALLREDUCE or name.startswith(TILE_OPS) or "barrier" in name)
        case _:
            pass
    return all(map(is_alone, bodies_of(stmt)))


def leaves_loop(stmt: Any) -> bool:  # noqa: ANN401
    """Whether ``stmt`` leaves a loop that it does not contain itself."""
    kind = type(stmt).__name__
    if kind == "Evaluate":
        return call_name(stmt.value) in ("tirx.break_loop", "tl.loop_break", "tirx.continue_loop")
    return kind not in ("For", "While") and any(map(leaves_loop, bodies_of(stmt)))


def counts(stmt: Any) -> bool:  # noqa: ANN401
    """Whether it matters how often ``stmt`` is done, or its result depends on which thread is first."""
    return any(name.startswith("tl.atomic_add") or "_ret_" in name for name in calls_of(stmt))


def used_together(body: Any) -> set[object]:  # noqa: ANN401
    """The memory accessed by tile operations and parallel loops, which are for all threads together."""
    shared_out = [
        node
        for node in nodes_of(body)
        if is_loop(node, PARALLEL) or call_name(node).startswith(TILE_OPS)
    ]
    touched = (node for part in shared_out for node in nodes_of(part) if hasattr(node, "buffer"))
    return {key_of(node.buffer.data) for node in touched}


def pointed_of(node: Any) -> list[Any]:  # noqa: ANN401
    """The element whose address ``node`` passes to code that may write there; none for other nodes."""
    is_pointer = call_name(node) in (*POINTERS, "tl.region")
    return [part for part in list(node.args)[:1] if is_load(part)] if is_pointer else []


def is_load(node: Any) -> bool:  # noqa: ANN401
    """Whether ``node`` is an element of a buffer."""
    return type(node).__name__ == "BufferLoad"


def _is_register(region: Any) -> bool:  # noqa: ANN401
    load = region.args[0] if call_name(region) == "tl.region" else region
    return is_load(load) and str(load.buffer.scope()) in REGISTERS


def is_bound_to_threads(loop: Any) -> bool:  # noqa: ANN401
    """Whether a loop's variable is the thread's index in one dimension."""
    tag = str(loop.thread_binding.thread_tag) if is_loop(loop, THREAD_BINDING) else ""
    return tag.startswith("threadIdx.")


def attributes_of(func: Any) -> dict[str, Any]:  # noqa: ANN401
    """The attributes of a PrimFunc."""
    return {} if func.attrs is None else dict(func.attrs.items())


def nodes_of(node: Any) -> list[Any]:  # noqa: ANN401
    """A statement or expression, and all nodes below it, each once."""
    found: list[Any] = []
    tvm.tirx.stmt_functor.post_order_visit(node, found.append)
    return found


def free_vars(expr: Any) -> list[Any]:  # noqa: ANN401
    """The variables in a TIR expression, each once."""
    return list({key_of(node): node for node in nodes_of(expr) if is_var(node)}.values())


def calls_of(stmt: Any) -> set[str]:  # noqa: ANN401
    """The names of all operations below ``stmt``."""
    return {call_name(node) for node in nodes_of(stmt) if type(node).__name__ == "Call"}


def is_var(node: Any) -> bool:  # noqa: ANN401
    """Whether ``node`` is a variable."""
    return type(node).__name__ in ("Var", "SizeVar")


def is_loop(node: Any, kind: int) -> bool:  # noqa: ANN401
    """Whether ``node`` is a loop of this kind."""
    return type(node).__name__ == "For" and int(node.kind) == kind


def is_issued(loop: Any) -> bool:  # noqa: ANN401
    """Whether a parallel nest copies by ``cp.async``, with separate statements for commits and waits."""
    if not int(loop.annotations.get(ISSUED, 0)):
        return False
    while type(loop).__name__ == "For":
        loop = loop.body
    if type(loop).__name__ != "BufferStore" or type(loop.value).__name__ != "BufferLoad":
        return False
    value = loop.value
    ways = str(value.buffer.scope()), str(loop.buffer.scope()).partition(".")[0]
    return ways == ("global", "shared") and value.buffer.dtype == loop.buffer.dtype


def is_idle_mark(loop: Any) -> bool:  # noqa: ANN401
    """Whether ``ISSUED`` does not apply to this loop: TileLang marks all loops in a statement of
    copies, and heeds only parallel ones that don't store to registers.
    """
    if not is_loop(loop, PARALLEL):
        return True
    while is_loop(loop, PARALLEL):
        loop = loop.body
    is_store = type(loop).__name__ == "BufferStore"
    return is_store and str(loop.buffer.scope()).startswith("local")


def for_target(func: Any, target: Any) -> Any:  # noqa: ANN401 (TVM's nodes are untyped)
    """``func``, marked if ``target``, as a script passes it to TileLang, is a CPU; None is the
    environment's choice. Raises TileLang's error for an unknown target.
    """
    target = env.get_default_target() if target is None else target
    if target == "auto":
        return func
    found: Any = determine_target(target, return_object=True)
    return func.with_attr(TARGET_MARK, found) if is_cpu(found) else func


def without_target(func: Any) -> Any:  # noqa: ANN401
    """``func`` without a mark, for a target that the builder chooses."""
    return func.without_attr(TARGET_MARK) if TARGET_MARK in attributes_of(func) else func


def has_threads(func: Any) -> bool:  # noqa: ANN401
    """Whether several threads run a block of ``func``."""
    mark = attributes_of(func).get(TARGET_MARK)
    return mark is None or not is_cpu(mark)


def is_cpu(target: Any) -> bool:  # noqa: ANN401
    """Whether a target of TVM's is a CPU."""
    return "cpu" in map(str, target.keys)


READS, WRITES = 1, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """An access to a buffer's ``data``: ``mask`` is its kind, ``box`` its place, as far as known."""

    data: Any
    mask: int
    box: tuple[Interval, ...] = ()

    @property
    def key(self) -> object:
        """The identity of the memory."""
        return key_of(self.data)


def accesses_of(body: Any) -> list[Access]:  # noqa: ANN401 (TVM's nodes are untyped)
    """All accesses below ``body``; taking an address without a stated purpose counts as read and write."""
    found: list[Access] = []
    loads: dict[object, Access] = {}
    masked: set[object] = set()
    for node in nodes_of(body):
        called = call_name(node)
        match type(node).__name__:
            case "BufferStore":
                found.append(Access(data=node.buffer.data, mask=WRITES, box=_box(node)))
            case "BufferLoad":
                loads[key_of(node)] = Access(data=node.buffer.data, mask=READS, box=_box(node))
            case "Call" if called == "tirx.tvm_access_ptr":
                found.append(Access(data=node.args[1], mask=_mask_of(node, 4)))
            case "Call" if called in ("tirx.address_of", *_POINTERS) and len(node.args):
                target = node.args[0]
                masked.add(key_of(target))
                if hasattr(target, "buffer"):
                    position = _POINTERS.get(called, len(node.args))
                    extents = list(node.args)[position + 1 :] if called == "tl.region" else ()
                    mask, box = _mask_of(node, position), _box(target, extents)
                    found.append(Access(data=target.buffer.data, mask=mask, box=box))
            case _:
                pass
    return found + [access for load, access in loads.items() if load not in masked]


def _mask_of(call: Any, position: int) -> int:  # noqa: ANN401
    """The access mask at ``position``; both read and write if none is stated."""
    if position < len(call.args) and type(call.args[position]).__name__ == "IntImm":
        return int(call.args[position].value)
    return READS | WRITES


def _box(place: Any, extents: Sequence[Any] = ()) -> tuple[Interval, ...]:  # noqa: ANN401
    sizes = extents or [None] * len(place.indices)
    return tuple(map(_interval, place.indices, sizes))


def _interval(start: Any, size: Any) -> Interval:  # noqa: ANN401
    parts = [start] if size is None else [start, size]
    if any(type(part).__name__ != "IntImm" for part in parts):
        return None
    return int(start.value), int(start.value) + (1 if size is None else int(size.value))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    threads: frozenset[int]
    accesses: tuple[Access, ...]

    def of(self, mask: int) -> list[Access]:
        return [one for one in self.accesses if one.mask & mask]


def find_barriers(
    stmts: Sequence[Any], where: Callable[[Any], frozenset[int]], everyone: frozenset[int]
) -> set[int]:
    """The positions of branches on the thread before which TileLang's ThreadSync certainly puts a block's
    barrier: one branch writes a tile that another reads, and different threads take the two. Branches that
    contain barriers are left out. ``where`` returns the threads for which a condition holds.
    """
    found: set[int] = set()
    pending: list[_Side] = []
    for position, stmt in enumerate(stmts):
        sides = list(_sides(stmt, where, everyone))
        if any(_has_own_barriers(stmt, side) for side in sides):
            pending = []
            continue
        if any(_conflict(before, side) for before in pending for side in sides):
            found.add(position)
            pending = []
        pending += sides
    return found


def _sides(
    stmt: Any,  # noqa: ANN401
    where: Callable[[Any], frozenset[int]],
    everyone: frozenset[int],
) -> Iterator[_Side]:
    bodies = [(stmt, everyone)]
    if type(stmt).__name__ == "IfThenElse":
        chosen = where(stmt.condition)
        bodies = [(stmt.then_case, chosen), (stmt.else_case, everyone - chosen)]
    for body, threads in bodies:
        if body is not None:
            accesses = (one for one in accesses_of(body) if _is_shared(one.data))
            yield _Side(threads=threads, accesses=tuple(accesses))


def _is_shared(data: Any) -> bool:  # noqa: ANN401
    scope = str(getattr(data.type_annotation, "storage_scope", ""))
    return scope in ("shared", "shared.dyn")


def _has_own_barriers(stmt: Any, side: _Side) -> bool:  # noqa: ANN401
    """Whether the branch has a barrier, or may get one; or atomics, which need none."""
    calls = calls_of(stmt)
    written = {one.key for one in side.of(WRITES)}
    return (
        not _SYNCS.isdisjoint(calls)
        or any("atomic" in name for name in calls)
        or any(one.key in written for one in side.of(READS))
    )


def _conflict(before: _Side, after: _Side) -> bool:
    return before.threads.isdisjoint(after.threads) and any(
        one.key == other.key and not _is_apart(one, other)
        for first, second in ((WRITES, READS), (READS, WRITES))
        for one in before.of(first)
        for other in after.of(second)
    )


def _is_apart(one: Access, other: Access) -> bool:
    """Whether constant indices prove that the two do not overlap."""
    return any(
        mine is not None and theirs is not None and (mine[1] <= theirs[0] or theirs[1] <= mine[0])
        for mine, theirs in zip(one.box, other.box, strict=False)
    )


def annotate_block(block: Any, key: str, value: object) -> Any:  # noqa: ANN401
    """The block with one annotation replaced; TVM's blocks have no such method."""
    return tvm.tirx.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        block.body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        {**dict(block.annotations), key: value},
        tl_ir.get_stmt_span(block),
    )
