"""Describes how a CUDA artifact is launched, and what a bundle holds."""

from collections.abc import Iterator, Sequence
from typing import assert_never

import msgspec
from rich.console import Console
from rich.text import Text

from tileyard.artifacts.bundle_file import BundleManifest
from tileyard.artifacts.compat import Requirements
from tileyard.artifacts.toolchains import Layout
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError
from tileyard.base.wording import count_of, name_some
from tileyard.ir.nodes import Expr, Program, Tensor
from tileyard.ir.printer import print_expr, print_program
from tileyard.show.words import clean_line, format_bytes
from tileyard.targets.cuda.launching import (
    Argument,
    KernelLaunch,
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorMap,
    TensorParam,
    WorkspaceParam,
)
from tileyard.targets.own_sources import Resources

_DTYPES = (
    *("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64"),
    *("BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"),
    *("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"),
)
_INTERLEAVES = ("NONE", "16B", "32B")
_SWIZZLES = (
    *("NONE", "32B", "64B", "128B"),
    *("128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"),
)
_PROMOTIONS = ("NONE", "L2_64B", "L2_128B", "L2_256B")
_FILLS = ("NONE", "NAN_REQUEST_ZERO_FMA")


def print_bundle(console: Console, manifest: BundleManifest, name: str, size: int) -> None:
    """Print one line of facts, one per requirement, and one per surprise."""
    commit = f" of {manifest.commit}" if manifest.commit else ""
    target = f" for {manifest.target}" if manifest.target else ""
    facts = (
        f"{name}: {manifest.kind}{target}{commit}, {format_bytes(size)}"
        f" ({format_bytes(manifest.size)} in {count_of(len(manifest.contents), 'entry')})"
    )
    console.print(Text(clean_line(facts)), soft_wrap=True)
    for line in describe_needs(manifest.requires):
        console.print(Text(f"  needs {clean_line(line)}"), soft_wrap=True)
    if manifest.kind == "toolchain":
        try:
            layout = decode_json(manifest.details, Layout)
        except msgspec.DecodeError:
            raise BundleError(f"{name} is not a sound toolchain: its manifest is invalid") from None
        for line in _surprises(layout):
            console.print(Text(f"  {clean_line(line)}", style="yellow"), soft_wrap=True)


def describe_needs(needed: Requirements) -> Iterator[str]:
    """Each requirement in a few words."""
    if needed.machine:
        yield " ".join(part for part in (needed.machine, needed.cpu_level) if part)
    if needed.cpu_features:
        yield f"a CPU with {', '.join(needed.cpu_features)}"
    own = " (or the one that is packed)" if needed.has_cxx else ""
    for name, version, note in (
        ("glibc", needed.glibc, ""),
        ("libstdc++ with GLIBCXX", needed.glibcxx, own),
        ("libstdc++ with CXXABI", needed.cxxabi, own),
    ):
        if version:
            yield f"{name} {version}{note}"
    if needed.python:
        yield f"Python {needed.python}"
    yield from needed.libraries
    if needed.driver:
        yield f"driver {needed.driver}"
    yield from needed.prerequisites.describe()


def _surprises(layout: Layout) -> Iterator[str]:
    for names, what in (
        (layout.stale, "hold the place where they were built, which may not matter"),
        (layout.interpreters, "are run by a program that is not packed"),
        (layout.missing, "were needed and not found when it was packed"),
    ):
        if names:
            yield f"{len(names)} {what}: {name_some(names)}"


# Names as in cuda.h, by the driver's numbers, without the prefix that all of a kind share.


def describe_launch(record: LaunchRecord, resources: Sequence[Resources] = ()) -> Iterator[str]:
    """Lines on what is launched with what, in order; ``resources`` give static shared memory."""
    static = {one.symbol: one.shared_bytes for one in resources}
    signature = record.signature
    yield print_program(signature).splitlines()[0].rstrip(":")
    for number, size in enumerate(record.workspaces):
        yield f"workspace {number}: {print_expr(signature, size)} bytes"
    for number, launch in enumerate(record.launches, start=1):
        yield ""
        yield f"launch {number}: {launch.symbol}"
        yield from _describe_sizes(signature, launch, static.get(launch.symbol, 0))
        for place, argument in enumerate(launch.arguments):
            yield f"  argument {place}: {_describe_argument(signature, argument)}"
    for number, one in enumerate(record.maps):
        yield ""
        yield f"map {number}: {one.kind} TMA descriptor of {_name_param(signature, one.param)}"
        yield from _describe_map(signature, one)


def _describe_sizes(signature: Program, launch: KernelLaunch, static: int) -> Iterator[str]:
    yield f"  grid     {_sizes(signature, launch.grid)}"
    yield f"  block    {_sizes(signature, launch.block)}"
    if launch.cluster:
        yield f"  cluster  {_sizes(signature, launch.cluster)}"
    more = f", {static} bytes static" if static else ""
    yield f"  shared   {print_expr(signature, launch.shared_bytes)} bytes dynamic{more}"
    for is_so, what in (
        (launch.cooperative, "cooperative: all of its blocks run at once"),
        (launch.programmatic, "programmatic: begins while the launch before it ends"),
    ):
        if is_so:
            yield f"  {what}"


def _describe_argument(signature: Program, argument: Argument) -> str:
    match argument:
        case TensorParam(param=param):
            return f"address of {_name_param(signature, param)}"
        case ScalarParam(value=value, dtype=dtype):
            return f"{dtype} {print_expr(signature, value)}"
        case MapParam(map=number):
            return f"map {number}, 128 bytes by value"
        case WorkspaceParam(workspace=number):
            return f"address of workspace {number}"
        case _:
            assert_never(argument)


def _describe_map(signature: Program, one: TensorMap) -> Iterator[str]:
    yield f"  type             {_name(_DTYPES, one.dtype)}"
    yield f"  dimensions       {_sizes(signature, one.dims)}, the innermost first"
    yield f"  strides          {_sizes(signature, one.strides)} bytes, from the second on"
    if one.kind == "tiled":
        yield f"  box              {_sizes(signature, one.box)}"
    else:
        yield f"  lower corner     {_sizes(signature, one.lower_corner)}"
        yield f"  upper corner     {_sizes(signature, one.upper_corner)}"
        for value, what in ((one.channels, "channels"), (one.pixels, "pixels")):
            if value is not None:
                yield f"  {what:<16} {print_expr(signature, value)}"
    yield f"  element strides  {_sizes(signature, one.element_strides)}"
    yield f"  interleave       {_name(_INTERLEAVES, one.interleave)}"
    yield f"  swizzle          {_name(_SWIZZLES, one.swizzle)}"
    yield f"  L2 promotion     {_name(_PROMOTIONS, one.l2_promotion)}"
    yield f"  outside it reads {_name(_FILLS, one.oob_fill)}"


def _sizes(signature: Program, sizes: Sequence[Expr]) -> str:
    return " x ".join(print_expr(signature, size) for size in sizes) if sizes else "none"


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"number {number}"


def _name_param(signature: Program, position: int) -> str:
    if not 0 <= position < len(signature.params):
        return f"parameter {position}, of which there is none"
    param = signature.params[position]
    return param.buffer.name if isinstance(param, Tensor) else param.var.name
