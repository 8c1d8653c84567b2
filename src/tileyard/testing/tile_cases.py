"""Programs with tile operations, loops and indices, including ragged edges, for every target."""

from tileyard.testing.target_cases import TargetCase

TILES = {
    "tensor floats in arithmetic, each result rounded": TargetCase(
        text="""
def tensor_floats(X: float32[40], Y: out.float32[40], Z: out.bool[40]):
    a: fragment.tfloat32[40]
    b: fragment.tfloat32[40]
    copy(X, a)
    for i in parallel(40):
        b[i] = a[i] * a[i] - max(a[i], -a[i]) / (a[i] + tfloat32(3.0))
    copy(b, Y)
    for i_1 in parallel(40):
        Z[i_1] = a[i_1] < b[i_1]
""",
        dims={},
    ),
    "the memory of a tile used again as another type": TargetCase(
        text="""
def again(A: float16[16, 32], C: out.float32[16, 16], D: out.float32[8, 32]):
    t: shared.float16[16, 32]
    u: shared.float16[16, 32]
    c: fragment.float32[16, 16]
    r: shared.float32[8, 32] = t
    fill(c, 0.0)
    fill(D, 0.0)
    copy(A, u)
    for k in serial(2):
        copy(A, t)
        gemm(t, u, c, transpose_b=True)
        for i, j in parallel(16, 32):
            if i < 8:
                r[i, j] = float32(A[i + 8 * k, j]) * 0.5
        for i_1, j_1 in parallel(8, 32):
            D[i_1, j_1] = D[i_1, j_1] + r[i_1, j_1]
    copy(c, C)
""",
        dims={},
        rtol=1e-5,
    ),
    "infinities, which stay where their type has them and are cut by conversions": TargetCase(
        text="""
def infinities(Y: out.float8_e5m2[4], Z: out.float8_e5m2[4], W: out.float8_e4m3fn[4]):
    t: fragment.float8_e5m2[4]
    fill(t, inf)
    t[1] = -inf
    copy(t, Y)
    fill(Z, float32(inf))
    fill(W, inf)
    Z[2] = inf
""",
        dims={},
    ),
    "ragged gemm over a grid, constant sizes": TargetCase(
        text="""
def matmul(A: float32[100, 70], B: float32[70, 90], C: out.float32[100, 90]):
    bx: grid[3]
    by: grid[4]
    threads(128)
    A_shared: shared.float32[32, 16]
    B_shared: shared.float32[16, 32]
    C_local: fragment.float32[32, 32]
    fill(C_local, 0.0)
    for k in pipelined(5, stages=3):
        copy(A[by * 32 : +32, k * 16 : +16], A_shared)
        copy(B[k * 16 : +16, bx * 32 : +32], B_shared)
        gemm(A_shared, B_shared, C_local)
    for i, j in parallel(32, 32):
        C_local[i, j] = max(C_local[i, j], 0.0)
    copy(C_local, C[by * 32 : +32, bx * 32 : +32])
""",
        dims={},
        rtol=1e-6,
    ),
    "ragged half-precision gemm over a grid, sizes bound at run time": TargetCase(
        text="""
def matmul(A: float16[m, k], B: float16[n, k], C: out.float16[m, n]):
    m: dim
    n: dim
    k: dim
    bx: grid[(n + 31) // 32]
    by: grid[(m + 31) // 32]
    A_shared: shared.float16[32, 16]
    B_shared: shared.float16[32, 16]
    C_local: fragment.float32[32, 32]
    fill(C_local, 0.0)
    for ko in pipelined((k + 15) // 16, stages=2):
        copy(A[by * 32 : +32, ko * 16 : +16], A_shared)
        copy(B[bx * 32 : +32, ko * 16 : +16], B_shared)
        gemm(A_shared, B_shared, C_local, transpose_b=True)
    copy(C_local, C[by * 32 : +32, bx * 32 : +32])
""",
        dims={"m": 45, "n": 70, "k": 37},
        rtol=1e-3,
    ),
    "a gemm over a grid whose sum has no terms": TargetCase(
        text="""
def empty(A: float32[32, 0], B: float32[0, 32], C: out.float32[32, 32]):
    bx: grid[2]
    by: grid[2]
    a: shared.float32[16, 16]
    b: shared.float32[16, 16]
    c: fragment.float32[16, 16]
    fill(c, 0.0)
    for k in pipelined(0, stages=2):
        copy(A[by * 16 : +16, k * 16 : +16], a)
        copy(B[k * 16 : +16, bx * 16 : +16], b)
        gemm(a, b, c)
    copy(c, C[by * 16 : +16, bx * 16 : +16])
""",
        dims={},
    ),
    "a gemm that never runs leaves the cleared tile cleared": TargetCase(
        text="""
def nothing(A: float32[8, 8], C: out.float32[8, 8]):
    a: shared.float32[8, 8]
    c: fragment.float32[8, 8]
    copy(A, a)
    fill(c, 0.0)
    for k in serial(0):
        gemm(a, a, c)
    copy(c, C)
""",
        dims={},
    ),
    "a tile cleared twice, with reads between": TargetCase(
        text="""
def twice(A: float32[8, 8], C: out.float32[8, 8], D: out.float32[8]):
    a: shared.float32[8, 8]
    b: shared.float32[8, 8]
    c: fragment.float32[8, 8]
    d: fragment.float32[8]
    copy(A, a)
    copy(A, b)
    for t in serial(3):
        fill(c, 0.0)
        if t == 1:
            gemm(a, b, c)
        if t == 2:
            c[3, 3] = 5.0
        reduce(c, d, kind="sum", axis=1, clear=True)
        for i in parallel(8):
            D[i] = d[i]
        copy(c, C)
        gemm(a, b, c)
""",
        dims={},
        rtol=1e-6,
    ),
    "gemms on slices, versions, and operands written element by element": TargetCase(
        text="""
def slices(A: float32[2, 16, 16], B: float32[32, 32], C: out.float32[24, 32]):
    a: shared.float32[2, 16, 16]
    b: shared.float32[32, 32]
    p: fragment.float32[8, 16]
    c: fragment.float32[24, 32]
    copy(B, b)
    for s in serial(2):
        copy(A[s, :, :], a[s, :, :])
    fill(c, 0.5)
    for i, j in parallel(8, 16):
        p[i, j] = a[0, i, j] * 2.0
    gemm(p, b[0 : +16, :], c[0 : +8, :])
    gemm(a[1, :, :], b[16 : +16, 8 : +16], c[8 : +16, 8 : +16])
    gemm(a[0, :, :], b[3 : +16, 5 : +7], c[8 : +16, 1 : +7], clear=True)
    copy(c, C)
""",
        dims={},
        rtol=1e-6,
    ),
    "gemm versions kept as the gemm reads them": TargetCase(
        text="""
def versions(A: float32[3, 20, 24], B: float32[3, 24, 40], C: out.float32[20, 40]):
    a: shared.float32[3, 20, 24]
    b: shared.float32[3, 24, 40]
    c: fragment.float32[20, 40]
    fill(c, 0.0)
    fill(a[1, :, :], 2.0)
    for s in serial(3):
        if s != 1:
            copy(A[s, :, :], a[s, :, :])
        copy(B[s, :, :], b[s, :, :])
    for s2 in serial(3):
        gemm(a[s2, :, :], b[s2, :, :], c)
    copy(c, C)
""",
        dims={},
        rtol=1e-6,
    ),
    "gemm straight from arrays, and from the array's outside": TargetCase(
        text="""
def direct(A: float32[10, 9], B: float32[9, 11], C: inout.float32[10, 11]):
    c: fragment.float32[12, 16]
    copy(C[0 : +12, 0 : +16], c)
    gemm(A[0 : +12, 0 : +12], B[0 : +12, 0 : +16], c)
    copy(c, C[0 : +12, 0 : +16])
""",
        dims={},
        rtol=1e-6,
    ),
    "copies in every direction, with boxes of other ranks": TargetCase(
        text="""
def copies(X: float32[2, 10, 3, 8], Y: out.float32[10, 8], Z: out.float32[8, 10], W: out.float32[10]):
    t: shared.float32[10, 8]
    u: fragment.float32[2, 5, 8]
    v: shared.float32[10]
    copy(X[1, 0 : +10, 2, 0 : +8], t)
    copy(t[0 : +5, :], u[1, :, :])
    copy(t[5 : +5, :], u[0, :, :])
    copy(u[0, :, :], Y[0 : +5, :])
    copy(u[1, :, :], Y[5 : +5, :])
    copy(X[0, 0 : +10, 1, 3], v)
    copy(v, W)
    for j in serial(8):
        copy(t[0 : +10, j], Z[j, 0 : +10])
""",
        dims={},
    ),
    "copies that begin before an array and end behind it": TargetCase(
        text="""
def edges(X: float16[a, b], Y: out.float32[a, b], Z: out.int32[a, b]):
    a: dim
    b: dim
    i: grid[3]
    j: grid[3]
    t: shared.float16[8, 8]
    z: shared.int32[8, 8]
    copy(X[i * 8 - 5 : +8, j * 8 - 3 : +8], t)
    copy(t, Y[i * 8 - 5 : +8, j * 8 - 3 : +8])
    copy(t, z)
    copy(z, Z[i * 8 - 5 : +8, j * 8 - 3 : +8])
""",
        dims={"a": 13, "b": 17},
    ),
    "fills that reach out of an array": TargetCase(
        text="""
def fills(s: float32, X: inout.float16[7, 9], Y: inout.int8[7]):
    fill(X[-2 : +5, 4 : +9], s)
    fill(Y[3 : +9], s)
""",
        dims={},
        scalars=(300.7,),
    ),
    "elementwise over a grid, sizes bound at run time": TargetCase(
        text="""
def add(X: float32[m, n], Y: float32[m, n], Z: out.float32[m, n]):
    m: dim
    n: dim
    bx: grid[(n + 15) // 16]
    by: grid[(m + 7) // 8]
    for i, j in parallel(8, 16):
        Z[by * 8 + i, bx * 16 + j] = X[by * 8 + i, bx * 16 + j] + Y[by * 8 + i, n - 1 - (bx * 16 + j)]
""",
        dims={"m": 19, "n": 37},
    ),
    "reads and writes outside are zero and nothing": TargetCase(
        text="""
def shift(X: int32[20], Y: inout.int32[20]):
    for i in parallel(30):
        Y[i - 5] = X[i * 2 - 20] * 10 + i
    for i2 in serial(4):
        Y[20 + i2] = 7
        Y[-1 - i2] = 7
""",
        dims={},
    ),
    "reductions straight into arrays": TargetCase(
        text="""
def straight(X: float16[6, 40], Rows: out.float16[6], Columns: out.float16[40], M: inout.int8[3, 1]):
    x: shared.float16[6, 40]
    copy(X, x)
    reduce(x, Rows, kind="sum", axis=1)
    reduce(x, Columns, kind="abssum", axis=0)
    reduce(X[0 : +3, 0 : +50], M, kind="max", axis=1, clear=False)
""",
        dims={},
        rtol=2e-3,
    ),
    "indices of every kind": TargetCase(
        text="""
def indices(I: int32[16], X: float32[16, 8], Y: out.float32[16, 8]):
    t: local.float32[16]
    for i in serial(16):
        t[i] = 0.0
    for i2, j in parallel(16, 8):
        Y[i2, j] = X[I[i2], (j * 3 - i2) % 8] if j // 3 != 1 else X[min(i2 + j, 15), 7 - j]
    for i3 in serial(16):
        row: int64 = int64(I[i3]) * 1000000007 % 16
        t[row] = t[row] + 1.0
    for i4 in parallel(16):
        Y[i4, 0] = t[i4]
""",
        dims={},
    ),
    "loops, branches and variables": TargetCase(
        text="""
def control(n: int32, X: int32[64], Y: out.int32[8]):
    acc: local.int32[1]
    acc[0] = 0
    for i in serial(64):
        if X[i] < -8:
            break
        acc[0] = acc[0] + X[i]
    Y[0] = acc[0]
    while acc[0] < 100:
        acc[0] = acc[0] * 2 + 3 if acc[0] > 0 else 1
    Y[1] = acc[0]
    for i2 in unroll(3, start=2):
        twice = i2 * n
        if twice > 6 and X[i2] != 0:
            Y[i2] = twice
        else:
            Y[i2] = -twice
    for i3 in vectorized(3):
        Y[5 + i3] = X[i3] << i3
""",
        dims={},
        scalars=(3,),
    ),
    "roles that wait for each other, one of them in a branch": TargetCase(
        text="""
def roles(A: float32[12, 16], B: out.float32[12, 16], C: out.int32[3]):
    full: shared.int32[2]
    free: shared.int32[2]
    tile: shared.float32[2, 16]
    sum: local.float32[16]
    fill(full, 0)
    fill(free, 0)
    with roles:
        with role:
            last = 0
            for k in serial(12):
                stage = k % 2
                wait((free[stage] & 1) != (k // 2 + 1) % 2, "free")
                copy(A[k, :], tile[stage, :])
                full[stage] = full[stage] + 128
            C[0] = last + full[1]
        with role:
            n = 12
            fill(sum, 0.0)
            for j in serial(n):
                if j % 3 != 1:
                    wait((full[j % 2] // 128 & 1) != j // 2 % 2, "full")
                else:
                    late = j // 2
                    wait((full[j % 2] // 128 & 1) != late % 2, "full at last")
                    C[1] = late
                for i in parallel(16):
                    sum[i] = sum[i] + tile[j % 2, i]
                copy(sum, B[j, :])
                free[j % 2] = free[j % 2] + 1
        with role:
            C[2] = 7
""",
        dims={},
    ),
    "softmax over rows of a run-time number of columns": TargetCase(
        text="""
def softmax(X: float32[m, n], Y: out.float32[m, n]):
    m: dim
    n: dim
    b: grid[(m + 3) // 4]
    x: fragment.float32[4, 64]
    top: fragment.float32[4]
    total: fragment.float32[4]
    copy(X[b * 4 : +4, 0 : +64], x)
    for i, j in parallel(4, 64):
        x[i, j] = x[i, j] if j < n else -inf
    reduce(x, top, kind="max", axis=1, clear=True)
    for i2, j2 in parallel(4, 64):
        x[i2, j2] = exp(x[i2, j2] - top[i2])
    reduce(x, total, kind="sum", axis=1, clear=True)
    for i3, j3 in parallel(4, 64):
        x[i3, j3] = x[i3, j3] / total[i3]
    copy(x, Y[b * 4 : +4, 0 : +64])
""",
        dims={"m": 10, "n": 50},
        rtol=1e-6,
    ),
}
"""Tile operations, loops and indices."""
