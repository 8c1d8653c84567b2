"""Operations on tiles: moves, products, reductions, atomic updates. Imports TileLang: import this late."""

from collections.abc import Iterator
from typing import Any

import tilelang.language as T
from tests.differential.language.templates import (
    SIDE,
    Operation,
    block,
    operation,
    rows,
    tile,
    tiles,
)


@T.macro
def _through(A: Any, O: Any, first: Any, second: Any) -> None:
    """From ``A`` over two tiles to ``O``."""
    a = first((SIDE, SIDE), A.dtype)
    b = second((SIDE, SIDE), A.dtype)
    T.copy(A, a)
    T.copy(a, b)
    T.copy(b, O)


@T.macro
def _asynchronously(A: Any, O: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    T.async_copy(A, a)
    T.ptx_commit_group()
    T.ptx_wait_group(0)
    T.copy(a, O)


@T.macro
def _by_tma(A: Any, O: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    full = T.alloc_barrier(arrive_count=128)
    T.tma_copy(A, a, barrier=full)
    T.barrier_arrive(full)
    T.barrier_wait(full, 0)
    T.tma_copy(a, O)
    T.tma_store_arrive()
    T.tma_store_wait()


@T.macro
def _im2col(A: Any, O: Any, function: Any) -> None:
    image = T.view(A, (1, 8, 8, SIDE))
    columns = T.alloc_shared((SIDE, SIDE), A.dtype)
    function(image, columns, 0, 0, 3, 1, 1, 1)
    T.copy(columns, O)


def moves() -> Iterator[Operation]:
    """What moves and fills tiles."""
    ways = {
        "shared": T.alloc_shared,
        "fragment": T.alloc_fragment,
    }
    for first, one in ways.items():
        for second, other in ways.items():
            yield operation(
                f"copy, global to {first} to {second} to global",
                block,
                lambda A, O, one=one, other=other: _through(A, O, one, other),
            )
    yield operation("copy, ragged edges", block, lambda A, O: T.copy(A[3:40, 5:60], O[30:67, 9:64]))
    yield operation(
        "copy, with hints",
        block,
        lambda A, O: T.copy(
            A, O, coalesced_width=4, disable_tma=True, eviction_policy="evict_first"
        ),
        is_typed=False,
    )
    yield operation("async_copy", block, lambda A, O: _asynchronously(A, O))
    yield operation("tma_copy", block, lambda A, O: _by_tma(A, O))
    yield operation("fill", tile, lambda a, c: T.fill(c, 1))
    yield operation("clear", tile, lambda a, c: T.clear(c))
    yield operation("transpose", tile, lambda a, c: T.transpose(a, c))
    yield operation("im2col", block, lambda A, O: _im2col(A, O, T.im2col))
    yield operation("c2d_im2col", block, lambda A, O: _im2col(A, O, T.c2d_im2col))


_SUMS = ("float64", "float32", "float16", "bfloat16", "int32", "uint32", "int64")


def products() -> Iterator[Operation]:
    """Matrix products."""
    for result in _SUMS:
        yield operation(f"gemm, into {result}", tiles, T.gemm, result=result)
    for sides in ("A", "B", "A and B"):
        flips = {f"transpose_{side}": True for side in sides.split(" and ")}
        for result in ("float32", "int32"):
            yield operation(
                f"gemm, into {result}, with {sides} transposed",
                tiles,
                lambda a, b, c, flips=flips: T.gemm(a, b, c, **flips),
                result=result,
            )
    yield operation(
        "gemm, with a policy",
        tiles,
        lambda a, b, c: T.gemm(a, b, c, policy=T.GemmWarpPolicy.FullRow),
        is_typed=False,
    )
    yield operation(
        "gemm, mbar",
        tiles,
        lambda a, b, c: _signalling(a, b, c),
        is_typed=False,
        said="gemm with a barrier",
    )
    for name in ("gemm", "wgmma_gemm", "wgmma_mma"):
        for result in ("float32", "int32"):
            function = getattr(T, name)
            yield operation(
                f"{name}, into {result}, clear_accum",
                tiles,
                lambda a, b, c, function=function: function(a, b, c, clear_accum=True),
                result=result,
            )


@T.macro
def _signalling(a: Any, b: Any, c: Any) -> None:
    done = T.alloc_barrier(arrive_count=1)
    T.gemm(a, b, c, mbar=done)


@T.macro
def _reducer(A: Any, O: Any, op: Any) -> None:
    total = T.alloc_reducer((SIDE,), A.dtype, op=op)
    done = T.alloc_fragment((SIDE,), A.dtype)
    T.reducer_init(total)
    for i, j in T.Parallel(SIDE, SIDE):
        T.reducer_update(total[i], A[i, j])
    T.finalize_reducer(total, done)
    T.copy(done, O[0, :])


@T.macro
def _truth(A: Any, O: Any, function: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    T.copy(A, a)
    if function(a):
        T.copy(a, O)


def reductions() -> Iterator[Operation]:
    """Reductions and scans."""
    for kind in ("sum", "max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor"):
        function = getattr(T, f"reduce_{kind}")
        yield operation(
            f"reduce_{kind}", rows, lambda a, r, function=function: function(a, r, dim=1)
        )
        if kind != "abssum":
            yield operation(
                f"reduce_{kind}, clear=False",
                rows,
                lambda a, r, function=function: function(a, r, dim=1, clear=False),
            )
    for kind in ("max", "min", "absmax"):
        function = getattr(T, f"reduce_{kind}")
        yield operation(
            f"reduce_{kind}, nan_propagate",
            rows,
            lambda a, r, function=function: function(a, r, dim=1, nan_propagate=True),
        )
    yield operation("reduce", rows, lambda a, r: T.reduce(a, r, "sum", 1, True))
    for kind in ("sum", "max", "min", "bitand", "bitor", "bitxor"):
        yield operation(
            f"alloc_reducer, op={kind}",
            block,
            lambda A, O, kind=kind: _reducer(A, O, kind),
            names="alloc_reducer reducer_init reducer_update finalize_reducer",
        )
    for name in ("cumsum", "cummax"):
        function = getattr(T, name)
        for reverse in (False, True):
            yield operation(
                f"{name}, reverse" if reverse else name,
                tile,
                lambda a, c, function=function, reverse=reverse: function(
                    a, c, dim=1, reverse=reverse
                ),
            )
    for name in ("any_of", "all_of"):
        function = getattr(T, name)
        yield operation(
            name,
            block,
            lambda A, O, function=function: _truth(A, O, function),
        )


@T.macro
def _old(A: Any, O: Any, function: Any) -> None:
    for i in T.Parallel(SIDE):
        old = function(O[0, 0], A[i, 0], return_prev=True)
        O[i, 1] = old


@T.macro
def _each(A: Any, O: Any, function: Any) -> None:
    for i, j in T.Parallel(SIDE, SIDE):
        function(O[i, j], A[j, i])


@T.macro
def _loaded(A: Any, O: Any) -> None:
    for i, j in T.Parallel(SIDE, SIDE):
        O[i, j] = T.atomic_load(A[i, j])


@T.macro
def _by_pieces(A: Any, O: Any, function: Any, count: Any) -> None:
    for i, j in T.Parallel(SIDE, SIDE // count):
        function(O[i, j * count], A[i, j * count])


def atomics() -> Iterator[Operation]:
    """Atomic updates."""
    for name in ("add", "max", "min"):
        function = getattr(T, f"atomic_{name}")
        for title, body in (("each element", _each), ("return_prev", _old)):
            yield operation(
                f"atomic_{name}, {title}",
                block,
                lambda A, O, function=function, body=body: body(A, O, function),
            )
        yield operation(
            f"atomic_{name}, tile",
            block,
            lambda A, O, function=function: function(O, A),
        )
    for name in ("atomic_or", "atomic_store"):
        function = getattr(T, name)
        yield operation(
            name,
            block,
            lambda A, O, function=function: _each(A, O, function),
        )
    yield operation("atomic_load", block, lambda A, O: _loaded(A, O))
    for count in (2, 4):
        function = getattr(T, f"atomic_addx{count}")
        yield operation(
            f"atomic_addx{count}",
            block,
            lambda A, O, function=function, count=count: _by_pieces(A, O, function, count),
        )
