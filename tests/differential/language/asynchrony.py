"""TileLang's asynchrony, synchronization and pipelines. Imports TileLang: import this late.

One module because each row is a kernel of a line or two, and the page is these rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import tilelang.language as T
from tests.differential.language import asynchronous_kernels as kernels
from tests.differential.language import catalogue
from tests.differential.language.templates import SIDE, Operation, block, function, operation
from tilelang.layout import make_swizzled_layout

Kept = Literal["kept", "over at once", "dropped", "given up", "refused"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: ``kernel`` has the operation, ``without`` is the same kernel without it. ``kept`` and ``why``
    are what the page says; what comes out of the kernel has to agree.
    """

    kernel: Operation
    without: Operation | None
    kept: Kept
    why: str

    @property
    def dtype(self) -> str:
        """A scalar type that its kernels can have."""
        return "float16" if self.without else "float32"


def _row(
    title: str,
    act: Callable[..., Any],
    kept: Kept,
    why: str = "",
    *,
    names: str = "-",
    said: str = "",
) -> Row:
    """An operation among tiles and a barrier."""
    return Row(
        kernel=operation(
            title, block, lambda A, O: kernels.in_block(A, O, act), names=names, said=said
        ),
        without=operation(title, block, lambda A, O: kernels.in_block(A, O, kernels.nothing)),
        kept=kept,
        why=why,
    )


def _whole(title: str, macro: Any, kept: Kept, why: str = "", *, names: str, said: str = "") -> Row:
    """A function with a launch of its own, told whether the operation is in it."""
    return Row(
        kernel=operation(title, function, lambda A, O: macro(A, O, True), names=names, said=said),
        without=operation(title, function, lambda A, O: macro(A, O, False)),
        kept=kept,
        why=why,
    )


def _listed(names: str, why: str) -> Iterator[Row]:
    """Operations that the page of the cpu target tries, too, and that are refused by name."""
    for name in names.split():
        found = next(op for group in catalogue.GROUPS.values() for op in group if name in op.names)
        kernel = replace(found, title=f"T.{name}", names=(name,))
        yield Row(kernel=kernel, without=None, kept="refused", why=why)


def _loop(title: str, macro: Any, more: dict[str, Any], kept: Kept, why: str, names: str) -> Row:
    """A loop with ``more`` parameters, beside the same loop without them."""
    return Row(
        kernel=operation(title, function, lambda A, O: macro(A, O, more), names=names),
        without=operation(title, function, lambda A, O: macro(A, O, {})),
        kept=kept,
        why=why,
    )


# ---- the rows ---------------------------------------------------------------------------------------

_DEVICE = "cluster or tensor memory"
_RAW = "instruction"
_SAME = "hint"
_REGISTERS = "the number of a warp's registers changes no order"


