"""What targets need."""

from pkgutil import resolve_name

import pytest

from tileyard.targets.registry import BUILT_IN, find_needs, list_texts


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
