"""Builds of sides that were never made."""

from tileyard.model import Outcome
from tileyard.regress.static import KernelBuild, SideBuild
from tileyard.targets.reported import Resources


def function(symbol: str = "main_kernel_0123456789ab", **figures: object) -> Resources:
    """A device function with these figures, and others that are the same everywhere."""
    fields: dict[str, object] = {
        "symbol": symbol,
        "registers": 32,
        "spilled_bytes": 0,
        "stack_bytes": 0,
        "shared_bytes": 1024,
        "code_bytes": 4096,
        "parameter_bytes": 16,
        "threads": 128,
        "dynamic_shared_bytes": 0,
        "occupancy": 0.5,
        "mix": {"other": 200, "tensor": 56},
    }
    return Resources(**{**fields, **figures})


def built(case: str = "gemm/block=1", *functions: Resources, build_s: float = 1.0) -> KernelBuild:
    """A kernel that was built."""
    resources = functions or (function(),)
    return KernelBuild(case=case, outcome=Outcome.PASSED, build_s=build_s, resources=resources)


def failed(case: str = "gemm/block=1", message: str = "no") -> KernelBuild:
    """A kernel that was not."""
    return KernelBuild(case=case, outcome=Outcome.COMPILE_ERROR, message=message)


def side(*kernels: KernelBuild) -> SideBuild:
    """One round of a side."""
    return SideBuild(kernels=kernels, compiler="NVRTC 13.0")
