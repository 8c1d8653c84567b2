"""What a GPU says of itself while it is used, against a library that answers with values made up here."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tileyard.base.model import Device
from tileyard.devices.classes import find_class
from tileyard.devices.cuda import name_reasons, open_state, read_state


class NVMLError(Exception):
    """The library's own."""


def refuse(*_: object) -> Any:  # noqa: ANN401 - never answers
    """A question that this GPU does not know."""
    raise NVMLError("Not Supported")


def library(**changes: object) -> Any:  # noqa: ANN401 - stands for a module
    """A GPU that is too hot and has a second process on it."""
    answers: dict[str, object] = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetClockInfo": lambda _, kind: 1980 if kind == 1 else 3201,
        "nvmlDeviceGetTemperature": lambda *_: 84,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x24,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [
            SimpleNamespace(pid=os.getpid()),
            SimpleNamespace(pid=1234),
        ],
        "nvmlDeviceGetTotalEccErrors": lambda *_: 0,
    }
    return SimpleNamespace(**{**answers, **changes})


def test_clocks_their_limits_and_company_are_told() -> None:
    """In words and plain numbers; our own process is no company."""
    expected = {
        "sm_clock_mhz": "1980",
        "memory_clock_mhz": "3201",
        "temperature_c": "84",
        "throttled": "power cap, too hot",
        "other_processes": "1234",
        "uncorrected_errors": "0",
        "disturbed": "too hot, other processes",
    }
    assert read_state(library(), "gpu", os.getpid()) == expected


def test_what_a_gpu_does_not_know_is_left_out() -> None:
    """The other answers stand."""
    found = read_state(library(nvmlDeviceGetTotalEccErrors=refuse), "gpu", 1)
    expected = {"sm_clock_mhz", "memory_clock_mhz", "temperature_c", "throttled", "other_processes"}
    assert set(found) == {*expected, "disturbed"}


def test_a_power_cap_disturbs_nobody() -> None:
    """Many kernels reach it on a healthy device."""
    found = read_state(
        library(
            nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x4,
            nvmlDeviceGetComputeRunningProcesses=lambda _: [],
        ),
        "gpu",
        1,
    )
    assert found["throttled"] == "power cap"
    assert "disturbed" not in found


@pytest.mark.parametrize(
    ("bits", "expected"), [(0, ""), (0x1, ""), (0x48, "hardware slowdown, far too hot")]
)
def test_an_idle_gpu_is_not_held_back(bits: int, expected: str) -> None:
    """Only what lowers clocks under work is named."""
    assert name_reasons(bits) == expected


def test_other_devices_and_a_lost_gpu_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement is none the worse for it."""
    modules = {"pynvml": library(nvmlDeviceGetHandleByUUID=refuse)}
    monkeypatch.setattr("importlib.import_module", modules.__getitem__)
    gpu = Device(name="cuda:0", kind="cuda", identity="x", env={"CUDA_VISIBLE_DEVICES": "GPU-1"})
    expected: dict[str, str] = {}
    assert open_state(gpu)() == expected
    assert find_class("cpu").state(Device(name="cpu:0", kind="cpu", identity="x"))() == expected
    modules["pynvml"] = library()
    assert open_state(gpu)()["throttled"] == "power cap, too hot"
