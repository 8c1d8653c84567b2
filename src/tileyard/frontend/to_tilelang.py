"""Writes a Program as the source of a TileLang kernel: copies, barriers, roles, versions and
layouts as they are. Reading it back gives the same Program (``written_again.py`` checks). What
TileLang cannot express is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, assert_never

from tileyard.base.errors import UnsupportedError
from tileyard.base.model import Record, SourceLine, Value
from tileyard.frontend import tilelang_exprs as spell
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    AnyTileOperation,
    Arrive,
    Assert,
    Atomic,
    Await,
    Break,
    CommitGroup,
    Const,
    Copy,
    Fence,
    Fill,
    For,
    Gemm,
    If,
    InitBarrier,
    Issue,
    Let,
    Load,
    Print,
    Product,
    Program,
    Reduce,
    Region,
    Roles,
    Scalar,
    SparseGemm,
    Stmt,
    Store,
    Sync,
    Tensor,
    TileOperation,
    Unit,
    WaitBarrier,
    WaitGroup,
    While,
)
from tileyard.ir.rewrite import Names
from tileyard.ir.specs import tensors
from tileyard.ir.walk import number_statements, regions

_PAD = "    "
_ISSUED = "annotations={{{}: 1}}"
_COMMITS: dict[Unit, str] = {
    "cp_async": "ptx_commit_group",
    "tma_store": "tma_store_arrive",
    "wgmma": "warpgroup_commit_batch",
}
_WAITS: dict[Unit, str] = {
    "cp_async": "ptx_wait_group",
    "tma_store": "tma_store_wait",
    "wgmma": "wait_wgmma",
}
_ORDERS = {
    "rasterization2DRow": "row",
    "rasterization2DColumn": "column",
    "rasterization2DMLX": "mlx",
}
_FLAGS = {
    "transpose_A": "transpose_a",
    "transpose_E": "transpose_e",
    "transpose_B": "transpose_b",
    "clear_accum": "clear",
}
_POLICIES = {"square": "Square", "full_row": "FullRow", "full_col": "FullCol"}


class Written(Record):
    """A module's source with the kernel ``name``, TileLang's ``function``; statements of lines from 1."""

    source: str
    name: str
    function: str
    statements: dict[int, int]


def write_program(
    program: Program,
    pass_options: Mapping[str, Value] | None = None,
    lines: Mapping[int, SourceLine] | None = None,
    *,
    swizzle: tuple[str, int] | None = None,
) -> Written:
    """The source of ``program`` as a module for TileLang 0.1.15, to be compiled with
    ``pass_options``. ``lines`` are its statements', for messages, ``swizzle`` its order of blocks
    as TileLang's function and number. Raises UnsupportedError.
    """
    writer = _Writer(program, lines or {}, swizzle)
    return writer.module(pass_options or {})


@dataclass(frozen=True)
class _Threads:
    """The threads that run the statements being written: their number, and the first one's number."""

    count: int
    first: int