def _copies() -> Iterator[Row]:
    over = "over at once"
    yield _row(
        "T.copy(A, a)", lambda t: T.copy(t.A, t.a), over, "TileLang waits itself", names="copy"
    )
    for more in (
        {"prefer_instruction": "cp_async"},
        {"prefer_instruction": "tma"},
        {"disable_tma": True},
        {"eviction_policy": "evict_first"},
        {"coalesced_width": 4},
    ):
        ((name, value),) = more.items()
        title = f"T.copy(A, a, {name}={value!r})"
        yield _row(title, lambda t, more=more: T.copy(t.A, t.a, **more), over, _SAME)
    yield _whole(
        "T.Parallel(.., prefer_async=True)", kernels.elementwise, "dropped", _SAME, names="Parallel"
    )
    yield _row("T.async_copy(A, a)", lambda t: T.async_copy(t.A, t.a), "kept", names="async_copy")
    yield _row(
        "T.ptx_cp_async(..)",
        lambda t: T.ptx_cp_async(T.access_ptr(t.a[0, 0], "w"), T.access_ptr(t.A[0, 0], "r"), 2),
        "kept",
        "element by element; with a predicate, a branch that stores zeros otherwise",
        names="ptx_cp_async",
    )
    yield _row(
        "T.tma_copy(A, a, barrier=bar)",
        lambda t: T.tma_copy(t.A, t.a, barrier=t.bar),
        "kept",
        names="tma_copy",
    )
    yield _row(
        "T.tma_copy(A, a, barrier=bar, annotations={'emit_arrive': 1})",
        lambda t: T.tma_copy(t.A, t.a, barrier=t.bar, annotations={"emit_arrive": 1}),
        "kept",
    )
    yield _row(
        "T.tma_copy(A, a)",
        lambda t: T.tma_copy(t.A, t.a),
        "given up",
        "nothing could wait for it: TileLang refuses to compile it",
    )
    yield _row(
        "T.tma_copy(A, a, barrier=bar, cluster_mask=3)",
        lambda t: T.tma_copy(t.A, t.a, barrier=t.bar, cluster_mask=3),
        "refused",
        _DEVICE,
        said="cluster_mask",
    )
    yield _row(
        "T.tma_copy(A, a, barrier=bar, leader_scope_threads=32)",
        lambda t: T.tma_copy(t.A, t.a, barrier=t.bar, leader_scope_threads=32),
        "refused",
        "several threads issue it, each for its own warp",
        said="leader_scope_threads",
    )
    yield _row(
        "T.tma_copy(a, O)", lambda t: T.tma_copy(t.a, t.O), "kept", "TileLang commits it itself"
    )
    yield _whole(
        "T.im2col(..)",
        lambda A, O, has: kernels.im2col(A, O, T.im2col if has else None),
        over,
        "by TMA or not, TileLang waits itself",
        names="im2col",
    )
    yield _whole(
        "T.c2d_im2col(..)",
        lambda A, O, has: kernels.im2col(A, O, T.c2d_im2col if has else None),
        over,
        names="c2d_im2col",
    )
    yield _row(
        "T.atomic_add(O, a, use_tma=True)",
        lambda t: T.atomic_add(t.O, t.a, use_tma=True),
        over,
        "TileLang waits itself",
        names="atomic_add",
    )
    for name, scatters, by_hand in (
        ("tma_gather4", False, "the kernel states the bytes: `T.mbarrier_expect_tx`"),
        ("tma_scatter4", True, "the kernel commits it"),
    ):
        yield Row(
            kernel=operation(
                f"T.{name}(..)",
                block,
                lambda A, O, way=scatters: kernels.gathered(A, O, way),
                names=name,
            ),
            without=operation("-", block, lambda A, O: kernels.gathered(A, O, None)),
            kept="kept",
            why=by_hand,
        )
    yield from _listed("copy_cluster", _DEVICE)
    yield from _listed(
        "tma_load tma_load_2sm create_tma_descriptor ptx_cp_async_bulk ptx_cp_async_barrier "
        "tcgen05_cp_warpx4",
        _RAW,
    )


def _groups() -> Iterator[Row]:
    for title, act, names in (
        ("T.ptx_commit_group()", lambda t: T.ptx_commit_group(), "ptx_commit_group"),
        ("T.ptx_wait_group(1)", lambda t: T.ptx_wait_group(1), "ptx_wait_group"),
        ("T.tma_store_arrive()", lambda t: T.tma_store_arrive(), "tma_store_arrive"),
        ("T.tma_store_wait(1)", lambda t: T.tma_store_wait(1), "tma_store_wait"),
        ("T.tma_store_wait(0, read=False)", lambda t: T.tma_store_wait(0, read=False), "-"),
        (
            "T.warpgroup_commit_batch()",
            lambda t: T.warpgroup_commit_batch(),
            "warpgroup_commit_batch",
        ),
        ("T.warpgroup_wait(1)", lambda t: T.warpgroup_wait(1), "warpgroup_wait"),
        ("T.wait_wgmma(0)", lambda t: T.wait_wgmma(0), "wait_wgmma"),
    ):
        yield _row(title, act, "kept", names=names)
    yield _whole(
        "T.ptx_wait_group(0), in T.Parallel",
        kernels.single_waits,
        "given up",
        "single threads wait, so the groups of the others are meaningless: `tileyard check` reports it",
        names="-",
    )
    ordered = (
        "registers are ordered by the issue and the wait: reads and writes between them are found"
    )
    yield _row(
        "T.warpgroup_arrive()",
        lambda t: T.warpgroup_arrive(),
        "dropped",
        ordered,
        names="warpgroup_arrive",
    )
    yield _row(
        "T.warpgroup_fence_operand(c, ..)",
        lambda t: T.warpgroup_fence_operand(t.c, num_regs=1),
        "dropped",
        "it stops the compiler, not the device",
        names="warpgroup_fence_operand",
    )


