"""One kernel for NVIDIA's GPUs whose ``fault`` decides how its build ends."""

import functools

import tilelang.language as T

import tileyard

FAULTS = (
    "none",
    "lowering",
    "shared",
    "static",
    "threads",
    "loop",
    "condition",
    "source",
    "endless",
    "memory",
    "tables",
)

ENDLESS = """
constexpr long spin(long n) { long sum = 0; for (long i = 0; i < 200000; ++i) sum ^= i ^ n; return sum; }
template <int depth, long n> struct Endless {
  static constexpr long value =
      spin(n) ^ Endless<depth - 1, 2 * n>::value ^ Endless<depth - 1, 2 * n + 1>::value;
};
template <long n> struct Endless<0, n> { static constexpr long value = n; };
__device__ __forceinline__ float faulty(float x) { return x + Endless<60, 1>::value; }
"""
"""The compiler computes 2**60 sums, depth first, in little memory."""

SOURCE = "__device__ __forceinline__ float faulty(float x) { return x + nowhere; }\n"

MEMORY = """
__device__ const char eaten[1l << 46] = "a";
__device__ __forceinline__ float faulty(float x) { return x + eaten[(long)x]; }
"""
"""The compiler's middle writes down each of so many bytes; where it is refused them, it aborts."""

TABLES = """
struct Table { int first; char rest[1l << 46]; };
__device__ const Table eaten = {1};
__device__ __forceinline__ float faulty(float x) { return x + eaten.rest[(long)x]; }
"""
"""The assembler wants memory for all of a constant."""

PRELUDES = {"source": SOURCE, "endless": ENDLESS, "memory": MEMORY, "tables": TABLES}


@tileyard.kernel(space={"fault": FAULTS, "block": [32, 64]}, shapes={"default": {"N": 256}})
def add_one(N, fault="none", block=64):
    return BODIES[fault](N, block)


def healthy(N, block, threads=128):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1.0

    return main


def far_element(N, block):
    """TileLang lets no loop over threads read one element of a tile that is spread over threads."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + tile[3]

    return main


def much_shared(N, block):
    """More shared memory for a block than any GPU of the architecture has."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_shared((1 << 16,), "float32")
            for i in T.Parallel(block):
                tile[i * 64] = A[bx * block + i]
            for i in T.Parallel(block):
                B[bx * block + i] = tile[(block - i) * 64] + 1.0

    return main


def much_in_both(N, block):
    """Shared memory of the launch and of the function, each of which a block could have without the other."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_shared((50 << 10,), "float32")
            own = T.alloc_shared((10 << 10,), "float32", scope="shared")
            for i in T.Parallel(block):
                tile[i * 64] = A[bx * block + i]
                own[i * 64] = A[bx * block + i]
            for i in T.Parallel(block):
                B[bx * block + i] = tile[(block - i) * 64] + own[(block - i) * 64]

    return main


def in_a_loop(N, block):
    """Launches of which the host decides how many there are."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        for number in T.serial(3):
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] + number

    return main


def on_condition(N, block):
    """A launch of which the host decides whether it is made."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), n: T.int32, B: T.Tensor((N,), "float32")):
        if n > 3:
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i]

    return main


def with_source(N, block, prelude):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128, prelude=prelude) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = T.call_extern("float32", "faulty", A[bx * block + i])

    return main


BODIES = {
    "none": healthy,
    "lowering": far_element,
    "shared": much_shared,
    "static": much_in_both,
    "threads": functools.partial(healthy, threads=2048),
    "loop": in_a_loop,
    "condition": on_condition,
    **{name: functools.partial(with_source, prelude=text) for name, text in PRELUDES.items()},
}
