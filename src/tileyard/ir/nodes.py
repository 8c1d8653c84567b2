"""The tile IR: the whole grammar on one page. Nodes are plain immutable data with no behaviour. A
Program is one kernel at tile level: a grid of blocks that run the same body over tile-local buffers
and global parameters. ``printer.py`` and ``reader.py`` are its text, ``verify.py`` says what is legal,
``interpret.py`` what it means.

dtypes are TVM's names: ``bool int8..int64 uint8..uint64 float16 bfloat16 float32 float64
float8_e4m3fn float8_e5m2 tfloat32``. Scopes: ``global`` (parameters, and workspaces that all blocks
of a launch share), ``shared``, ``fragment``, ``local``, and ``barrier``. Workspaces and tile-local
buffers are undefined until written.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, dataclass_transform

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
    """A scalar operation of ``meanings.py`` on ``args``, done in ``dtype``, ``bool`` for comparisons and
    logic. ``select`` and the logical ``and``/``or`` evaluate only the arguments that they need.
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
    """Where the elements of a buffer are, which changes no result. ``place`` has coordinates of the
    element at the indices ``i0``, ``i1``, ...; in a fragment among the elements of ``thread``, held
    ``copies`` times, first for ``copy`` 0. A parameter's is where TileLang looks in the caller's
    array, unless it copies it whole; here an array has rows.
    """

    place: tuple[Expr, ...]
    thread: Expr | None = None
    copies: int = 1


class Buffer(Node, tag="buffer"):
    """Named storage. ``shape`` and ``strides`` (in elements) may use dimension variables.

    ``strides`` is empty for row-major, and 0 where only the array itself has the stride; it changes
    no result. With ``view_of`` it is the storage of that buffer, no view itself: the same bytes in
    row-major order in another shape or dtype. In scope ``barrier`` it is a row of int32 barriers,
    and ``arrivals`` has how many end a phase of each. ``layout`` is the annotated one, or None.
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
    """A parameter that is an array; ``buffer.scope`` is ``global``. ``out`` is written and its old
    content never matters; ``inout`` is read and written.
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
    """Writes one element. Outside a global buffer's shape nothing is written, nor ``value`` computed."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


class Atomic(Node, tag="atomic"):
    """Updates one element with ``value``, in its buffer's dtype, as one indivisible step. ``var``,
    if any, is the old content for later statements of the body. Outside a global buffer's shape
    nothing is computed or written, and it is 0.
    """

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    kind: AtomicKind
    var: Var | None = None


class Print(Node, tag="print"):
    """Writes ``message`` as a line to standard output: values for each ``{}`` in it, the rest at its end."""

    message: str
    values: tuple[Expr, ...] = ()


class Assert(Node, tag="assert"):
    """The kernel fails with ``message`` unless ``cond`` holds."""

    cond: Expr
    message: str = ""


class For(Node, tag="for"):
    """``extent`` iterations of ``var`` from ``start``; iterations of ``parallel`` are independent.

    Those of ``threads`` are what a block's threads do side by side, here one after another; those of
    ``blocks`` are the blocks of one of several launches in a Program without a grid. ``stages`` is the
    requested depth of a ``pipelined`` loop, else 0. ``order`` and ``stage`` are the user's schedule, if any:
    for each statement of the body, as TileLang counts them, its position and by how many iterations it is
    late; ``group`` has the numbers of those scheduled together. None of these changes a result.
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
    """Bodies that run side by side, each in its own order; none is empty. ``threads`` are those of each as
    ranges ``(first, end)``, empty if unknown. Synchronously, control passes on only where one waits or has
    ended. ``registers`` are what each thread of a role requests, 0 for none: the role with the fewest gives
    up registers, the others get more. Empty if no role does. They change no result.
    """

    bodies: tuple[tuple["Stmt", ...], ...]
    threads: tuple[tuple[tuple[int, int], ...], ...] = ()
    registers: tuple[int, ...] = ()


class Await(Node, tag="await"):
    """Waits until the other roles have made ``cond`` true; the kernel fails if none ever can.
    ``message`` says for what in the user's words, as in ``for a full tile``.
    """

    cond: Expr
    message: str = ""


class TileOperation(Node):
    """Base of statements on whole regions: all that generic code knows of one.

    The last of its regions is written, the others are read; with a field ``clear`` that is not set, the old
    content of the last one takes part. Its expressions are evaluated once. All threads of a role carry it out
    together.
    """

    uses: ClassVar[Mapping[str, str]] = {}
    """By the name of a region: its use in words, if this leaves the layout of its tile to TileLang."""

    axes: ClassVar[Mapping[str, str]] = {}
    """The fields that number a dimension, each with the name of the region that has the dimension."""

    @property
    def clear(self) -> bool:
        """Whether the old content of the written region is ignored."""
        return True


