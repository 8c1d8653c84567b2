"""What a test uses a device for outside of a block is heard before it happens."""

from types import SimpleNamespace

import pytest

from tileyard.pytest_plugin.tilelang_jit import watch_kernels, watch_torch


@pytest.mark.parametrize(
    ("target", "expected"),
    [("cpu", ["load", "use", "run", "use", "run"]), ("cuda", ["use", "load", "run", "use", "run"])],
)
def test_a_device_is_leased_before_a_kernel_touches_it(target: str, expected: list[str]) -> None:
    """Kernels for an accelerator are loaded with their first launch, those for cores as they are made."""
    seen: list[str] = []

    def make(artifact: str, target: str, device: str) -> object:
        seen.append("load")
        return lambda number: (seen.append("run"), artifact, target, device, number)[1:]

    module = SimpleNamespace(make_callable=make)
    watch_kernels(module, lambda: seen.append("use"))
    launch = module.make_callable("artifact", target, "device")
    assert [launch(1), launch(2)] == [("artifact", target, "device", n) for n in (1, 2)]
    assert seen == expected


def test_torch_leases_at_its_first_touch_only() -> None:
    """Later ones settle nothing, and come with whatever the process does."""
    seen: list[str] = []
    module = SimpleNamespace(
        _lazy_init=lambda: seen.append("touch"), is_initialized=lambda: "touch" in seen
    )
    watch_torch(module, lambda: seen.append("use"))
    module._lazy_init()
    module._lazy_init()
    assert seen == ["use", "touch", "touch"]
