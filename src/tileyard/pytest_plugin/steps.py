"""The three kinds of compile steps that tests have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tileyard.frontend.found import Found
from tileyard.model import Value


@dataclass(frozen=True, kw_only=True)
class KernelStep:
    """Build one kernel. ``id`` names the step in every process of the run.

    ``source`` is a kernel with its ``arguments``, or a PrimFunc with its ``out_idx``.
    """

    id: str
    source: Found | Any
    arguments: dict[str, Value]
    target: str
    out_idx: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class FunctionStep:
    """Call a function that builds something, with ``values`` and a directory of its own."""

    id: str
    function: Callable[..., object]
    values: dict[str, object]
    limit_s: float


@dataclass(frozen=True, kw_only=True)
class BodyStep:
    """Build what a test without markers, or its fixture, compiles itself, as far as reading it tells."""

    id: str
    function: Callable[..., object]
    values: dict[str, object]


Step = KernelStep | FunctionStep | BodyStep
