"""Kernels of tests/kernels with one undefined access or one missing write each: none may end as ``passed``.

``python -m tools.wrong_kernels`` runs them all. Those that the interpreter cannot tell from the right kernel
at any of three shapes do not count.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.differential.conftest import KERNELS, load_module, lower_prim_func
from tests.sync.mutants import Change, KernelText, Mutant, called, enclosed

from tileyard.base.errors import KernelFault, TileyardError
from tileyard.base.model import Value
from tileyard.frontend.discover import find_declared
from tileyard.frontend.found import lower_config
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.measure.inputs import make_inputs

__all__ = ["lower_prim_func"]

Array = NDArray[Any]
Sizes = Mapping[str, Value]
MOST = 3
"""Number of mutants of one kind of one kernel."""
KINDS = (
    "clear dropped",
    "access shifted",
    "access widened",
    "guard dropped",
    "write dropped",
    "write early",
    "iterations dependent",
    "blocks overlap",
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A right kernel: file and name, text of its reference, values of its parameters, three shapes."""

    file: str
    kernel: str
    reference: str
    base: Sizes = field(default_factory=dict)
    shapes: tuple[Sizes, ...]
    tolerance: float = 1e-4


def _sizes(*names: str) -> Callable[..., tuple[Sizes, ...]]:
    return lambda *rows: tuple(dict(zip(names, row, strict=True)) for row in rows)