def _products() -> Iterator[Row]:
    yield _row(
        "T.gemm(a, b, c)",
        lambda t: T.gemm(t.a, t.b, t.c),
        "over at once",
        "TileLang waits itself",
        names="gemm",
    )
    for left in (-1, 1):
        yield _row(
            f"T.gemm(a, b, c, annotations={{'wg_wait': {left}}})",
            lambda t, left=left: T.gemm(t.a, t.b, t.c, annotations={"wg_wait": left}),
            "kept",
            "as on a GPU that has wgmma: others wait at once",
        )
    for name in ("wgmma_gemm", "wgmma_mma"):
        yield _row(
            f"T.{name}(a, b, c)",
            lambda t, f=getattr(T, name): f(t.a, t.b, t.c),
            "kept",
            "TileLang commits it itself",
            names=name,
        )
    yield _row(
        "T.gemm(a, b, c, mbar=bar)",
        lambda t: T.gemm(t.a, t.b, t.c, mbar=t.bar),
        "refused",
        "the barrier is that of a product in tensor memory",
        said="gemm with a barrier",
    )
    for name, how, kept, why in (
        ("gemm_sp", {}, "over at once", "TileLang waits itself"),
        ("gemm_sp", {"wg_wait": -1}, "kept", "as on a GPU that has wgmma: others wait at once"),
        ("wgmma_gemm_sp", {}, "kept", "TileLang commits it itself"),
    ):
        said = "".join(f", {word}={value}" for word, value in how.items())
        multiply = partial(getattr(T, name), **how)
        yield _whole(
            f"T.{name}(a, e, b, c{said})",
            lambda A, O, has, f=multiply: kernels.sparse(A, O, f if has else kernels.nothing),
            kept,
            why,
            names=name,
        )
    yield from _listed(
        """tcgen05_gemm tcgen05_mma tcgen05_gemm_sp gemm_blockscaled mma_gemm_blockscaled \
tcgen05_gemm_blockscaled
        tcgen05_mma_blockscaled""",
        _DEVICE,
    )
    yield from _listed(
        """ptx_wgmma_ss ptx_wgmma_rs ptx_wgmma_sp_ss ptx_wgmma_sp_rs ptx_tcgen05_mma_ss ptx_tcgen05_mma_ts
        ptx_tcgen05_mma_blockscaled_ss tcgen05_sf_warp_transpose initialize_wgmma_descriptor
        initialize_tcgen05_descriptor increase_descriptor_offset alloc_wgmma_desc alloc_tcgen05_smem_desc
        alloc_tcgen05_instr_desc alloc_tcgen05_instruction_desc alloc_descriptor""",
        _RAW,
    )


def _barriers() -> Iterator[Row]:
    for title, act, names in (
        ("T.alloc_barrier([128, 1])", lambda t: T.alloc_barrier([128, 1]), "alloc_barrier"),
        ("T.barrier_arrive(bar)", lambda t: T.barrier_arrive(t.bar), "barrier_arrive"),
        ("T.mbarrier_arrive(bar)", lambda t: T.mbarrier_arrive(t.bar), "mbarrier_arrive"),
        ("T.barrier_wait(bar, 0)", lambda t: T.barrier_wait(t.bar, 0), "barrier_wait"),
        (
            "T.mbarrier_wait_parity(bar, 1)",
            lambda t: T.mbarrier_wait_parity(t.bar, 1),
            "mbarrier_wait_parity",
        ),
        (
            "T.mbarrier_expect_tx(bar, 64)",
            lambda t: T.mbarrier_expect_tx(t.bar, 64),
            "mbarrier_expect_tx",
        ),
        (
            "T.mbarrier_arrive_expect_tx(bar, 64)",
            lambda t: T.mbarrier_arrive_expect_tx(t.bar, 64),
            "mbarrier_arrive_expect_tx",
        ),
        (
            "T.cp_async_barrier_noinc(bar)",
            lambda t: T.cp_async_barrier_noinc(t.bar),
            "cp_async_barrier_noinc",
        ),
        (
            "T.ptx_arrive_barrier(bar)",
            lambda t: T.ptx_arrive_barrier(t.bar[0]),
            "ptx_arrive_barrier",
        ),
        (
            "T.ptx_arrive_barrier_expect_tx(bar, 64)",
            lambda t: T.ptx_arrive_barrier_expect_tx(t.bar[0], 64),
            "ptx_arrive_barrier_expect_tx",
        ),
    ):
        yield _row(title, act, "kept", names=names)
    yield _whole(
        "if T.shuffle_elect(128): T.mbarrier_arrive(full)", kernels.elected, "kept", names="-"
    )
    yield _row(
        "T.ptx_fence_barrier_init()",
        lambda t: T.ptx_fence_barrier_init(),
        "dropped",
        "barriers are initialized where they are declared",
        names="ptx_fence_barrier_init",
    )
    yield from _listed("ptx_init_barrier_thread_count ptx_wait_barrier create_barriers", _RAW)
    yield from _listed(
        "alloc_cluster_barrier ptx_arrive_cluster_barrier tcgen05_mma_arrive", _DEVICE
    )


