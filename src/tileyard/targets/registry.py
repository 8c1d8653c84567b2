"""Finds targets by name, built-in ones and those of plugins. Each is loaded at its first use."""

import importlib
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tileyard.base.errors import UsageError
from tileyard.targets.needs import OF_PLUGINS, OF_SIMULATORS, PROGRAM_FILE, Needs

if TYPE_CHECKING:
    from tileyard.targets.base import Target

COMMAND = "command"
"""The target of cases that are programs."""
BUILT_IN: dict[str, str] = {
    "cpu": "tileyard.targets.cpu.target:CpuTarget",
    "cuda": "tileyard.targets.cuda.target:CudaTarget",
    COMMAND: "tileyard.targets.command.target:CommandTarget",
}
"""Target names, each with its ``module:Class``. The module ``needs`` beside it holds its NEEDS."""
DEFAULT_TARGET = "cpu"


def find_needs(target: str) -> Needs:
    """The needs of the target of this name. An unknown name is taken for a plugin's."""
    base = target.partition(":")[0]
    if base not in BUILT_IN:
        return OF_SIMULATORS if base == OF_SIMULATORS.device_class else OF_PLUGINS
    package = BUILT_IN[base].rpartition(".")[0]
    needs: Needs = importlib.import_module(f"{package}.needs").NEEDS
    return needs


def list_shifted(target: str) -> tuple[str, ...]:
    """Targets that build the same code at other places in memory; none if the target has no such variants."""
    shift = find_needs(target).shift
    return tuple(resolve_name(shift)(target)) if shift else ()


def is_timed(target: str) -> bool:
    """Whether the times of a target's builds say anything about the kernel: not those of sanitized ones."""
    return find_needs(target).sanitizes not in target.partition(":")[2].split(",")[1:]


def list_texts() -> dict[str, str]:
    """The generated texts of all targets: words of ``--emit``, each with its file in an artifact."""
    texts = {"program": PROGRAM_FILE}
    for name in BUILT_IN:
        texts.update(find_needs(name).emits)
    return texts


def make_target(name: str, plugins: Mapping[str, str]) -> "Target":
    """The target called ``name``; text after a colon, as in ``cpu:x86-64-v3``, goes to its class.
    ``plugins`` maps further names to ``module:Class``. Raises UsageError for an unknown name, or a
    plugin that cannot be loaded.
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
