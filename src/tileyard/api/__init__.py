"""What ``import tileyard`` gives: thin calls into the rooms below."""

from tileyard.api.kernels import compile, load  # noqa: A004 - always used as tileyard.compile
from tileyard.api.study import Study, Winner
from tileyard.api.tune import tune

__all__ = ["Study", "Winner", "compile", "load", "tune"]
