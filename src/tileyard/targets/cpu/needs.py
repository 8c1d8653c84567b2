"""The needs of the target ``cpu``, and what it shows."""

from tileyard.targets.registry import Needs

NEEDS = Needs(
    device_class="cpu",
    loads_ahead=True,
    takes_level=True,
    takes_debug=True,
    emits={"c": "kernel.c"},
    shift="tileyard.targets.cpu.toolchain:list_shifted",
    sanitizes="sanitize=1",
    facts=("scratch_bytes", "workspace_bytes"),
)
