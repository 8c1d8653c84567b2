"""Two kernels that fail when they run on a GPU: one writes to address 16, one never ends."""

import tilelang.language as T

STRAY = "__device__ float faulty(float x) { *(volatile float *)16 = x; return x; }\n"
ENDLESS = """
__device__ float faulty(float x) {
  volatile float y = x;
  while (y == y || y != y) y = y + 1.0f;
  return y;
}
"""


def faulty(N, fault, block=128):
    prelude = STRAY if fault == "stray" else ENDLESS

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=block, prelude=prelude) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = T.call_extern("float32", "faulty", A[bx * block + i])

    return main
