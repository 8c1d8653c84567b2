"""Instructions and units of a GPU that have no meaning at tile level. Imports TileLang: import this late."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import tilelang.language as T
from tests.differential.language.templates import SIDE, Operation, block, function, operation, tile


@T.macro
def _clustered(A: Any, O: Any) -> None:
    with T.ClusterKernel(2, cluster_dims=(2, 1, 1), threads=128):
        T.copy(A, O)


@T.macro
def _tcgen05(A: Any, O: Any, multiply: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    c = T.alloc_tmem((SIDE, SIDE), "float32")
    done = T.alloc_barrier(1)
    multiply(a, a, c, mbar=done)


@T.macro
def _sparse(A: Any, O: Any, multiply: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE // 2), A.dtype)
    e = T.alloc_shared((SIDE, SIDE // (4 if A.dtype == "float32" else 8)), "uint8")
    b = T.alloc_shared((SIDE, SIDE), A.dtype)
    c = T.alloc_fragment((SIDE, SIDE), "float32")
    multiply(a, e, b, c)


@T.macro
def _scaled(A: Any, O: Any, multiply: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    s = T.alloc_shared((SIDE, SIDE // 32), "float8_e8m0fnu")
    c = T.alloc_fragment((SIDE, SIDE), "float32")
    multiply(a, a, c, s, s, k_start=0, sf_a_granularity_k=32, sf_b_granularity_k=32)


@T.macro
def _to_others(A: Any, O: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    T.copy_cluster(A, a, cluster_mask=3)


@T.macro
def _imported(A: Any, O: Any) -> None:
    T.import_source("float their_function(float x) { return x; }")
    for i in T.Parallel(SIDE):
        O[0, i] = T.call_extern("float32", "their_function", A[0, i])


@T.macro
def _gathered(A: Any, O: Any) -> None:
    four = T.alloc_shared((4, SIDE), A.dtype)
    full = T.alloc_barrier(1)
    T.tma_gather4(A, four, 0, [3, 1, 2, 0], barrier=full)


@T.macro
def _scattered(A: Any, O: Any) -> None:
    four = T.alloc_shared((4, SIDE), A.dtype)
    T.tma_scatter4(four, O, 0, [3, 1, 2, 0])


@T.macro
def _cuda_source(A: Any, O: Any) -> None:
    T.CUDASourceCodeKernel(1, threads=128, source_code_or_path=_SOURCE)


_SOURCE = 'extern "C" __global__ void main_kernel(float *a, float *b, float *o) {}'


def units() -> Iterator[Operation]:
    """Clusters, tensor memory, sparse and scaled products."""
    yield operation(
        "ClusterKernel",
        function,
        lambda A, O: _clustered(A, O),
        is_typed=False,
        said="cluster_dims",
    )
    for name in ("tcgen05_gemm", "tcgen05_mma"):
        yield operation(
            name,
            block,
            lambda A, O, f=getattr(T, name): _tcgen05(A, O, f),
            is_typed=False,
            names=f"{name} alloc_tmem",
            said="alloc_tmem",
        )
    for name in ("gemm_sp", "wgmma_gemm_sp", "tcgen05_gemm_sp"):
        yield operation(
            name,
            block,
            lambda A, O, f=getattr(T, name): _sparse(A, O, f),
            is_typed=False,
            said="gemm_sp",
        )
    for name in (
        "gemm_blockscaled",
        "mma_gemm_blockscaled",
        "tcgen05_gemm_blockscaled",
        "tcgen05_mma_blockscaled",
    ):
        yield operation(
            name,
            block,
            lambda A, O, f=getattr(T, name): _scaled(A, O, f),
            is_typed=False,
            said="float8_e8m0fnu",
        )
    yield operation("tma_gather4", block, lambda A, O: _gathered(A, O), is_typed=False)
    yield operation("tma_scatter4", block, lambda A, O: _scattered(A, O), is_typed=False)
    yield operation(
        "CUDASourceCodeKernel",
        function,
        lambda A, O: _cuda_source(A, O),
        is_typed=False,
        said="code_block_source",
    )
    yield operation(
        "copy_cluster",
        block,
        lambda A, O: _to_others(A, O),
        is_typed=False,
        said="cluster_mask",
    )
    yield operation(
        "import_source", block, lambda A, O: _imported(A, O), is_typed=False, said="call_extern"
    )
    for name in """cluster_arrive cluster_arrive_relaxed cluster_sync cluster_wait
        tcgen05_after_thread_sync tcgen05_before_thread_sync""".split():
        yield operation(
            name, block, lambda A, O, f=getattr(T, name): T.evaluate(f()), is_typed=False
        )


_INSTRUCTIONS = """ptx_mma ptx_mma_sm70 ptx_mma_sp ptx_mma_block_scale ptx_wgmma_ss ptx_wgmma_rs \
ptx_wgmma_sp_ss
ptx_wgmma_sp_rs ptx_tcgen05_mma_ss ptx_tcgen05_mma_ts ptx_tcgen05_mma_blockscaled_ss ptx_ldmatrix ptx_cp_async
ptx_cp_async_bulk ptx_cp_async_barrier ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier
ptx_init_barrier_thread_count ptx_arrive_cluster_barrier mma_fill mma_store tma_load tma_load_2sm
create_tma_descriptor tvm_load_matrix_sync tvm_store_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_fill_fragment
named_barrier_arrive clc_try_cancel clc_try_cancel_multicast clc_is_canceled clc_get_first_ctaid_x
clc_get_first_ctaid_y clc_get_first_ctaid_z create_barriers tcgen05_mma_arrive tcgen05_cp_warpx4
tcgen05_sf_warp_transpose deallocate_tmem rng_init cp_async_barrier_noinc mbarrier_arrive_expect_tx
mbarrier_expect_tx initialize_wgmma_descriptor initialize_tcgen05_descriptor increase_descriptor_offset
start_profile_intrinsic end_profile_intrinsic thread_return ret tvm_thread_allreduce tvm_access_ptr address_of
access_ptr handle_add_byte_offset isnullptr undef vectorlow vectorhigh vectorcombine extract_lane
get_active_lane_mask ignore_loop_partition type_annotation lookup_param"""
_ALLOCATIONS = """alloc_cluster_barrier alloc_descriptor alloc_wgmma_desc alloc_tcgen05_smem_desc
alloc_tcgen05_instr_desc alloc_tcgen05_instruction_desc"""
_SAID = {
    "tma_load_2sm": "tma_load",
    "deallocate_tmem": "alloc_tmem",
    "initialize_wgmma_descriptor": "alloc_descriptor",
    "initialize_tcgen05_descriptor": "alloc_descriptor",
    "increase_descriptor_offset": "alloc_descriptor",
    "extract_lane": "Shuffle",
}
"""What the message has to name instead of the operation."""


def instructions() -> Iterator[Operation]:
    """Single instructions, with stand-ins for their arguments."""
    for name in _INSTRUCTIONS.split():
        f = getattr(T, name)
        yield operation(
            name,
            tile,
            lambda a, c, f=f: f(*_stand_ins(f, a)),
            is_typed=False,
            said=_SAID.get(name, ""),
        )
    for name in _ALLOCATIONS.split():
        f = getattr(T, name)
        given = (1,) if "barrier" in name else ()
        yield operation(
            name,
            tile,
            lambda a, c, f=f, g=given: f(*g) is None,
            is_typed=False,
            said="alloc_descriptor" if "desc" in name else name,
        )


def _stand_ins(f: Callable[..., Any], tile: Any) -> list[Any]:
    """Arguments that TileLang takes, by the names of the parameters."""
    found: list[Any] = []
    for name, parameter in inspect.signature(f).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return [*found, 0, 0, 0]
        if parameter.default is parameter.empty:
            found.append(_stand_in(name, tile))
    return found


def _stand_in(name: str, tile: Any) -> Any:
    match name:
        case "shape":
            return "m16n8k16"
        case "obj" | "base" | "value":
            return tile[0, 0]
        case "vector":
            return T.broadcast(tile[0, 0], 4)
        case "result" | "tmem_dst" | "smem_src":
            return tile
        case "tmem":
            return T.alloc_tmem((128, SIDE), "float32")
        case "barrier" | "mbarrier" | "mbar" | "barrier_id":
            return T.alloc_barrier(128)[0]
        case "descriptor":
            return T.alloc_wgmma_desc()
        case "wgmma_prefix":
            return "m64n8k16"
        case "dst_access_ptr" | "src_access_ptr":
            return T.access_ptr(tile[0, 0], "rw")
        case _ if "dtype" in name:
            return "float32"
        case _ if "abbrv" in name:
            return "fp16"
        case _ if "layout" in name:
            return "row"
        case _ if any(part in name.lower() for part in ("ptr", "buf", "multiplicand", "accum")):
            return tile.data
        case _:
            return 0
