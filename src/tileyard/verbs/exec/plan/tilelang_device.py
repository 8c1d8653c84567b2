"""Replaces what TileLang found out about the machine at import, as if it had found a GPU."""

import json
from importlib import import_module
from types import ModuleType
from typing import Any

from tileyard.frontend.no_device import ASSUMED_TARGET
from tileyard.verbs.exec.plan.torch_cuda import CAPABILITY, NAME, Properties


class Device:
    """TVM's description of a GPU, for TileLang's analyses."""

    exist = True
    device_name = NAME
    compute_version = ".".join(map(str, CAPABILITY))
    warp_size = Properties.warp_size
    multi_processor_count = Properties.multi_processor_count
    max_threads_per_block = Properties.max_threads_per_block
    max_shared_memory_per_block = Properties.shared_memory_per_block
    total_global_memory = Properties.total_memory
    l2_cache_size_bytes = Properties.L2_cache_size

    def __init__(self, index: int = 0) -> None:
        self.index = index


ATTRIBUTES = {1: 1024, 12: 65536, 81: 233472, 108: 32 << 20}
"""CUDA's device attributes that TileLang reads, by number: those of the assumed GPU."""


def answer_device(torch: ModuleType) -> None:
    """Make TileLang see the device of ``torch.cuda``."""
    for name in ("tilelang.utils.device", "tilelang.profiler.bench"):
        module = import_module(name)
        vars(module).update(IS_CUDA=True, Event=torch.cuda.Event)
    for name in ("tilelang.carver.arch.driver", "tilelang.carver.arch.driver.cuda_driver"):
        vars(import_module(name)).update(
            get_device_attribute=find_attribute,
            get_cuda_device_properties=torch.cuda.get_device_properties,
        )
    vars(import_module("tilelang.cuda.target")).update(check_cuda_availability=lambda: True)
    targets: Any = import_module("tilelang.backend.target")
    targets.register_target_detector("cuda", lambda: json.loads(ASSUMED_TARGET), override=True)
    make = import_module("tvm").device

    def find_device(dev: str, index: int = 0) -> object:
        return Device(index) if str(dev).partition(":")[0] == "cuda" else make(dev, index)

    for name in ("tvm", "tvm.runtime"):
        vars(import_module(name)).update(cuda=Device, device=find_device)


def find_attribute(attr: int, device_id: int = 0) -> int | None:
    """One attribute of the device; None for one that is never needed."""
    return ATTRIBUTES.get(attr)
