"""The parameters of one kernel: names, defaults, and values as in the user's code and plain. Configs are
stored as bool, int, float and str: a dtype or enum member as its name, None as ``"None"``, a list, tuple or
mapping as its JSON text. Originals come from the defaults, configs or space.
"""

import difflib
import enum
import json
import numbers
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.model import Value, Values, sequence_of, shorten_span
from tileyard.base.wording import show_value
from tileyard.frontend.declare import PIPELINE, When
from tileyard.frontend.recipes import Recipe, is_instance_of, kinds_of, named_parameters
from tileyard.ir.dtypes import DTYPES

_PLAIN = (bool, int, float, str)
_KIND_NAMES = {bool: "bool (true or false)", int: "int", float: "float", str: "str"}


def to_plain(value: object) -> Value:
    """The plain form of a value. Raises UsageError if it has none."""
    match value:
        case _ if type(value) in _PLAIN:
            return value  # type: ignore[return-value]
        case enum.Enum():
            return value.name
        case _ if is_instance_of(value, "numpy", "dtype"):
            return str(value.name)  # type: ignore[attr-defined]
        case _ if is_instance_of(value, "numpy", "generic"):
            return to_plain(value.item())  # type: ignore[attr-defined]
        case numbers.Integral():
            return int(value)
        case str():
            return str(value)
        case None:
            return "None"
        case _ if is_torch_dtype(value):
            return str(value).removeprefix("torch.")
        case Sequence() if not isinstance(value, bytes):  # TVM has its own arrays
            return canonical_json([to_plain(item) for item in value])
        case Mapping():
            return canonical_json({option_name(key): to_plain(item) for key, item in value.items()})
        case _:
            raise UsageError(
                f"{show_value(value)} cannot be a value of a config",
                hint="use a bool, int, float, str, dtype or member of an enum",
            )


def option_name(key: object) -> str:
    """The name of a compiler option; TileLang also has options as members of an enum of strings."""
    return str(key.value if isinstance(key, enum.Enum) else key)


def is_scalar(value: object) -> bool:
    """Whether a default is worth showing: plain, or a dtype."""
    return type(value) in _PLAIN or is_torch_dtype(value) or _is_dtype_name(value)


def is_torch_dtype(value: object) -> bool:
    """Whether a value is one of torch's dtypes; this does not import torch."""
    return is_instance_of(value, "torch", "dtype")


class Parameter:
    """What is known of one parameter: the ``kinds`` that it accepts, and its previous values."""

    def __init__(self, name: str, kinds: frozenset[type]) -> None:
        self.name = name
        self.kinds = set(kinds)
        self._originals: dict[tuple[type, Value], object] = {}
        self._samples: list[object] = []
        self._texts: set[str] = set()

    def learn(self, value: object) -> Value:
        """Record a value from the user's own code. Raises UsageError, as ``to_plain``."""
        plain = to_plain(value)
        self._originals[type(plain), plain] = value
        if value is not None:
            self.kinds.add(type(plain))
            self._texts |= {plain} if isinstance(plain, str) else set()
            if type(value) not in _PLAIN:
                self._samples.append(value)
        return plain

    def restore(self, value: Value) -> object:
        """The value that the user's function gets for a plain value. Raises UsageError for a wrong type."""
        known = (type(value), value)
        if known in self._originals:
            return self._originals[known]
        kinds = self.kinds
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
                f"{self.name}={value!r} is not a dtype",
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
    """Whether a value can be one of TileLang's dtypes, which are strings of their own class."""
    return isinstance(value, str) and not isinstance(value, enum.Enum)


def _is_dtype(name: str) -> bool:
    """Whether a dtype has this name here or, if TileLang is imported, in TVM."""
    if name in DTYPES or "tvm" not in sys.modules:
        return name in DTYPES
    try:
        sys.modules["tvm"].DataType(name)
    except (TypeError, ValueError):
        return False
    return True


def _make_like(sample: object, name: str) -> object:
    """The value called ``name`` of the sample's type; None if there is none."""
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


PASS_CONFIGS = "pass_configs"
"""The key of an ``autotune`` config that holds compiler options and is not a parameter."""

