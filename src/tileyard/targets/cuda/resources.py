"""What the device functions of an artifact take of a device, from cubin, launch record and compiler's log."""

import re
from collections.abc import Mapping

from tileyard.ir.nodes import Const, Expr
from tileyard.targets.cuda.architectures import Architecture, find_occupancy
from tileyard.targets.cuda.cubin import DeviceFunction, read_cubin
from tileyard.targets.cuda.records import KernelLaunch, LaunchRecord, Resources
from tileyard.targets.cuda.sass import count_instructions

_FUNCTION = re.compile(r"Compiling entry function '(?P<symbol>[^']+)'")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")


def read_resources(
    cubin: bytes, launch: LaunchRecord, architecture: Architecture, log: str
) -> tuple[Resources, ...]:
    """One entry for each device function that is launched, in that order. Raises DamagedError."""
    functions = {function.symbol: function for function in read_cubin(cubin)}
    spills = _read_spills(log)
    launches = {one.symbol: one for one in launch.launches}
    return tuple(
        _describe(functions[symbol], one, architecture, spills.get(symbol, 0))
        for symbol, one in launches.items()
    )


def _describe(
    function: DeviceFunction, launch: KernelLaunch, architecture: Architecture, spilled: int
) -> Resources:
    threads = _product(launch.block)
    dynamic = _known(launch.shared_bytes)
    occupancy = None
    if threads is not None and dynamic is not None:
        shared = function.shared_bytes + dynamic
        occupancy = find_occupancy(architecture, threads, function.registers, shared)
    return Resources(
        symbol=function.symbol,
        registers=function.registers,
        spilled_bytes=spilled,
        stack_bytes=function.stack_bytes,
        shared_bytes=function.shared_bytes,
        code_bytes=len(function.code),
        parameter_bytes=function.parameter_bytes,
        threads=threads,
        dynamic_shared_bytes=dynamic,
        occupancy=occupancy,
        mix=count_instructions(function.code, architecture.major),
    )


def _read_spills(log: str) -> Mapping[str, int]:
    """Bytes that each function stores for want of registers, as ``ptxas -v`` tells them."""
    found: dict[str, int] = {}
    symbol = ""
    for line in log.splitlines():
        if (entry := _FUNCTION.search(line)) is not None:
            symbol = entry["symbol"]
        elif symbol and (spills := _SPILLS.search(line)) is not None:
            found[symbol] = int(spills["stores"])
    return found


def _product(sizes: tuple[Expr, ...]) -> int | None:
    total = 1
    for size in sizes:
        known = _known(size)
        if known is None:
            return None
        total *= known
    return total


def _known(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) else None
