"""Attention beyond the forward pass over one length: backward, decoding, sequences of many lengths."""

import itertools

import numpy as np
import tilelang
import tilelang.language as T

LOG2E = 1.4426950408889634


def _softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@tilelang.jit(out_idx=[2])
def backward_sums(heads, length, dim, block=8):
    """What each row of the gradient has in common with its output."""

    @T.prim_func
    def main(
        O: T.Tensor((heads, length, dim), "float16"),
        dO: T.Tensor((heads, length, dim), "float16"),
        delta: T.Tensor((heads, length), "float32"),
    ):
        with T.Kernel(heads, T.ceildiv(length, block), threads=64) as (bx, by):
            o = T.alloc_fragment((block, dim), "float32")
            do = T.alloc_fragment((block, dim), "float32")
            product = T.alloc_fragment((block, dim), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(O[bx, by * block : (by + 1) * block, :], o)
            T.copy(dO[bx, by * block : (by + 1) * block, :], do)
            for i, j in T.Parallel(block, dim):
                product[i, j] = o[i, j] * do[i, j]
            T.reduce_sum(product, total, dim=1)
            T.copy(total, delta[bx, by * block : (by + 1) * block])

    return main


def backward_sums_inputs(rng):
    return [rng.standard_normal((2, 20, 8)).astype("f2") for _ in range(2)]


def backward_sums_reference(O, dO):
    return [(O.astype("f4") * dO.astype("f4")).sum(axis=-1)]


@tilelang.jit(out_idx=[7, 8])
def backward(heads, length, dim, block_M=8, block_N=8):
    """Causal; gradients of keys and values by blocks, that of queries added up by all of them."""
    scale = 1.0 / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((heads, length, dim), "float32"),
        K: T.Tensor((heads, length, dim), "float32"),
        V: T.Tensor((heads, length, dim), "float32"),
        dO: T.Tensor((heads, length, dim), "float32"),
        lse: T.Tensor((heads, length), "float32"),
        delta: T.Tensor((heads, length), "float32"),
        dQ: T.Tensor((heads, length, dim), "float32"),
        dK: T.Tensor((heads, length, dim), "float32"),
        dV: T.Tensor((heads, length, dim), "float32"),
    ):
        with T.Kernel(heads, T.ceildiv(length, block_M), threads=128) as (bx, by):
            k_shared = T.alloc_shared((block_M, dim), "float32")
            v_shared = T.alloc_shared((block_M, dim), "float32")
            q = T.alloc_shared((block_N, dim), "float32")
            do = T.alloc_shared((block_N, dim), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            dscores = T.alloc_fragment((block_M, block_N), "float32")
            ds_shared = T.alloc_shared((block_M, block_N), "float32")
            row_lse = T.alloc_shared((block_N,), "float32")
            row_delta = T.alloc_shared((block_N,), "float32")
            dk = T.alloc_fragment((block_M, dim), "float32")
            dv = T.alloc_fragment((block_M, dim), "float32")
            dq = T.alloc_fragment((block_N, dim), "float32")
            T.copy(K[bx, by * block_M : (by + 1) * block_M, :], k_shared)
            T.copy(V[bx, by * block_M : (by + 1) * block_M, :], v_shared)
            T.clear(dk)
            T.clear(dv)
            for k in T.Pipelined(by * block_M // block_N, T.ceildiv(length, block_N), num_stages=1):
                T.copy(Q[bx, k * block_N : (k + 1) * block_N, :], q)
                T.copy(dO[bx, k * block_N : (k + 1) * block_N, :], do)
                T.copy(lse[bx, k * block_N : (k + 1) * block_N], row_lse)
                T.copy(delta[bx, k * block_N : (k + 1) * block_N], row_delta)
                T.clear(scores)
                T.gemm(k_shared, q, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] * scale - row_lse[j]) * LOG2E)
                    scores[i, j] = T.if_then_else(
                        by * block_M + i <= k * block_N + j, scores[i, j], 0.0
                    )
                T.clear(dscores)
                T.gemm(v_shared, do, dscores, transpose_B=True)
                T.gemm(scores, do, dv)
                for i, j in T.Parallel(block_M, block_N):
                    ds_shared[i, j] = scores[i, j] * (dscores[i, j] - row_delta[j]) * scale
                T.gemm(ds_shared, q, dk)
                T.clear(dq)
                T.gemm(ds_shared, k_shared, dq, transpose_A=True)
                for i, j in T.Parallel(block_N, dim):
                    T.atomic_add(dQ[bx, k * block_N + i, j], dq[i, j])
            T.copy(dk, dK[bx, by * block_M : (by + 1) * block_M, :])
            T.copy(dv, dV[bx, by * block_M : (by + 1) * block_M, :])

    return main


def _backward(Q, K, V, dO):
    mask = np.tril(np.ones((20, 20), bool))
    scores = np.where(mask, Q @ K.transpose(0, 2, 1) / 8**0.5, -np.inf)
    P = _softmax(scores)
    delta = (P @ V * dO).sum(axis=-1)
    dS = P * (dO @ V.transpose(0, 2, 1) - delta[..., None]) / 8**0.5
    lse = np.log(np.exp(scores).sum(axis=-1))
    return lse, delta, [dS @ K, dS.transpose(0, 2, 1) @ Q, P.transpose(0, 2, 1) @ dO]


