"""What addresses threads, warps, clusters and units of a GPU. Imports TileLang: import this late."""

from collections.abc import Callable, Iterator
from typing import Any

import tilelang.language as T
from tests.differential.language.templates import (
    SIDE,
    Operation,
    block,
    element,
    function,
    operation,
    tile,
)


@T.macro
def _beside(A: Any, O: Any, hint: Any) -> None:
    """A copy by a tile, and ``hint`` of it."""
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    hint(A, a)
    T.copy(A, a)
    T.copy(a, O)


@T.macro
def _ws_op(A: Any, O: Any) -> None:
    with T.ws_op("here"):
        T.copy(A, O)


@T.macro
def _fragment_laid_out(A: Any, O: Any) -> None:
    a = T.alloc_fragment((SIDE, SIDE), A.dtype)
    T.annotate_layout(
        {a: T.Fragment((SIDE, SIDE), forward_thread_fn=lambda i, j: (i * SIDE + j) % 128)}
    )
    T.copy(A, a)
    T.copy(a, O)


@T.macro
def _scheduled_roles(A: Any, O: Any) -> None:
    with T.Kernel(1, threads=256):
        T.annotate_ws_schedule(
            T.WSSchedule(
                num_warps=8,
                roles=[T.WSRole("one", warps_lo=0, warps_hi=8)],
                pipelines=[],
                scopes=[],
            )
        )
        T.copy(A, O)


_ANNOTATIONS: dict[str, Callable[..., Any]] = {
    "annotate_layout": lambda A, a: T.annotate_layout(
        {a: T.Layout((SIDE, SIDE), lambda i, j: i * SIDE + j)}
    ),
    "annotate_safe_value": lambda A, a: T.annotate_safe_value({A: 0}),
    "annotate_l2_hit_ratio": lambda A, a: T.annotate_l2_hit_ratio({A: 0.5}),
    "annotate_min_blocks_per_sm": lambda A, a: T.annotate_min_blocks_per_sm(2),
    "annotate_restrict_buffers": lambda A, a: T.annotate_restrict_buffers(A),
    "annotate_ws_pipeline_depth": lambda A, a: T.annotate_ws_pipeline_depth({a: 2}),
    "annotate_compile_flags": lambda A, a: T.annotate_compile_flags(["-O3"]),
    "annotate_pass_configs": lambda A, a: T.annotate_pass_configs({}),
    "annotate_consumer_reg_alloc": lambda A, a: T.annotate_consumer_reg_alloc(240),
    "annotate_producer_reg_dealloc": lambda A, a: T.annotate_producer_reg_dealloc(24),
    "use_swizzle": lambda A, a: T.use_swizzle(8),
    "set_max_nreg": lambda A, a: T.set_max_nreg(240, 1),
    "inc_max_nreg": lambda A, a: T.inc_max_nreg(240),
    "dec_max_nreg": lambda A, a: T.dec_max_nreg(24),
    "no_set_max_nreg": lambda A, a: T.no_set_max_nreg(),
    "disable_warp_group_reg_alloc": lambda A, a: T.disable_warp_group_reg_alloc(),
}
_WAITS: dict[str, Callable[..., Any]] = {
    "sync_threads": lambda A, a: T.sync_threads(),
    "sync_warp": lambda A, a: T.sync_warp(),
    "sync_grid": lambda A, a: T.sync_grid(),
    "tvm_storage_sync": lambda A, a: T.tvm_storage_sync("shared"),
    "fence_proxy_async": lambda A, a: T.fence_proxy_async(),
    "ptx_commit_group": lambda A, a: T.ptx_commit_group(),
    "ptx_wait_group": lambda A, a: T.ptx_wait_group(0),
    "wait_wgmma": lambda A, a: T.wait_wgmma(0),
    "warpgroup_arrive": lambda A, a: T.warpgroup_arrive(),
    "warpgroup_commit_batch": lambda A, a: T.warpgroup_commit_batch(),
    "warpgroup_fence_operand": lambda A, a: T.warpgroup_fence_operand(a, num_regs=1),
    "warpgroup_wait": lambda A, a: T.warpgroup_wait(0),
    "tma_store_arrive": lambda A, a: T.tma_store_arrive(),
    "tma_store_wait": lambda A, a: T.tma_store_wait(),
    "pdl_trigger": lambda A, a: T.pdl_trigger(),
    "pdl_sync": lambda A, a: T.pdl_sync(),
    "ptx_fence_barrier_init": lambda A, a: T.ptx_fence_barrier_init(),
}


