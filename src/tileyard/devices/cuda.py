"""CUDA devices: facts that NVML reports, translated to Devices. ``nvml`` reads them in a process of
its own, as a driver may hang; the state of a used GPU is read by its runner.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.devices.base import DeviceClass, Found, device_lock
from tileyard.devices.gpus import Gpu, GpuList, nvml_command

PROBE_LIMIT_S = 60.0
"""Seconds; creating the first context takes several on a host with many cards."""
DRIVER_SIGNS = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")
MASK = "CUDA_VISIBLE_DEVICES"
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "synchronised with others",
    0x20: "too hot",
    0x40: "far too hot",
    0x80: "power brake",
    0x100: "display",
}
"""Bits of NVML's reasons for reduced clocks; without those for idle GPUs and for lower settings."""
ABNORMAL = frozenset(REASONS[bit] for bit in (0x8, 0x20, 0x40, 0x80))
"""Reasons that do not occur on a healthy device; many kernels reach the power cap."""


def has_driver(root: Path = Path("/")) -> bool:
    """Whether NVIDIA's driver is visible; without it NVML need not be asked."""
    return any((root / sign).exists() for sign in DRIVER_SIGNS)


def list_visible_gpus() -> GpuList:
    """The GPUs that NVML lists and that this process may see, or why they cannot be listed."""
    if not has_driver():
        return GpuList()
    # asyncio costs as much as the rest of `tileyard lease`: only for hosts with a driver
    from tileyard.devices.health import list_gpus, run_apart

    found = run_apart(list_gpus())
    return GpuList(gpus=filter_visible(found.gpus, os.environ), failure=found.failure)


def find_gpus(settings: Settings) -> Found:
    """The GPUs of this host, how busy they are, or why they are not listed."""
    listed = list_visible_gpus()
    devices = tuple(make_gpu(gpu, settings.lock_dir) for gpu in listed.gpus)
    return Found(
        devices=devices,
        failure=f"GPUs are not listed: {listed.failure}" if listed.failure else "",
        busy={
            device.locks[0]: gpu.busy_percent / 100
            for device, gpu in zip(devices, listed.gpus, strict=True)
            if gpu.busy_percent is not None
        },
    )


def filter_visible(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` selects by index or beginning of a UUID; as for CUDA,
    the first entry that matches nothing ends the list.
    """
    value = environ.get(MASK)
    if value is None:
        return tuple(gpus)
    left: list[Gpu] = []
    for entry in value.split(","):
        found = [gpu for gpu in gpus if _is_meant(gpu, entry.strip())]
        if not found:
            break
        left += [gpu for gpu in found if gpu not in left]
    return tuple(gpu for gpu in gpus if gpu in left)


def make_gpu(gpu: Gpu, lock_dir: Path) -> Device:
    """The device ``cuda:INDEX``, or ``cuda:INDEX.SLICE`` if a GPU is sliced."""
    which = str(gpu.index) if gpu.slice < 0 else f"{gpu.index}.{gpu.slice}"
    return Device(
        name=f"cuda:{which}",
        kind="cuda",
        identity=_identify(gpu),
        locks=(device_lock(gpu.uuid, lock_dir),),
        env={MASK: gpu.uuid},
        mask=MASK,
        probe=nvml_command("probe", gpu.uuid),
        probe_limit_s=PROBE_LIMIT_S,
        arch=_name_arch(gpu),
        driver_api=".".join(map(str, gpu.cuda)) if any(gpu.cuda) else "",
    )


def _identify(gpu: Gpu) -> str:
    """One line that identifies the silicon and its settings; equal if timings are comparable."""
    product = f"{gpu.product} ({gpu.pci_device:08x})" if gpu.pci_device else gpu.product
    clocks = f"clocks {gpu.graphics_mhz}/{gpu.memory_mhz} MHz"
    parts = (
        _name_arch(gpu),
        f"{gpu.memory_bytes >> 20} MiB" if gpu.memory_bytes else "",
        f"driver {gpu.driver}" if gpu.driver else "",
        clocks if gpu.graphics_mhz else "",
        f"up to {gpu.max_graphics_mhz} MHz" if gpu.max_graphics_mhz else "",
        f"power limit {gpu.power_limit_w} W" if gpu.power_limit_w else "",
        {None: "", True: "ECC on", False: "ECC off"}[gpu.ecc],
        "not persistent" if gpu.persistent is False else "",
    )
    return ", ".join([product, *filter(None, parts)])


def _name_arch(gpu: Gpu) -> str:
    major, minor = gpu.capability
    return f"sm_{major}{minor}" if major else ""


def _is_meant(gpu: Gpu, entry: str) -> bool:
    if entry.isdecimal():
        return gpu.index == int(entry)
    return bool(entry) and gpu.uuid.lower().startswith(entry.lower())


# ---- while it is used ---------------------------------------------------------------------------


def open_state(device: Device) -> Callable[[], dict[str, str]]:
    """A function that can be called repeatedly; without NVML its result is empty."""
    uuid = device.env.get(MASK, "")
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
    """NVML's current values, without those that this GPU does not support. ``own`` is our process."""
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
    reasons = [one for one in found.get("throttled", "").split(", ") if one in ABNORMAL]
    others = ["other processes"] if found.get("other_processes") else []
    if reasons or others:
        found["disturbed"] = ", ".join([*reasons, *others])
    return found


def name_reasons(bits: int) -> str:
    """Why clocks are reduced; empty if they are not."""
    return ", ".join(text for bit, text in REASONS.items() if bits & bit)


CUDA = DeviceClass(
    find=find_gpus,
    prefixes=("cuda", "gpu-", "mig-"),
    state=open_state,
    env={MASK: "{id}"},
    masks=(MASK,),
    limits_memory=False,
)
