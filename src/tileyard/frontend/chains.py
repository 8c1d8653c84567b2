"""Reads TileLang's ``AutoTuner`` objects as Tileyard kernels, however they were built."""

import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import InvalidProgramError, UnsupportedError, UsageError, UserCodeError
from tileyard.base.model import Value
from tileyard.base.wording import count_of, show_value
from tileyard.frontend.blame import blame_user
from tileyard.frontend.bounds import require_inside
from tileyard.frontend.declare import WhereSource, user_function
from tileyard.frontend.found import Found, lower_open
from tileyard.frontend.parameters import PASS_CONFIGS, is_scalar, option_name, to_plain
from tileyard.frontend.recipes import (
    Recipe,
    named_parameters,
    read_flags,
    read_recipe,
    read_reference,
    read_supply,
    read_tolerance,
)
from tileyard.frontend.runtime_names import RuntimeNames
from tileyard.frontend.tilelang import MadeKernel, make_kernel
from tileyard.frontend.tir_queries import attributes_of
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Const, Program, Tensor, Var


class ChainError(UsageError, ValueError, code="chain"):
    """A tuner's settings are invalid. TileLang raises ValueError there."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What a tuner is to tune. ``configs`` are the user's, ``arguments`` the other plain values
    with which the kernel is made and run. ``elaborate`` returns the PrimFunc of a config. If it
    ``is_decided``, the caller gave the parameters that configs vary.
    """

    found: Found
    arguments: dict[str, Value]
    configs: Sequence[Mapping[str, object]]
    elaborate: Callable[[Mapping[str, object]], Any]
    is_decided: bool

    def original(self, config: Mapping[str, Value]) -> Mapping[str, object]:
        """The user's config that corresponds to this config of a study."""
        wanted = canonical_json(dict(config))
        pairs = zip(self.found.expand({}).configs, self.configs, strict=True)
        return next(own for plain, own in pairs if canonical_json(plain) == wanted)


def read_chain(tuner: Any, inputs: Sequence[object] | None = None) -> Chain:  # noqa: ANN401 (TileLang's)
    """The chain of a TileLang ``AutoTuner``; ``inputs`` are those that the caller has named for it.
    Raises ChainError with the key for configs, sizes and inputs that do not fit the kernel.
    """
    function = tuner.fn
    name = str(getattr(user_function(function), "__name__", ""))
    name = name if name.isidentifier() else "kernel"
    parameters = named_parameters(function)
    given = _given_values(tuner)
    configs = _list_configs(tuner, name)
    _require_known(configs, parameters, name)
    build = tuner.jit_elaborate or function

    def elaborate(config: Mapping[str, object]) -> Any:  # noqa: ANN401 (TVM's)
        return build(**{key: value for key, value in config.items() if key in parameters})

    varied = {key for config in configs for key in config} & parameters.keys()
    own = read_recipe(function)
    where = None if own is None else own.where
    open_ = {key for key, one in parameters.items() if one.default is not one.empty}
    plain = {key: value for key, value in given.items() if is_scalar(value) and key not in varied}
    recipe = Recipe(
        style="autotune",
        file=str(inspect.getsourcefile(user_function(function)) or ""),  # type: ignore[arg-type]
        function=_signed(
            name, parameters, plain, varied if where is None else varied | (open_ - plain.keys())
        ),
        build=lambda **values: elaborate({k: v for k, v in values.items() if k in varied}),
        runtime=RuntimeNames(),
        out_idx=_read_out_idx(tuner.compile_args.out_idx),
        space=list(configs),
        shapes={},
        reference=read_reference(tuner.profile_args),
        supply=read_supply(tuner.profile_args),
        tolerance=read_tolerance(tuner.profile_args),
        pass_configs=tuner.compile_args.pass_configs or {},
        compile_flags=read_flags(getattr(tuner, "compile_flags", None)),
        target=tuner.compile_args.target,
    )
    found = Found(name, recipe)
    arguments = {key: to_plain(value) for key, value in plain.items()}
    chain = Chain(
        found=found,
        arguments=arguments,
        configs=configs,
        elaborate=elaborate,
        is_decided=bool(varied & given.keys()),
    )
    if chain.is_decided:
        return chain
    bound = _bind(chain, inputs)
    return bound if where is None else _leave_rejected(bound, where)


