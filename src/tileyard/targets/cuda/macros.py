"""Caches how TileLang's front end rewrites TileLang's own functions. Passes lower gemms by running
such functions, which are parsed, rewritten, compiled and unparsed for each gemm and each pipelined
copy. The result depends on the code and the closure's names, unless an annotation is evaluated;
cached by these, only the last step is repeated: the new function gets the closure of the old one.
"""

import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tilelang
from tilelang.language.eager import ast as rewriting
from tilelang.language.eager import builder, utils

_OWN = f"{Path(tilelang.__file__).parent}/"


class _Rewriting(threading.local):
    make: Callable[..., Any] | None = None
    evaluated: bool = False


def remember_macros() -> None:
    """Make TileLang rewrite its own functions, no user's, once. AttributeError if it lacks parts replaced."""
    compile_object = utils.get_compiled_object
    evaluate = rewriting.DSLMutator._try_eval  # noqa: SLF001 - TileLang has no public way
    mutate = rewriting.mutate
    if builder.mutate is not mutate:
        raise AttributeError("TileLang's front end rewrites functions in another way")
    now: Any = _Rewriting()
    known: dict[tuple[object, ...], tuple[Callable[..., Any], str, object]] = {}

    def get_compiled_object(*args: Any, **named: Any) -> Any:  # noqa: ANN401 (TileLang is untyped)
        now.make = compile_object(*args, **named)
        return now.make

    def try_eval(self: Any, node: Any) -> Any:  # noqa: ANN401
        now.evaluated = True
        return evaluate(self, node)

    def mutate_once(function: Any) -> Any:  # noqa: ANN401
        is_function = isinstance(function, types.FunctionType)
        if not is_function or not function.__code__.co_filename.startswith(_OWN):
            return mutate(function)
        around = utils.get_func_nonlocals(function)
        key = (function.__code__, tuple(around), id(function.__globals__))
        if key in known:
            make, source, _ = known[key]
            return rewriting.IRGenerator(gen=make(**around), source=source)
        now.make, now.evaluated = None, False
        made = mutate(function)
        if now.make is not None and not now.evaluated and not made.extra_type_hints:
            # The function is kept as well, so that its globals stay alive and no others get the same id.
            known[key] = (now.make, made.source, function)
        return made

    utils.get_compiled_object = get_compiled_object
    rewriting.DSLMutator._try_eval = try_eval  # noqa: SLF001
    rewriting.mutate = builder.mutate = mutate_once