class Copy(TileOperation, tag="copy"):
    """``dst = cast(src)`` in row-major order; extents of 1 are dropped before the boxes are
    matched. Outside its shape a global source reads 0, and a global destination ignores writes.
    """

    src: Region
    dst: Region


class Fill(TileOperation, tag="fill"):
    """Every element of ``dst`` becomes ``value``, converted to its dtype."""

    dst: Region
    value: Expr


_SUM = "a product is made in it"


class Gemm(TileOperation, tag="gemm"):
    """``c += op(a) @ op(b)`` over the last two dimensions, in ``c``'s dtype. ``a`` is (m, k), or
    (k, m) with ``transpose_a``; ``b`` is (k, n), or (n, k) with ``transpose_b``; ``c`` is (m, n),
    its old content ignored with ``clear``. ``policy``, how warps share ``c``, changes no result.
    """

    a: Region
    b: Region
    c: Region
    transpose_a: bool = False
    transpose_b: bool = False
    clear: bool = False
    policy: WarpPolicy = "square"

    uses = {"c": _SUM}
    sparsity: ClassVar[int] = 1


class SparseGemm(TileOperation, tag="gemm_sp"):
    """``c += op(a) @ op(b)``, where ``a`` holds only the half of its matrix that is not 0.

    Of each 4 elements in a row of the matrix ``a`` has 2, of 32-bit ones 1 of each 2: it is (m, k /
    2), or (k / 2, m) with ``transpose_a``. ``e`` has their positions, 4 bits for each 4 (2)
    elements, the first ones' lowest, in integers of any width; it is (m, ..), or (.., m) with
    ``transpose_e``. The lower 2 bits are the position of the first element, the upper 2 that of the
    second; of 32-bit elements bit 1 is. ``b``, ``c`` and ``policy`` are as in ``Gemm``.
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

    uses = {"c": _SUM, "e": "it holds the places of a sparse matrix"}
    sparsity: ClassVar[int] = 2


Product = Gemm | SparseGemm
"""Products ``c += op(a) @ op(b)``, for matrix units; of ``sparsity`` elements in a row, ``a`` holds one."""


class Reduce(TileOperation, tag="reduce"):
    """Reduces ``src`` along ``axis`` into ``dst`` (that axis dropped, or of extent 1).

    Without ``clear`` the old content of ``dst`` takes part.
    """

    src: Region
    dst: Region
    kind: ReduceKind
    axis: int
    clear: bool = True

    uses = {"src": "it is reduced", "dst": "it holds what is reduced"}
    axes = {"axis": "src"}


AnyTileOperation = Copy | Fill | Product | Reduce


# ---- asynchronous operations and synchronization: docs/design/async.md ----------------------

Unit = Literal["cp_async", "tma", "tma_store", "wgmma"]
"""Units that carry out asynchronous operations. Each but ``tma`` counts groups of its own, for each role."""


class Issue(Node, tag="issue"):
    """Starts the operations in ``body``; ``unit`` reports their end later. Conditions, indices and
    bounds are evaluated at once, elements read and written at any moment up to the wait that covers
    them. ``body`` holds copies and stores, or products for ``wgmma``, and only branches and loops
    over these. ``tma`` subtracts the bytes that it has copied from those that ``barrier`` expects.
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
    """Waits until at most ``count`` of the latest groups of ``unit`` are unfinished; what was not committed
    is in none. With ``reads_only`` it waits until sources are read, not until writes are visible.
    """

    count: Expr
    unit: Unit
    reads_only: bool = False


class InitBarrier(Synchronization, tag="init_barrier"):
    """Initializes barriers: their first phase, of parity 0, begins."""

    barriers: Region


class Arrive(Synchronization, tag="arrive"):
    """Arrives ``count`` times at a barrier, which expects ``bytes`` more of copies from now on. A
    phase ends, and the next of the other parity begins, once all arrivals and bytes have come. With
    ``after`` it arrives when everything issued to that unit is over.
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
    """``threads`` threads arrive at the barrier of this number (0: the block's), and wait until ``count``
    have. Without ``waits`` they only arrive. TileLang adds a ``given`` one; it does not exist synchronously.
    """

    threads: int
    count: int
    barrier: int = 0
    waits: bool = True
    given: bool = False


class Fence(Synchronization, tag="fence_proxy_async"):
    """Makes earlier ordinary writes of these ``threads`` visible to asynchronous operations issued later."""

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
    | AnyTileOperation
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
    """One kernel. Names of variables and buffers are unique within it. ``params`` are in calling order.
    ``dims`` are shape variables, bound from the arrays. ``grid[0]`` is ``blockIdx.x``, the fastest.
    ``threads``, the user's block size, changes no result. ``buffers`` are all but parameters.
    """

    name: str
    params: tuple[Param, ...]
    dims: tuple[Var, ...]
    grid: tuple[Axis, ...]
    threads: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
