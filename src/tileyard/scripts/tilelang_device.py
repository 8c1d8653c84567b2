"""What TileLang found out about the machine when it was imported, as if it had found a GPU."""

from importlib import import_module
from types import ModuleType

ATTRIBUTES = {1: 1024, 12: 65536, 81: 233472, 108: 32 << 20}
"""CUDA's device attributes that TileLang asks for, by number: those of the GPU that is assumed."""


def answer_device(torch: ModuleType) -> None:
    """Have TileLang see the device of ``torch.cuda``."""
    for name in ("tilelang.utils.device", "tilelang.profiler.bench"):
        module = import_module(name)
        vars(module).update(IS_CUDA=True, Event=torch.cuda.Event)
    for name in ("tilelang.carver.arch.driver", "tilelang.carver.arch.driver.cuda_driver"):
        vars(import_module(name)).update(get_device_attribute=find_attribute)


def find_attribute(attr: int, device_id: int = 0) -> int | None:
    """One attribute of the device; None for one that nobody asks for."""
    return ATTRIBUTES.get(attr)
