"""The parameters of one kernel: their names, defaults, and values in both forms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tileyard.errors import UsageError
from tileyard.frontend.plain_values import Parameter, is_scalar
from tileyard.frontend.recipes import Recipe
from tileyard.frontend.signature import kinds_of, named_parameters
from tileyard.model import Value
from tileyard.wording import show_value

PASS_CONFIGS = "pass_configs"
"""The key of an ``autotune`` config that holds compiler options and is no parameter."""

Arguments = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """A space: ``axes`` to multiply out, or a list of ``configs``; both empty for none."""

    axes: dict[str, tuple[Value, ...]]
    configs: tuple[dict[str, Value], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it varies."""
        return tuple(dict.fromkeys([*self.axes, *(key for c in self.configs for key in c)]))


class Parameters:
    """The parameters of a kernel.

    ``own`` are those of its function, ``names`` also the sizes and numbers that its source names.
    ``required`` have no default; ``defaults`` holds the plain ones, ``default_values`` all of them
    as the user's code has them. Whatever makes no sense raises UsageError.
    """

    def __init__(self, kernel: str, recipe: Recipe) -> None:
        self.kernel = kernel
        signature = named_parameters(recipe.function)
        signature = {key: p for key, p in signature.items() if key not in recipe.tensors}
        runtime = recipe.runtime
        self.own = (*signature, *runtime.constants)
        self.names = tuple(dict.fromkeys([*self.own, *runtime.dynamic]))
        kinds: dict[str, frozenset[type]] = dict.fromkeys(runtime.dynamic, frozenset())
        kinds |= dict.fromkeys(runtime.constants, frozenset({int}))
        kinds |= {key: kinds_of(parameter) for key, parameter in signature.items()}
        self._known = {key: Parameter(key, kinds[key]) for key in self.names}
        self._options = Parameter(PASS_CONFIGS, frozenset())
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
        """Arguments as the user's code has them."""
        return {key: self._find(key, "argument").restore(value) for key, value in arguments.items()}

    def restore_config(self, config: Arguments) -> dict[str, object]:
        """A config as the user's code has it; what its space holds must have been read before."""
        return {
            key: self._find_tunable(key, "config key").restore(value)
            for key, value in config.items()
        }

    def read_space(self, source: object) -> Expansion:
        """A space as the user gave it, in plain values."""
        if source is None:
            return Expansion(axes={}, configs=())
        if isinstance(source, Mapping):
            axes = {str(key): self._read_axis(str(key), values) for key, values in source.items()}
            return Expansion(axes=axes, configs=())
        if isinstance(source, Iterable) and not isinstance(source, str):
            return Expansion(axes={}, configs=tuple(map(self._read_config, source)))
        raise UsageError(
            f"the space of {self.kernel} is neither a mapping nor a list of configs: {show_value(source)}"
        )

    def is_untyped(self, key: str, value: Value) -> bool:
        """Whether ``value`` is no whole number, and nothing says what the parameter takes."""
        return isinstance(value, str | float) and not self._find_tunable(key, "value").is_typed

    def describe(self) -> str:
        """A hint that names them."""
        return f"its parameters are {', '.join(self.names)}" if self.names else ""

    def _find(self, key: str, what: str) -> Parameter:
        known = self._known.get(key)
        if known is None:
            raise UsageError(f"{self.kernel} has no {what} {key!r}", hint=self.describe())
        return known

    def _find_tunable(self, key: str, what: str) -> Parameter:
        if key == PASS_CONFIGS and key not in self._known:
            return self._options
        return self._find(key, what)

    def _read_axis(self, key: str, values: object) -> tuple[Value, ...]:
        parameter = self._find_tunable(key, "parameter of its space,")
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
            str(key): self._find_tunable(str(key), "parameter of its space,").learn(value)
            for key, value in config.items()
            # TileLang reads None as no options.
            if not (key == PASS_CONFIGS and value is None)
        }
