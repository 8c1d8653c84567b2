"""A matrix times a vector, its threads split over rows and over the sum, tuned with the decorator."""

import tilelang
import tilelang.language as T


def list_configs():
    return [
        {"BLOCK_N": rows, "reduce_threads": threads}
        for rows in (2, 4, 8, 16)
        for threads in (16, 32)
    ]


@tilelang.autotune(configs=list_configs(), warmup=5, rep=50, skip_check=True)
@tilelang.jit(out_idx=[-1], target={"kind": "cuda", "arch": "sm_90a"})
def gemv(N, K, BLOCK_N=4, reduce_threads=32):
    vector = 8
    block_K = reduce_threads * vector

    @T.prim_func
    def main(
        A: T.Tensor((K,), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((N,), "float16")
    ):
        with T.Kernel(T.ceildiv(N, BLOCK_N), threads=(reduce_threads, BLOCK_N)) as bn:
            tk = T.get_thread_binding(0)
            tn = T.get_thread_binding(1)
            A_local = T.alloc_local((vector,), "float16")
            B_local = T.alloc_local((vector,), "float16")
            part = T.alloc_local((1,), "float32")
            whole = T.alloc_local((1,), "float32")
            T.clear(part)
            for step in T.serial(T.ceildiv(K, block_K)):
                for v in T.vectorized(vector):
                    A_local[v] = A[step * block_K + tk * vector + v]
                    B_local[v] = B[bn * BLOCK_N + tn, step * block_K + tk * vector + v]
                for v in T.serial(vector):
                    part[0] += A_local[v].astype("float32") * B_local[v].astype("float32")
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.Cast("float32", 0)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(
                    T.tvm_thread_allreduce(T.uint32(1), part[0], True, whole[0], tk, dtype="handle")
                )
            C[bn * BLOCK_N + tn] = whole[0]

    return main


def tune():
    return gemv(4096, 4096)