@dataclass
class _Writer:
    program: Program
    lines: Mapping[int, SourceLine]
    swizzle: tuple[str, int] | None = None
    out: list[str] = field(default_factory=list)
    statements: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.program
        arrays = (tensor.buffer for tensor in tensors(program))
        self._buffers = {buffer.name: buffer for buffer in (*arrays, *program.buffers)}
        self._numbers = {id(stmt): number for number, stmt in number_statements(program)}
        names = Names(program)
        self._thread = names.fresh("tx")
        self._main = names.fresh("main" if program.name != "main" else "main_function")
        self._module_taken = names.fresh(spell.MODULE) != spell.MODULE
        self._where: SourceLine | None = None
        count = 1
        for extent in program.threads or (128,):
            count *= extent
        self._everyone = _Threads(count, 0)
        self._running = self._everyone

    # ---- the module ---------------------------------------------------------------------------

    def module(self, options: Mapping[str, Value]) -> Written:
        program = self.program
        if self._module_taken:
            self._refuse(f"the name {spell.MODULE}")
        if not program.grid:
            self._refuse("a Program without a grid")
        outs = [
            n for n, p in enumerate(program.params) if isinstance(p, Tensor) and p.role == "out"
        ]
        given = [f"out_idx={outs}"] if outs else []
        given += [f"pass_configs={dict(options)!r}"] if options else []
        self.out = [
            "import tilelang",
            f"import tilelang.language as {spell.MODULE}",
            *(
                [
                    "",
                    *(
                        f'{d.name} = {spell.MODULE}.dynamic("{d.name}", "{d.dtype}")'
                        for d in program.dims
                    ),
                ]
                if program.dims
                else []
            ),
            "",
            "",
            f"@{spell.MODULE}.prim_func",
            f"def {self._main}(",
        ]
        try:
            self.out += [f"{_PAD}{self._param(param)}," for param in program.params]
            self.out.append("):")
            self._kernel()
        except spell.InexpressibleError as error:
            self._refuse(str(error))
        self.out += [
            "",
            "",
            f"@tilelang.jit({', '.join(given)})",
            f"def {program.name}():",
            f"{_PAD}return {self._main}",
            "",
        ]
        return Written(
            source="\n".join(self.out),
            name=program.name,
            function=self._main,
            statements=self.statements,
        )

    def _param(self, param: Tensor | Scalar) -> str:
        if isinstance(param, Scalar):
            return f"{param.var.name}: {spell.MODULE}.{param.var.dtype}"
        return f"{param.buffer.name}: {spell.parameter(param.buffer)}"

    def _kernel(self) -> None:
        program = self.program
        args = [spell.expr(axis.extent) for axis in program.grid]
        if program.threads:
            last = max((n for n, count in enumerate(program.threads) if count > 1), default=0)
            used = program.threads[: last + 1]
            args.append(f"threads={used[0] if len(used) == 1 else used}")
        names = ", ".join(axis.var.name for axis in program.grid)
        bound = names if len(program.grid) == 1 else f"({names})"
        self._line(1, f"with {spell.MODULE}.Kernel({', '.join(args)}) as {bound}:")
        if any(isinstance(stmt, Roles | Arrive) for _, stmt in number_statements(program)):
            self._line(2, f"{self._thread} = {spell.MODULE}.get_thread_binding()")
        for buffer in program.buffers:
            self._line(2, f"{buffer.name} = {spell.declaration(buffer)}")
        if self.swizzle is not None:
            function, panel = self.swizzle
            self._line(2, f'{spell.MODULE}.use_swizzle({panel}, order="{_ORDERS[function]}")')
        laid_out = [b for b in self._buffers.values() if b.layout is not None]
        if laid_out:
            self._line(2, f"{spell.MODULE}.annotate_layout(")
            self._line(3, "{")
            for b in laid_out:
                if b.layout is not None:
                    self._line(4, f"{b.name}: {spell.layout(b.layout, b)},")
            self._line(3, "}")
            self._line(2, ")")
        self._body(program.body, 2)

    # ---- statements ---------------------------------------------------------------------------

    def _line(self, depth: int, text: str, stmt: Stmt | None = None) -> None:
        self.out.append(_PAD * depth + text)
        if stmt is not None:
            self.statements[len(self.out)] = self._numbers[id(stmt)]

    def _call(self, depth: int, stmt: Stmt, name: str, *args: str) -> None:
        self._line(depth, f"{spell.MODULE}.{name}({', '.join(args)})", stmt)

    def _refuse(self, what: str, stmt: Stmt | None = None) -> NoReturn:
        """Raise UnsupportedError at the line of ``stmt``, or of the current statement."""
        where = self.lines.get(self._numbers[id(stmt)]) if stmt is not None else self._where
        place = f" at {where.file}:{where.line}" if where is not None else ""
        message = f"{what} cannot be written as TileLang{place}"
        file, line = (where.file, where.line) if where is not None else ("", 0)
        raise UnsupportedError(message, "", what, file, line)

    def _body(self, body: tuple[Stmt, ...], depth: int) -> None:
        before, at = len(self.out), 0
        while at < len(body):
            self._where = self.lines.get(self._numbers[id(body[at])])
            at += self._together(body[at:], depth) or self._alone(body[at], depth)
        if len(self.out) == before:
            self._line(depth, "pass")

    def _together(self, rest: tuple[Stmt, ...], depth: int) -> int:
        """Write the first statements of ``rest`` that form one of TileLang's; returns their number."""
        match rest:
            case (
                Arrive(barrier=full, count=0, bytes=size, after=""),
                Issue(unit="tma", body=(Copy() as copy,), barrier=place),
                *others,
            ) if full == place and size == self._bytes(copy.dst):
                emits = bool(others) and others[0] == Arrive(full)
                args = [f"barrier={spell.expr(full)}"]
                args += ['annotations={"emit_arrive": 1}'] if emits else []
                self._copy(depth, rest[1], copy, "tma_copy", *args)
                return 2 + emits
            case (
                Issue(unit="tma_store", body=(Copy() as copy,)),
                CommitGroup(unit="tma_store"),
                *_,
            ):
                self._copy(depth, rest[0], copy, "tma_copy")
                return 2
            case (
                Issue(unit="wgmma", body=(product,)),
                CommitGroup(unit="wgmma"),
                *_,
            ) if isinstance(product, Product):
                self._product(depth, rest[0], product, is_over=False)
                return 2
            case _:
                return 0

    def _alone(self, stmt: Stmt, depth: int) -> int:
        match stmt:
            case Let():
                self._line(depth, f"{stmt.var.name} = {spell.expr(stmt.value)}", stmt)
            case Store():
                place = spell.expr(Load(stmt.buffer, stmt.indices, ""))
                value = spell.expr(stmt.value)
                self._line(depth, f"{place} = {value}", stmt)
            case Atomic():
                self._atomic(stmt, depth)
            case Assert():
                said = [repr(stmt.message)] if stmt.message else []
                self._call(depth, stmt, "device_assert", spell.expr(stmt.cond), *said)
            case For():
                self._loop(stmt, depth)
            case If():
                self._branch(stmt, depth, "if")
            case While():
                self._line(depth, f"while {spell.expr(stmt.cond)}:", stmt)
                self._body(stmt.body, depth + 1)
            case Break():
                self._line(depth, "break", stmt)
            case Roles():
                self._roles(stmt, depth)
            case Print() | Await():
                self._refuse(str(stmt.__struct_config__.tag))
            case TileOperation():
                self._operation(depth, stmt)
            case Issue():
                self._issue(stmt, depth)
            case _:
                self._synchronization(stmt, depth)
        return 1

    def _region(self, box: Region) -> str:
        return spell.region(box, self._buffers[box.buffer])

    def _bytes(self, box: Region) -> int:
        size = find_dtype(self._buffers[box.buffer].dtype).bits // 8
        for extent in box.extents:
            size *= int(extent.value) if isinstance(extent, Const) else 0
        return size

    # ---- loops, branches, roles ---------------------------------------------------------------

    def _loop(self, stmt: For, depth: int, annotations: str = "") -> None:
        """Write a loop; a perfect nest of parallel loops is one loop of TileLang's."""
        nest = [stmt]
        while stmt.kind == "parallel" and len(nest[-1].body) == 1:
            inner = nest[-1].body[0]
            if not isinstance(inner, For) or inner.kind != "parallel":
                break
            nest.append(inner)
        bounds = [text for loop in nest for text in self._bounds(loop)]
        word: str = stmt.kind
        match stmt.kind:
            case "serial" | "unroll" | "vectorized":
                pass
            case "parallel":
                word = "Parallel"
            case "pipelined":
                word = "Pipelined"
                bounds.append(f"num_stages={stmt.stages}")
                rows = {"order": stmt.order, "stage": stmt.stage}
                bounds += [f"{key}={list(row)}" for key, row in rows.items() if row]
                if stmt.group:
                    self._refuse("a pipelined loop with groups")
            case "threads":
                self._refuse("what single threads do")
            case "blocks":
                self._refuse("one of several launches")
            case _:
                assert_never(stmt.kind)
        names = ", ".join(loop.var.name for loop in nest)
        bounds += [annotations] if annotations else []
        self._line(depth, f"for {names} in {spell.MODULE}.{word}({', '.join(bounds)}):", stmt)
        self._body(nest[-1].body, depth + 1)

    def _bounds(self, loop: For) -> list[str]:
        if loop.start == Const(0, loop.var.dtype):
            return [spell.expr(loop.extent)]
        if loop.kind == "parallel":
            self._refuse("a parallel loop that does not begin at 0")
        stop = spell.end_of(loop.start, loop.extent)
        return [spell.expr(loop.start), spell.expr(stop)]

    def _branch(self, stmt: If, depth: int, word: str) -> None:
        self._line(depth, f"{word} {spell.expr(stmt.cond)}:", stmt)
        self._body(stmt.then, depth + 1)
        if len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], If):
            self._branch(stmt.orelse[0], depth, "elif")
        elif stmt.orelse:
            self._line(depth, "else:")
            self._body(stmt.orelse, depth + 1)

    def _roles(self, stmt: Roles, depth: int) -> None:
        """Write one chain of branches: TileLang puts a barrier between two of them."""
        ranges = [own[0] for own in stmt.threads if len(own) == 1]
        firsts, ends = [first for first, _ in ranges], [end for _, end in ranges]
        if len(ranges) != len(stmt.bodies) or firsts != [0, *ends[:-1]]:
            self._refuse("roles whose threads are not one range after the other")
        for number, (body, (first, end)) in enumerate(zip(stmt.bodies, ranges, strict=True)):
            is_last = end == self._everyone.count and number
            word = "else:" if is_last else f"{'elif' if number else 'if'} {self._thread} < {end}:"
            self._line(depth, word, None if number else stmt)
            self._running = _Threads(end - first, first)
            registers = stmt.registers[number] if stmt.registers else 0
            if registers:
                rises = int(registers > min(filter(None, stmt.registers)))
                self._line(depth + 1, f"{spell.MODULE}.set_max_nreg({registers}, {rises})")
            self._body(body, depth + 1)
        self._running = self._everyone

    # ---- tile operations ----------------------------------------------------------------------

    def _operation(self, depth: int, stmt: AnyTileOperation) -> None:
        match stmt:
            case Copy():
                self._copy(depth, stmt, stmt, "copy")
            case Fill():
                self._call(depth, stmt, "fill", self._region(stmt.dst), spell.expr(stmt.value))
            case Gemm() | SparseGemm():
                self._product(depth, stmt, stmt, is_over=True)
            case Reduce():
                given = (f'"{stmt.kind}"', f"dim={stmt.axis}", f"clear={stmt.clear}")
                boxes = self._region(stmt.src), self._region(stmt.dst)
                self._call(depth, stmt, "reduce", *boxes, *given)
            case _:
                self._refuse(str(stmt.__struct_config__.tag))

    def _copy(self, depth: int, stmt: Stmt, copy: Copy, name: str, *args: str) -> None:
        self._call(depth, stmt, name, self._region(copy.src), self._region(copy.dst), *args)

    def _product(self, depth: int, stmt: Stmt, product: Product, *, is_over: bool) -> None:
        is_sparse = isinstance(product, SparseGemm)
        args = [self._region(box) for box in regions(product)]
        args += [f"{word}=True" for word, name in _FLAGS.items() if getattr(product, name, False)]
        if product.policy != "square":
            args.append(f"policy={spell.MODULE}.GemmWarpPolicy.{_POLICIES[product.policy]}")
        args += ["wg_wait=-1"] if is_sparse and not is_over else []
        name = "gemm_sp" if is_sparse else "gemm" if is_over else "wgmma_gemm"
        self._call(depth, stmt, name, *args)

    def _atomic(self, stmt: Atomic, depth: int) -> None:
        if stmt.var is not None:
            self._refuse("an atomic update whose old content is used")
        place = spell.expr(Load(stmt.buffer, stmt.indices, ""))
        if stmt.kind not in ("add", "max", "min", "or"):
            self._refuse(f"atomic {stmt.kind}")
        self._call(depth, stmt, f"atomic_{stmt.kind}", place, spell.expr(stmt.value))

    # ---- asynchronous operations, synchronization ---------------------------------------------

    def _issue(self, stmt: Issue, depth: int) -> None:
        match stmt:
            case Issue(unit="cp_async", body=(Copy() as copy,)):
                mark = _ISSUED.format('"no_implicit_async_commit_wait"')
                self._copy(depth, stmt, copy, "copy", mark)
            case Issue(unit="cp_async", body=(For(kind="parallel") as loop,)):
                mark = _ISSUED.format('"parallel_async_without_async_commit_wait"')
                self._loop(loop, depth, mark)
            case _:
                self._refuse(f"this operation of {stmt.unit}")

    def _synchronization(self, stmt: Stmt, depth: int) -> None:
        match stmt:
            case CommitGroup():
                self._call(depth, stmt, _COMMITS[stmt.unit])
            case WaitGroup():
                count = spell.expr(stmt.count)
                is_store = stmt.unit == "tma_store"
                args = [count, f"read={stmt.reads_only}"] if is_store else [count]
                self._call(depth, stmt, _WAITS[stmt.unit], *args)
            case InitBarrier():
                pass  # TileLang initializes barriers where they are allocated
            case Arrive():
                self._arrive(stmt, depth)
            case WaitBarrier():
                args = [spell.expr(stmt.barrier), spell.expr(stmt.parity)]
                self._call(depth, stmt, "mbarrier_wait_parity", *args)
            case Sync(given=True):
                pass  # TileLang adds it
            case Sync():
                is_own = not stmt.barrier and stmt.count == self._everyone.count
                args = [] if is_own else [str(stmt.barrier), str(stmt.count)]
                name = "sync_threads" if stmt.waits else "named_barrier_arrive"
                self._call(depth, stmt, name, *args)
            case Fence():
                self._call(depth, stmt, "fence_proxy_async")
            case _:
                self._refuse(str(stmt.__struct_config__.tag))

    def _arrive(self, stmt: Arrive, depth: int) -> None:
        """Write an arrival by all threads, or by the first one of them."""
        args = [spell.expr(stmt.barrier)]
        if stmt.after:
            name = "cp_async_barrier_noinc"
        elif stmt.bytes:
            name = "mbarrier_arrive_expect_tx" if stmt.count else "mbarrier_expect_tx"
            args.append(str(stmt.bytes))
        else:
            name = "barrier_arrive"
        by = 1 if stmt.bytes else stmt.count
        if by == self._running.count:
            self._call(depth, stmt, name, *args)
            return
        if by != 1:
            self._refuse(f"{stmt.count} arrivals by {self._running.count} threads")
        self._line(depth, f"if {self._thread} == {self._running.first}:")
        self._call(depth + 1, stmt, name, *args)
