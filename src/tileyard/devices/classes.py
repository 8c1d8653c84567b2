"""The known classes of devices. Devices of any other class can be declared, too."""

from collections.abc import Iterable

from tileyard.base.model import Device
from tileyard.devices.base import DeviceClass
from tileyard.devices.cpu import CPU, name_kind
from tileyard.devices.cuda import CUDA

CLASSES: dict[str, DeviceClass] = {
    "cpu": CPU,
    "cuda": CUDA,
    "rocm": DeviceClass(
        env={"ROCR_VISIBLE_DEVICES": "{id}"}, masks=("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    ),
    "npu": DeviceClass(
        env={"ASCEND_RT_VISIBLE_DEVICES": "{index}"}, masks=("ASCEND_RT_VISIBLE_DEVICES",)
    ),
    "sim": DeviceClass(is_declarable=False, is_probed=False),
}


def find_class(kind: str) -> DeviceClass:
    """The class of this name; an unknown one has no special properties."""
    return CLASSES.get(kind, DeviceClass())


def find_cpu_kinds(devices: Iterable[Device]) -> dict[str, tuple[Device, ...]]:
    """The devices that are cores, by their kind of CPU."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        if find_class(device.kind).is_cores:
            found.setdefault(name_kind(device.identity), []).append(device)
    return {kind: tuple(each) for kind, each in found.items()}
