"""What NVML reports of GPUs, and the program that asks it. Light to import."""

import sys

from tileyard.base.model import Record

PROGRAM = "tileyard.devices.nvml"


class Gpu(Record):
    """One GPU, or MIG slice, as NVML reports it; unknown values are empty or 0. ``index`` is by PCI
    address, ``slice`` -1 for a whole GPU, ``cuda`` the highest version of the driver, ``uuid`` the
    slice's if any, clocks those set. ``busy_percent``: work in NVML's last sample, up to a second.
    """

    index: int
    uuid: str
    product: str
    slice: int = -1
    pci_device: int = 0
    driver: str = ""
    cuda: tuple[int, int] = (0, 0)
    capability: tuple[int, int] = (0, 0)
    memory_bytes: int = 0
    graphics_mhz: int = 0
    memory_mhz: int = 0
    max_graphics_mhz: int = 0
    power_limit_w: int = 0
    ecc: bool | None = None
    persistent: bool | None = None
    busy_percent: int | None = None


class GpuList(Record):
    """Every GPU, or why they could not be listed."""

    gpus: tuple[Gpu, ...] = ()
    failure: str = ""


def nvml_command(*arguments: str) -> tuple[str, ...]:
    """The command line of the program that asks NVML."""
    return (sys.executable, "-P", "-m", PROGRAM, *arguments)
