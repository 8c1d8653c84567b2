"""Which tile operation a target that generates code takes on which scalar type: tried, one by one.

Every row is a small Program for each type. What the verifier refuses does not apply to the type, what
the generator refuses is refused. What it takes of tile operations is put into one Program for each type,
which has to give what the interpreter gives, as the cases of every target's contract do: those of
``operation_cases`` for scalar operations, others for gemms and conversions.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Literal, get_args

from tileyard.base.errors import InvalidProgramError, UnsupportedError
from tileyard.ir.dtypes import DTYPES
from tileyard.ir.nodes import AtomicKind, Program, ReduceKind
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.testing.target_cases import TargetCase

Cell = Literal["yes", "refused", ""]
Generate = Callable[[Program], object]
Table = Mapping[str, Mapping[str, Cell]]
"""For each operation a cell for each scalar type; empty where it does not apply."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Statements that read ``A`` and ``B``, 8 x 8 of the type in question, and write ``O``. ``{d}`` stands
    for the type, ``#`` for what makes names unique. Every target's contract has cases of its own for what
    ``has_cases``, of a choice of types.
    """

    body: str
    buffers: tuple[str, ...] = ()
    result: str = "{d}"
    shape: str = "8, 8"
    role: str = "out"
    has_cases: bool = False


_A, _B = "a#: shared.{d}[8, 8]", "b#: shared.{d}[8, 8]"
_ROUNDING = {"float16": 5e-3, "bfloat16": 4e-2, "float8_e4m3fn": 0.3, "float8_e5m2": 0.6}
"""What sums in another order may differ by, where they are rounded at each step."""


def _copies() -> Iterator[tuple[str, Row]]:
    yield "copy", Row(body="copy(A, a#)\ncopy(a#, O#)", buffers=(_A,))
    ragged = "copy(A[6 : +8, 6 : +8], a#)\ncopy(a#, O#[5 : +8, 5 : +8])"
    yield "copy, ragged edges", Row(body=ragged, buffers=(_A,))
    for dtype in DTYPES:
        row = Row(body="copy(A, a#)\ncopy(a#, O#)", buffers=(_A,), result=dtype, has_cases=True)
        yield f"copy into {dtype}", row
    yield "fill", Row(body="fill(a#, A[1, 1])\ncopy(a#, O#)", buffers=(_A,))


def _gemms() -> Iterator[tuple[str, Row]]:
    for result in ("float64", "float32", "float16", "bfloat16", "int64", "int32"):
        for flips in ("", ", transpose_a=True", ", transpose_b=True"):
            body = f"copy(A, a#)\ncopy(B, b#)\nfill(c#, 0)\ngemm(a#, b#, c#{flips})\ncopy(c#, O#)"
            yield (
                f"gemm into {result}{flips.replace('=True', '')}",
                Row(
                    body=body,
                    buffers=(_A, _B, f"c#: fragment.{result}[8, 8]"),
                    result=result,
                    has_cases=True,
                ),
            )


def _reductions() -> Iterator[tuple[str, Row]]:
    for kind in get_args(ReduceKind):
        for clear in (True, False):
            body = f'copy(A, a#)\nfill(r#, 1)\nreduce(a#, r#, kind="{kind}", axis=1, clear={clear})'
            yield (
                f"reduce {kind}" + ("" if clear else ", onto what is there"),
                Row(
                    body=f"{body}\ncopy(r#, O#)",
                    buffers=(_A, "r#: fragment.{d}[8]"),
                    shape="8",
                ),
            )


def _elements() -> Iterator[tuple[str, Row]]:
    for kind in get_args(AtomicKind):
        update = f"atomic_{kind}(O#[j#, 0], A[i#, j#])"
        yield (
            f"atomic {kind}",
            Row(body=f"for i#, j# in serial(8, 8):\n    {update}", role="inout"),
        )
        old = f"for i#, j# in serial(8, 8):\n    x# = {update}\n    O#[i#, 1] = x#"
        yield f"atomic {kind}, returning", Row(body=old, role="inout")
    yield (
        "elements, in parallel",
        Row(body="for i#, j# in parallel(8, 8):\n    x# = B[j#, i#]\n    O#[i#, j#] = x#"),
    )
    yield (
        "assert",
        Row(
            body="for i#, j# in serial(8, 8):\n    assert A[i#, j#] == A[i#, j#]\n    O#[i#, j#] = A[i#, j#]"
        ),
    )
    yield "print", Row(body='print("A", A[1, 1])\ncopy(A, O#)', has_cases=True)


def tile_rows() -> dict[str, Row]:
    """Every tile operation in each of its kinds, and what is done with single elements."""
    return dict([*_copies(), *_gemms(), *_reductions(), *_elements()])


def tabulate_tiles(generate: Generate, every: int) -> Table:
    """What the generator does with each tile operation, on one of so many types, in turns."""
    return {
        name: {
            dtype: _try_row(row, dtype, generate)
            for place, dtype in enumerate(DTYPES)
            if (place + number) % every == 0
        }
        for number, (name, row) in enumerate(tile_rows().items())
    }


def tile_case(dtype: str, table: Table) -> TargetCase:
    """What a generator takes of tile operations on ``dtype``, of those that were tried, in one Program."""
    rows = {
        str(number): row
        for number, (name, row) in enumerate(tile_rows().items())
        if table[name].get(dtype) == "yes" and not row.has_cases
    }
    return TargetCase(text=_spell(rows, dtype), dims={}, rtol=_ROUNDING.get(dtype, 1e-6))


def _try_row(row: Row, dtype: str, generate: Generate) -> Cell:
    try:
        return _try(read_rows({"": row}, dtype), generate)
    except InvalidProgramError:
        return ""


def _try(program: Program, generate: Generate) -> Cell:
    """Raises InvalidProgramError for what does not exist on the type."""
    verify(program)
    try:
        generate(program)
    except UnsupportedError:
        return "refused"
    return "yes"


def read_rows(rows: Mapping[str, Row], dtype: str) -> Program:
    """A Program of these rows, by the marks of their names."""
    return read_program(_spell(rows, dtype))


def _spell(rows: Mapping[str, Row], dtype: str) -> str:
    params, buffers, bodies = ["A: {d}[8, 8]", "B: {d}[8, 8]"], [], []
    for mark, row in rows.items():
        params.append(f"O{mark}: {row.role}.{row.result}[{row.shape}]")
        buffers += [buffer.replace("#", mark) for buffer in row.buffers]
        bodies.append(row.body.replace("#", mark))
    head = f"def every({', '.join(params)}):"
    lines = "\n".join(["threads(128)", *buffers, *bodies])
    return f"{head}\n{indent(dedent(lines), '    ')}\n".replace("{d}", dtype)
