"""Targets by name."""

from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.targets.base import Loaded, Source
from tileyard.targets.registry import BUILT_IN, find_needs, list_texts, make_target


class Echo:
    """A target that only remembers its option."""

    needs_tir = False

    def __init__(self, option: str = "none") -> None:
        self.name = f"echo:{option}"

    def fingerprint(self) -> str:
        """Nothing."""
        return ""

    def build(self, sources: Sequence[Source], out: Path) -> Sequence[Build]:
        """Nothing."""
        return []

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Nothing."""
        raise NotImplementedError


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Plugins with a target that lies in an importable module."""
    import sys
    import types

    module = types.ModuleType("echo_plugin")
    module.Echo = Echo  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "echo_plugin", module)
    return {"echo": "echo_plugin:Echo"}


@pytest.mark.parametrize(("name", "expected"), [("cpu", "cpu"), ("cpu:x86-64-v3", "cpu:x86-64-v3")])
def test_the_cpu_is_built_in(name: str, expected: str) -> None:
    """``cpu`` needs no plugin, and takes a level after a colon."""
    target = make_target(name, {})
    assert (target.name, target.needs_tir) == (expected, False)


@pytest.mark.parametrize(
    ("name", "expected"), [("echo", "echo:none"), ("echo:a:b", "echo:a:b"), ("echo:", "echo:none")]
)
def test_plugins_add_targets(name: str, expected: str, echo: dict[str, str]) -> None:
    """A plugin's class gets what stands after the first colon, if anything does."""
    assert make_target(name, echo).name == expected


def test_an_unknown_name_lists_the_known_ones(echo: dict[str, str]) -> None:
    """A name that nothing provides is refused with those that something does."""
    known = ", ".join(sorted({*BUILT_IN, *echo}))
    expected = f"there is no target gpu (known targets: {known})"
    with pytest.raises(UsageError) as caught:
        make_target("gpu", echo)
    assert str(caught.value) == expected


@pytest.mark.parametrize("where", ["no_such_module:Target", "tileyard.targets.base:NoSuch", "os"])
def test_a_plugin_that_cannot_be_loaded_is_named(where: str) -> None:
    """A plugin whose module or class does not exist is a usage error that says where it was sought."""
    with pytest.raises(UsageError, match=f"target broken cannot be loaded from {where}"):
        make_target("broken", {"broken": where})


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_what_a_target_names_is_there(name: str) -> None:
    """What is loaded only when it is asked for can be loaded."""
    needs = find_needs(name)
    assert all(callable(resolve_name(one)) for one in (needs.fit, needs.shift) if one)


def test_what_follows_a_colon_changes_nothing() -> None:
    """It is an option of the target."""
    assert find_needs("cuda:sm_90a") == find_needs("cuda")


@pytest.mark.parametrize(
    ("name", "expected"), [("scripted", "cpu"), ("sim", "sim"), ("npu", "cpu")]
)
def test_a_plugin_runs_on_the_cpu_where_no_device_is_named(name: str, expected: str) -> None:
    """Unless it is called as simulators are; and on whatever device is named for it."""
    needs = find_needs(name)
    assert (needs.device_class, needs.is_bound, needs.loads_ahead) == (expected, False, False)


def test_texts_are_those_of_all_targets() -> None:
    """Each has one word, and its file, whatever target it is of."""
    expected = {"program": "program.tile", "c": "kernel.c", "cuda": "kernel.cu"}
    assert list_texts().items() >= expected.items()
