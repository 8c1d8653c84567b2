"""Builds, checks, tunes and regression-tests tile kernels.

``kernel`` declares one, ``tune`` finds its fastest config, ``compile`` builds a single PrimFunc,
``load`` gives the kernel of a recorded trial as a callable. Names are loaded when first used, so
that a kernel file which only declares stays cheap to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileyard.api import Study, compile, load  # noqa: A004 - always used as tileyard.compile
    from tileyard.api.autotune import AutoTuner, autotune, set_autotune_inputs
    from tileyard.api.tune import tune
    from tileyard.errors import TileyardError
    from tileyard.frontend.declare import kernel

__all__ = [
    "AutoTuner",
    "Study",
    "TileyardError",
    "autotune",
    "compile",
    "kernel",
    "load",
    "set_autotune_inputs",
    "tune",
]

_HOMES = {
    "AutoTuner": "tileyard.api.autotune",
    "autotune": "tileyard.api.autotune",
    "set_autotune_inputs": "tileyard.api.autotune",
    "Study": "tileyard.api",
    "TileyardError": "tileyard.errors",
    "compile": "tileyard.api",
    "kernel": "tileyard.frontend.declare",
    "load": "tileyard.api",
    "tune": "tileyard.api",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("tileyard")  # 10 ms for who never asks
    if name not in _HOMES:
        raise AttributeError(f"module 'tileyard' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