_GEMM = {"block_M": 16, "block_N": 16, "block_K": 8}
_MNK = _sizes("M", "N", "K")((32, 32, 16), (21, 37, 13), (16, 48, 40))
_MN = _sizes("M", "N")((16, 32), (21, 37), (10, 48))
_N = _sizes("N")((64,), (100,), (33,))
SUBJECTS = (
    Subject(file="gemm", kernel="gemm", reference="lambda A, B: A @ B", base=_GEMM, shapes=_MNK),
    Subject(
        file="gemm",
        kernel="gemm_transposed",
        reference="lambda A, B: A.T @ B.T",
        base={**_GEMM, "transpose_A": True, "transpose_B": True, "dtype": "float32"},
        shapes=_MNK,
    ),
    Subject(
        file="elementwise",
        kernel="add",
        reference="lambda A, B: A + B",
        base={"block_M": 16, "block_N": 16},
        shapes=_MN,
    ),
    Subject(
        file="elementwise",
        kernel="gelu",
        reference="gelu_reference",
        base={"block": 32},
        shapes=_N,
    ),
    Subject(
        file="elementwise",
        kernel="collatz",
        reference="collatz_reference",
        base={"block": 16},
        shapes=_N,
    ),
    Subject(
        file="reductions",
        kernel="softmax",
        reference="softmax_reference",
        base={"block_M": 4, "block_N": 16},
        shapes=_MN,
    ),
    Subject(file="reductions", kernel="rms_norm", reference="rms_norm_reference", shapes=_MN),
    Subject(file="reductions", kernel="columns", reference="columns_reference", shapes=_MN),
    Subject(
        file="rows",
        kernel="layer_norm",
        reference="layer_norm_reference",
        shapes=_MN,
        tolerance=1e-2,
    ),
    Subject(
        file="scans",
        kernel="cumsum",
        reference="cumsum_rows_reference",
        base={"dim": 1, "reverse": False},
        shapes=_MN,
    ),
    Subject(file="scans", kernel="cummax", reference="cummax_reference", shapes=_N),
    Subject(file="scans", kernel="transpose", reference="transpose_reference", shapes=_MN),
    Subject(file="scans", kernel="folds", reference="folds_reference", shapes=_MN),
    Subject(
        file="splitting",
        kernel="split_k",
        reference="split_k_reference",
        base={"split": 2},
        shapes=_sizes("M", "N", "K")((32, 32, 32), (21, 37, 48), (16, 48, 16)),
        tolerance=1e-2,
    ),
    Subject(
        file="splitting",
        kernel="persistent",
        reference="persistent_reference",
        base={"blocks": 2},
        shapes=_MNK,
    ),
    Subject(
        file="splitting", kernel="two_launches", reference="two_launches_reference", shapes=_MN
    ),
    Subject(
        file="attention",
        kernel="attention",
        reference="lambda Q, K, V: reference(Q, K, V, True)",
        base={
            "batch": 1,
            "heads": 2,
            "is_causal": True,
            "groups": 1,
            "dtype": "float32",
            "block_M": 8,
            "block_N": 8,
            "dim": 8,
        },
        shapes=_sizes("seq_len")((16,), (20,), (13,)),
    ),
    Subject(
        file="attention_more",
        kernel="backward_sums",
        reference="backward_sums_reference",
        base={"heads": 2, "dim": 8},
        shapes=_sizes("length")((16,), (20,), (13,)),
    ),
    Subject(
        file="attention_more",
        kernel="split_decode",
        reference="split_decode_reference",
        base={"dim": 8, "splits": 4},
        shapes=_sizes("heads", "length")((6, 32), (4, 64), (3, 96)),
    ),
    Subject(
        file="linear_attention",
        kernel="decayed",
        reference="decayed_reference",
        base={"dim": 8},
        shapes=_sizes("length")((16,), (24,), (32,)),
        tolerance=1e-2,
    ),
    Subject(
        file="dynamic",
        kernel="linear",
        reference="lambda X, W, b: X @ W.T + b",
        base={"block_M": 8, "block_N": 8, "block_K": 8},
        shapes=_sizes("N", "K", "m")((16, 16, 16), (20, 12, 11), (9, 24, 8)),
    ),
    Subject(
        file="quantized",
        kernel="quantize_rows",
        reference="quantize_rows_reference",
        shapes=_MN,
        tolerance=1e-2,
    ),
    Subject(
        file="roles",
        kernel="sides",
        reference="sides_reference",
        shapes=_sizes("M", "N")((96, 40), (64, 33), (32, 16)),
    ),
    Subject(
        file="splitting",
        kernel="async_gemm",
        reference="async_gemm_reference",
        shapes=_sizes("M", "N", "K")((20, 33, 48), (32, 32, 32), (16, 48, 16)),
        tolerance=1e-2,
    ),
    Subject(file="splitting", kernel="reducers", reference="reducers_reference", shapes=_MN),
    Subject(
        file="attention_more",
        kernel="combine",
        reference="combine_reference",
        base={"splits": 4, "dim": 8},
        shapes=_sizes("heads")((6,), (4,), (3,)),
        tolerance=1e-2,
    ),
    Subject(
        file="quantized",
        kernel="int8_gemm",
        reference="int8_gemm_reference",
        shapes=_sizes("M", "N", "K")((20, 27, 40), (32, 32, 32), (16, 48, 16)),
    ),
    Subject(
        file="linear_attention",
        kernel="chunked",
        reference="chunked_reference",
        base={"heads": 2, "dim": 8},
        shapes=_sizes("length")((16,), (20,), (13,)),
        tolerance=1e-2,
    ),
)
"""Kernels whose references take any sizes, and inputs of which nothing is required."""


# ---- mutants ----------------------------------------------------------------------------------


def wrong_kernels(subject: Subject) -> list[Mutant]:
    """Up to ``MOST`` mutants of each kind, spread over the kernel."""
    source = (KERNELS / f"{subject.file}.py").read_text(encoding="utf-8")
    by_kind: defaultdict[str, dict[str, Mutant]] = defaultdict(dict)
    for one in _Mutating(KernelText(source, subject.kernel)).run():
        by_kind[one.operator].setdefault(one.text, one)
    found = []
    for kind in KINDS:
        some = list(by_kind[kind].values())
        step = max(1, len(some) / MOST)
        found += [some[int(i * step)] for i in range(min(MOST, len(some)))]
    return found


