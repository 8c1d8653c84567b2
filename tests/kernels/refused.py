"""Kernels that cannot be lowered: operations that are not covered, and types that do not exist."""

import tilelang.language as T

import tileyard


@tileyard.kernel
def shuffled():
    @T.prim_func
    def main(X: T.Tensor((32,), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            # A value of the neighbour's.
            Y[tx] = T.shfl_xor(X[tx], 1)

    return main


@tileyard.kernel
def counted():
    @T.prim_func
    def main(X: T.Tensor((32,), "float32"), Y: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            # How many are positive.
            Y[tx] = T.syncthreads_count(X[tx] > 0)

    return main


@tileyard.kernel
def narrow():
    @T.prim_func
    def main(X: T.Tensor((32,), "float99"), Y: T.Tensor((32,), "float99")):
        with T.Kernel(1, threads=32):
            T.copy(X, Y)

    return main


@tileyard.kernel
def unknown():
    @T.prim_func
    def main(X: T.Tensor((32,), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32,), "nothing")
            T.copy(X, tile)
            T.copy(tile, Y)

    return main
