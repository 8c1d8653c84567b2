"""What a GPU says of itself while it is used: clocks, what holds them back, who else is there, memory errors.

A runner asks, for the device of its lease: should NVML hang, the runner is ended as any that hangs.
"""

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tileyard.model import Device

REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "synchronised with others",
    0x20: "too hot",
    0x40: "far too hot",
    0x80: "power brake",
    0x100: "display",
}
"""Bits of NVML's reasons for clocks that are lower than they could be; being idle or set lower are none."""


def open_state(device: Device) -> Callable[[], dict[str, str]]:
    """A question that can be put again and again; where there is no NVML its answer is empty."""
    uuid = device.env.get("CUDA_VISIBLE_DEVICES", "")
    if not uuid:
        return dict
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return dict
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return dict
    return lambda: read_state(nvml, handle, os.getpid())


def read_state(nvml: ModuleType, handle: Any, own: int) -> dict[str, str]:  # noqa: ANN401 - NVML's own
    """What NVML answers now; questions that this GPU does not know are left out. ``own`` is our process."""
    counter = ("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC")
    questions: dict[str, Callable[[], str]] = {
        "sm_clock_mhz": lambda: str(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "memory_clock_mhz": lambda: str(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        "temperature_c": lambda: str(
            nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        ),
        "throttled": lambda: name_reasons(
            int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        ),
        "other_processes": lambda: ", ".join(
            str(one.pid)
            for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if one.pid != own
        ),
        "uncorrected_errors": lambda: str(
            nvml.nvmlDeviceGetTotalEccErrors(handle, *(getattr(nvml, name) for name in counter))
        ),
    }
    found = {}
    for name, question in questions.items():
        try:
            found[name] = question()
        except (nvml.NVMLError, AttributeError):
            continue
    return found


def name_reasons(bits: int) -> str:
    """Why clocks are lower than they could be; empty where they are not."""
    return ", ".join(text for bit, text in REASONS.items() if bits & bit)