def make_alone(tuner: Any, func: Any, config: Mapping[str, Any], *, with_tir: bool) -> MadeKernel:  # noqa: ANN401
    """An elaborated kernel outside of a study, with the options of the tuner and of its config."""
    require_inside(func, {}, is_unguarded=with_tir)
    made = make_kernel(func, find_outputs(func, tuner.compile_args.out_idx), with_tir=with_tir)
    options = {**(tuner.compile_args.pass_configs or {}), **(config.get(PASS_CONFIGS) or {})}
    kernel = msgspec.structs.replace(
        made.kernel,
        pass_options={option_name(key): to_plain(value) for key, value in options.items()},
        flags=read_flags(getattr(tuner, "compile_flags", None)),
    )
    return replace(made, kernel=kernel)


def find_outputs(func: Any, out_idx: Any) -> list[int] | None:  # noqa: ANN401 (TVM's)
    """The positions of a kernel's results in the order of their return; None if it returns nothing."""
    out_idx = attributes_of(func).get("tilelang_out_idx") if out_idx is None else out_idx
    if out_idx is None:
        return None
    given = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    return [int(position) % len(func.params) for position in given]


def describe_params(func: Any) -> list[Any]:  # noqa: ANN401 (TVM's)
    """The parameters of a PrimFunc as TileLang's descriptions."""
    describe: Any = import_module("tilelang.engine.param").KernelParam
    tensors = dict(func.buffer_map.items())
    return [
        describe.from_buffer(tensors[param]) if param in tensors else describe.from_var(param)
        for param in func.params
    ]


# ---- configs ------------------------------------------------------------------------------------


def _given_values(tuner: Any) -> dict[str, object]:  # noqa: ANN401 (TileLang's)
    if tuner._kernel_parameters is not None:  # noqa: SLF001 (TileLang's)
        values, named = tuner._kernel_parameters  # noqa: SLF001
        return {**dict(zip(tuner._function_parameters, values, strict=False)), **dict(named)}  # noqa: SLF001
    cells = inspect.getclosurevars(user_function(tuner.fn)).nonlocals  # type: ignore[arg-type]
    return {key: value for key, value in cells.items() if key not in named_parameters(tuner.fn)}


def _list_configs(tuner: Any, name: str) -> list[Mapping[str, object]]:  # noqa: ANN401 (TileLang's)
    configs = tuner.configs
    if callable(configs):
        values, named = tuner._kernel_parameters or ((), ())  # noqa: SLF001 (TileLang's)
        takes = inspect.signature(configs).parameters.values()
        known = {one.name for one in takes}
        takes_any = any(one.kind is one.VAR_KEYWORD for one in takes)
        passed = {key: value for key, value in dict(named).items() if takes_any or key in known}
        with blame_user(f"the configs of {name}"):
            configs = configs(*values, **passed)
    if isinstance(configs, Mapping):
        configs = [
            dict(zip(configs, point, strict=True)) for point in itertools.product(*configs.values())
        ]
    if not isinstance(configs, Sequence) or not all(isinstance(one, Mapping) for one in configs):
        raise ChainError(f"the configs of {name} are no list of mappings: {show_value(configs)}")
    if not configs:
        raise ChainError(f"{name} has no configs to tune")
    # None is how TileLang's users omit a key.
    return [{key: value for key, value in one.items() if value is not None} for one in configs]


def _require_known(
    configs: Sequence[Mapping[str, object]], known: Mapping[str, object], name: str
) -> None:
    for number, config in enumerate(configs):
        for key, value in config.items():
            if key not in known and key != PASS_CONFIGS:
                raise ChainError(
                    f"config {number} of {name} has {key!r}, which is not a parameter",
                    f"its parameters: {', '.join(known)}",
                )
            try:
                to_plain(value)
            except UsageError as error:
                raise ChainError(
                    f"config {number} of {name}: {key}: {error.message}", error.hint
                ) from None


def _leave_rejected(chain: Chain, where: WhereSource) -> Chain:
    """The chain without configs that the kernel's ``where`` rejects; RejectedError if it rejects all."""
    found = Found(chain.found.name, replace(chain.found.recipe, where=where))
    plain = found.expand({}).configs
    accepted = [found.accepts(chain.arguments, config) for config in plain]
    if not any(accepted):
        found.require(chain.arguments, plain[0])
    configs = list(itertools.compress(chain.configs, accepted))
    found = Found(chain.found.name, replace(found.recipe, space=configs))
    return replace(chain, found=found, configs=configs)


