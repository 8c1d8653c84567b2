"""Mutants of a kernel's syntax tree: each differs in one synchronization, and keeps its line numbers.

Whether a mutant can go wrong is for others to say. ``equivalent`` names those that cannot, with the reason.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

WAITS = frozenset(
    {
        "barrier_wait",
        "mbarrier_wait_parity",
        "ptx_wait_group",
        "tma_store_wait",
        "wait_wgmma",
        "sync_threads",
    }
)
ARRIVES = frozenset(
    {
        "barrier_arrive",
        "mbarrier_arrive",
        "mbarrier_expect_tx",
        "mbarrier_arrive_expect_tx",
        "named_barrier_arrive",
        "cp_async_barrier_noinc",
    }
)
COMMITS = frozenset({"ptx_commit_group", "tma_store_arrive"})
FENCES = frozenset({"fence_proxy_async"})
_ALL = WAITS | ARRIVES | COMMITS | FENCES
_PARITIES = frozenset({"barrier_wait", "mbarrier_wait_parity"})
_COUNTS = frozenset({"ptx_wait_group", "tma_store_wait", "wait_wgmma"})


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One mutant: its whole text, the line that differs, and what was done there to which statement."""

    name: str
    kernel: str
    text: str
    line: int
    operator: str
    statement: str


@dataclass(frozen=True)
class Change:
    """New text for a piece of the old one, by offsets."""

    begin: int
    end: int
    new: str


@functools.lru_cache(1)
def parse(source: str) -> ast.Module:
    """The tree of a file, of which all kernels are asked for one after another."""
    return ast.parse(source)


class KernelText:
    """A kernel's tree, and where its nodes are in the text."""

    def __init__(self, source: str, name: str) -> None:
        self.source = source
        self.name = name
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.tree = next(
            node
            for node in parse(source).body
            if isinstance(node, ast.FunctionDef) and node.name == name
        )

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Where a node begins and ends; kernels are ASCII, so bytes are characters."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.stmt | ast.expr) -> str:
        """The source of a node."""
        begin, end = self.span(node)
        return self.source[begin:end]

    def replace(self, node: ast.stmt | ast.expr, new: str) -> Change:
        """New text for a node, with as many lines as it had."""
        begin, end = self.span(node)
        missing = self.source.count("\n", begin, end) - new.count("\n")
        return Change(begin, end, new + "\n" * missing)

    def make(self, operator: str, at: ast.stmt | ast.expr, *changes: Change) -> Mutant:
        """The mutant with these changes of the statement or expression ``at``."""
        text = self.source
        for change in sorted(changes, key=lambda change: -change.begin):
            text = text[: change.begin] + change.new + text[change.end :]
        return Mutant(
            name=f"{self.name}:{at.lineno}:{at.col_offset} {operator}",
            kernel=self.name,
            text=text,
            line=at.lineno,
            operator=operator,
            statement=" ".join(self.text(at).split()),
        )

    def bodies(self) -> Iterator[list[ast.stmt]]:
        """The lists of statements of the kernel, outer ones first."""
        for node in ast.walk(self.tree):
            for field in ("body", "orelse"):
                body = getattr(node, field, None)
                if isinstance(body, list) and body:
                    yield body


def mutants(source: str, kernel: str) -> Iterator[Mutant]:
    """All mutants of one kernel of a file, which are texts of the whole file."""
    tree = KernelText(source, kernel)
    for body in tree.bodies():
        for number, stmt in enumerate(body):
            if (call := _synchronization(stmt)) is not None:
                after = body[number + 1] if number + 1 < len(body) else None
                yield from _of_statement(tree, stmt, call, after)
    yield from _stages(tree)
    yield from _sizes(tree)


