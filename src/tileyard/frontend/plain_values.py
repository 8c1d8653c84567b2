"""The values of a kernel's parameters in two forms: as the user's code has them, and plain.

Configs travel and are stored as bool, int, float and str. A dtype is its name, a member of an enum
its name, None ``"None"``, and a list, tuple or mapping of such values is its JSON text. The way
back gives the user's function what it had in its defaults, configs or space.
"""

import difflib
import enum
import json
import numbers
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from tileyard.artifacts.keys import canonical_json
from tileyard.errors import UsageError
from tileyard.ir.dtypes import DTYPES
from tileyard.model import Value
from tileyard.wording import show_value

_PLAIN = (bool, int, float, str)
_KIND_NAMES = {bool: "bool (true or false)", int: "int", float: "float", str: "str"}


def to_plain(value: object) -> Value:
    """The plain form of a value. Raises UsageError where it has none."""
    if type(value) in _PLAIN:
        return value  # type: ignore[return-value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (np.generic, np.dtype)):
        return value.name if isinstance(value, np.dtype) else to_plain(value.item())
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if value is None:
        return "None"
    if is_torch_dtype(value):
        return str(value).removeprefix("torch.")
    if isinstance(value, Sequence) and not isinstance(value, bytes):  # TVM has arrays of its own
        return canonical_json([to_plain(item) for item in value])
    if isinstance(value, Mapping):
        return canonical_json({option_name(key): to_plain(item) for key, item in value.items()})
    raise UsageError(
        f"{show_value(value)} cannot be a value of a config",
        hint="use a bool, int, float, str, dtype or member of an enum",
    )


def option_name(key: object) -> str:
    """The name of a compiler option, which TileLang also has as members of an enum of strings."""
    return str(key.value if isinstance(key, enum.Enum) else key)


def is_scalar(value: object) -> bool:
    """Whether a default is worth showing: plain, or a dtype."""
    return type(value) in _PLAIN or is_torch_dtype(value) or _is_dtype_name(value)


def is_torch_dtype(value: object) -> bool:
    """Whether a value is one of torch's dtypes; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.dtype)


class Parameter:
    """What is known of one parameter: the kinds that it takes, and values that it has had."""

    def __init__(self, name: str, kinds: frozenset[type]) -> None:
        self.name = name
        self._kinds = set(kinds)
        self._originals: dict[tuple[type, Value], object] = {}
        self._samples: list[object] = []
        self._texts: set[str] = set()

    @property
    def is_typed(self) -> bool:
        """Whether anything is known of the kinds that it takes."""
        return bool(self._kinds)

    def learn(self, value: object) -> Value:
        """Take note of a value from the user's own code. Raises UsageError, as ``to_plain``."""
        plain = to_plain(value)
        self._originals[type(plain), plain] = value
        if value is not None:
            self._kinds.add(type(plain))
            self._texts |= {plain} if isinstance(plain, str) else set()
            if type(value) not in _PLAIN:
                self._samples.append(value)
        return plain

    def restore(self, value: Value) -> object:
        """What the user's function gets for a plain value. Raises UsageError for a wrong type."""
        known = (type(value), value)
        if known in self._originals:
            return self._originals[known]
        kinds = self._kinds
        if kinds and type(value) not in kinds and not (type(value) is int and float in kinds):
            expected = " or ".join(sorted(_KIND_NAMES.get(kind, str(kind)) for kind in kinds))
            raise UsageError(
                f"{self.name}={value!r} has the wrong type: {self.name} takes {expected}"
            )
        if not isinstance(value, str):
            return value
        if self._texts and self._texts <= DTYPES.keys() and not _is_dtype(value):
            near = difflib.get_close_matches(value, DTYPES, n=1)
            raise UsageError(
                f"{self.name}={value!r} is no dtype",
                f"did you mean {near[0]}?"
                if near
                else f"{self.name} takes {min(self._texts)}, ...",
            )
        if not self._samples:
            return value
        for sample in self._samples:
            made = _make_like(sample, value)
            if made is not None:
                return made
        raise UsageError(
            f"{self.name}={value!r} is unknown",
            hint=f"{self.name} takes values such as {to_plain(self._samples[0])}",
        )


def _is_dtype_name(value: object) -> bool:
    """TileLang's dtypes are strings of a class of their own."""
    return isinstance(value, str) and not isinstance(value, enum.Enum)


def _is_dtype(name: str) -> bool:
    """Whether a dtype has this name here or, where TileLang is imported, in TVM."""
    if name in DTYPES or "tvm" not in sys.modules:
        return name in DTYPES
    try:
        sys.modules["tvm"].DataType(name)
    except (TypeError, ValueError):
        return False
    return True


def _make_like(sample: object, name: str) -> object:
    """The value called ``name`` of the sample's type; None where there is none."""
    if is_torch_dtype(sample):
        made = getattr(sys.modules["torch"], name, None)
        return made if is_torch_dtype(made) else None
    if isinstance(sample, enum.Enum):
        return type(sample).__members__.get(name)
    try:
        if _is_dtype_name(sample):
            return type(sample)(name)  # type: ignore[call-arg]
        made = json.loads(name)
    except (TypeError, ValueError):
        return None
    if isinstance(sample, tuple) and isinstance(made, list):
        return tuple(made)
    return made if isinstance(made, (list, dict)) else None
