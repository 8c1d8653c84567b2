"""The details of a CUDA artifact: how it is launched, and the device resources that it takes.
Expressions are the tile IR's, over the signature's dimensions and scalars: one artifact serves
every shape. Nothing here needs TileLang or CUDA.
"""

from typing import Literal

from tileyard.base.model import Record
from tileyard.ir.nodes import Expr, Program
from tileyard.targets.reported import Resources

DETAILS_VERSION = 1

CUBIN_FILE = "kernel.cubin"
SOURCE_FILE = "kernel.cu"
HOST_FILE = "host.txt"
"""The lowered host module as TVM prints it, from which the launch record was read."""
TILELANG_FILE = "kernel.py"
"""The kernel after our pipeline, as TileLang source."""


class TensorParam(Record, tag="tensor"):
    """The address of a parameter's first element. ``param`` is its position in the signature."""

    param: int


class ScalarParam(Record, tag="scalar"):
    """A number, passed as ``dtype``."""

    value: Expr
    dtype: str


class MapParam(Record, tag="map"):
    """A TMA descriptor, by its position in the record; 128 bytes, passed by value."""

    map: int


class WorkspaceParam(Record, tag="workspace"):
    """The address of memory that the kernel gets for one call, by its position in the record."""

    workspace: int


Argument = TensorParam | ScalarParam | MapParam | WorkspaceParam


class TensorMap(Record):
    """A TMA descriptor as ``cuTensorMapEncodeTiled`` takes it, innermost dimension first, with the driver's
    numbers. ``param`` is the tensor's position in the signature; ``strides`` are bytes, but the innermost's.
    For ``im2col`` two corners, channels and pixels give the box, as for ``cuTensorMapEncodeIm2col``.
    """

    kind: Literal["tiled", "im2col"]
    param: int
    dtype: int
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    element_strides: tuple[Expr, ...]
    interleave: int
    swizzle: int
    l2_promotion: int
    oob_fill: int
    box: tuple[Expr, ...] = ()
    lower_corner: tuple[Expr, ...] = ()
    upper_corner: tuple[Expr, ...] = ()
    channels: Expr | None = None
    pixels: Expr | None = None


class KernelLaunch(Record):
    """One launch of a device function, in blocks, threads and bytes; ``cluster`` is empty for none."""

    symbol: str
    grid: tuple[Expr, Expr, Expr]
    block: tuple[Expr, Expr, Expr]
    shared_bytes: Expr
    arguments: tuple[Argument, ...]
    cluster: tuple[Expr, ...] = ()
    cooperative: bool = False
    programmatic: bool = False


class LaunchRecord(Record):
    """Everything that happens between a call and its end, in order. ``signature`` is a Program of
    the parameters without a body, ``workspaces`` are bytes of memory for one call.
    """

    signature: Program
    launches: tuple[KernelLaunch, ...]
    maps: tuple[TensorMap, ...] = ()
    workspaces: tuple[Expr, ...] = ()


class Details(Record):
    """The target's part of the manifest. ``compiler`` names the binary's compilers, ``cuda`` the
    oldest CUDA release whose driver loads the cubin. ``precisions`` are those of a launch.
    """

    arch: str
    launch: LaunchRecord
    resources: tuple[Resources, ...]
    compiler: str
    cuda: tuple[int, int]
    flags: tuple[str, ...] = ()
    precisions: dict[str, str] = {}
    version: int = DETAILS_VERSION
