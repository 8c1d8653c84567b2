"""One form for kernels of all styles: Tileyard's declarations, TileLang's ``jit`` and ``autotune``."""

import functools
import inspect
import shlex
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tileyard.base.model import TimingPolicy, Tolerance, Value
from tileyard.frontend.declare import (
    KernelDeclaration,
    SpaceSource,
    WhereSource,
    WorkSource,
    user_function,
)
from tileyard.frontend.runtime_names import RuntimeNames, find_runtime_names

_KINDS: dict[object, type] = {bool: bool, int: int, float: float, str: str}
_KINDS |= {"bool": bool, "int": int, "float": float, "str": str}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def named_parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The parameters of a function that have names of their own."""
    parameters = inspect.signature(function).parameters
    return {name: p for name, p in parameters.items() if p.kind not in _VARIADIC}


def kinds_of(annotation: object) -> frozenset[type]:
    """The plain types in a parameter's annotation; empty if it has none."""
    parts: Sequence[object] = ()
    if isinstance(annotation, str) and "|" in annotation:
        parts = [part.strip() for part in annotation.split("|")]
    elif typing.get_origin(annotation) in (types.UnionType, typing.Union):
        parts = typing.get_args(annotation)
    elif isinstance(annotation, (str, type)) and annotation in _KINDS:
        return frozenset({_KINDS[annotation]})
    return frozenset().union(*map(kinds_of, parts))


Style = Literal["tileyard", "jit", "autotune"]

UNASKED = {"rtol": 1e-2, "atol": 1e-2, "max_mismatched_ratio": 0.01, "warmup": 25, "rep": 100}
"""TileLang's defaults, which count as not set by the user; ``timeout`` has several."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a kernel was declared.

    ``function`` is the user's own, whose signature holds the kernel's parameters; ``build`` takes them by
    keyword and returns a PrimFunc for TileLang's ``target``. ``tensors`` are parameters that represent
    tensors (TileLang's eager style) and no arguments. ``supply`` is TileLang's ``supply_prog``. The rest is
    as in ``tileyard.kernel``; with ``is_space_tilelangs`` the space is called as TileLang does. ``timing``
    is the requested one, None for the default; a run may take ``run_s`` seconds, 0 for the study's limit.
    """

    style: Style
    file: str
    function: Callable[..., object]
    build: Callable[..., object]
    tensors: frozenset[str] = frozenset()
    runtime: RuntimeNames
    out_idx: tuple[int, ...] | None = None
    space: SpaceSource | None = None
    where: WhereSource | None = None
    shapes: Mapping[str, Mapping[str, Value]]
    reference: Callable[..., object] | None = None
    inputs: Callable[..., object] | None = None
    supply: Callable[..., object] | None = None
    is_space_tilelangs: bool = False
    flops: WorkSource | None = None
    tolerance: Tolerance | None = None
    timing: TimingPolicy | None = None
    run_s: float = 0.0
    pass_configs: Mapping[Any, object]
    compile_flags: tuple[str, ...] = ()
    target: object = None


def read_recipe(value: object) -> Recipe | None:
    """How ``value`` was declared as a kernel; None for everything else."""
    match value:
        case KernelDeclaration():
            return _read_declaration(value)
        case _ if is_instance_of(value, "tilelang.autotuner.tuner", "AutoTuneImpl"):
            return _read_autotune(value)
        case _ if is_instance_of(value, "tilelang.jit", "JITImpl"):
            return _read_jit(value)
        case _:
            return None


def _read_declaration(value: KernelDeclaration[..., object]) -> Recipe:
    function = value.function
    inner = read_recipe(function) or Recipe(
        style="tileyard",
        file=_file_of(function),
        function=function,
        build=function,
        runtime=find_runtime_names(user_function(function)),
        shapes={},
        pass_configs={},
    )
    return replace(
        inner,
        style="tileyard",
        space=inner.space if value.space is None else value.space,
        is_space_tilelangs=inner.is_space_tilelangs and value.space is None,
        where=value.where,
        shapes=value.shapes,
        reference=value.reference or inner.reference,
        inputs=value.inputs,
        flops=value.flops,
        tolerance=value.tolerance or inner.tolerance,
        pass_configs={**inner.pass_configs, **value.pass_configs},
    )