Arguments = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """A space: ``axes`` to multiply out, or a list of ``configs``; both empty for none.

    A parameter with a condition only counts where that holds.
    """

    axes: dict[str, Values]
    configs: tuple[dict[str, Value], ...]
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it varies."""
        return tuple(dict.fromkeys([*self.axes, *(key for c in self.configs for key in c)]))

    def has(self, config: Arguments) -> bool:
        """Whether a config is one of its points, before constraints."""
        if self.configs:
            return dict(config) in self.configs
        values = ((sequence_of(self.axes.get(key, ())), value) for key, value in config.items())
        return all(value in known for known, value in values)


class Parameters:
    """The parameters of a kernel: ``own`` ones of its function; ``names`` has also the sizes and
    numbers that its source names. ``required`` have no default; ``defaults`` are plain,
    ``default_values`` in the form of the user's code. Invalid values raise UsageError.
    """

    def __init__(self, kernel: str, recipe: Recipe) -> None:
        self.kernel = kernel
        self._is_open = recipe.runtime.is_open
        signature = {
            key: parameter
            for key, parameter in named_parameters(recipe.function).items()
            if key not in recipe.tensors
        }
        runtime = recipe.runtime
        self.own = (*signature, *runtime.constants)
        self.names = tuple(dict.fromkeys([*self.own, *runtime.dynamic]))
        kinds: dict[str, frozenset[type]] = dict.fromkeys(runtime.dynamic, frozenset())
        kinds |= dict.fromkeys(runtime.constants, frozenset({int}))
        kinds |= {key: kinds_of(parameter.annotation) for key, parameter in signature.items()}
        self._known = {key: Parameter(key, kinds[key]) for key in self.names}
        known_keys = {PASS_CONFIGS: frozenset[type](), PIPELINE: frozenset({str})}
        self._tunable = {key: Parameter(key, kinds) for key, kinds in known_keys.items()}
        self._tunable |= self._known
        self.default_values: dict[str, object] = {
            key: p.default for key, p in signature.items() if p.default is not p.empty
        }
        self.defaults = {
            key: self._known[key].learn(value)
            for key, value in self.default_values.items()
            if is_scalar(value)
        }
        for shape in recipe.shapes.values():
            for key in shape.keys() & self._known.keys():
                if is_scalar(shape[key]):
                    self._known[key].learn(shape[key])
        self.required = tuple(key for key in self.own if key not in self.default_values)

    def restore(self, arguments: Arguments) -> dict[str, object]:
        """Arguments in the form of the user's code."""
        return {
            key: self._find(self._known, key, "argument").restore(value)
            for key, value in arguments.items()
        }

    def restore_config(self, config: Arguments) -> dict[str, object]:
        """A config in the form of the user's code; the values of its space must have been read before."""
        return {
            key: self._find(self._tunable, key, "config key").restore(value)
            for key, value in config.items()
        }

    def read_space(self, source: object) -> Expansion:
        """The user's space, in plain values."""
        if source is None:
            return Expansion(axes={}, configs=())
        if isinstance(source, Mapping):
            axes = {str(key): self._read_axis(str(key), values) for key, values in source.items()}
            conditions = {
                str(key): values.condition
                for key, values in source.items()
                if isinstance(values, When)
            }
            return Expansion(axes=axes, configs=(), conditions=conditions)
        if isinstance(source, Iterable) and not isinstance(source, str):
            return Expansion(axes={}, configs=tuple(map(self._read_config, source)))
        raise UsageError(
            f"the space of {self.kernel} is neither a mapping nor a list of configs: {show_value(source)}"
        )

    def pipeline_of(self, config: Arguments, asked: str = "") -> str:
        """The pipeline that a config names, or the one ``asked`` for; empty for neither, UsageError
        for both. A kernel's own parameter of that name belongs to the kernel.
        """
        named = "" if PIPELINE in self.names else str(config.get(PIPELINE, ""))
        if named and asked:
            both = f"{PIPELINE}={named} is in its config, and {asked} asked for beside it"
            raise UsageError(f"{self.kernel} can have one pipeline only: {both}")
        return named or asked

    def is_untyped(self, key: str, value: Value) -> bool:
        """Whether ``value`` is not a whole number, and the types that the parameter accepts are unknown."""
        return isinstance(value, str | float) and not self._find(self._tunable, key, "value").kinds

    def describe(self) -> str:
        """A hint with the names of the parameters."""
        return f"its parameters are {', '.join(self.names)}" if self.names else ""

    def _find(self, among: Mapping[str, Parameter], key: str, what: str) -> Parameter:
        if self._is_open and key not in self._tunable and what != "parameter of its space,":
            return Parameter(key, frozenset())
        if key not in among:
            raise UsageError(f"{self.kernel} has no {what} {key!r}", hint=self.describe())
        return among[key]

    def _read_axis(self, key: str, values: object) -> Values:
        parameter = self._find(self._tunable, key, "parameter of its space,")
        if isinstance(values, When):
            values = values.values
        if isinstance(values, range) and values:
            parameter.learn(values[0])
            return shorten_span(values)
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UsageError(
                f"the space of {self.kernel} gives {key}={show_value(values)}, which is not a list of values"
            )
        plain = [parameter.learn(value) for value in values]
        if not plain:
            raise UsageError(f"the space of {self.kernel} gives {key} no value")
        return tuple({(type(value), value): value for value in plain}.values())

    def _read_config(self, config: object) -> dict[str, Value]:
        if not isinstance(config, Mapping):
            raise UsageError(f"a config of {self.kernel} is not a mapping: {show_value(config)}")
        return {
            str(key): self._find(self._tunable, str(key), "parameter of its space,").learn(value)
            for key, value in config.items()
            # TileLang treats None as no options.
            if not (key == PASS_CONFIGS and value is None)
        }