class _Mutating:
    """Walks one kernel's tree. Its tiles are what it allocates, its arrays its functions' parameters."""

    def __init__(self, kernel: KernelText) -> None:
        self._kernel = kernel
        nodes = list(ast.walk(kernel.tree))
        self._tiles = {
            node.targets[0].id
            for node in nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and called(node.value).startswith("alloc_")
        }
        inner = [node for node in nodes if isinstance(node, ast.FunctionDef)][1:]
        self._arrays = {arg.arg for function in inner for arg in function.args.args}
        self._blocks = {
            name.id
            for node in nodes
            if isinstance(node, ast.With) and called(node.items[0].context_expr) == "Kernel"
            for name in ast.walk(node.items[0].optional_vars or ast.Constant(value=0))
            if isinstance(name, ast.Name)
        }

    def run(self) -> Iterator[Mutant]:
        """All mutants."""
        for body in self._kernel.bodies():
            for number, stmt in enumerate(body):
                yield from self._statement(stmt, body[number - 1] if number else None)
        for node in ast.walk(self._kernel.tree):
            match node:
                case ast.Subscript(value=ast.Name(id=name)) if name in self._tiles:
                    last = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
                    if not isinstance(last, ast.Slice):
                        yield self._change(
                            "access shifted", node, last, f"{enclosed(self._kernel, last)} + 1"
                        )
                case ast.Call() if called(node) == "if_then_else":
                    yield self._change("guard dropped", node, node, self._kernel.text(node.args[1]))
                case _:
                    pass

    def _statement(self, stmt: ast.stmt, before: ast.stmt | None) -> Iterator[Mutant]:
        kernel = self._kernel
        match stmt:
            case ast.Expr(value=ast.Call() as call) if called(call) in ("clear", "fill"):
                yield self._change("clear dropped", stmt, stmt, "pass")
            case ast.For(iter=ast.Call() as loop) if called(loop) == "Parallel":
                if self._names(stmt) & self._tiles:
                    wider = f"{enclosed(kernel, loop.args[-1])} + 1"
                    yield self._change("access widened", stmt, loop.args[-1], wider)
                yield from self._dependent(stmt, loop)
            case ast.If(orelse=[]):
                yield self._change("guard dropped", stmt, stmt.test, "1 == 1")
            case _:
                pass
        if (write := self._written(stmt)) is not None:
            yield self._change("write dropped", stmt, stmt, "pass")
            if before is not None:
                yield kernel.make(
                    "write early",
                    stmt,
                    Change(*kernel.span(stmt), kernel.text(before)),
                    Change(*kernel.span(before), kernel.text(stmt)),
                )
            for node in ast.walk(write):
                if isinstance(node, ast.Name) and node.id in self._blocks:
                    yield self._change("blocks overlap", stmt, node, f"({node.id} // 2)")

    def _dependent(self, stmt: ast.For, loop: ast.Call) -> Iterator[Mutant]:
        """Loads of a tile that other iterations of a parallel loop write."""
        names = [one.id for one in ast.walk(stmt.target) if isinstance(one, ast.Name)]
        extents = dict(zip(names, loop.args, strict=False))
        for node in ast.walk(stmt):
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
                continue
            tile = node.targets[0].value
            for load in ast.walk(node.value):
                match load:
                    case ast.Subscript(value=ast.Name(id=name), slice=index) if (
                        isinstance(tile, ast.Name) and name == tile.id
                    ):
                        for part in ast.walk(index):
                            if isinstance(part, ast.Name) and part.id in extents:
                                size = enclosed(self._kernel, extents[part.id])
                                yield self._change(
                                    "iterations dependent",
                                    stmt,
                                    part,
                                    f"(({part.id} + 1) % {size})",
                                )
                    case _:
                        pass

    def _written(self, stmt: ast.stmt) -> ast.expr | None:
        """Where a statement writes an array, if it does."""
        match stmt:
            case ast.Expr(value=ast.Call(args=[*_, ast.expr() as into]) as call) if (
                called(call) == "copy" and self._root(into) in self._arrays
            ):
                return into
            case ast.Assign(targets=[ast.Subscript() as into]) if self._root(into) in self._arrays:
                return into
            case _:
                return None

    def _change(
        self, kind: str, at: ast.stmt | ast.expr, old: ast.stmt | ast.expr, new: str
    ) -> Mutant:
        return self._kernel.make(kind, at, self._kernel.replace(old, new))

    @staticmethod
    def _root(node: ast.expr) -> str:
        base = node.value if isinstance(node, ast.Subscript) else node
        return base.id if isinstance(base, ast.Name) else ""

    @staticmethod
    def _names(node: ast.AST) -> set[str]:
        return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