def called(node: ast.AST) -> str:
    """The name of what is called as ``T.name``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr
    return ""


def _synchronization(stmt: ast.stmt) -> ast.Call | None:
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        return stmt.value if called(stmt.value) in _ALL else None
    return None


def _of_statement(
    tree: KernelText, stmt: ast.stmt, call: ast.Call, after: ast.stmt | None
) -> Iterator[Mutant]:
    yield tree.make("drop", stmt, tree.replace(stmt, "pass"))
    yield tree.make("double", stmt, tree.replace(stmt, f"{tree.text(stmt)}; {tree.text(stmt)}"))
    if after is not None:
        operator = "move" if _synchronization(after) is None else "reorder"
        begin, end = tree.span(stmt)
        next_begin, next_end = tree.span(after)
        yield tree.make(
            operator,
            stmt,
            Change(begin, end, tree.source[next_begin:next_end]),
            Change(next_begin, next_end, tree.source[begin:end]),
        )
    if called(call) in _PARITIES:
        parity = call.args[1]
        yield tree.make("flip", stmt, tree.replace(parity, f"1 - {enclosed(tree, parity)}"))
    if called(call) in _COUNTS:
        count = call.args[0]
        yield tree.make("count", stmt, tree.replace(count, f"{tree.text(count)} + 1"))


def enclosed(tree: KernelText, node: ast.expr) -> str:
    """The source of an expression in parentheses."""
    return f"({tree.text(node)})"


def _first_index(node: ast.Subscript) -> ast.expr:
    return node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice


def _staged(tree: KernelText) -> Iterator[tuple[ast.Subscript, ast.BinOp, ast.Constant]]:
    """The places at which a stage is chosen: by an index that is ``something % constant``."""
    for node in ast.walk(tree.tree):
        if isinstance(node, ast.Subscript):
            match _first_index(node):
                case ast.BinOp(op=ast.Mod(), right=ast.Constant() as size) as index:
                    yield node, index, size
                case _:
                    pass


def _stages(tree: KernelText) -> Iterator[Mutant]:
    for node, index, size in _staged(tree):
        left = enclosed(tree, index.left)
        shifted = f"({left} + 1) % {tree.text(size)}"
        yield tree.make("shift", node, tree.replace(index, shifted))


def _sizes(tree: KernelText) -> Iterator[Mutant]:
    """One version less of each buffer: with its indices as they are, and with the modulus of all of them."""
    for node in ast.walk(tree.tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        target, call = node.targets[0], node.value
        sizes = [*call.args, *(word.value for word in call.keywords)]
        if not isinstance(target, ast.Name) or not sizes:
            continue
        match called(call), sizes[0]:
            case "alloc_shared", ast.Tuple(elts=[ast.Constant(value=int(count)) as size, *_]):
                smaller = tree.replace(size, str(count - 1))
            case "alloc_barrier", ast.List(elts=[*counts]) if len(counts) > 1:
                count = len(counts)
                kept = ", ".join(tree.text(one) for one in counts[:-1])
                smaller = tree.replace(sizes[0], f"[{kept}]")
            case _:
                continue
        if count < 2:
            continue
        yield tree.make("shrink", node, smaller)
        moduli = [
            tree.replace(size, str(count - 1))
            for used, _, size in _staged(tree)
            if isinstance(used.value, ast.Name) and used.value.id == target.id
        ]
        if moduli:
            yield tree.make("shrink all", node, smaller, *moduli)


_TWICE = {
    "barrier_wait": "the phase after it does not end before this role has gone on",
    "mbarrier_wait_parity": "the phase after it does not end before this role has gone on",
    "ptx_wait_group": "nothing has been started between the two",
    "tma_store_wait": "nothing has been started between the two",
    "wait_wgmma": "nothing has been started between the two",
    "fence_proxy_async": "nothing has been written between the two",
    "ptx_commit_group": "an empty group makes the waits of these kernels cover more, never less",
}

_SINGLE = {
    (
        "attention",
        "reorder",
        "T.barrier_arrive(k_full[n % 2])",
    ): "the values' stage is released in the round before, which needs no newer keys",
    (
        "attention",
        "move",
        "T.barrier_arrive(k_free[n % 2])",
    ): "the keys are released after work on registers that needs none of them",
}
_LAST_STORE = "T.tma_store_wait(0)"
_AT_THE_END = "nothing follows that uses the tile, and stores reach their arrays"


def equivalent(mutant: Mutant) -> str:
    """Why ``mutant`` has the outcomes of its kernel and no others; empty where nobody has argued so. With the
    barriers of all threads that TileLang inserts around what waits cover, whatever a mutant does to those
    that the kernel says.
    """
    name = mutant.statement.removeprefix("T.").partition("(")[0]
    if (reason := _SINGLE.get((mutant.kernel, mutant.operator, mutant.statement))) is not None:
        return reason
    if mutant.operator == "double":
        return "nobody is missing at the second" if _is_of_all(mutant) else _TWICE.get(name, "")
    if mutant.kernel in ("stores", "stored_by_another") and mutant.statement == _LAST_STORE:
        return _AT_THE_END
    is_wait = name in ("sync_threads", "ptx_wait_group", "tma_store_wait")
    is_beside = (
        is_wait
        and mutant.operator in ("move", "reorder")
        and mutant.kernel
        in (
            "add",
            "stores",
            "epilogue",
        )
    )
    if is_beside or (mutant.operator == "drop" and _is_of_all(mutant)):
        return "TileLang inserts a barrier of all threads where accesses to a tile need one"
    if mutant.kernel in ("stores", "epilogue") and name == "fence_proxy_async":
        return "the same threads write and store: TileLang inserts the fence"
    return ""


def _is_of_all(mutant: Mutant) -> bool:
    return mutant.statement == "T.sync_threads()"


def unseen(mutant: Mutant) -> str:
    """Why a check says nothing of ``mutant``, which can go wrong; empty for others."""
    is_about_barrier = _is_of_all(mutant) or mutant.statement == "T.tma_store_wait(0, read=False)"
    is_moved = mutant.operator != "count"
    if mutant.kernel == "epilogue" and is_about_barrier and is_moved and _is_near_store(mutant):
        return (
            "threads read what another one's store has brought to an array, and the threads of a "
            "role count as one"
        )
    return ""


def _is_near_store(mutant: Mutant) -> bool:
    """Whether threads wait here for TMA stores to global memory, for which TileLang inserts nothing."""
    return any(
        "read=False" in line for line in mutant.text.splitlines()[mutant.line - 2 : mutant.line + 1]
    )
