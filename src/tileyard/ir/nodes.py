"""The tile IR: the whole grammar on one page. Nodes are plain immutable data with no behaviour.

A Program is one kernel at tile level: a grid of blocks that all run the same body over tile-local
buffers and global parameters. ``text.py`` prints and reads it, ``verify.py`` defines what is legal,
``interpret.py`` defines its meaning.

dtypes are TVM's names: ``bool int8..int64 uint8..uint64 float16 bfloat16 float32 float64
float8_e4m3fn float8_e5m2 tfloat32``. Scopes: ``global`` (parameters, and workspaces that all blocks of a launch
share), ``shared``, ``fragment``, ``local``, and ``barrier``. A workspace and a block's tile-local buffers hold
undefined values until written.
"""

from typing import Literal, dataclass_transform

import msgspec


# Tells type checkers what msgspec inherits at run time: every subclass is frozen.
@dataclass_transform(frozen_default=True)
class Node(msgspec.Struct, frozen=True):
    """Base of all nodes: compared by value, hashed by value."""


# ---- expressions: pure, each with its dtype -------------------------------------------------


class Const(Node, tag="const"):
    """A literal. ``inf`` and ``-inf`` are float values; NaN is ``Op("nan", (), dtype)``."""

    value: bool | int | float
    dtype: str


class Var(Node, tag="var"):
    """A scalar bound by the grid, a loop, a Let, a scalar parameter, or a dimension of a shape."""

    name: str
    dtype: str


class Load(Node, tag="load"):
    """One element of a buffer."""

    buffer: str
    indices: tuple["Expr", ...]
    dtype: str


class Op(Node, tag="op"):
    """A scalar operation of the table in ``ops.py``, applied to ``args``.

    Arithmetic is done in ``dtype``; comparisons and logic have dtype ``bool``. ``select`` and
    the logical ``and``/``or`` evaluate only the arguments that they need.
    """

    name: str
    args: tuple["Expr", ...]
    dtype: str


class Cast(Node, tag="cast"):
    """``value`` converted to ``dtype``: floats round to nearest even, float to int truncates."""

    value: "Expr"
    dtype: str


Expr = Const | Var | Load | Op | Cast


# ---- storage --------------------------------------------------------------------------------

Scope = Literal["global", "shared", "fragment", "local", "barrier"]
Role = Literal["in", "out", "inout"]


class Layout(Node, tag="layout"):
    """Where the elements of a buffer are, which changes no result.

    ``place`` are the coordinates of the element at the indices ``i0``, ``i1``, ...; in a fragment they are coordinates among the
    elements of ``thread``, and each element is held ``copies`` times, the first time for ``copy`` 0. A parameter's layout is where
    TileLang looks for the elements in the caller's array, unless it copies them as a whole; here an array has them in rows.
    """

    place: tuple[Expr, ...]
    thread: Expr | None = None
    copies: int = 1


class Buffer(Node, tag="buffer"):
    """Named storage. ``shape`` and ``strides`` (in elements) may use dimension variables.

    ``strides`` is empty for row-major, and 0 where only the array itself has the stride. Strides change no
    result: elements are found by their indices. With ``view_of`` it is the storage of that buffer, which is
    not a view itself: the same bytes in row-major order, read as another shape or dtype. In scope ``barrier`` it is a row of
    barriers, and ``arrivals`` has the number of arrivals that end a phase of each; their dtype is int32.
    ``layout`` is what the user asks for, None if no layout is annotated.
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    scope: Scope
    strides: tuple[Expr, ...] = ()
    view_of: str = ""
    arrivals: tuple[int, ...] = ()
    layout: Layout | None = None


class Tensor(Node, tag="tensor"):
    """A parameter that is an array; ``buffer.scope`` is ``global``.

    ``out`` is written, and its old content never matters; ``inout`` is read and written.
    """

    buffer: Buffer
    role: Role


class Scalar(Node, tag="scalar"):
    """A parameter that is one number."""

    var: Var


Param = Tensor | Scalar


class Region(Node, tag="region"):
    """A box of a buffer: ``extents`` elements from ``starts``, one pair per dimension."""

    buffer: str
    starts: tuple[Expr, ...]
    extents: tuple[Expr, ...]


# ---- statements -----------------------------------------------------------------------------

AtomicKind = Literal["add", "max", "min", "and", "or", "xor", "exchange"]
LoopKind = Literal["serial", "parallel", "unroll", "vectorized", "pipelined", "threads", "blocks"]
WarpPolicy = Literal["square", "full_row", "full_col"]
ReduceKind = Literal["sum", "max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor"]


class Let(Node, tag="let"):
    """Binds ``var`` for the statements that follow in the same body."""

    var: Var
    value: Expr


class Store(Node, tag="store"):
    """Writes one element. Outside a global buffer's shape nothing is written, and ``value`` is not computed."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


