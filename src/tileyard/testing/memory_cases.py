"""Programs with atomic updates, workspaces and views, for every target."""

from tileyard.testing.target_cases import TargetCase

MEMORY = {
    "atomic updates of arrays that blocks share": TargetCase(
        text="""
def atomics(X: int32[64], S: inout.int32[8], L: inout.int64[2],
            H: inout.float16[1], F: inout.float64[2], B: inout.uint8[3]):
    bx: grid[16]
    for i in parallel(4):
        atomic_add(S[X[bx * 4 + i] % 8], 1)
        atomic_max(L[0], int64(X[bx * 4 + i]))
        atomic_min(L[1], int64(X[bx * 4 + i]))
        atomic_add(F[i - 2], float64(X[bx * 4 + i]))
        atomic_or(B[0], uint8(1 << (X[bx * 4 + i] + 9) % 8))
        atomic_and(B[1], uint8(X[bx * 4 + i] + 200))
        atomic_xor(B[2], uint8(X[bx * 4 + i] + 9))
        atomic_max(H[0], float16(X[bx * 4 + i]))
""",
        dims={},
    ),
    "atomic updates of tiles, and the content before": TargetCase(
        text="""
def previous(X: float32[8], C: inout.int32[1], Y: out.float32[8], Z: out.float32[8], N: out.int32[8]):
    t: shared.float32[8]
    h: fragment.bfloat16[8]
    fill(t, 0.5)
    fill(h, 0.5)
    for i in serial(8):
        old = atomic_add(t[i % 4], X[i])
        Y[i] = old
        atomic_add(h[i % 3], bfloat16(X[i]))
        last = atomic_exchange(t[7], old)
        Z[i] = last + float32(h[i % 3])
        place = atomic_add(C[0], 2)
        outside = atomic_add(C[i + 1], 2)
        N[i] = place + outside
""",
        dims={},
    ),
    "what would be written beyond an array is not computed": TargetCase(
        text="""
def beyond(X: int32[m], Y: out.int32[m], Z: out.int8[m], S: inout.int32[m]):
    m: dim
    bx: grid[(m + 15) // 16]
    for i in parallel(16):
        Y[bx * 16 + i] = X[bx * 16 + i] // (3 if bx * 16 + i < m else 0)
        Z[bx * 16 + i] = int8(X[bx * 16 + i] % (3 if bx * 16 + i < m else 0))
    for j in serial(16):
        atomic_add(S[bx * 16 + j], X[bx * 16 + j] // (3 if bx * 16 + j < m else 0))
""",
        dims={"m": 37},
    ),
    "views of tiles and of arrays": TargetCase(
        text="""
def views(X: float32[m, 8], I: inout.int32[6], Y: out.float32[m, 8]):
    m: dim
    flat: memory.float32[m * 8] = X
    words: memory.uint8[24] = I
    t: shared.float32[4, 6]
    u: shared.float32[2, 12] = t
    bits: shared.int32[24] = t
    c: fragment.float32[4, 6]
    d: fragment.float32[3, 8] = c
    for i in parallel(24):
        bits[i] = reinterpret(flat[i], int32) ^ 1
    fill(Y, 0.0)
    for i1, j in parallel(2, 12):
        Y[j // 8 + i1 * 2, j % 8] = u[i1, j] + t[3, 5]
    fill(c, 0.0)
    gemm(t[:, 0 : +4], t, c)
    for i2, j2 in parallel(3, 8):
        Y[i2 + 4, j2] = d[i2, j2]
    words[5] = 7
    for i3 in parallel(5):
        bits[i3 + 1] = bits[i3] + bits[i3 + 1]
    I[2] = bits[5] + int32(words[4])
""",
        dims={"m": 9},
        rtol=1e-6,
    ),
    "a workspace that one block fills and reads": TargetCase(
        text="""
def workspace(X: float16[32], Y: out.float16[32]):
    W: memory.float16[4, 8]
    V: memory.float16[32] = W
    for i in parallel(32):
        V[i] = X[31 - i]
    for i1, j in parallel(5, 8):
        Y[i1 * 8 + j] = W[i1, j] + X[j]
""",
        dims={},
    ),
}
"""Every case, named after what it shows."""