def hints() -> Iterator[Operation]:
    """What says how a kernel is run, and waits that nothing has to be waited for here."""
    for name, hint in (_ANNOTATIONS | _WAITS).items():
        yield operation(name, block, lambda A, O, hint=hint: _beside(A, O, hint), is_typed=False)
    yield operation(
        "annotate_ws_schedule",
        function,
        lambda A, O: _scheduled_roles(A, O),
        is_typed=False,
    )
    yield operation("ws_op", block, lambda A, O: _ws_op(A, O), is_typed=False)
    yield operation(
        "annotate_layout, of a fragment",
        block,
        lambda A, O: _fragment_laid_out(A, O),
        is_typed=False,
    )


_PER_THREAD: dict[str, Callable[..., Any]] = {
    "shfl_sync": lambda x, i: T.shfl_sync(x, 0),
    "shfl_xor": lambda x, i: T.shfl_xor(x, 1),
    "shfl_up": lambda x, i: T.shfl_up(x, 1),
    "shfl_down": lambda x, i: T.shfl_down(x, 1),
    "match_any_sync": lambda x, i: T.match_any_sync(x),
    "match_all_sync": lambda x, i: T.match_all_sync(x),
    "any_sync": lambda x, i: T.any_sync(x == x),
    "all_sync": lambda x, i: T.all_sync(x == x),
    "ballot": lambda x, i: T.ballot(x == x),
    "ballot_sync": lambda x, i: T.ballot_sync(x == x),
    "activemask": lambda x, i: T.activemask(),
    "syncthreads_and": lambda x, i: T.syncthreads_and(x == x),
    "syncthreads_or": lambda x, i: T.syncthreads_or(x == x),
    "syncthreads_count": lambda x, i: T.syncthreads_count(x == x),
    "warp_reduce_sum": lambda x, i: T.warp_reduce_sum(x),
    "warp_reduce_max": lambda x, i: T.warp_reduce_max(x),
    "warp_reduce_min": lambda x, i: T.warp_reduce_min(x),
    "warp_reduce_bitand": lambda x, i: T.warp_reduce_bitand(T.cast(x, "int32")),
    "warp_reduce_bitor": lambda x, i: T.warp_reduce_bitor(T.cast(x, "int32")),
    "get_lane_idx": lambda x, i: T.get_lane_idx(),
    "get_warp_idx": lambda x, i: T.get_warp_idx(),
    "get_warp_idx_sync": lambda x, i: T.get_warp_idx_sync(),
    "get_warp_group_idx": lambda x, i: T.get_warp_group_idx(),
    "shuffle_elect": lambda x, i: T.shuffle_elect(128),
    "__fns": lambda x, i: getattr(T, "__fns")(T.cast(i, "uint32"), 0, 1),
    "rng_rand": lambda x, i: T.rng_rand(),
    "rng_rand_float": lambda x, i: T.rng_rand_float(),
    "block_rank_in_cluster": lambda x, i: T.block_rank_in_cluster(),
    "call_extern": lambda x, i: T.call_extern(x.dtype, "their_function", x),
    "call_pure_extern": lambda x, i: T.call_pure_extern(x.dtype, "their_function", x),
    "tvm_warp_activemask": lambda x, i: T.tvm_warp_activemask(),
    "tvm_warp_shuffle": lambda x, i: T.tvm_warp_shuffle(0, x, 0, 32, 32),
    "tvm_warp_shuffle_up": lambda x, i: T.tvm_warp_shuffle_up(0, x, 1, 32, 32),
    "tvm_warp_shuffle_down": lambda x, i: T.tvm_warp_shuffle_down(0, x, 1, 32, 32),
    "vscale": lambda x, i: T.vscale(),
    "q_multiply_shift": lambda x, i: T.q_multiply_shift(i, i, 31, 1),
}


def per_thread() -> Iterator[Operation]:
    """What one thread computes with what others hold."""
    for name, body in _PER_THREAD.items():
        said = name.replace("pure_", "")
        yield operation(name, element, body, is_typed=False, said=said)
    for bits in (32, 64, 128, 256):
        load, store = getattr(T, f"ldg{bits}"), getattr(T, f"stg{bits}")
        lanes = bits // 32
        kind = "uint32" if lanes == 1 else f"uint32x{lanes}"
        yield operation(
            f"ldg{bits}",
            block,
            lambda A, O, load=load: T.evaluate(load(A[0, 0])),
            is_typed=False,
        )
        value = T.broadcast(T.uint32(0), lanes) if lanes > 1 else T.uint32(0)
        yield operation(
            f"stg{bits}", block, lambda A, O, s=store, v=value: s(O[0, 0], v), is_typed=False
        )
        if bits < 256:
            load, store = getattr(T, f"lds{bits}"), getattr(T, f"sts{bits}")
            yield operation(
                f"lds{bits}",
                tile,
                lambda a, c, load=load: T.evaluate(load(a[0, 0])),
                is_typed=False,
            )
            yield operation(
                f"sts{bits}", tile, lambda a, c, s=store, v=value: s(a[0, 0], v), is_typed=False
            )
        del kind
