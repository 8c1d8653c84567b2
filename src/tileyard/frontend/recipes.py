"""One form for kernels of every style: declared with us, TileLang's ``jit``, TileLang's ``autotune``."""

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tileyard.frontend.declare import KernelDeclaration, SpaceSource, user_function
from tileyard.frontend.signature import RuntimeNames, find_runtime_names
from tileyard.model import Tolerance, Value

Style = Literal["tileyard", "jit", "autotune"]

TILELANG_TOLERANCE = 1e-2
"""TileLang's default for both tolerances of ``autotune``: a user who leaves it asks for nothing."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a kernel was declared.

    ``function`` is the user's own, whose signature holds the kernel's parameters; ``build`` is
    called with them by keyword and returns a PrimFunc for TileLang's ``target``. ``tensors`` are the parameters that stand
    for tensors (TileLang's eager style) and are not arguments. ``supply`` is TileLang's
    ``supply_prog``. The rest is as in ``tileyard.kernel``; ``is_space_tilelangs`` says that the space is
    called as TileLang does.
    """

    style: Style
    file: str
    function: Callable[..., object]
    build: Callable[..., object]
    tensors: frozenset[str] = frozenset()
    runtime: RuntimeNames
    out_idx: tuple[int, ...] | None = None
    space: SpaceSource | None = None
    where: Callable[..., object] | None = None
    shapes: Mapping[str, Mapping[str, Value]]
    reference: Callable[..., object] | None = None
    inputs: Callable[..., object] | None = None
    supply: Callable[..., object] | None = None
    is_space_tilelangs: bool = False
    flops: Callable[..., float] | None = None
    tolerance: Tolerance | None = None
    pass_configs: Mapping[Any, object]
    compile_flags: tuple[str, ...] = ()
    target: object = None


def read_recipe(value: object) -> Recipe | None:
    """How ``value`` was declared as a kernel; None for everything else."""
    if isinstance(value, KernelDeclaration):
        return _read_declaration(value)
    if _is_instance(value, "tilelang.autotuner.tuner", "AutoTuneImpl"):
        return _read_autotune(value)
    if _is_instance(value, "tilelang.jit", "JITImpl"):
        return _read_jit(value)
    return None


def _read_declaration(value: KernelDeclaration[..., object]) -> Recipe:
    inner = read_recipe(value.function)
    if inner is None:
        function = value.function
        inner = Recipe(
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
    numbers = tuple(name for name, declared in tensors.items() if _is_number(declared))
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
        compile_flags=_read_flags(value.compile_flags),
        target=value.target,
    )


def _read_autotune(value: Any) -> Recipe:  # noqa: ANN401 - as above
    # A check of the user's own may accept what differs from the reference, such as ties in a top-k.
    unchecked = value.skip_check or value.manual_check_prog is not None
    given = (value.rtol, value.atol)
    asked = given != (TILELANG_TOLERANCE, TILELANG_TOLERANCE)
    return replace(
        _read_jit(value.jit_impl),
        style="autotune",
        space=value.configs,
        is_space_tilelangs=True,
        reference=None if unchecked else value.ref_prog,
        supply=value.supply_prog,
        tolerance=Tolerance(rtol=value.rtol, atol=value.atol) if asked else None,
    )


def _is_instance(value: object, module: str, name: str) -> bool:
    """``isinstance`` for a class of a module that need not have been imported."""
    cls = getattr(sys.modules.get(module), name, None)
    return isinstance(cls, type) and isinstance(value, cls)


def _read_flags(flags: object) -> tuple[str, ...]:
    """Compiler flags, which TileLang takes as one text or as a list."""
    if isinstance(flags, str):
        return tuple(shlex.split(flags))
    return tuple(map(str, flags)) if isinstance(flags, (list, tuple)) else ()


def _is_number(declared: Any) -> bool:  # noqa: ANN401 - as above
    """Whether a parameter of an eager kernel is a number: a variable that is no pointer."""
    return type(declared).__name__ == "Var" and str(declared.dtype) != "handle"


def _file_of(function: object) -> str:
    try:
        return inspect.getsourcefile(user_function(function)) or ""  # type: ignore[arg-type]
    except TypeError:
        return ""
