"""One kernel whose ``fault`` decides how it ends: right, wrong, or in each way that a kernel can fail."""

import numpy as np
import tilelang.language as T

import tileyard

FAULTS = (
    "none",
    "wrong_result",
    "endless_loop",
    "stray_index",
    "segmentation_fault",
    "compile_error",
    "memory",
)


@tileyard.kernel(
    space={"fault": FAULTS, "block": [16, 32, 64, 128]},
    shapes={"default": {"N": 256}},
    reference=lambda A: A + np.float32(1),
)
def add_one(N, fault="none", block=64):
    return BODIES[fault](N, block)


def healthy(N, block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            for i in T.Parallel(block):
                tile[i] = tile[i] + 1.0
            T.copy(tile, B[bx * block])

    return main


def wrong_result(N, block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            for i in T.Parallel(block):
                tile[i] = tile[i] + 2.0
            T.copy(tile, B[bx * block])

    return main


def endless_loop(N, block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            while tile[0] > -1000000.0:
                for i in T.Parallel(block):
                    tile[i] = tile[i] * 0.5
            T.copy(tile, B[bx * block])

    return main


def stray_index(N, block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_shared((block,), "float32")
            far = T.alloc_fragment((block,), "int64")
            T.copy(A[bx * block], tile)
            for i in T.Parallel(block):
                far[i] = T.cast(tile[i], "int64") + T.int64(1 << 44)
            for i in T.serial(block):
                tile[far[i]] = 1.0
            T.copy(tile, B[bx * block])

    return main


def segmentation_fault(N, block):
    """Right by itself; ``crashing.py`` has a target that crashes on its constant."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 12345.0 - 12344.0

    return main


def compile_error(N, block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            for i in T.Parallel(block):
                tile[i] = T.call_extern("float32", "device_text_of_the_users", tile[i])
            T.copy(tile, B[bx * block])

    return main


def memory(N, block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            huge = T.alloc_shared((1 << 24, block * 64), "float32")
            for i in T.Parallel(block):
                huge[0, i] = A[bx * block + i] + 1.0
            for i in T.Parallel(block):
                B[bx * block + i] = huge[0, i]

    return main


BODIES = {
    "none": healthy,
    "wrong_result": wrong_result,
    "endless_loop": endless_loop,
    "stray_index": stray_index,
    "segmentation_fault": segmentation_fault,
    "compile_error": compile_error,
    "memory": memory,
}
