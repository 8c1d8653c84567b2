"""Targets by name: the built-in ones and those that plugins add."""

import importlib
from collections.abc import Mapping

from tileyard.errors import UsageError
from tileyard.targets.base import Target

BUILT_IN: dict[str, str] = {
    "cpu": "tileyard.targets.cpu.target:CpuTarget",
    "cuda": "tileyard.targets.cuda.target:CudaTarget",
    "command": "tileyard.targets.command.target:CommandTarget",
}
"""Target names, each with the ``module:Class`` that is loaded when it is asked for."""


def make_target(name: str, plugins: Mapping[str, str]) -> Target:
    """The target called ``name``.

    What stands after a colon, as in ``cpu:x86-64-v3``, is passed to its class. ``plugins`` maps
    further names to ``module:Class``. Raises UsageError for a name that neither knows, or a plugin
    that cannot be loaded.
    """
    base, _, option = name.partition(":")
    known = {**BUILT_IN, **plugins}
    if base not in known:
        raise UsageError(
            f"there is no target {name}", hint=f"known targets: {', '.join(sorted(known))}"
        )
    module, _, attribute = known[base].partition(":")
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"target {base} cannot be loaded from {known[base]}: {error}") from error
    target: Target = make(option) if option else make()
    return target
