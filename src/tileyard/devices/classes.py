"""The known classes of devices. Devices of any other class can be declared, too."""

from tileyard.devices.base import DeviceClass
from tileyard.devices.cpu import CPU
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
