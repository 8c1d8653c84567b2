"""A role multiplies tiles that another stored plainly: TileLang fences each product, only one, or none."""

import tilelang
import tilelang.language as T

SIDE = 64
ROLE = 128


@tilelang.jit
def multiplied(N, first, then):
    """``first`` is how the left tile comes, ``then`` what the consumer does after its product."""

    @T.prim_func
    def main(
        Q: T.Tensor((SIDE, SIDE), "float16"),
        K: T.Tensor((N, SIDE, SIDE), "float16"),
        C: T.Tensor((SIDE, SIDE), "float32"),
    ):
        with T.Kernel(1, threads=2 * ROLE) as _:
            q = T.alloc_shared((SIDE, SIDE), "float16")
            k = T.alloc_shared((2, SIDE, SIDE), "float16")
            s = T.alloc_shared((SIDE, SIDE), "float16")
            c = T.alloc_fragment((SIDE, SIDE), "float32")
            here = T.alloc_barrier(arrive_count=1)
            full = T.alloc_barrier(arrive_count=[ROLE, ROLE])
            free = T.alloc_barrier(arrive_count=[ROLE, ROLE])
            tx = T.get_thread_binding()
            if first == "stored":
                T.copy(Q, q)
            else:
                T.tma_copy(Q, q, barrier=here)
                if tx == 0:
                    T.barrier_arrive(here)
                T.barrier_wait(here, 0)
            if tx < ROLE:
                T.clear(c)
                for n in T.serial(N):
                    T.barrier_wait(full[n % 2], n // 2 % 2)
                    T.wgmma_gemm(q, k[n % 2, :, :], c)
                    T.wait_wgmma(0)
                    if then != "nothing":
                        T.copy(c, s)
                    if then == "store and multiply":
                        T.gemm(s, k[n % 2, :, :], c)
                    T.barrier_arrive(free[n % 2])
                T.copy(c, C)
            else:
                for n in T.serial(N):
                    T.barrier_wait(free[n % 2], (n // 2 + 1) % 2)
                    T.copy(K[n, :, :], k[n % 2, :, :])
                    T.barrier_arrive(full[n % 2])

    return main
