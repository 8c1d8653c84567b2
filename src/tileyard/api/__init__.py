"""The public functions of ``import tileyard``: thin calls into the rooms below."""

from tileyard.api.bundles import load
from tileyard.api.kernels import compile  # noqa: A004 - always used as tileyard.compile
from tileyard.api.study import DispatchTable, Study, Winner, tune
from tileyard.api.verbs import check, plan, regress, test

__all__ = [
    "DispatchTable",
    "Study",
    "Winner",
    "check",
    "compile",
    "load",
    "plan",
    "regress",
    "test",
    "tune",
]
