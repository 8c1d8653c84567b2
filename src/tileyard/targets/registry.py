"""Targets by name: those built in, and those that settings add."""

from collections.abc import Mapping
from importlib import import_module

from tileyard.errors import UsageError
from tileyard.targets.base import Target

BUILT_IN = {"cpu": "tileyard.targets.cpu.target:CpuTarget"}


def make_target(name: str, plugins: Mapping[str, str]) -> Target:
    """The target called ``name``. ``plugins`` maps further names to ``module:Class``.

    Raises UsageError that lists the known targets, or names a plug-in that cannot be loaded.
    """
    known = {**BUILT_IN, **plugins}
    if name not in known:
        raise UsageError(f"there is no target {name!r}", f"there are: {', '.join(known)}")
    module, _, attribute = known[name].partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"target {name!r} ({known[name]}) cannot be loaded: {error}") from error
    target: Target = kind()
    return target
