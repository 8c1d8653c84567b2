"""Builds, checks, tunes and regression-tests tile kernels.

``kernel`` declares a kernel, with values of its space by ``when`` and ``powers_of_two``; ``tune``,
``compile``, ``check``, ``plan``, ``test`` and ``regress`` do the same as the commands of these names;
``load`` returns the kernel of a recorded trial as a callable, ``tuned`` one that uses the winning config for
its shapes. Names are loaded when first used: declaring kernels is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileyard.api import (
        DispatchTable,
        Study,
        check,
        compile,  # noqa: A004 - always used as tileyard.compile
        load,
        plan,
        regress,
        test,
    )
    from tileyard.api.autotune import AutoTuner, autotune, set_autotune_inputs
    from tileyard.api.dispatch import tuned
    from tileyard.api.study import tune
    from tileyard.base.errors import TileyardError
    from tileyard.frontend.declare import kernel, powers_of_two, when

__all__ = [
    "AutoTuner",
    "DispatchTable",
    "Study",
    "TileyardError",
    "autotune",
    "check",
    "compile",
    "kernel",
    "load",
    "plan",
    "powers_of_two",
    "regress",
    "set_autotune_inputs",
    "test",
    "tune",
    "tuned",
    "when",
]

_HOMES = {
    **dict.fromkeys(__all__, "tileyard.api"),
    **dict.fromkeys(("AutoTuner", "autotune", "set_autotune_inputs"), "tileyard.api.autotune"),
    "TileyardError": "tileyard.base.errors",
    "tuned": "tileyard.api.dispatch",
    **dict.fromkeys(("kernel", "powers_of_two", "when"), "tileyard.frontend.declare"),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version(
            "tileyard"
        )  # takes 10 ms, and is rarely needed
    if name not in _HOMES:
        raise AttributeError(f"module 'tileyard' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
