"""Attention without a softmax: chunk by chunk, with a state that is carried along."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[3, 4])
def chunked(heads, length, dim, chunk=8):
    """Causal: inside a chunk by products, before it through the state."""

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, dim), "float32"),
        K: T.Tensor((length, heads, dim), "float32"),
        V: T.Tensor((length, heads, dim), "float32"),
        O: T.Tensor((length, heads, dim), "float32"),
        state: T.Tensor((heads, dim, dim), "float32"),
    ):
        with T.Kernel(heads, threads=64) as bx:
            q = T.alloc_shared((chunk, dim), "float32")
            k = T.alloc_shared((chunk, dim), "float32")
            v = T.alloc_shared((chunk, dim), "float32")
            s = T.alloc_fragment((chunk, chunk), "float32")
            s_shared = T.alloc_shared((chunk, chunk), "float32")
            o = T.alloc_fragment((chunk, dim), "float32")
            h = T.alloc_fragment((dim, dim), "float32")
            h_shared = T.alloc_shared((dim, dim), "float32")
            T.annotate_layout({h_shared: tilelang.layout.make_swizzled_layout(h_shared)})
            T.use_swizzle(4)
            T.clear(h)
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=2):
                T.copy(Q[n * chunk : (n + 1) * chunk, bx, :], q)
                T.copy(K[n * chunk : (n + 1) * chunk, bx, :], k)
                T.copy(V[n * chunk : (n + 1) * chunk, bx, :], v)
                T.gemm(q, k, s, clear_accum=True, transpose_B=True)
                for i, j in T.Parallel(chunk, chunk):
                    s_shared[i, j] = T.if_then_else(i >= j, s[i, j], 0.0)
                T.gemm(s_shared, v, o, clear_accum=True)
                T.copy(h, h_shared)
                T.gemm(q, h_shared, o)
                T.gemm(k, v, h, transpose_A=True)
                T.copy(o, O[n * chunk : (n + 1) * chunk, bx, :])
            T.copy(h, state[bx, :, :])

    return main


def chunked_inputs(rng):
    return [rng.standard_normal((20, 2, 8)).astype("f4") for _ in range(3)]


def chunked_reference(Q, K, V):
    scores = np.tril(np.einsum("ihd,jhd->hij", Q, K))
    return [np.einsum("hij,jhd->ihd", scores, V), np.einsum("jhd,jhe->hde", K, V)]


@tilelang.jit(out_idx=[3])
def decayed(length, dim, chunk=8):
    """Each step forgets a part of the state; decays are summed up chunk by chunk."""

    @T.prim_func
    def main(
        K: T.Tensor((length, dim), "float32"),
        V: T.Tensor((length, dim), "float32"),
        G: T.Tensor((length,), "float32"),
        state: T.Tensor((dim, dim), "float32"),
    ):
        with T.Kernel(1, threads=64):
            k = T.alloc_shared((chunk, dim), "float32")
            v = T.alloc_shared((chunk, dim), "float32")
            g = T.alloc_shared((chunk,), "float32")
            scaled = T.alloc_fragment((chunk, dim), "float32")
            h = T.alloc_fragment((dim, dim), "float32")
            T.clear(h)
            for n in T.serial(length // chunk):
                T.copy(K[n * chunk, 0], k)
                T.copy(V[n * chunk, 0], v)
                T.copy(G[n * chunk], g)
                T.cumsum(g, dim=0)
                for i, j in T.Parallel(dim, dim):
                    h[i, j] = h[i, j] * T.exp(g[chunk - 1])
                for i, j in T.Parallel(chunk, dim):
                    scaled[i, j] = k[i, j] * T.exp(g[chunk - 1] - g[i])
                T.gemm(scaled, v, h, transpose_A=True)
            T.copy(h, state)

    return main


def decayed_inputs(rng):
    arrays = [rng.standard_normal((24, 8)).astype("f4") for _ in range(2)]
    return [*arrays, -rng.random(24).astype("f4")]


def decayed_reference(K, V, G):
    state = np.zeros((8, 8))
    for k, v, g in zip(K.astype("f8"), V, G, strict=True):
        state = state * np.exp(g) + np.outer(k, v)
    return [state.astype("f4")]
