"""Builds of sides that were never made, and rows that were never timed."""

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.model import Outcome
from tileyard.targets.own_sources import Reported, Resources
from tileyard.verbs.regress.result import Ratio, TimedRow


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


def built(case: str = "gemm/block=1", *functions: Resources, build_s: float = 1.0) -> Build:
    """A kernel that was built."""
    reported = Reported(resources=functions or (function(),), compiler="NVRTC 13.0")
    details = msgspec.json.encode(reported).decode()
    return Build(case=case, outcome=Outcome.PASSED, build_s=build_s, details=details)


def failed(case: str = "gemm/block=1", message: str = "no") -> Build:
    """A kernel that was not."""
    return Build(case=case, outcome=Outcome.COMPILE_ERROR, message=message)


def side(*kernels: Build) -> tuple[Build, ...]:
    """One round of a side."""
    return kernels


def timed(case: str, verdict: str, low: float, ratio: float, high: float) -> TimedRow:
    """A row that was timed in eight processes."""
    return TimedRow(
        case=case,
        verdict=verdict,  # type: ignore[arg-type]
        ratio=Ratio(ratio=ratio, low=low, high=high, processes=8),
        control=Ratio(ratio=1.0, low=0.99, high=1.01, processes=8),
        base=1000.0,
        head=1000.0 * ratio,
        smallest=0.025,
    )
