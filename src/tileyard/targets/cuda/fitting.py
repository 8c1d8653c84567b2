"""Checks before a build whether a GPU runs code for an architecture."""

from tileyard.artifacts.compat import FIRST_DRIVERS
from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.targets.cuda.architectures import FIRST_WITH, MULTIPROCESSORS, parse_architecture
from tileyard.targets.cuda.packages import CUDA_MAJOR


def native_architecture(device: Device) -> str:
    """The architecture that uses all features of a GPU: ``sm_90a`` and not ``sm_90``."""
    found = parse_architecture(device.arch)
    return found.name if found.suffix or found.major < FIRST_WITH["a"] else f"{found.name}a"


def count_multiprocessors(device: Device) -> int:
    """How many multiprocessors the usual GPU of a device's architecture has; 1 if that is not known."""
    found = MULTIPROCESSORS.get(parse_architecture(device.arch).capability) if device.arch else None
    return 1 if found is None else found.usual_count


def require_fit(target: str, device: Device) -> None:
    """Raise UsageError for a GPU of another capability, or with a driver that is too old."""
    wanted = parse_architecture(target.partition(":")[2])
    if device.arch and not wanted.fits(parse_architecture(device.arch).capability):
        raise UsageError(
            f"what is built for {target} runs on GPUs of capability {wanted.runs_on}, "
            f"and {device.name} is {device.arch}"
        )
    if device.driver_api and int(device.driver_api.partition(".")[0]) < CUDA_MAJOR:
        raise UsageError(
            f"what is built for {target} is compiled by CUDA {CUDA_MAJOR}, and the driver of "
            f"{device.name} knows CUDA {device.driver_api}",
            f"update the driver to {FIRST_DRIVERS[CUDA_MAJOR]} or newer",
        )
