"""GPUs as this machine's own NVML tells of them; skipped where there is no driver."""

import asyncio
import importlib.util
import os
from pathlib import Path

import pytest

from tileyard.base.settings import Settings
from tileyard.devices.cuda import has_driver
from tileyard.devices.health import Verdict, list_gpus, probe_device
from tileyard.devices.locks import prepare_directory
from tileyard.devices.registry import find_devices, resolve_devices
from tileyard.devices.survey import survey_devices

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_driver(), reason="there is no NVIDIA driver"),
    pytest.mark.skipif(
        importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed"
    ),
]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """This machine, with locks of one's own."""
    prepare_directory(tmp_path / "locks")
    return Settings(
        home=tmp_path / "home",
        lock_dir=tmp_path / "locks",
        cores=tuple(sorted(os.sched_getaffinity(0))),
        host_config=tmp_path / "etc",
    )


def test_nvml_states_what_an_identity_needs() -> None:
    """Product, UUID, driver, capability and memory of each GPU are known."""
    found = asyncio.run(list_gpus())
    expected = ""
    assert found.failure == expected
    assert found.gpus
    for gpu in found.gpus:
        assert gpu.uuid.startswith(("GPU-", "MIG-"))
        assert gpu.product
        assert gpu.driver
        assert gpu.capability >= (3, 0)
        assert gpu.memory_bytes > 1 << 30


def test_a_gpu_has_a_name_a_class_and_a_uuid(settings: Settings) -> None:
    """All three lead to the same device, whose holder sees it alone."""
    gpus = resolve_devices("cuda", settings)
    first = gpus[0]
    uuid = first.env["CUDA_VISIBLE_DEVICES"]
    expected = (first,)
    assert resolve_devices(first.name, settings) == expected
    assert resolve_devices(uuid, settings) == expected
    assert all(gpu in find_devices(settings) for gpu in gpus)
    assert uuid.lower() in first.locks[0]


def test_a_gpu_answers_its_probe(settings: Settings) -> None:
    """A GPU that others have not filled is well."""
    for device in resolve_devices("cuda", settings):
        probe = asyncio.run(probe_device(device))
        expected = Verdict.GOOD
        assert probe.verdict is expected, probe.message


def test_how_busy_a_gpu_is_can_be_told(settings: Settings) -> None:
    """NVML has a figure for it, unless it is sliced."""
    states = [s for s in survey_devices(settings, 0.1).devices if s.kind == "cuda"]
    expected = len(resolve_devices("cuda", settings))
    assert len(states) == expected
    for state in states:
        if "." not in state.name:
            assert state.busy_share is not None
            assert 0 <= state.busy_share <= 1
