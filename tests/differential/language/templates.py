"""The kernels around the operations that are tried. Imports TileLang: import this late."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tilelang
import tilelang.language as T

SIDE = 64

# TileLang rewrites a decorated function once; each call elaborates it anew.


@tilelang.jit
def element(A, B, O, body, dtype, result):
    """``O[i]`` becomes what ``body`` makes of ``A[i]`` and ``i``."""
    A: T.Tensor((SIDE,), dtype)
    O: T.Tensor((SIDE,), result)
    with T.Kernel(1, threads=128):
        for i in T.Parallel(SIDE):
            O[i] = T.cast(body(A[i], i), result)


@tilelang.jit
def elements(A, B, O, body, dtype, result):
    """``O[i]`` becomes what ``body`` makes of ``A[i]`` and ``B[i]``."""
    A: T.Tensor((SIDE,), dtype)
    B: T.Tensor((SIDE,), dtype)
    O: T.Tensor((SIDE,), result)
    with T.Kernel(1, threads=128):
        for i in T.Parallel(SIDE):
            O[i] = T.cast(body(A[i], B[i]), result)


@tilelang.jit
def tile(A, B, O, body, dtype, result):
    """``body`` acts on a tile and another one, which goes to ``O``."""
    A: T.Tensor((SIDE, SIDE), dtype)
    O: T.Tensor((SIDE, SIDE), result)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((SIDE, SIDE), dtype)
        c = T.alloc_fragment((SIDE, SIDE), result)
        T.copy(A, a)
        body(a, c)
        T.copy(c, O)


@tilelang.jit
def tiles(A, B, O, body, dtype, result):
    """``body`` acts on two tiles and a third one, which goes to ``O``."""
    A: T.Tensor((SIDE, SIDE), dtype)
    B: T.Tensor((SIDE, SIDE), dtype)
    O: T.Tensor((SIDE, SIDE), result)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((SIDE, SIDE), dtype)
        b = T.alloc_shared((SIDE, SIDE), dtype)
        c = T.alloc_fragment((SIDE, SIDE), result)
        T.copy(A, a)
        T.copy(B, b)
        body(a, b, c)
        T.copy(c, O)


@tilelang.jit
def rows(A, B, O, body, dtype, result):
    """``body`` reduces a tile to a row, which goes to ``O``."""
    A: T.Tensor((SIDE, SIDE), dtype)
    O: T.Tensor((SIDE,), result)
    with T.Kernel(1, threads=128):
        # Among local tiles TileLang needs no macro, which it would rewrite for each kernel.
        a = T.alloc_local((SIDE, SIDE), dtype)
        r = T.alloc_local((SIDE,), result)
        T.copy(A, a)
        T.clear(r)
        body(a, r)
        T.copy(r, O)


@tilelang.jit
def block(A, B, O, body, dtype, result):
    """``body`` stands alone in a kernel of one block."""
    A: T.Tensor((SIDE, SIDE), dtype)
    O: T.Tensor((SIDE, SIDE), result)
    with T.Kernel(1, threads=128):
        body(A, O)


@tilelang.jit
def function(A, B, O, body, dtype, result):
    """``body`` is the whole function, its launch included."""
    A: T.Tensor((SIDE, SIDE), dtype)
    O: T.Tensor((SIDE, SIDE), result)
    body(A, O)


@tilelang.jit
def pairs(A, B, O, body, dtype, result):
    """As ``elements``, of pairs of numbers in one word."""
    A: T.Tensor((SIDE,), getattr(T, f"{dtype}x2"))
    B: T.Tensor((SIDE,), getattr(T, f"{dtype}x2"))
    O: T.Tensor((SIDE,), getattr(T, f"{result}x2"))
    with T.Kernel(1, threads=128):
        for i in T.Parallel(SIDE):
            O[i] = body(A[i], B[i])


@tilelang.jit
def allocating(A, B, O, body, dtype, result):
    """The function allocates what it returns with ``body``."""
    A: T.Tensor((SIDE, SIDE), dtype)
    C = body((SIDE, SIDE), dtype)
    with T.Kernel(1, threads=128):
        T.copy(A, C)
    return C


@tilelang.jit
def pointers(A: T.ptr, B: T.ptr, O, body, dtype, result):
    """``body`` makes tensors of two addresses."""
    O: T.Tensor((SIDE, SIDE), result)
    with T.Kernel(1, threads=128):
        a = body(A, (SIDE, SIDE), dtype)
        b = body(B, (SIDE, SIDE), dtype)
        T.copy(a, b)
        T.copy(b, O)


@tilelang.jit
def strided(A, B, O, body, dtype, result):
    """A tensor whose rows are apart."""
    A: T.StridedTensor((SIDE, SIDE), (2 * SIDE, 1), dtype)
    O: T.Tensor((SIDE, SIDE), result)
    with T.Kernel(1, threads=128):
        body(A, O)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row: ``body`` in ``template``; ``names`` are TileLang's that it shows. ``result`` is the type of
    ``O``, that of the others by default. With ``is_typed`` there is a cell for each type. ``said`` is what a
    refusal has to name.
    """

    title: str
    names: tuple[str, ...]
    template: Any
    body: Callable[..., Any]
    result: str = ""
    is_typed: bool = True
    said: str

    def elaborate(self, dtype: str) -> Any:
        """The kernel on a scalar type; raises whatever TileLang raises."""
        known = getattr(T, dtype)
        result = getattr(T, self.result) if self.result else known
        self.template.func.set_mode("eager")
        tensors = (None,) * 3
        return self.template.func.get_tir(*tensors, body=self.body, dtype=known, result=result)


def operation(
    title: str,
    template: Any,
    body: Callable[..., Any],
    *,
    result: str = "",
    is_typed: bool = True,
    names: str = "",
    said: str = "",
) -> Operation:
    """A row called ``title``, whose first word is the operation's name unless ``names`` are given."""
    found = tuple(names.split()) or (title.partition(",")[0].split()[0],)
    return Operation(
        title=title,
        names=found,
        template=template,
        body=body,
        result=result,
        is_typed=is_typed,
        said=said or found[0],
    )