class Atomic(Node, tag="atomic"):
    """Updates one element with ``value``, in its buffer's dtype, as one indivisible step.

    ``var``, if present, is bound to the old content for the statements that follow in the
    same body. Outside a global buffer's shape nothing is computed or written, and the old content is 0.
    """

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    kind: AtomicKind
    var: Var | None = None


class Print(Node, tag="print"):
    """Writes ``message`` as one line to standard output.

    Each ``{}`` in it is replaced by one of the values; the remaining values follow.
    """

    message: str
    values: tuple[Expr, ...] = ()


class Assert(Node, tag="assert"):
    """The kernel fails with ``message`` unless ``cond`` holds."""

    cond: Expr
    message: str = ""


class For(Node, tag="for"):
    """``extent`` iterations of ``var`` from ``start``; iterations of ``parallel`` are independent.

    Those of ``threads`` are what single threads of a block do side by side, here one after another.
    Those of ``blocks`` are blocks of a launch within a Program that has no grid, because it has several.
    ``stages`` is the requested depth of a ``pipelined`` loop, else 0. ``order`` and ``stage`` are the user's schedule, if
    any: for each statement of the body, as TileLang counts them, its position among all and the number of iterations by which
    it is late. ``group`` has the numbers of statements that are scheduled together. None of these changes a result.
    """

    var: Var
    start: Expr
    extent: Expr
    kind: LoopKind
    body: tuple["Stmt", ...]
    stages: int = 0
    order: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()
    group: tuple[tuple[int, ...], ...] = ()


class If(Node, tag="if"):
    """``then`` if ``cond`` holds, else ``orelse``."""

    cond: Expr
    then: tuple["Stmt", ...]
    orelse: tuple["Stmt", ...] = ()


class While(Node, tag="while"):
    """Repeats ``body`` as long as ``cond`` holds."""

    cond: Expr
    body: tuple["Stmt", ...]


class Break(Node, tag="break"):
    """Leaves the innermost loop."""


class Roles(Node, tag="roles"):
    """Bodies that run side by side, each in its own order. None of them is empty.

    ``threads`` are the threads of each as ranges ``(first, end)``, empty if unknown. In the synchronous
    meaning, control passes from one to the next only where one has to wait or has ended. ``registers`` is the number that each
    thread of a role requests at its beginning, 0 for a role that requests none: the role with the fewest gives up registers, the
    others get more. Empty if no role requests any. They change no result.
    """

    bodies: tuple[tuple["Stmt", ...], ...]
    threads: tuple[tuple[tuple[int, int], ...], ...] = ()
    registers: tuple[int, ...] = ()


class Await(Node, tag="await"):
    """Waits until the other roles have made ``cond`` true; the kernel fails if none ever can.

    ``message`` describes what it waits for, in the user's words, as in ``for a full tile``.
    """

    cond: Expr
    message: str = ""


class TileOperation(Node):
    """Base of statements on whole regions.

    The last of its regions is written, the others are read; with a field ``clear`` that is not set, the old content of the last one takes part.
    """


class Copy(TileOperation, tag="copy"):
    """``dst = cast(src)``, element by element in row-major order.

    Extents of 1 are dropped before the two boxes are matched. A global source reads 0 outside
    its shape; a global destination ignores writes outside its shape.
    """

    src: Region
    dst: Region


class Fill(TileOperation, tag="fill"):
    """Every element of ``dst`` becomes ``value``, converted to its dtype."""

    dst: Region
    value: Expr


class Gemm(TileOperation, tag="gemm"):
    """``c += op(a) @ op(b)`` over the last two dimensions, in ``c``'s dtype.

    ``a`` is (m, k), or (k, m) with ``transpose_a``; ``b`` is (k, n), or (n, k) with
    ``transpose_b``; ``c`` is (m, n). With ``clear`` the old content of ``c`` is ignored. ``policy`` is how
    warps share ``c``, which changes no result.
    """

    a: Region
    b: Region
    c: Region
    transpose_a: bool = False
    transpose_b: bool = False
    clear: bool = False
    policy: WarpPolicy = "square"


class SparseGemm(TileOperation, tag="gemm_sp"):
    """``c += op(a) @ op(b)``, where ``a`` holds only half of its matrix: the rest is 0, and is not multiplied.

    Of each 4 elements in a row of the matrix, ``a`` has 2; of elements of 32 bits 1 of each 2. So it is (m, k / 2), or
    (k / 2, m) with ``transpose_a``. ``e`` has the positions of these elements. It holds 4 bits for each 4 (2) elements, those
    of the first ones lowest, in integers of any width; it is (m, ..), or (.., m) with ``transpose_e``. The lower 2 bits are the
    position of the first element, the upper 2 that of the second. Of 32-bit elements bit 1 is the position. ``b``, ``c`` and
    ``policy`` are as in ``Gemm``.
    """

    a: Region
    e: Region
    b: Region
    c: Region
    transpose_a: bool = False
    transpose_e: bool = False
    transpose_b: bool = False
    clear: bool = False
    policy: WarpPolicy = "square"


