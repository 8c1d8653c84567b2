"""The text of a Program: readable, canonical, and exact: ``read_program(print_program(p)) == p``.

It is a small part of Python's syntax, so that editors colour it and a comment starts with ``#``::

    def matmul(A: float32[m, 512], B: float32[512, 256], C: out.float32[m, 256]):
        m: dim
        bx: grid[2]
        by: grid[(m + 63) // 64]
        threads(128)
        A_shared: shared.float32[64, 32]
        B_shared: shared.float32[32, 128]
        C_local: fragment.float32[64, 128]

        fill(C_local, 0.0)
        for k in pipelined(16, stages=3):
            copy(A[by * 64 : +64, k * 32 : +32], A_shared)
            copy(B[k * 32 : +32, bx * 128 : +128], B_shared)
            gemm(A_shared, B_shared, C_local)
        for i, j in parallel(64, 128):
            C_local[i, j] = max(C_local[i, j], 0.0)
        copy(C_local, C[by * 64 : +64, bx * 128 : +128])

- Parameters are in the head: ``float32[m, 8]`` is an array that is read, ``out.`` and
  ``inout.`` one that is written, ``float32[m, 8] @ (s, 1)`` one with strides, and plain ``int32``
  a number. Then come the names of the shapes' variables (``dim``), the grid with ``blockIdx.x``
  first, the threads asked for, and the buffers (``shared``, ``fragment``, ``local``; ``memory`` for
  a workspace of all blocks; ``B: shared.int32[8] = A`` is ``A`` as another shape or dtype,
  ``T: shared.int32[8, 8] = layout(i0, i1 ^ i0)`` does not have its elements in rows, a fragment's
  layout also has each element's ``thread=`` and ``copies=``, and ``A = layout(i1, i0)`` is a
  parameter's); then the statements.
- A region is ``A[start : +extent, :, index]``: ``:`` is a whole dimension and a lone index has
  extent 1. A buffer's name alone is all of it.
- ``x = e`` binds, ``x[i, j] = e`` stores. Loops run over ``serial``, ``parallel``, ``unroll``,
  ``vectorized``, ``pipelined`` or ``blocks`` ``(extent, start=0, dtype=int32, stages=0)``;
  a pipelined one may have a schedule, ``order=(1, 0), stage=(0, 1), group=((0,), (1,))``.
- Tile operations are calls: first the regions and values, then the other fields by keyword.
- ``atomic_add(C[i], e)`` updates an element atomically, ``x = atomic_add(C[i], e)`` binds
  its old content too. ``print("x", e)`` writes a line, ``assert e, "why"`` ends the kernel if it fails.
- ``with roles:`` holds a ``with role(first, end):`` for each body that runs beside the others, with
  its range of threads; ``wait(e)`` passes control to them until ``e`` holds.
  ``role(first, end, registers=24)`` requests 24 registers.
- ``full: barrier[128, 1]`` declares two barriers: 128 arrivals end a phase of the first, one of
  the second. ``with issue("tma", full[0]):`` starts the operations in it. docs/design/async.md has
  all statements of this kind.
- ``float16(x)`` converts. ``a if c else b`` is ``select``. Operations without a symbol are calls.
- A number takes the type of its neighbour, of the element that it is stored to, or else
  ``int32`` or ``float32``. ``float16(0.5)`` states another type, and ``cast(1, float32)`` is a
  conversion of a number. Variables of the grid, of dims and of loops are ``int32`` unless declared as
  ``grid.int64[n]``, ``dim.int64``, ``serial(n, dtype=int64)``; ``x: int64 = e`` states the type of a
  binding that differs from its value's.
- ``typed(e, int64)`` states a type that breaks these rules; only Programs that are invalid need it.
"""

from tileyard.ir.printer import print_expr, print_program, print_statement
from tileyard.ir.reader import read_program

__all__ = ["print_expr", "print_program", "print_statement", "read_program"]
