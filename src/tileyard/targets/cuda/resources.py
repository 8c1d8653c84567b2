"""Reads the device resources of an artifact's functions from cubin, launch record and compiler's
log. In a cubin, an ELF file, ``.nv.info`` (for all) and ``.nv.info.NAME`` are rows of attributes:
format, number, two bytes of value or of size.
"""

import io
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tileyard.base.errors import DamagedError
from tileyard.base.model import Record
from tileyard.ir.nodes import Const, Expr
from tileyard.targets.cuda.architectures import (
    Architecture,
    exceed_shared,
    find_excess,
    find_occupancy,
)
from tileyard.targets.cuda.launching import KernelLaunch, LaunchRecord
from tileyard.targets.cuda.sass import count_instructions
from tileyard.targets.own_sources import Excess, Resources

# ---- cubins ---------------------------------------------------------------------------------------


_SIZED = 4
"""The format of an attribute whose value follows its size, in two bytes, where others have the value."""

_RESERVED = 1024
"""Bytes that a function's section of shared memory begins with from sm_90 on: those that the system takes."""

# Numbers of attributes, as cuobjdump and nvdisasm name them.
_KPARAM_INFO, _FRAME_SIZE, _CBANK_PARAM_SIZE, _REGCOUNT = 0x17, 0x11, 0x19, 0x2F


class Parameter(Record):
    """One parameter of a device function: its position, and bytes from the beginning of the first one."""

    index: int
    offset: int
    size: int


class DeviceFunction(Record):
    """What a cubin states about one function. Bytes are per thread (stack) or per block (shared)."""

    symbol: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    parameter_bytes: int
    parameters: tuple[Parameter, ...]
    code: bytes


def read_cubin(data: bytes) -> tuple[DeviceFunction, ...]:
    """The device functions of a cubin, each with its name. Raises DamagedError if the cubin is not sound."""
    try:
        elf = ELFFile(io.BytesIO(data))
        return tuple(sorted(_read_functions(elf), key=lambda function: function.symbol))
    except (ELFError, struct.error, ValueError, LookupError, OverflowError) as error:
        raise DamagedError(f"not a sound cubin: {error}") from error


def _read_functions(elf: Any) -> Iterator[DeviceFunction]:  # noqa: ANN401 (pyelftools is untyped)
    sections = {section.name: section for section in elf.iter_sections()}
    symbols = sections[".symtab"]
    if not isinstance(symbols, SymbolTableSection):
        raise ELFError(".symtab is not a table of symbols")
    registers: dict[str, int] = {}
    stacks: dict[str, int] = {}
    for number, value in _attributes(sections[".nv.info"].data()):
        if number in (_REGCOUNT, _FRAME_SIZE):
            index, amount = struct.unpack("<II", value)
            found = registers if number == _REGCOUNT else stacks
            found[symbols.get_symbol(index).name] = amount
    for name, section in sections.items():
        symbol = name.removeprefix(".text.")
        info = sections.get(f".nv.info.{symbol}")
        if symbol == name or info is None:
            continue
        attributes = list(_attributes(info.data()))
        if not any(number == _CBANK_PARAM_SIZE for number, _ in attributes):
            continue  # a function that only device code calls
        shared = sections.get(f".nv.shared.{symbol}")
        reserved = _RESERVED if ".nv.shared.reserved.0" in sections else 0
        yield DeviceFunction(
            symbol=symbol,
            registers=registers.get(symbol, 0),
            stack_bytes=stacks.get(symbol, 0),
            shared_bytes=0 if shared is None else int(shared["sh_size"]) - reserved,
            parameter_bytes=next(
                struct.unpack("<H", value)[0]
                for number, value in attributes
                if number == _CBANK_PARAM_SIZE
            ),
            parameters=tuple(
                sorted(map(_parameter, _values(attributes, _KPARAM_INFO)), key=lambda p: p.index)
            ),
            code=section.data(),
        )