def backward_inputs(rng):
    arrays = [rng.standard_normal((2, 20, 8)).astype("f4") for _ in range(4)]
    lse, delta, _ = _backward(*(array.astype("f8") for array in arrays))
    return [*arrays, lse.astype("f4"), delta.astype("f4"), np.zeros((2, 20, 8), np.float32)]


def backward_reference(Q, K, V, dO, lse, delta, dQ):
    wide = [array.astype("f8") for array in (Q, K, V, dO)]
    return [gradient.astype("f4") for gradient in _backward(*wide)[2]]


@tilelang.jit(out_idx=[5])
def paged_decode(batch, heads, pages, page, dim, block_H=16):
    """One query per sequence, whose keys lie in pages that a table lists."""
    scale = LOG2E / dim**0.5
    most = 4

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), "float16"),
        K: T.Tensor((pages * page, dim), "float16"),
        V: T.Tensor((pages * page, dim), "float16"),
        table: T.Tensor((batch, most), "int32"),
        lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, heads, dim), "float16"),
    ):
        with T.Kernel(batch, T.ceildiv(heads, block_H), threads=128) as (bx, by):
            q = T.alloc_shared((block_H, dim), "float16")
            k = T.alloc_shared((page, dim), "float16")
            v = T.alloc_shared((page, dim), "float16")
            scores = T.alloc_fragment((block_H, page), "float32")
            weights = T.alloc_fragment((block_H, page), "float16")
            out = T.alloc_fragment((block_H, dim), "float32")
            new_max = T.alloc_fragment((block_H,), "float32")
            old_max = T.alloc_fragment((block_H,), "float32")
            part = T.alloc_fragment((block_H,), "float32")
            total = T.alloc_fragment((block_H,), "float32")
            T.copy(Q[bx, by * block_H : (by + 1) * block_H, :], q)
            T.clear(out)
            T.clear(total)
            T.fill(new_max, -T.infinity("float32"))
            for n in T.Pipelined(T.ceildiv(lengths[bx], page), num_stages=2):
                row = table[bx, n] * page
                T.copy(K[row : row + page, :], k)
                T.copy(V[row : row + page, :], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_H, page):
                    scores[i, j] = T.if_then_else(
                        n * page + j < lengths[bx], scores[i, j], -T.infinity("float32")
                    )
                T.copy(new_max, old_max)
                T.reduce_max(scores, new_max, dim=1, clear=False)
                for i, j in T.Parallel(block_H, page):
                    scores[i, j] = T.exp2((scores[i, j] - new_max[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_H):
                    total[i] = total[i] * T.exp2((old_max[i] - new_max[i]) * scale) + part[i]
                for i, j in T.Parallel(block_H, dim):
                    out[i, j] *= T.exp2((old_max[i] - new_max[i]) * scale)
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            for i, j in T.Parallel(block_H, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bx, by * block_H : (by + 1) * block_H, :])

    return main


def paged_decode_inputs(rng):
    table = rng.permutation(12)[:8].reshape(2, 4).astype("i4")
    shapes = ((2, 10, 8), (96, 8), (96, 8))
    arrays = [rng.standard_normal(shape).astype("f2") for shape in shapes]
    return [*arrays, table, np.array([30, 9], np.int32)]


def paged_decode_reference(Q, K, V, table, lengths):
    out = []
    for q, pages, length in zip(Q.astype("f4"), table, lengths, strict=True):
        rows = (pages[:, None] * 8 + np.arange(8)).reshape(-1)[:length]
        out.append(_softmax(q @ K[rows].astype("f4").T / 8**0.5) @ V[rows].astype("f4"))
    return [np.stack(out).astype("f2")]


@tilelang.jit(out_idx=[3, 4])
def split_decode(heads, length, dim, splits, block=8):
    """The keys in parts: each part's output and the sum of its weights."""
    scale = LOG2E / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((heads, dim), "float32"),
        K: T.Tensor((length, dim), "float32"),
        V: T.Tensor((length, dim), "float32"),
        O: T.Tensor((splits, heads, dim), "float32"),
        lse: T.Tensor((splits, heads), "float32"),
    ):
        with T.Kernel(splits, threads=64) as bx:
            q = T.alloc_shared((heads, dim), "float32")
            k = T.alloc_shared((block, dim), "float32")
            v = T.alloc_shared((block, dim), "float32")
            scores = T.alloc_fragment((heads, block), "float32")
            out = T.alloc_fragment((heads, dim), "float32")
            largest = T.alloc_fragment((heads,), "float32")
            total = T.alloc_fragment((heads,), "float32")
            T.copy(Q, q)
            T.copy(K[bx * block : (bx + 1) * block, :], k)
            T.copy(V[bx * block : (bx + 1) * block, :], v)
            T.clear(scores)
            T.clear(out)
            T.gemm(q, k, scores, transpose_B=True)
            T.reduce_max(scores, largest, dim=1)
            for i, j in T.Parallel(heads, block):
                scores[i, j] = T.exp2((scores[i, j] - largest[i]) * scale)
            T.reduce_sum(scores, total, dim=1)
            T.gemm(scores, v, out)
            for i, j in T.Parallel(heads, dim):
                O[bx, i, j] = out[i, j] / total[i]
            for i in T.Parallel(heads):
                lse[bx, i] = T.log2(total[i]) + largest[i] * scale

    return main