def _signed(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    plain: Collection[str],
    varied: Collection[str],
) -> Callable[..., object]:
    """A function with the kernel's name and these of its parameters."""

    def takes(**_values: object) -> None: ...

    takes.__name__ = name
    shown = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=parameters[key].default if key in varied else inspect.Parameter.empty,
        )
        for key in dict.fromkeys((*plain, *varied))
    ]
    takes.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return takes


def _read_out_idx(given: Any) -> tuple[int, ...] | None:  # noqa: ANN401 (TileLang's)
    return given if given is None else (given,) if isinstance(given, int) else tuple(given)


# ---- inputs -------------------------------------------------------------------------------------


def _bind(chain: Chain, inputs: Sequence[object] | None) -> Chain:
    """The chain with what only an elaborated kernel states: results, and each call's sizes and numbers."""
    name, arguments = chain.found.name, chain.arguments
    lowered = _lower_first(chain)
    if lowered is None:
        return chain  # the study reports why
    config, program = lowered
    func = chain.elaborate(config)
    returned = find_outputs(func, chain.found.recipe.out_idx) or []
    recipe = replace(chain.found.recipe, out_idx=tuple(returned) or None)
    is_open = bool(program.dims) or not all(isinstance(p, Tensor) for p in program.params)
    if not is_open and inputs is None:
        return replace(chain, found=Found(name, recipe))
    taken = [place for place in range(len(func.params)) if place not in returned]
    if inputs is None and recipe.supply is not None:
        described = describe_params(func)
        with blame_user(f"supply_prog of {name}"):
            inputs = list(recipe.supply([described[place] for place in taken]))  # type: ignore[call-overload]
    if inputs is None:
        raise ChainError(
            f"{name} takes sizes or numbers with each call, which nobody can make up",
            "give it inputs with `with set_autotune_inputs(...)`",
        )
    numbers = _match(name, program, taken, inputs)
    tensors = [n for n, place in enumerate(taken) if isinstance(program.params[place], Tensor)]
    supply = recipe.supply and partial(_supply_tensors, recipe.supply, tensors)
    own = replace(recipe, runtime=RuntimeNames(dynamic=tuple(numbers)), supply=supply)
    return replace(chain, found=Found(name, own), arguments={**arguments, **numbers})


def _lower_first(chain: Chain) -> tuple[Mapping[str, object], Program] | None:
    """The first config that can be lowered, and its Program."""
    for config, plain in zip(chain.configs, chain.found.expand({}).configs, strict=True):
        try:
            return config, lower_open(chain.found, chain.arguments, plain).signature
        except (UserCodeError, UnsupportedError, InvalidProgramError):
            continue
    return None


def _supply_tensors(
    supply: Callable[..., Any], places: Sequence[int], params: Sequence[object]
) -> list[object]:
    given = list(supply(params))
    return [given[place] for place in places]


def _match(
    name: str, program: Program, taken: Sequence[int], inputs: Sequence[object]
) -> dict[str, Value]:
    if len(inputs) != len(taken):
        raise ChainError(f"{name} takes {count_of(len(taken), 'input')}, not {len(inputs)}")
    numbers: dict[str, Value] = {}
    for place, value in zip(taken, inputs, strict=True):
        param = program.params[place]
        if not isinstance(param, Tensor):
            if not isinstance(value, bool | int | float):
                raise ChainError(
                    f"{name} takes {param.var.name} as a number, not {show_value(value)}"
                )
            numbers[param.var.name] = value
            continue
        buffer, shape = param.buffer, tuple(getattr(value, "shape", ()))
        wanted = [_show_extent(extent) for extent in buffer.shape]
        says = f"input {buffer.name} of {name} has the shape {shape}"
        if len(shape) != len(wanted):
            raise ChainError(f"{says}, the kernel takes ({', '.join(wanted)})")
        for extent, size in zip(buffer.shape, shape, strict=True):
            known = numbers.setdefault(extent.name, size) if isinstance(extent, Var) else size
            if isinstance(extent, Const):
                known = extent.value
            if known != size:
                raise ChainError(f"{says}, the kernel takes ({', '.join(wanted)})")
        dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
        if dtype != find_dtype(buffer.dtype).numpy.name:
            raise ChainError(
                f"input {buffer.name} of {name} has the dtype {dtype}, the kernel takes {buffer.dtype}"
            )
    return numbers


def _show_extent(extent: object) -> str:
    match extent:
        case Var(name=name):
            return name
        case Const(value=value):
            return str(value)
        case _:
            return "..."
