"""The names of TIR's variables and buffers in the Program, and their lines in the user's file."""

import keyword
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import tilelang
from tilelang import ir as tl_ir
from tilelang import tvm

from tileyard.base.errors import UnsupportedError, UserCodeError
from tileyard.base.model import Diagnostic, SourceLine
from tileyard.base.wording import name_line
from tileyard.frontend.no_device import CALLED_AT
from tileyard.ir.dtypes import DTYPES
from tileyard.ir.nodes import Buffer, Const, Expr, Stmt, Var
from tileyard.ir.verify_exprs import without_ones


class Names:
    """Gives each variable and buffer a unique name that is legal in text: the user's, numbered."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    @staticmethod
    def legal(wanted: str) -> str:
        """``wanted`` made into an identifier."""
        base = re.sub(r"\W", "_", wanted) or "v"
        is_taken = base[0].isdigit() or keyword.iskeyword(base) or base == "inf"
        return f"v_{base}" if is_taken else base

    def take(self, wanted: str) -> str:
        """``wanted``, or the first free one of ``wanted_1``, ``wanted_2``, ..."""
        base = self.legal(wanted)
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


class Position:
    """One thread of a block, or all of them together. ``own`` are buffers of which each thread has
    one, with the threads' dimensions, ``extents``, before their own. ``indices`` are the thread's
    in them, empty for all together; ``values`` are the variables that differ between threads, by
    identity. If it ``is_spread``, threads divide a parallel loop among them.
    """

    def __init__(self) -> None:
        self.own: set[str] = set()
        self.extents: tuple[Const, ...] = ()
        self.indices: tuple[Expr, ...] = ()
        self.values: dict[object, Expr] = {}
        self.is_spread = False

    @property
    def is_single(self) -> bool:
        """Whether it is one thread."""
        return bool(self.indices)

    @contextmanager
    def at(self, indices: Sequence[Expr], values: dict[object, Expr]) -> Iterator[None]:
        """The context in which code is lowered for one thread."""
        before = self.indices, self.values
        self.indices, self.values = tuple(indices), values
        yield
        self.indices, self.values = before


_SCOPES: Mapping[str, str] = {
    "global": "global",
    "shared": "shared",
    "shared.dyn": "shared",
    "local.fragment": "fragment",
    "local.reducer": "fragment",
    "local": "local",
    "local.var": "local",
}

_ALLOCATORS = {
    "tmem": "alloc_tmem",
    "cluster_barrier": "alloc_cluster_barrier",
    "descriptor": "alloc_descriptor",
}
"""The functions that allocate buffers in uncovered scopes, by a word of the scope."""

_SYNONYMS = {
    "uint1": "bool",
    "custom[tfloat32]": "tfloat32",
    "float8_e4m3": "float8_e4m3fn",  # on NVIDIA's GPUs
}
"""TVM's other names of scalar types."""

_TILELANG = str(Path(tilelang.__file__).parent)


@dataclass(frozen=True, kw_only=True)
class _Inside:
    """A line of one of TileLang's macros, and whether it is the operation with the macro's name."""

    where: SourceLine
    has_namesake: bool

    def goes_on(self, after: "_Inside") -> bool:
        """Whether ``after`` can belong to the same call of the macro."""
        is_below = self.where.file == after.where.file and self.where.line < after.where.line
        return is_below and not (self.has_namesake and after.has_namesake)