class Reduce(TileOperation, tag="reduce"):
    """Reduces ``src`` along ``axis`` into ``dst`` (that axis dropped, or of extent 1).

    Without ``clear`` the old content of ``dst`` takes part.
    """

    src: Region
    dst: Region
    kind: ReduceKind
    axis: int
    clear: bool = True


# ---- asynchronous operations and synchronization: docs/design/async.md ----------------------

Unit = Literal["cp_async", "tma", "tma_store", "wgmma"]
"""Units that carry out asynchronous operations. Each but ``tma`` counts groups of its own, for each role."""


class Issue(Node, tag="issue"):
    """Starts the operations in ``body``; ``unit`` reports their end later.

    Conditions, indices and bounds in ``body`` are evaluated at once. Each of its elements is read and written at any
    moment from here to the wait that covers it. ``body`` holds copies and stores, or products for ``wgmma``, and only branches
    and loops over these. ``tma`` subtracts the bytes that it has copied from those that ``barrier`` expects.
    """

    unit: Unit
    body: tuple["Stmt", ...]
    barrier: Load | None = None


class Synchronization(Node):
    """Base of statements that order the effects of others, and touch no element of a buffer themselves."""


class CommitGroup(Synchronization, tag="commit_group"):
    """Puts everything issued to ``unit`` since the previous commit into one group, which may be empty."""

    unit: Unit


class WaitGroup(Synchronization, tag="wait_group"):
    """Waits until at most ``count`` of the latest groups of ``unit`` are unfinished.

    What was issued and not committed is in no group: no wait covers it. With ``reads_only`` it waits until the operations have
    read their sources, and not until their writes are visible.
    """

    count: Expr
    unit: Unit
    reads_only: bool = False


class InitBarrier(Synchronization, tag="init_barrier"):
    """Initializes barriers: their first phase, of parity 0, begins."""

    barriers: Region


class Arrive(Synchronization, tag="arrive"):
    """Arrives ``count`` times at a barrier, which expects ``bytes`` more of copies from now on.

    A phase ends, and the next one of the other parity begins, once all required arrivals and all expected
    bytes have come. With ``after`` the arrival takes place when everything issued to that unit is over.
    """

    barrier: Load
    count: int = 1
    bytes: int = 0
    after: Literal["", "cp_async"] = ""


class WaitBarrier(Synchronization, tag="wait_barrier"):
    """Waits until the phase of ``parity`` has ended: as long as that is the parity of the current phase."""

    barrier: Load
    parity: Expr


class Sync(Synchronization, tag="sync"):
    """``threads`` threads arrive at the barrier of this number, and wait until ``count`` have arrived.

    Number 0 is the block's own. Without ``waits`` they only arrive. A ``given`` one is not in the kernel: TileLang adds it,
    and it does not exist in the synchronous meaning.
    """

    threads: int
    count: int
    barrier: int = 0
    waits: bool = True
    given: bool = False


class Fence(Synchronization, tag="fence_proxy_async"):
    """Makes earlier ordinary writes of these ``threads`` visible to asynchronous operations that are issued later."""

    threads: int


Stmt = (
    Let
    | Store
    | Atomic
    | Print
    | Assert
    | For
    | If
    | While
    | Break
    | Roles
    | Await
    | Copy
    | Fill
    | Gemm
    | SparseGemm
    | Reduce
    | Issue
    | CommitGroup
    | WaitGroup
    | InitBarrier
    | Arrive
    | WaitBarrier
    | Sync
    | Fence
)


# ---- the whole ------------------------------------------------------------------------------


class Axis(Node, tag="axis"):
    """One dimension of the grid: ``var`` runs over ``0 .. extent - 1``."""

    var: Var
    extent: Expr


class Program(Node, tag="program"):
    """One kernel. Names of variables and buffers are unique within it.

    ``params`` are in calling order. ``dims`` are the shape variables, bound from the arrays'
    shapes. ``grid[0]`` is ``blockIdx.x``, the fastest. ``threads`` is the block size of the
    user's launch; it changes no result. ``buffers`` are all non-parameter buffers.
    """

    name: str
    params: tuple[Param, ...]
    dims: tuple[Var, ...]
    grid: tuple[Axis, ...]
    threads: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
