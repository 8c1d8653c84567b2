"""The target that a kernel names in TileLang, as far as the kernel's meaning depends on it.
Programs on TileLang's CPU targets (``c``, ``llvm``) have no threads; on all others they do.
"""

from typing import Any

from tilelang import env
from tilelang.backend.target import determine_target

from tileyard.frontend.tir_queries import attributes_of

TARGET_MARK = "target"
"""The attribute by which TVM marks a function's target."""


def for_target(func: Any, target: Any) -> Any:  # noqa: ANN401 (TVM's nodes are untyped)
    """``func``, marked if ``target``, as a script passes it to TileLang, is a CPU; None is the
    environment's choice. Raises TileLang's error for an unknown target.
    """
    target = env.get_default_target() if target is None else target
    if target == "auto":
        return func
    found: Any = determine_target(target, return_object=True)
    return func.with_attr(TARGET_MARK, found) if is_cpu(found) else func


def without_target(func: Any) -> Any:  # noqa: ANN401
    """``func`` without a mark, for a target that the builder chooses."""
    return func.without_attr(TARGET_MARK) if TARGET_MARK in attributes_of(func) else func


def has_threads(func: Any) -> bool:  # noqa: ANN401
    """Whether several threads run a block of ``func``."""
    mark = attributes_of(func).get(TARGET_MARK)
    return mark is None or not is_cpu(mark)


def is_cpu(target: Any) -> bool:  # noqa: ANN401
    """Whether a target of TVM's is a CPU."""
    return "cpu" in map(str, target.keys)