class Scope:
    """Everything that a TIR node may refer to, by the identity of TVM's object.

    ``where`` is the user's line that is being lowered. ``any_dtype`` allows types that the tile IR
    lacks; ``has_threads`` if threads run a block, ``has_thread_sync`` if TileLang puts barriers
    between its statements. ``buffers`` collects all but parameters, ``layouts`` storage and its
    annotated layouts; ``depths`` are the stages of loops that a schedule names; ``reducers`` has
    each reducer's fold by name; ``in_while`` marks a loop that runs until something changes.
    ``given_up`` are asynchronous operations without a statement, ``races`` are between the threads
    of one. ``lost`` changes no result, but a GPU would behave differently without it; ``swizzle``
    is the order of blocks, as TileLang's function and number. ``imported`` is the user's CUDA text;
    ``position`` the thread being lowered. ``analyzer`` is bound to what is known of integer
    variables. ``on_load`` receives the name of each buffer that an expression reads.
    """

    def __init__(
        self, *, any_dtype: bool = False, has_threads: bool = True, has_thread_sync: bool = True
    ) -> None:
        self.names = Names()
        self._any_dtype = any_dtype
        self.has_threads = has_threads
        self.has_thread_sync = has_thread_sync
        self.where: SourceLine | None = None
        self._latest: SourceLine | None = None
        self._inside: _Inside | None = None
        self._vars: dict[object, Var] = {}
        self._buffers: dict[object, Buffer] = {}
        self._storage: dict[object, str] = {}
        self._threads: dict[object, str] = {}
        self._hoisted: list[Stmt] = []
        self._deferred: dict[object, object] = {}
        self._ready: set[object] = set()
        self._conditions = 0
        self._block: dict[str, Var] = {}
        self.analyzer = tvm.arith.Analyzer()
        self.in_while = False
        self._known: dict[str, Buffer] = {}
        self._first_versions: set[str] = set()
        self.position = Position()
        self.imported = ""
        self.given_up: list[Diagnostic] = []
        self.races: list[Diagnostic] = []
        self.lost: list[Diagnostic] = []
        self.swizzle: tuple[str, int] | None = None
        self.on_load: Callable[[str], None] = lambda _: None
        self.buffers: list[Buffer] = []
        self.layouts: list[tuple[object, object]] = []
        self.allocated: dict[str, SourceLine] = {}
        """The lines where buffers are allocated, where they are known."""
        self.variables: list[str] = []
        """The names of buffers that are ``T.alloc_var``: each thread has its own."""
        self.fragments: dict[str, Buffer] = {}
        """The fragments that are no reducers, by name."""
        self.depths: dict[str, int] = {}
        self.reducers: dict[str, str] = {}

    def refuse(self, operation: str, reason: str = "is not covered") -> NoReturn:
        """Raise UnsupportedError for ``operation`` at the line that is being lowered."""
        operation = str(operation)  # TVM has its own class of strings
        file, line = (self.where.file, self.where.line) if self.where else ("", 0)
        place = f" at {file}:{line}" if file else ""
        raise UnsupportedError(f"{operation} {reason}{place}", "", operation, file, line)

    def blame(self, said: str) -> NoReturn:
        """Raise UserCodeError for a mistake of the kernel's on the line that is being lowered."""
        file, line = (self.where.file, self.where.line) if self.where else ("", 0)
        message = f"{name_line(file, line)}: {said}" if file else said
        raise UserCodeError(message=message, summary=said, file=file, line=line)

    def give_up(self, operation: str, why: str = "by single threads") -> None:
        """Note that the Program lacks ``operation``, which changes no result if copies are over at once."""
        message = f"{operation.rsplit('.', 1)[-1]} {why} is not checked"
        self.given_up.append(Diagnostic(message=message, operation=operation, where=self.where))

    def lose(self, what: str) -> None:
        """Note that the kernel requests ``what``, and its Program does not contain it."""
        message = f"{what} is in no Program"
        self.lost.append(Diagnostic(message=message, operation=what, where=self.where))

    def note_race(self, buffer: str, why: str) -> None:
        """Note that threads change an element of ``buffer`` depending on what others do there."""
        self.races.append(Diagnostic(message=f"{buffer} {why}", operation=buffer, where=self.where))

    def require(self, holds: bool, operation: str, reason: str = "is not covered") -> None:
        """Refuse ``operation`` unless ``holds``."""
        if not holds:
            self.refuse(operation, reason)

    def enter(self, stmt: object) -> SourceLine | None:
        """Note the line of ``stmt`` if TileLang knows it; returns the previous line."""
        before = self.where
        where = _line_of(tl_ir.get_stmt_span(stmt))
        if where is not None:
            self.where = self._latest = self._users_line(where, stmt)
        return before

    @property
    def macro(self) -> str:
        """The TileLang file of the statement that was entered last; empty for the user's."""
        return "" if self._inside is None else Path(self._inside.where.file).stem

    @contextmanager
    def at_buffer(self, tir: object) -> Iterator[SourceLine | None]:
        """The context of the line that declares or allocates a buffer: that line, None if unknown."""
        before = self.where
        where = _line_of(tl_ir.get_buffer_span(tir))
        if where is not None and where.file.startswith(_TILELANG):
            where = None
        self.where = where or before
        yield where
        self.where = before

    def start(self, func: object) -> None:
        """Note the first line of ``func``."""
        self.where = self._latest = _line_of(tl_ir.get_prim_func_span(func))

    def _users_line(self, where: SourceLine, stmt: object) -> SourceLine | None:
        """``where``, or for a line of TileLang itself the user's line that called it. Expansions of
        TileLang's macros (``T.reduce_max``) have the macro's lines: if the call was not noted, it
        is the next line of the user's file with the operation's name. Increasing lines in one macro
        belong to one call, which names its operation once.
        """
        inside, self._inside = self._inside, None
        if not where.file.startswith(_TILELANG) or self._latest is None:
            return where
        own, _, caller = where.file.partition(CALLED_AT)
        where = SourceLine(file=own, line=where.line)
        value = getattr(stmt, "value", None)
        operation = str(getattr(getattr(value, "op", None), "name", "")).rsplit(".", 1)[-1]
        macro = Path(where.file).stem.removesuffix("_op")
        self._inside = _Inside(where=where, has_namesake=operation == macro)
        if caller:
            file, _, line = caller.rpartition(":")
            return SourceLine(file=file, line=int(line))
        if inside is not None and inside.goes_on(self._inside):
            return self._latest
        return find_call(self._latest, (macro, operation)) or self._latest

    def dtype(self, dtype: object, what: str) -> str:
        """The scalar type that TVM calls ``dtype``; refused if the tile IR has none."""
        name = _SYNONYMS.get(str(dtype), str(dtype))
        is_known = self._any_dtype or name in DTYPES
        return name if is_known else self.refuse(f"{name} ({what})", "is a type not covered")

    # ---- variables --------------------------------------------------------------------------

    def bind_var(self, var: object, name: str = "") -> Var:
        """Declare a scalar variable of TIR, under the user's name if that is known."""
        wanted = name or str(var.name)  # type: ignore[attr-defined]
        dtype = self.dtype(var.dtype, wanted)  # type: ignore[attr-defined]
        bound = Var(self.names.take(wanted), dtype)
        self._vars[key_of(var)] = bound
        return bound

    def bind_block(self, tag: str, var: object) -> Var:
        """Declare the variable of one dimension of the grid, under its name in the user's file."""
        names = dict(zip("xyz", name_axes(self.where), strict=False))
        self._block[tag] = self.bind_var(var, names.get(tag[-1], ""))
        return self._block[tag]

    def block_index(self) -> tuple[Expr, Expr, Expr]:
        """The indices of the block, as on a GPU."""
        x, y, z = (self._block.get(f"blockIdx.{axis}", Const(0, "int32")) for axis in "xyz")
        return x, y, z

    def bind_thread(self, var: object) -> None:
        """Note that ``var`` holds a thread's index."""
        self._threads[key_of(var)] = str(var.name)  # type: ignore[attr-defined]

    def simplify(self, expr: object) -> object:
        """``expr``, an integer, as a constant if known facts about variables prove it."""
        if type(expr).__name__ == "IntImm":
            return expr
        simple = self.analyzer.simplify(expr)
        return simple if type(simple).__name__ == "IntImm" else expr

    def defer(self, var: object, value: object, *, is_ready: bool = False) -> None:
        """Note that ``var`` is ``value`` wherever it occurs; unless it ``is_ready``, its variables
        come later.
        """
        self._deferred[key_of(var)] = value
        if is_ready:
            self._ready.add(key_of(var))

    def deferred(self, var: object) -> object | None:
        """The expression that replaces ``var``; None if it is bound in the usual way."""
        return self._deferred.get(key_of(var))

    def knows_var(self, var: object) -> bool:
        """Whether ``var`` has been declared."""
        return key_of(var) in self._vars

    def is_unbound(self, var: object) -> bool:
        """Whether neither ``var`` nor its value is known yet."""
        known = (self._vars, self._threads, self._ready, self.position.values)
        return all(key_of(var) not in names for names in known)

    def var(self, var: object) -> Expr:
        """The expression for a variable of TIR."""
        found = self.position.values.get(key_of(var))
        if found is not None:
            return found
        if key_of(var) in self._threads:
            on_cpu = "is used, but the target is a CPU and has no threads"
            reason = "is not covered" if self.has_threads else on_cpu
            self.refuse(f"thread index {self._threads[key_of(var)]}", reason)
        if key_of(var) not in self._vars:
            reason = "has no value in a call: it is no tensor's dimension, and no scalar parameter"
            self.refuse(f"variable {var}", reason)
        return self._vars[key_of(var)]

    # ---- statements before an expression ----------------------------------------------------

    def hoist(self, stmts: Sequence[Stmt], what: str, *, has_effects: bool = False) -> None:
        """Run ``stmts`` before the statement whose expressions are being lowered."""
        self.require(
            not (has_effects and self._conditions),
            what,
            "in an expression that is evaluated only sometimes is not covered",
        )
        self._hoisted += stmts

    def take_hoisted(self) -> tuple[Stmt, ...]:
        """The statements that have to run before the next statement."""
        taken, self._hoisted = tuple(self._hoisted), []
        return taken

    @contextmanager
    def conditionally(self) -> Iterator[None]:
        """The context of expressions that are not always evaluated."""
        self._conditions += 1
        yield
        self._conditions -= 1

    # ---- buffers ----------------------------------------------------------------------------

    def bind_buffer(self, tir: object, buffer: Buffer) -> None:
        """Declare a buffer of TIR."""
        self._buffers[key_of(tir)] = buffer
        self._known[buffer.name] = buffer
        self._storage[key_of(tir.data)] = buffer.name  # type: ignore[attr-defined]

    def new_buffer(self, wanted: str, dtype: str, shape: tuple[Expr, ...]) -> str:
        """Declare a block's own buffer that the user has not declared; returns its name."""
        buffer = Buffer(self.names.take(wanted), dtype, shape, "local")
        self._known[buffer.name] = buffer
        self.buffers.append(buffer)
        return buffer.name

    def named(self, buffer: str) -> Buffer:
        """The buffer of this name in the Program."""
        return self._known[buffer]

    def storage_scope(self, tir: object) -> str:
        """The tile IR's scope for a buffer of TIR."""
        scope = str(tir.scope())  # type: ignore[attr-defined]
        if scope not in _SCOPES:
            by = next((name for word, name in _ALLOCATORS.items() if word in scope), "scope")
            self.refuse(f"{by} {scope} ({tir.name})")  # type: ignore[attr-defined]
        return _SCOPES[scope]

    def known_buffer(self, tir: object) -> Buffer | None:
        """The Program's buffer for a buffer of TIR; None if it has not been declared."""
        return self._buffers.get(key_of(tir))

    def place(
        self, buffer: Buffer, indices: tuple[Expr, ...], *, is_read: bool = False
    ) -> tuple[Expr, ...]:
        """The indices of the element that TIR means: in the thread's own buffer if each thread has
        one. Every thread knows the only element of a fragment; of several it knows its own.
        """
        if buffer.name in self._first_versions:
            indices = (Const(0, "int32"), *indices)
        position = self.position
        owner = buffer.view_of or buffer.name
        self.require(
            position.is_single or owner not in position.own,
            f"register {owner}",
            "of single threads used by all of them together is not covered",
        )
        is_for_all = is_read and not without_ones(buffer.shape)
        is_shared_out = buffer.scope == "fragment" and owner not in position.own and not is_for_all
        self.require(
            not (position.is_single and is_shared_out),
            f"fragment {owner}",
            "used by single threads is not covered",
        )
        return (*position.indices, *indices) if owner in position.own else indices

    def owner(self, tir: object) -> Buffer | None:
        """The buffer whose storage ``tir``, a different buffer, reads as another shape or dtype."""
        name = self._storage.get(key_of(tir.data))  # type: ignore[attr-defined]
        return None if name is None else self._known[name]

    def bind_first_version(self, tir: object, owner: Buffer) -> Buffer:
        """Declare a buffer of TIR that is the first of the versions that TileLang's pipelining made of it."""
        view = self.bind_view(tir, owner.dtype, owner.shape, owner, f"{owner.name}_0")
        self._first_versions.add(view.name)
        return view

    def stored(self, data: object) -> str:
        """The name of the buffer whose storage a variable of TIR is; empty for none of the kernel's."""
        return self._storage.get(key_of(data), "")

    def bind_view(
        self, tir: object, dtype: str, shape: tuple[Expr, ...], owner: Buffer, name: str = ""
    ) -> Buffer:
        """Declare a buffer of TIR that is another one's storage, under its own name if none is given."""
        name = self.names.take(name or str(tir.name))  # type: ignore[attr-defined]
        view = Buffer(name, dtype, shape, owner.scope, view_of=owner.name)
        self._buffers[key_of(tir)] = self._known[name] = view
        self.buffers.append(view)
        return view