# ---- files, and what the interpreter says -------------------------------------------------------


def write_file(subject: Subject, wrong: list[Mutant], path: Path) -> None:
    """A file that declares the right kernel, and the mutants by their numbers."""
    text = (KERNELS / f"{subject.file}.py").read_text(encoding="utf-8")
    parts = ["import tileyard", text]
    names = [f"{subject.kernel}__{number}" for number in range(len(wrong))]
    for name, mutant in zip(names, wrong, strict=True):
        tree = KernelText(mutant.text, subject.kernel).tree
        first = min([tree.lineno, *(one.lineno for one in tree.decorator_list)])
        lines = mutant.text.splitlines()[first - 1 : tree.end_lineno]
        own = "\n".join(lines).replace(f"def {subject.kernel}(", f"def {name}(", 1)
        parts.append(own)
    shapes = {f"s{n}": {**subject.base, **one} for n, one in enumerate(subject.shapes)}
    right = f"{subject.kernel}__right"
    rest = f"reference={subject.reference}, shapes={shapes!r}, tolerance={(subject.tolerance,) * 2}"
    for name, function in [(right, subject.kernel), *((name, name) for name in names)]:
        parts.append(f"{name} = tileyard.kernel({function}, {rest})")
    parts.append(f"__all__ = {[right, *names]!r}")
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def tell_apart(subject: Subject, wrong: list[Mutant], path: Path) -> list[str]:
    """Why each mutant of a file does not count; empty if results differ, or the interpreter reports it."""
    module = load_module(path)
    right = [_results(module, f"{subject.kernel}__right", subject, one) for one in subject.shapes]
    reasons = []
    for number in range(len(wrong)):
        name = f"{subject.kernel}__{number}"
        found = [_results(module, name, subject, one) for one in subject.shapes]
        if all(isinstance(one, str) for one in found):
            reasons.append(f"it cannot be elaborated: {found[0]}")
        elif any(
            isinstance(one, KernelFault) or (isinstance(one, list) and not _are_equal(one, own))
            for one, own in zip(found, right, strict=True)
        ):
            reasons.append("")
        else:
            reasons.append("the same results at all shapes")
    return reasons


def _results(
    module: ModuleType, name: str, subject: Subject, shape: Sizes
) -> list[Array] | KernelFault | str:
    found = find_declared(getattr(module, name))
    try:
        made = lower_config(found, {**subject.base, **shape}, {})
        program = made.lowered.program if made.lowered is not None else made.signature
        inputs = make_inputs(tensor_specs(program, made.integers))
        scalars = [made.numbers[var.name] for var in scalar_params(program)]
        with np.errstate(all="ignore"):
            return interpret_lanes(program, inputs, scalars)
    except KernelFault as fault:
        return fault
    except TileyardError as error:
        return str(error).splitlines()[0][:100]


def _are_equal(some: Sequence[Array], others: Sequence[Array]) -> bool:
    return all(
        np.array_equal(one.view(np.uint8), other.view(np.uint8))
        for one, other in zip(some, others, strict=True)
    )
