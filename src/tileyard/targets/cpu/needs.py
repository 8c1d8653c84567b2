"""The needs of the target ``cpu``, and what it shows."""

from tileyard.base.model import Device
from tileyard.targets.registry import Needs

NEEDS = Needs(
    device_class="cpu",
    loads_ahead=True,
    takes_level=True,
    takes_debug=True,
    emits={"c": "kernel.c"},
    spelling="tileyard.targets.cpu.toolchain:spell_target",
    shift="tileyard.targets.cpu.toolchain:list_shifted",
    sanitizes="sanitize=1",
    units="tileyard.targets.cpu.needs:count_cores",
    facts=("scratch_bytes", "workspace_bytes"),
)


def count_cores(device: Device) -> int:
    """The number of a device's cores."""
    return len(device.cores)