def _values(attributes: list[tuple[int, bytes]], wanted: int) -> Iterator[bytes]:
    return (value for number, value in attributes if number == wanted)


def _parameter(value: bytes) -> Parameter:
    """Index, ordinal, offset, and a word whose bits from the 18th on are the size."""
    _, ordinal, offset, packed = struct.unpack("<IHHI", value)
    return Parameter(index=ordinal, offset=offset, size=packed >> 18)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, number, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            yield number, data[at : at + size]
            at += size
        else:
            yield number, struct.pack("<H", size)


# ---- resources ------------------------------------------------------------------------------------


_FUNCTION = re.compile(r"Compiling entry function '(?P<symbol>[^']+)'")
_TOO_MUCH = re.compile(r"uses too much shared data \((0x\w+) bytes, (0x\w+) max\)")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")


def read_resources(
    cubin: bytes, launch: LaunchRecord, architecture: Architecture, log: str
) -> tuple[Resources, ...]:
    """One entry per device function that is launched, in launch order. Raises DamagedError."""
    functions = {function.symbol: function for function in read_cubin(cubin)}
    spills = _read_spills(log)
    launches = {one.symbol: one for one in launch.launches}
    return tuple(
        _describe(functions[symbol], one, architecture, spills.get(symbol, 0))
        for symbol, one in launches.items()
    )


def find_launch_excess(
    launch: LaunchRecord, architecture: Architecture, built: Sequence[Resources] = ()
) -> Excess | None:
    """Why no device of the architecture would accept a launch: by its sizes, and by what its function takes
    once that is ``built``.
    """
    functions = {one.symbol: one for one in built}
    for one in launch.launches:
        sizes = [size for size in map(_known, one.block) if size is not None]
        shared_bytes, registers = _known(one.shared_bytes) or 0, 0
        if (function := functions.get(one.symbol)) is not None:
            shared_bytes += function.shared_bytes
            registers = function.registers
        if excess := find_excess(architecture, math.prod(sizes), shared_bytes, registers):
            return excess
    return None


def read_excess(log: str, architecture: Architecture) -> Excess | None:
    """Why ptxas refused a function for its size: its own shared memory has a lower limit on some devices."""
    found = _TOO_MUCH.search(log)
    if found is None:
        return None
    needed_bytes, most_bytes = (int(number, 16) for number in found.groups())
    return exceed_shared(architecture.name, needed_bytes, most_bytes, "static ")


def list_facts(resources: Sequence[Resources], launch: LaunchRecord) -> dict[str, int]:
    """The facts of NEEDS, without those that a call decides: each the largest of the functions, and the
    memory of a call beside its tensors.
    """
    found: dict[str, list[int | None]] = {
        "registers": [one.registers for one in resources],
        "spilled_bytes": [one.spilled_bytes for one in resources],
        "stack_bytes": [one.stack_bytes for one in resources],
        "shared_bytes": [
            None
            if one.dynamic_shared_bytes is None
            else one.shared_bytes + one.dynamic_shared_bytes
            for one in resources
        ],
        "code_bytes": [one.code_bytes for one in resources],
    }
    facts = {
        name: max(numbers)
        for name, values in found.items()
        if len(numbers := [one for one in values if one is not None]) == len(values) > 0
    }
    sizes = [size for size in map(_known, launch.workspaces) if size is not None]
    if len(sizes) == len(launch.workspaces):
        facts["workspace_bytes"] = sum(sizes)
    return facts


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
    """Bytes that each function spills from registers, as reported by ``ptxas -v``."""
    found: dict[str, int] = {}
    symbol = ""
    for line in log.splitlines():
        if (entry := _FUNCTION.search(line)) is not None:
            symbol = entry["symbol"]
        elif symbol and (spills := _SPILLS.search(line)) is not None:
            found[symbol] = int(spills["stores"])
    return found


def _product(sizes: tuple[Expr, ...]) -> int | None:
    known = [number for number in map(_known, sizes) if number is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _known(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) else None
