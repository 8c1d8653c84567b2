"""Correct kernels of more than 60 statements; mistakes are planted in their text.

One module because each kernel is a text of its own.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[5, 6])
def attend(length, block=16, dim=16):
    """Attention with its own cp.async copies: keys and values two tiles ahead, then a feed-forward layer."""
    steps = length // block

    @T.prim_func
    def main(
        Q: T.Tensor((length, dim), "float16"),
        K: T.Tensor((length, dim), "float16"),
        V: T.Tensor((length, dim), "float16"),
        W: T.Tensor((dim, dim), "float16"),
        Bias: T.Tensor((dim,), "float32"),
        O: T.Tensor((length, dim), "float32"),
        Norm: T.Tensor((length,), "float32"),
    ):
        with T.Kernel(steps, threads=128) as bx:
            q = T.alloc_shared((block, dim), "float16")
            k = T.alloc_shared((3, block, dim), "float16")
            v = T.alloc_shared((3, block, dim), "float16")
            w = T.alloc_shared((dim, dim), "float16")
            bias = T.alloc_shared((dim,), "float32")
            scores = T.alloc_fragment((block, block), "float32")
            weights = T.alloc_fragment((block, block), "float16")
            out = T.alloc_fragment((block, dim), "float32")
            hidden = T.alloc_shared((block, dim), "float16")
            made = T.alloc_fragment((block, dim), "float32")
            largest = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            factor = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            partial = T.alloc_fragment((block,), "float32")
            squares = T.alloc_fragment((block, dim), "float32")
            T.async_copy(Q[bx * block : (bx + 1) * block, :], q)
            for p in T.serial(2):
                if p < steps:
                    T.async_copy(K[p * block : (p + 1) * block, :], k[p, :, :])
                    T.async_copy(V[p * block : (p + 1) * block, :], v[p, :, :])
            T.clear(out)
            T.clear(total)
            T.fill(largest, -1000.0)
            for t in T.serial(steps):
                if t + 1 < steps:
                    T.ptx_wait_group(2)
                else:
                    T.ptx_wait_group(0)
                T.sync_threads()
                if t + 2 < steps:
                    T.async_copy(K[(t + 2) * block : (t + 3) * block, :], k[(t + 2) % 3, :, :])
                    T.async_copy(V[(t + 2) * block : (t + 3) * block, :], v[(t + 2) % 3, :, :])
                T.clear(scores)
                T.gemm(q, k[t % 3, :, :], scores, transpose_B=True)
                for i, j in T.Parallel(block, block):
                    if t * block + j > bx * block + i:
                        scores[i, j] = -1000.0
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(block):
                    factor[i] = T.exp2(before[i] - largest[i])
                for i, j in T.Parallel(block, block):
                    scores[i, j] = T.exp2(scores[i, j] - largest[i])
                T.reduce_sum(scores, partial, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * factor[i] + partial[i]
                for i, j in T.Parallel(block, dim):
                    out[i, j] = out[i, j] * factor[i]
                T.copy(scores, weights)
                T.gemm(weights, v[t % 3, :, :], out)
            for i, j in T.Parallel(block, dim):
                out[i, j] = out[i, j] / total[i]
            T.copy(out, hidden)
            T.async_copy(W, w)
            T.copy(Bias, bias)
            T.clear(made)
            T.ptx_wait_group(0)
            T.sync_threads()
            T.gemm(hidden, w, made)
            for i, j in T.Parallel(block, dim):
                made[i, j] = T.max(made[i, j] + bias[j], 0.0)
            for i, j in T.Parallel(block, dim):
                squares[i, j] = made[i, j] * made[i, j]
            T.reduce_sum(squares, partial, dim=1)
            T.copy(made, O[bx * block, 0])
            T.copy(partial, Norm[bx * block])

    return main


@tilelang.jit(out_idx=[4, 5])
def produce(M, N, K, block=16):
    """Three roles: one brings tiles of three arrays by TMA, two multiply; phases go on in a second loop."""
    steps = K // block

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        D: T.Tensor((K, N), "float16"),
        Scale: T.Tensor((M,), "float32"),
        C: T.Tensor((M, N), "float32"),
        E: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block, M // block, threads=384) as (bx, by):
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, block, block), "float16")
            d = T.alloc_shared((2, block, block), "float16")
            scale = T.alloc_shared((block,), "float32")
            left = T.alloc_fragment((block, block), "float32")
            right = T.alloc_fragment((block, block), "float32")
            most = T.alloc_fragment((block,), "float32")
            kept = T.alloc_shared((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[256, 256])
            ready = T.alloc_barrier(arrive_count=[128])
            tx = T.get_thread_binding()
            T.copy(Scale[by * block : (by + 1) * block], scale)
            if tx < 128:
                for k in T.serial(steps):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(
                        A[by * block : (by + 1) * block, k * block : (k + 1) * block],
                        a[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.tma_copy(
                        B[k * block : (k + 1) * block, bx * block : (bx + 1) * block],
                        b[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.tma_copy(
                        D[k * block : (k + 1) * block, bx * block : (bx + 1) * block],
                        d[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.barrier_arrive(full[k % 2])
                for m in T.serial(steps):
                    T.barrier_wait(free[(steps + m) % 2], ((steps + m) // 2 + 1) % 2)
                    T.tma_copy(
                        A[by * block : (by + 1) * block, m * block : (m + 1) * block],
                        a[(steps + m) % 2, :, :],
                        barrier=full[(steps + m) % 2],
                    )
                    T.tma_copy(
                        D[m * block : (m + 1) * block, bx * block : (bx + 1) * block],
                        d[(steps + m) % 2, :, :],
                        barrier=full[(steps + m) % 2],
                    )
                    T.barrier_arrive(full[(steps + m) % 2])
            elif tx < 256:
                T.clear(left)
                for k in T.serial(steps):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.gemm(a[k % 2, :, :], b[k % 2, :, :], left)
                    T.barrier_arrive(free[k % 2])
                for i, j in T.Parallel(block, block):
                    left[i, j] = T.max(left[i, j], 0.0) * scale[i]
                T.reduce_max(left, most, dim=1)
                for i, j in T.Parallel(block, block):
                    left[i, j] = left[i, j] - most[i]
                T.copy(left, kept)
                T.barrier_arrive(ready[0])
                for m in T.serial(steps):
                    T.barrier_wait(full[(steps + m) % 2], (steps + m) // 2 % 2)
                    T.gemm(a[(steps + m) % 2, :, :], d[(steps + m) % 2, :, :], left)
                    T.barrier_arrive(free[(steps + m) % 2])
                for i, j in T.Parallel(block, block):
                    left[i, j] = left[i, j] + 1.0
                T.copy(left, C[by * block, bx * block])
            else:
                T.clear(right)
                for k in T.serial(steps):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.gemm(a[k % 2, :, :], d[k % 2, :, :], right)
                    T.barrier_arrive(free[k % 2])
                for i, j in T.Parallel(block, block):
                    right[i, j] = T.exp2(right[i, j] * 0.125)
                T.barrier_wait(ready[0], 0)
                for i, j in T.Parallel(block, block):
                    right[i, j] = right[i, j] * kept[i, j]
                for m in T.serial(steps):
                    T.barrier_wait(full[(steps + m) % 2], (steps + m) // 2 % 2)
                    for i, j in T.Parallel(block, block):
                        right[i, j] = right[i, j] + a[(steps + m) % 2, i, j]
                    T.barrier_arrive(free[(steps + m) % 2])
                T.copy(right, E[by * block, bx * block])

    return main


@tilelang.jit(out_idx=[5, 6, 7])
def backward(length, block=16, dim=16, num_stages=3):
    """Loops that TileLang or a pass pipelines: attention backward for a block of keys, with its own sums."""
    steps = length // block

    @T.prim_func
    def main(
        Q: T.Tensor((length, dim), "float32"),
        K: T.Tensor((length, dim), "float32"),
        V: T.Tensor((length, dim), "float32"),
        dO: T.Tensor((length, dim), "float32"),
        lse: T.Tensor((length,), "float32"),
        dK: T.Tensor((length, dim), "float32"),
        dV: T.Tensor((length, dim), "float32"),
        Sums: T.Tensor((length,), "float32"),
    ):
        with T.Kernel(steps, threads=128) as bx:
            k = T.alloc_shared((block, dim), "float32")
            v = T.alloc_shared((block, dim), "float32")
            q = T.alloc_shared((block, dim), "float32")
            do = T.alloc_shared((block, dim), "float32")
            more = T.alloc_shared((block, dim), "float32")
            scores = T.alloc_fragment((block, block), "float32")
            grads = T.alloc_fragment((block, block), "float32")
            kept = T.alloc_shared((block, block), "float32")
            rows = T.alloc_shared((block,), "float32")
            delta = T.alloc_fragment((block,), "float32")
            product = T.alloc_fragment((block, block), "float32")
            dk = T.alloc_fragment((block, dim), "float32")
            dv = T.alloc_fragment((block, dim), "float32")
            sums = T.alloc_fragment((block,), "float32")
            part = T.alloc_fragment((block,), "float32")
            T.copy(K[bx * block : (bx + 1) * block, :], k)
            T.copy(V[bx * block : (bx + 1) * block, :], v)
            T.clear(dk)
            T.clear(dv)
            T.clear(sums)
            for t in T.Pipelined(steps, num_stages=num_stages):
                T.copy(Q[t * block : (t + 1) * block, :], q)
                T.copy(dO[t * block : (t + 1) * block, :], do)
                T.copy(lse[t * block : (t + 1) * block], rows)
                T.clear(scores)
                T.gemm(k, q, scores, transpose_B=True)
                for i, j in T.Parallel(block, block):
                    scores[i, j] = T.exp2((scores[i, j] - rows[j]) * 0.25)
                for i, j in T.Parallel(block, block):
                    if bx * block + i > t * block + j:
                        scores[i, j] = 0.0
                T.clear(grads)
                T.gemm(v, do, grads, transpose_B=True)
                T.gemm(scores, do, dv)
                for i, j in T.Parallel(block, block):
                    product[i, j] = scores[i, j] * grads[i, j]
                T.reduce_sum(product, delta, dim=1)
                for i, j in T.Parallel(block, block):
                    kept[i, j] = scores[i, j] * (grads[i, j] - delta[i])
                T.gemm(kept, q, dk)
            for t in T.Pipelined(steps, num_stages=num_stages):
                T.copy(dO[t * block : (t + 1) * block, :], more)
                for i, j in T.Parallel(block, dim):
                    dv[i, j] = dv[i, j] + T.max(more[i, j], 0.0) * 0.5
                for i, j in T.Parallel(block, dim):
                    product[i, j] = more[i, j] * dk[i, j]
                T.reduce_sum(product, part, dim=1)
                for i in T.Parallel(block):
                    sums[i] = T.max(sums[i], part[i])
            for i, j in T.Parallel(block, dim):
                dk[i, j] = dk[i, j] * 0.25
            T.copy(dk, more)
            for i, j in T.Parallel(block, dim):
                product[i, j] = more[i, j] * more[i, j]
            T.reduce_max(product, part, dim=1)
            for i in T.Parallel(block):
                sums[i] = sums[i] + part[i]
            for i, j in T.Parallel(block, dim):
                dv[i, j] = T.if_then_else(dv[i, j] > 0.0, dv[i, j], dv[i, j] * 0.5)
            T.copy(dk, dK[bx * block, 0])
            T.copy(dv, dV[bx * block, 0])
            for i in T.Parallel(block):
                delta[i] = T.abs(sums[i])
            for i in T.Parallel(block):
                sums[i] = T.min(sums[i], delta[i] * 2.0)
            T.copy(sums, Sums[bx * block])

    return main
