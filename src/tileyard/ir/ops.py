"""The scalar operations: which ones are legal, as a table that runs; ``meanings.py`` defines them.
Unless the table says otherwise, arguments and result have one dtype.
"""

from dataclasses import dataclass
from typing import Literal

from tileyard.ir.dtypes import DTYPES, TENSOR_FLOAT, DType
from tileyard.ir.nodes import Expr, Op

Accepts = Literal["any", "number", "float", "wide", "integer", "bits", "bool"]
Result = Literal["same", "bool", "given"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One row. ``symbol`` is the infix or prefix spelling in text; without one it is a call.
    ``accepts`` is the arguments' class of dtypes: ``number`` is any but bool, ``bits`` an integer
    or bool, ``wide`` a float of at least 32 bits. With ``condition`` the first argument is a bool.
    ``result`` is the arguments' dtype, ``bool``, or ``given``, stated by the Op.
    """

    name: str
    arity: int
    accepts: Accepts
    result: Result = "same"
    symbol: str = ""
    condition: bool = False


_INFIX: tuple[tuple[str, str, Accepts], ...] = (
    ("add", "+", "number"),
    ("sub", "-", "number"),
    ("mul", "*", "number"),
    ("div", "/", "float"),
    ("floordiv", "//", "integer"),
    ("floormod", "%", "integer"),
    ("and", "and", "bool"),
    ("or", "or", "bool"),
    ("bitand", "&", "bits"),
    ("bitor", "|", "bits"),
    ("bitxor", "^", "bits"),
    ("shl", "<<", "integer"),
    ("shr", ">>", "integer"),
)
_COMPARISONS: tuple[tuple[str, str, Accepts], ...] = (
    ("eq", "==", "any"),
    ("ne", "!=", "any"),
    ("lt", "<", "number"),
    ("le", "<=", "number"),
    ("gt", ">", "number"),
    ("ge", ">=", "number"),
)
_FUNCTIONS = [
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "round",
    "trunc",
]
"""Functions of one float."""

_ROWS = (
    Operation(name="select", arity=3, accepts="any", condition=True),
    Operation(name="pow", arity=2, accepts="float"),
    Operation(name="fmod", arity=2, accepts="float"),
    Operation(name="atan2", arity=2, accepts="float"),
    Operation(name="hypot", arity=2, accepts="float"),
    Operation(name="copysign", arity=2, accepts="float"),
    Operation(name="nextafter", arity=2, accepts="wide"),
    Operation(name="ldexp", arity=2, accepts="wide"),
    Operation(name="fma", arity=3, accepts="float"),
    Operation(name="popcount", arity=1, accepts="integer"),
    Operation(name="clz", arity=1, accepts="integer"),
    Operation(name="min", arity=2, accepts="number"),
    Operation(name="max", arity=2, accepts="number"),
    Operation(name="truncdiv", arity=2, accepts="integer"),
    Operation(name="truncmod", arity=2, accepts="integer"),
    Operation(name="abs", arity=1, accepts="number"),
    Operation(name="nan", arity=0, accepts="float", result="given"),
    Operation(name="reinterpret", arity=1, accepts="any", result="given"),
    Operation(name="neg", arity=1, accepts="number", symbol="-"),
    Operation(name="not", arity=1, accepts="bool", symbol="not"),
    Operation(name="bitnot", arity=1, accepts="bits", symbol="~"),
    *(Operation(name=n, arity=2, accepts=a, symbol=s) for n, s, a in _INFIX),
    *(Operation(name=n, arity=2, accepts=a, result="bool", symbol=s) for n, s, a in _COMPARISONS),
    *(Operation(name=n, arity=1, accepts="float") for n in _FUNCTIONS),
    *(
        Operation(name=n, arity=1, accepts="float", result="bool")
        for n in ("isnan", "isinf", "isfinite")
    ),
)

OPS = {row.name: row for row in _ROWS}
"""Every scalar operation, by name."""


_OF_TENSOR_FLOATS = frozenset(
    {
        "select",
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "abs",
        "min",
        "max",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    }
)
"""Operations defined on tensor floats: the operation on floats, rounded as in a conversion."""


_KINDS: dict[Accepts, frozenset[str]] = {
    "any": frozenset({"bool", "int", "uint", "float"}),
    "number": frozenset({"int", "uint", "float"}),
    "float": frozenset({"float"}),
    "wide": frozenset({"float"}),
    "integer": frozenset({"int", "uint"}),
    "bits": frozenset({"bool", "int", "uint"}),
    "bool": frozenset({"bool"}),
}


def _accepts(accepts: Accepts, dtype: DType) -> bool:
    is_wide = dtype.bits >= 32 or accepts != "wide"
    return is_wide and dtype.kind in _KINDS[accepts]


def explain_misuse(op: Op) -> str:
    """What is wrong by the table with ``op``, its arguments' dtypes known, in a line; empty if legal."""
    row = OPS.get(op.name)
    if row is None:
        return f"{op.name} is not a scalar operation"
    if len(op.args) != row.arity:
        return f"{op.name} takes {row.arity} arguments, not {len(op.args)}"
    operands: tuple[Expr, ...] = op.args
    if row.condition:
        if operands[0].dtype != "bool":
            return f"the condition of {op.name} is {operands[0].dtype}, not bool"
        operands = operands[1:]
    dtypes = [operand.dtype for operand in operands] or [op.dtype]
    if any(dtype != dtypes[0] for dtype in dtypes):
        return f"{op.name} has arguments of different types: {', '.join(dtypes)}"
    if TENSOR_FLOAT in (dtypes[0], op.dtype) and op.name not in _OF_TENSOR_FLOATS:
        return f"{op.name} of {TENSOR_FLOAT}, which only arithmetic, gemms and conversions take"
    if not _accepts(row.accepts, DTYPES[dtypes[0]]):
        return f"{op.name} does not take {dtypes[0]}"
    return _explain_result(op, row, dtypes[0])


def _explain_result(op: Op, row: Operation, argument: str) -> str:
    if row.result == "given":
        if op.name == "reinterpret" and DTYPES[argument].bits != DTYPES[op.dtype].bits:
            return f"reinterpret changes the width: {argument} to {op.dtype}"
        return ""
    want = "bool" if row.result == "bool" else argument
    return "" if op.dtype == want else f"{op.name} of {argument} gives {want}, not {op.dtype}"
