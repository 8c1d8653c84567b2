"""Names in TIR that say how a kernel is to be run on a GPU: results are the same without them."""

from typing import Any

from tileyard.frontend.tir_queries import is_zero

LOOP_HINTS = frozenset(
    {
        "coalesced_width",
        "num_stages",
        "parallel_loop_layout",
        "pragma_unroll_explicit",
        "pragma_unroll_factor",
        "prefer_async",
        "tl.ws_op_id",
        "tl_pipeline_group",
        "tl_pipeline_order",
        "tl_pipeline_stage",
    }
)
"""Annotations of a loop that say how it is run; its iterations mean the same without them."""

BLOCK_HINTS = frozenset(
    {"l2_hit_ratio_map", "layout_map", "reducer_info", "tl.non_restrict_params"}
)
_SAFE_VALUES = "safe_value_map"


def is_block_hint(name: str, value: Any) -> bool:  # noqa: ANN401 (TVM's nodes are untyped)
    """Whether an annotation of a block changes no result, as 0 in place of what lies outside an array."""
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
        "tirx.tvm_storage_sync",
        "tl.annotate_consumer_reg_alloc",
        "tl.fence_proxy_async",
        "tl.pdl_sync",
        "tl.pdl_trigger",
        "tl.ptx_fence_barrier_init",
        "tl.sync_warp",
        "tl.tma_store_arrive",
        "tl.tma_store_wait",
        "tl.wait_wgmma",
        "tl.warpgroup_arrive",
        "tl.warpgroup_commit_batch",
        "tl.warpgroup_fence_operand",
        "tl.warpgroup_wait",
        "tl.annotate_producer_reg_dealloc",
        "tl.no_set_max_nreg",
        "tirx.ptx_commit_group",
        "tirx.ptx_wait_group",
        "tl.set_max_nreg",
    }
)
"""Calls that have no effect on tiles: what comes before one is done before what comes after it."""

AT_ONCE = frozenset({"debug", "print"})
"""Files of TileLang's whose macros use what they bind in the very next statement."""