def split_decode_inputs(rng):
    return [rng.standard_normal(s).astype("f4") for s in ((6, 8), (32, 8), (32, 8))]


def split_decode_reference(Q, K, V):
    scores = [Q @ K[i : i + 8].T / 8**0.5 for i in range(0, 32, 8)]
    out = [_softmax(s) @ V[8 * i : 8 * i + 8] for i, s in enumerate(scores)]
    return [np.stack(out), np.stack([np.log2(np.exp(s).sum(axis=1)) for s in scores])]


@tilelang.jit(out_idx=[2])
def combine(splits, heads, dim):
    """The parts' outputs weighed by their sums."""

    @T.prim_func
    def main(
        O: T.Tensor((splits, heads, dim), "float32"),
        lse: T.Tensor((splits, heads), "float32"),
        Y: T.Tensor((heads, dim), "float32"),
    ):
        with T.Kernel(heads, threads=64) as bx:
            y = T.alloc_fragment((dim,), "float32")
            largest = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            T.clear(y)
            largest[0] = -T.infinity("float32")
            total[0] = 0.0
            for s in T.serial(splits):
                largest[0] = T.max(largest[0], lse[s, bx])
            for s in T.serial(splits):
                total[0] += T.exp2(lse[s, bx] - largest[0])
            for s in T.serial(splits):
                for j in T.Parallel(dim):
                    y[j] += O[s, bx, j] * T.exp2(lse[s, bx] - largest[0]) / total[0]
            T.copy(y, Y[bx, :])

    return main


def combine_inputs(rng):
    return [rng.standard_normal(s).astype("f4") for s in ((4, 6, 8), (4, 6))]


def combine_reference(O, lse):
    weights = np.exp2(lse - lse.max(axis=0))
    return [(O * (weights / weights.sum(axis=0))[..., None]).sum(axis=0)]


@tilelang.jit(out_idx=[4])
def varlen(total, heads, dim, sequences, longest, block_M=8, block_N=8):
    """Sequences of different lengths, one behind the other."""
    scale = LOG2E / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((total, heads, dim), "float32"),
        K: T.Tensor((total, heads, dim), "float32"),
        V: T.Tensor((total, heads, dim), "float32"),
        starts: T.Tensor((sequences + 1,), "int32"),
        O: T.Tensor((total, heads, dim), "float32"),
    ):
        with T.Kernel(T.ceildiv(longest, block_M), heads, sequences, threads=64) as (bx, by, bz):
            q = T.alloc_shared((block_M, dim), "float32")
            k = T.alloc_shared((block_N, dim), "float32")
            v = T.alloc_shared((block_N, dim), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            out = T.alloc_fragment((block_M, dim), "float32")
            new_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            sums = T.alloc_fragment((block_M,), "float32")
            first = starts[bz]
            length = starts[bz + 1] - first
            for i, d in T.Parallel(block_M, dim):
                if bx * block_M + i < length:
                    q[i, d] = Q[first + bx * block_M + i, by, d]
                else:
                    q[i, d] = 0
            T.clear(out)
            T.clear(sums)
            T.fill(new_max, -T.infinity("float32"))
            for n in T.Pipelined(T.ceildiv(length, block_N), num_stages=1):
                for i, d in T.Parallel(block_N, dim):
                    if n * block_N + i < length:
                        k[i, d] = K[first + n * block_N + i, by, d]
                        v[i, d] = V[first + n * block_N + i, by, d]
                    else:
                        k[i, d] = 0
                        v[i, d] = 0
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(
                        n * block_N + j >= length, -T.infinity("float32"), 0
                    )
                T.gemm(q, k, scores, transpose_B=True)
                T.copy(new_max, old_max)
                T.reduce_max(scores, new_max, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - new_max[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_M):
                    sums[i] = sums[i] * T.exp2((old_max[i] - new_max[i]) * scale) + part[i]
                for i, d in T.Parallel(block_M, dim):
                    out[i, d] *= T.exp2((old_max[i] - new_max[i]) * scale)
                T.gemm(scores, v, out)
            for i, d in T.Parallel(block_M, dim):
                if bx * block_M + i < length:
                    O[first + bx * block_M + i, by, d] = out[i, d] / sums[i]

    return main


def varlen_inputs(rng):
    arrays = [rng.standard_normal((34, 2, 8)).astype("f4") for _ in range(3)]
    return [*arrays, np.array([0, 13, 14, 34], np.int32)]


def varlen_reference(Q, K, V, starts):
    O = np.zeros_like(Q)
    for a, b in itertools.pairwise(starts):
        for h in range(2):
            O[a:b, h] = _softmax(Q[a:b, h] @ K[a:b, h].T / 8**0.5) @ V[a:b, h]
    return [O]