def _line_of(span: object) -> SourceLine | None:
    location = tl_ir.span_to_location(span)
    return None if location is None else SourceLine(file=str(location[0]), line=int(location[1]))


def key_of(node: object) -> object:
    """Identity of a TVM object: two references to one node are equal keys."""
    return node.__chandle__()  # type: ignore[attr-defined]


_AXES = re.compile(r"\bas\s*\(?\s*(\w+(?:\s*,\s*\w+)*)\s*,?\s*\)?\s*:")
_STACK = re.compile(r"^\s*at (.+):(\d+) in .*$", re.MULTILINE)
_LONGEST = 12
"""Largest number of lines of a launch's head."""
_REACH = 60
"""Largest number of lines between a call of one of TileLang's macros and the statement before it."""


def name_axes(where: SourceLine | None) -> tuple[str, ...]:
    """The names of the grid's dimensions in the launch on this line; empty if not found."""
    if where is None:
        return ()
    head = "".join(linecache.getlines(where.file)[where.line - 1 :][:_LONGEST])
    found = _AXES.search(head) if head.lstrip().startswith("with ") else None
    return tuple(re.split(r"\s*,\s*", found[1])) if found else ()


def split_stack(message: str) -> tuple[str, SourceLine | None]:
    """A message of ``device_assert`` without the lines that TileLang adds, and the first of these lines."""
    found = _STACK.search(message)
    said = _STACK.sub("", message).strip()
    return said, SourceLine(file=found[1], line=int(found[2])) if found else None


def find_call(after: SourceLine, words: Sequence[str]) -> SourceLine | None:
    """The next line below ``after`` that calls a function named by the first word, else by the next."""
    lines = linecache.getlines(after.file)[after.line :][:_REACH]
    for word in words:
        for number, text in enumerate(lines, after.line + 1):
            if word and f".{word}" in text:
                return SourceLine(file=after.file, line=number)
    return None
