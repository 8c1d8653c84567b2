"""Names of data types in suites, and which types are similar."""

import re

from tileyard.ir.dtypes import DTYPES

_NAMES = {
    "half": "float16",
    "float": "float32",
    "single": "float32",
    "double": "float64",
    "int": "int32",
    "bool_": "bool",
    "boolean": "bool",
    "pred": "bool",
    "e4m3": "float8_e4m3fn",
    "e4m3fn": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn",
}
_SHORT = re.compile(r"(bf|fp|f|i|s|u|uint|int|float)(\d+)(?:_t)?")
_LONG = {"bf": "bfloat", "fp": "float", "f": "float", "i": "int", "s": "int", "u": "uint"}


def canonical_dtype(text: str) -> str:
    """The canonical name of a type: ``float16`` for ``fp16``, ``half``, ``np.float16``; empty if unknown."""
    name = text.strip().lower().rpartition(".")[2]
    name = name.removeprefix("fp8_") if name.startswith("fp8_e") else name
    name = _NAMES.get(name, name)
    short = _SHORT.fullmatch(name)
    if short is not None:
        name = _LONG.get(short[1], short[1]) + short[2]
    return name if name in DTYPES else ""


def dtype_class(text: str) -> str:
    """``float``, ``half``, ``fp8``, ``int`` or ``bool``; an unknown name is its own class."""
    name = canonical_dtype(text)
    if not name:
        return "fp8" if re.match(r"(fp|f|float)8", text.lower()) else text
    dtype = DTYPES[name]
    if dtype.is_float:
        return {8: "fp8", 16: "half"}.get(dtype.bits, "float")
    return "int" if dtype.is_integer else "bool"