def _threads() -> Iterator[Row]:
    yield _row("T.sync_threads()", lambda t: T.sync_threads(), "kept", names="sync_threads")
    yield _row(
        "T.sync_threads(1, 256)", lambda t: T.sync_threads(1, 256), "kept", "a named barrier"
    )
    yield _row(
        "T.named_barrier_arrive(1, 256)",
        lambda t: T.named_barrier_arrive(1, 256),
        "kept",
        names="named_barrier_arrive",
    )
    yield _row(
        "T.tvm_storage_sync('shared')",
        lambda t: T.tvm_storage_sync("shared"),
        "kept",
        names="tvm_storage_sync",
    )
    yield _row(
        "T.fence_proxy_async()", lambda t: T.fence_proxy_async(), "kept", names="fence_proxy_async"
    )
    warp = "threads of one warp or role act as one in the IR"
    yield _row("T.sync_warp()", lambda t: T.sync_warp(), "dropped", warp, names="sync_warp")
    grids = "what another grid does before or after is outside of a Program"
    yield _row("T.pdl_sync()", lambda t: T.pdl_sync(), "dropped", grids, names="pdl_sync")
    yield _row("T.pdl_trigger()", lambda t: T.pdl_trigger(), "dropped", grids, names="pdl_trigger")
    yield from _listed("sync_grid", "blocks run one after the other, and none can wait for others")
    yield from _listed("syncthreads_and syncthreads_or syncthreads_count", "votes among threads")
    yield from _listed(
        """cluster_arrive cluster_arrive_relaxed cluster_wait cluster_sync block_rank_in_cluster ClusterKernel
        clc_try_cancel clc_try_cancel_multicast clc_is_canceled clc_get_first_ctaid_x clc_get_first_ctaid_y
        clc_get_first_ctaid_z tcgen05_before_thread_sync tcgen05_after_thread_sync alloc_tmem \
deallocate_tmem""",
        _DEVICE,
    )


def _roles_and_hints() -> Iterator[Row]:
    yield _whole(
        "with T.ws(0): .. with T.ws(1): ..", kernels.roles, "kept", names="ws WarpSpecialize"
    )
    yield from _listed(
        "CUDASourceCodeKernel import_source", "code in another language than TileLang's"
    )
    yield _whole(
        "with T.ws_op('here')", kernels.named, "dropped", "a name for schedules", names="ws_op"
    )
    yield _whole(
        "T.annotate_ws_schedule(..)",
        kernels.scheduled,
        "kept",
        "the rest of it is in TileLang's plan, which `check --pipeline tilelang:sm_90a` reads "
        "back: roles, barriers, versions",
        names="annotate_ws_schedule",
    )
    for title, act, names, why in (
        ("T.annotate_ws_pipeline_depth({a: 2})", lambda t: T.annotate_ws_pipeline_depth({t.a: 2}),
         "annotate_ws_pipeline_depth", "for the automatic scheduler, which makes its own barriers"),
        ("T.set_max_nreg(240, 1)", lambda t: T.set_max_nreg(240, 1), "set_max_nreg", _REGISTERS),
        ("T.inc_max_nreg(240)", lambda t: T.inc_max_nreg(240), "inc_max_nreg", _REGISTERS),
        ("T.dec_max_nreg(24)", lambda t: T.dec_max_nreg(24), "dec_max_nreg", _REGISTERS),
        ("T.no_set_max_nreg()", lambda t: T.no_set_max_nreg(), "no_set_max_nreg", _REGISTERS),
        ("T.disable_warp_group_reg_alloc()", lambda t: T.disable_warp_group_reg_alloc(),
         "disable_warp_group_reg_alloc", _REGISTERS),
        ("T.annotate_consumer_reg_alloc(240)", lambda t: T.annotate_consumer_reg_alloc(240),
         "annotate_consumer_reg_alloc", _REGISTERS),
        ("T.annotate_producer_reg_dealloc(24)", lambda t: T.annotate_producer_reg_dealloc(24),
         "annotate_producer_reg_dealloc", _REGISTERS),
        ("T.use_swizzle(8)", lambda t: T.use_swizzle(8), "use_swizzle",
         "blocks are independent, whatever their order"),
        ("T.annotate_safe_value({A: 0})", lambda t: T.annotate_safe_value({t.A: 0}), "annotate_safe_value",
         "reads outside of an array return zeros; other values are refused"),
        ("T.annotate_l2_hit_ratio({A: 0.5})", lambda t: T.annotate_l2_hit_ratio({t.A: 0.5}),
         "annotate_l2_hit_ratio", "caching changes no order"),
        ("T.annotate_min_blocks_per_sm(2)", lambda t: T.annotate_min_blocks_per_sm(2),
         "annotate_min_blocks_per_sm", "blocks are independent"),
        ("T.annotate_restrict_buffers(A)", lambda t: T.annotate_restrict_buffers(t.A),
         "annotate_restrict_buffers", "arrays of one launch do not overlap here"),
        ("T.annotate_compile_flags(['-O3'])", lambda t: T.annotate_compile_flags(["-O3"]),
         "annotate_compile_flags", "for the compiler of the GPU's code"),
        ("T.annotate_pass_configs({})", lambda t: T.annotate_pass_configs({}), "annotate_pass_configs",
         "for TileLang's passes"),
    ):  # fmt: skip
        yield _row(title, act, "dropped", why, names=names)
    yield from _layouts()