def _read_jit(value: Any) -> Recipe:  # noqa: ANN401 - TileLang is not typed
    function = value.func.orig_func
    tensors = value.func.tensor_args
    # A non-pointer variable declares a number.
    numbers = tuple(
        name
        for name, declared in tensors.items()
        if type(declared).__name__ == "Var" and str(declared.dtype) != "handle"
    )
    runtime = find_runtime_names(function)
    out_idx = value.out_idx
    if out_idx is not None:
        out_idx = tuple(out_idx) if isinstance(out_idx, (list, tuple)) else (out_idx,)
    return Recipe(
        style="jit",
        file=_file_of(function),
        function=function,
        build=value.get_tir,
        tensors=frozenset(tensors),
        runtime=replace(runtime, dynamic=(*runtime.dynamic, *numbers)),
        out_idx=out_idx,
        shapes={},
        pass_configs=value.pass_configs or {},
        compile_flags=read_flags(value.compile_flags),
        target=value.target,
    )


def _read_autotune(value: Any) -> Recipe:  # noqa: ANN401 - as above
    return replace(
        _read_jit(value.jit_impl),
        style="autotune",
        space=value.configs,
        is_space_tilelangs=True,
        reference=read_reference(value),
        supply=read_supply(value),
        tolerance=read_tolerance(value),
        timing=read_timing(value.warmup, value.rep),
        run_s=0.0 if value.timeout == DECORATOR_TIMEOUT_S else float(value.timeout),
    )


DECORATOR_TIMEOUT_S = 100


def read_reference(profile: Any) -> Callable[..., object] | None:  # noqa: ANN401 - as above
    """The reference function, from TileLang's arguments for profiling; None if the user has a
    separate check, which may accept differences, such as ties in a top-k.
    """
    unchecked = profile.skip_check or profile.manual_check_prog is not None
    reference: Callable[..., object] | None = None if unchecked else profile.ref_prog
    return reference


def read_supply(profile: Any) -> Callable[..., object] | None:  # noqa: ANN401 - as above
    """The function that makes the inputs: the user's, or one of TileLang's kinds; None for Tileyard's."""
    if profile.supply_prog is not None or profile.supply_type.name == "Auto":
        supply: Callable[..., object] | None = profile.supply_prog
        return supply
    make = sys.modules["tilelang.utils.tensor"].get_tensor_supply(profile.supply_type)
    return functools.partial(_supply_all, make)


def _supply_all(make: Callable[[object], object], params: Sequence[object]) -> list[object]:
    return [make(param) for param in params]


def read_tolerance(profile: Any) -> Tolerance | None:  # noqa: ANN401 - as above
    """The requested tolerance as TileLang means it: by element, with a share that may be wrong."""
    names = ("rtol", "atol", "max_mismatched_ratio")
    if all(getattr(profile, name) == UNASKED[name] for name in names):
        return None
    return Tolerance(
        rtol=profile.rtol,
        atol=profile.atol,
        is_elementwise=True,
        share=profile.max_mismatched_ratio,
    )


def read_timing(warmup: int, rep: int) -> TimingPolicy | None:
    """The requested timing: both values are numbers of launches."""
    if (warmup, rep) == (UNASKED["warmup"], UNASKED["rep"]):
        return None
    return count_launches(warmup, rep)


def count_launches(warmup: int, rep: int) -> TimingPolicy:
    """A policy that counts launches: at least one launch warms up, since 0 leaves it to the times."""
    return TimingPolicy(warmup_launches=max(warmup, 1), launches=max(rep, 1))


def is_instance_of(value: object, module: str, name: str) -> bool:
    """``isinstance`` for a class of a module that may not have been imported."""
    cls = getattr(sys.modules.get(module), name, None)
    return isinstance(cls, type) and isinstance(value, cls)


def read_flags(flags: object) -> tuple[str, ...]:
    """Compiler flags, which TileLang accepts as one string or as a list."""
    if isinstance(flags, str):
        return tuple(shlex.split(flags))
    return tuple(map(str, flags)) if isinstance(flags, (list, tuple)) else ()


def _file_of(function: object) -> str:
    try:
        return inspect.getsourcefile(user_function(function)) or ""  # type: ignore[arg-type]
    except TypeError:
        return ""
