"""Hints of a kernel on how it runs on a GPU; they change no result. The Program keeps schedules of
pipelined loops, and layouts; the names of others in TIR are here.
"""

from typing import Any

import msgspec

from tileyard.base.errors import UnsupportedError
from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.scope import Scope
from tileyard.frontend.tir_queries import is_zero
from tileyard.ir import verify_exprs as check
from tileyard.ir.nodes import Buffer, For, Layout
from tileyard.ir.syntax import layout_indices


def with_pipeline(scope: Scope, loop: For, annotations: Any) -> For:  # noqa: ANN401 (TVM's nodes are untyped)
    """A serial ``loop`` with the pipeline that its annotations request. TileLang ignores an order
    without stages, and stages without an order.
    """
    found = msgspec.structs.replace(
        loop,
        kind="pipelined",
        stages=int(annotations.get("num_stages", 0)),
        group=tuple(_numbers(group) for group in annotations.get("tl_pipeline_group", ())),
    )
    if "tl_pipeline_order" in annotations and "tl_pipeline_stage" in annotations:
        order, stage = (_numbers(annotations[f"tl_pipeline_{word}"]) for word in ("order", "stage"))
        found = msgspec.structs.replace(found, order=order, stage=stage)
    try:
        check.schedule(found)
    except check.Broken as broken:
        scope.give_up("Pipelined", f"in which {broken}")
        found = msgspec.structs.replace(found, order=(), stage=(), group=())
    if found.order or found.group or "num_stages" in annotations:
        return found
    depth = scope.depths.get(str(annotations.get("tl.ws_op_id", "")), 0)
    return msgspec.structs.replace(loop, kind="pipelined", stages=depth) if depth else loop


def read_depths(schedule: Any) -> dict[str, int]:  # noqa: ANN401
    """For each loop in a schedule of roles, the largest number of versions of a tile that roles pass on."""
    depths = {str(pipeline.name): int(pipeline.depth) for pipeline in schedule.pipelines}
    return {
        str(one.id): max(depths[str(step.pipeline)] for step in steps)
        for one in schedule.scopes
        if (steps := [s for body in one.bodies.values() for s in body if hasattr(s, "pipeline")])
    }


def _numbers(values: Any) -> tuple[int, ...]:  # noqa: ANN401
    return tuple(map(int, values))


def with_layout(scope: Scope, buffer: Buffer) -> Buffer:
    """``buffer`` with the layout that the kernel annotates for its storage, if any."""
    asked = {scope.stored(data): layout for data, layout in scope.layouts}
    return _with_layout(scope, buffer, asked[buffer.name]) if buffer.name in asked else buffer


def _with_layout(scope: Scope, buffer: Buffer, given: Any) -> Buffer:  # noqa: ANN401
    inside = Scope()
    *indices, copy = layout_indices(len(buffer.shape))
    variables = list(given.get_forward_vars())
    names = [copy, *indices] if len(variables) > len(indices) else indices
    try:
        for var, name in zip(variables, names, strict=True):
            inside.bind_var(var, name)
        place = tuple(lower_expr(inside, scope.simplify(at)) for at in given.get_forward_index())
        thread = getattr(given, "thread", None)
        layout = Layout(
            place=place,
            thread=None if thread is None else lower_expr(inside, scope.simplify(thread)),
            copies=int(getattr(given, "replicate_size", 1)),
        )
        found = msgspec.structs.replace(buffer, layout=layout)
        check.layout(found)
    except (UnsupportedError, ValueError, check.Broken):
        scope.give_up("annotate_layout", f"of {buffer.name} in a way that the IR cannot express")
        return buffer
    return found


LOOP_HINTS = frozenset(
    {
        "coalesced_width",
        "num_stages",
        "parallel_loop_layout",
        "parallel_prefer_async",
        "pragma_unroll_explicit",
        "pragma_unroll_factor",
        "prefer_async",
        "tl.ws_op_id",
        "tl_pipeline_group",
        "tl_pipeline_order",
        "tl_pipeline_stage",
        "tl_pipelined_num_stages",
    }
)
"""Annotations of a loop on how it runs; its iterations mean the same without them."""

BLOCK_HINTS = frozenset({"l2_hit_ratio_map", "tl.non_restrict_params"})
_SAFE_VALUES = "safe_value_map"


def is_block_hint(name: str, value: Any) -> bool:  # noqa: ANN401 (TVM's nodes are untyped)
    """Whether an annotation of a block changes no result, such as 0 for elements outside an array."""
    return name in BLOCK_HINTS or (name == _SAFE_VALUES and all(map(is_zero, value.values())))


ATTRIBUTE_HINTS = frozenset(
    {
        "threadblock_swizzle_pattern",
        "tirx.assume",
        "tl.min_blocks_per_sm",
        "tl.assume",
        "tl.ws_op_id",
        "tl.ws_pipeline_depth",
        "warp_specialize",
    }
)

CALL_HINTS = frozenset(
    {
        "tirx.assume",
        "tl.annotate_consumer_reg_alloc",
        "tl.pdl_sync",
        "tl.pdl_trigger",
        "tl.ptx_fence_barrier_init",
        "tl.sync_warp",
        "tl.warpgroup_arrive",
        "tl.warpgroup_fence_operand",
        "tl.annotate_producer_reg_dealloc",
        "tl.no_set_max_nreg",
        "tl.set_max_nreg",
    }
)
"""Calls that have no effect on tiles: everything before such a call is done before everything after it."""

LOST_HINTS = frozenset(
    {
        "coalesced_width",
        "l2_hit_ratio_map",
        "parallel_loop_layout",
        "parallel_prefer_async",
        "pragma_unroll_explicit",
        "pragma_unroll_factor",
        "prefer_async",
        "tl.min_blocks_per_sm",
        "tl.non_restrict_params",
        "tl.pdl_sync",
        "tl.pdl_trigger",
        "tl.sync_warp",
        "tl.warpgroup_arrive",
        "tl.warpgroup_fence_operand",
    }
)
"""Hints without which a GPU would behave differently, and which no Program has."""

GROUP_CALLS = frozenset(
    {
        "tirx.ptx_commit_group",
        "tirx.ptx_wait_group",
        "tl.tma_store_arrive",
        "tl.tma_store_wait",
        "tl.wait_wgmma",
        "tl.warpgroup_commit_batch",
        "tl.warpgroup_wait",
    }
)
"""Calls that commit groups of asynchronous operations, and wait for them."""

THREAD_SYNCS = frozenset({"tirx.tvm_storage_sync", "tl.fence_proxy_async"})
"""Calls that order threads' actions, which change nothing as single threads run side by side."""

AT_ONCE = frozenset({"debug", "print"})
"""TileLang's files whose macros use what they bind in the very next statement."""