def _layouts() -> Iterator[Row]:
    layouts: dict[str, Callable[..., Any]] = {
        "a: T.Layout(..)": lambda A, a, c: {
            a: T.Layout((SIDE, SIDE), lambda i, j: [i, j ^ (i % 8 * 8)])
        },
        "a: lambda i, j: i * 80 + j": lambda A, a, c: {a: lambda i, j: i * 80 + j},
        "a: make_swizzled_layout(a)": lambda A, a, c: {a: make_swizzled_layout(a)},
        "c: T.Fragment(..)": lambda A, a, c: {
            c: T.Fragment((SIDE, SIDE), lambda i, j: ((i * SIDE + j) % 128, i // 2))
        },
        "c: T.Fragment(.., replicate=2)": lambda A, a, c: {
            c: T.Fragment(
                (SIDE, SIDE), forward_thread_fn=lambda i, j, rep: i + rep * SIDE, replicate=2
            )
        },
        "A: T.Layout(..)": lambda A, a, c: {A: T.Layout((SIDE, SIDE), lambda i, j: [j, i])},
    }
    for title, make in layouts.items():
        yield Row(
            kernel=operation(
                f"T.annotate_layout({{{title}}})",
                function,
                lambda A, O, make=make: kernels.laid_out(A, O, make),
                names="annotate_layout",
            ),
            without=operation("-", function, lambda A, O: kernels.laid_out(A, O, lambda *_: {})),
            kept="kept",
            why="the elements of the caller's array; cpu has them in rows"
            if title[0] == "A"
            else "",
        )


def _pipelines() -> Iterator[Row]:
    two = {"order": [0, 1], "stage": [0, 1]}
    yield _loop(
        "T.Pipelined(8, num_stages=3)",
        kernels.pipelined,
        {"num_stages": 3},
        "kept",
        "",
        "Pipelined",
    )
    yield _loop(
        "T.Pipelined(8, order=[0, 1], stage=[0, 1])",
        kernels.pipelined,
        two,
        "kept",
        "TileLang moves the statements after elaboration: in the Program they are in the order of the text",
        "-",
    )
    yield _loop(
        "T.Pipelined(8, order=[0, 0], stage=[0, 1])",
        kernels.pipelined,
        two | {"order": [0, 0]},
        "given up",
        "TileLang does not pipeline it",
        "-",
    )
    grouped = {"num_stages": 2, "annotations": {"tl_pipeline_group": [[0], [1]]}}
    yield _loop(
        "T.Pipelined(8, num_stages=2, annotations={'tl_pipeline_group': [[0], [1]]})",
        kernels.pipelined,
        grouped,
        "kept",
        "",
        "-",
    )
    yield _loop(
        "T.Persistent(.., num_stages=2)",
        kernels.persistent,
        {"num_stages": 2},
        "kept",
        "",
        "Persistent",
    )


GROUPS: dict[str, tuple[Row, ...]] = {
    "Copies": tuple(_copies()),
    "Products": tuple(_products()),
    "Groups of asynchronous operations": tuple(_groups()),
    "Barriers": tuple(_barriers()),
    "Threads, grids and clusters": tuple(_threads()),
    "Pipelined loops": tuple(_pipelines()),
    "Roles, and hints": tuple(_roles_and_hints()),
}
