"""Artifacts for the target cuda made by hand: a few lines of CUDA without headers, and their launch records.

NVRTC compiles them in a tenth of a second; TileLang has no part in it.
"""

import importlib
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import BuildKey
from tileyard.ir.nodes import Buffer, Const, Op, Program, Scalar, Tensor, Var
from tileyard.targets.cuda.launching import (
    CUBIN_FILE,
    Details,
    KernelLaunch,
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorMap,
    TensorParam,
    WorkspaceParam,
)

SOURCES = {
    "scale": """
extern "C" __global__ void scale_first(const float *a, float *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] = a[i];
}
extern "C" __global__ void scale_second(const float *w, float *b, signed char step, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = w[i] * factor + step;
}
""",
    "mapped": """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void mapped(const __grid_constant__ Map map, const float *a, float *b) {
    extern __shared__ float room[];
    room[threadIdx.x] = a[threadIdx.x] + map.words[0];
    b[threadIdx.x] = room[threadIdx.x];
}
""",
}

_N = Var("n", "int32")
_BLOCK = 128


def _int(value: int) -> Const:
    return Const(value, "int32")


def _tensor(name: str, *shape: Var | Const, role: str = "in") -> Tensor:
    return Tensor(Buffer(name, "float32", shape, "global"), role)  # type: ignore[arg-type]


def _signature(name: str, params: tuple[Tensor | Scalar, ...], dims: tuple[Var, ...]) -> Program:
    return Program(name, params, dims, (), (_BLOCK,), (), ())


def _scale() -> LaunchRecord:
    """``B = A * factor + step`` through a workspace: two launches, a shape set by the call, two numbers."""
    factor, step = Var("factor", "float32"), Var("step", "int8")
    params = (_tensor("A", _N), Scalar(factor), _tensor("B", _N, role="out"), Scalar(step))
    blocks = Op("floordiv", (Op("add", (_N, _int(_BLOCK - 1)), "int32"), _int(_BLOCK)), "int32")
    count = ScalarParam(value=_N, dtype="int32")
    first = (TensorParam(param=0), WorkspaceParam(workspace=0), count)
    second = (
        WorkspaceParam(workspace=0),
        TensorParam(param=2),
        ScalarParam(value=step, dtype="int8"),
        ScalarParam(value=factor, dtype="float32"),
        count,
    )
    launches = [
        KernelLaunch(
            symbol=symbol,
            grid=(blocks, _int(1), _int(1)),
            block=(_int(_BLOCK), _int(1), _int(1)),
            shared_bytes=_int(0),
            arguments=arguments,
            programmatic=symbol == "scale_second",
        )
        for symbol, arguments in (("scale_first", first), ("scale_second", second))
    ]
    return LaunchRecord(
        signature=_signature("scale", params, (_N,)),
        launches=tuple(launches),
        workspaces=(Op("mul", (_N, _int(4)), "int32"),),
    )


def _mapped() -> LaunchRecord:
    """A TMA descriptor of ``A``, more shared memory than every kernel may have, and clusters of two."""
    width = _int(64)
    one = TensorMap(
        kind="tiled",
        param=0,
        dtype=7,
        dims=(width, _N),
        strides=(Const(256, "int64"),),
        element_strides=(_int(1), _int(1)),
        interleave=0,
        swizzle=3,
        l2_promotion=2,
        oob_fill=0,
        box=(_int(32), _int(64)),
    )
    launch = KernelLaunch(
        symbol="mapped",
        grid=(_int(4), _int(2), _int(1)),
        block=(_int(_BLOCK), _int(1), _int(1)),
        shared_bytes=_int(98304),
        arguments=(MapParam(map=0), TensorParam(param=0), TensorParam(param=1)),
        cluster=(_int(2), _int(1), _int(1)),
        cooperative=True,
    )
    params = (_tensor("A", _N, width), _tensor("B", _N, width, role="out"))
    return LaunchRecord(
        signature=_signature("mapped", params, (_N,)), launches=(launch,), maps=(one,)
    )


RECORDS = {"scale": _scale(), "mapped": _mapped()}


def compile_bare(name: str, arch: str) -> tuple[Details, bytes]:
    """One of them, built for an architecture."""
    nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(SOURCES[name].encode(), b"bare.cu", 0, [], [])
    flags = [f"--gpu-architecture={arch}".encode()]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    assert int(status) == 0, status
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = bytes(size)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    details = Details(arch=arch, launch=RECORDS[name], resources=(), compiler="NVRTC", cuda=(13, 0))
    return details, cubin


def publish_bare(name: str, arch: str, cubin: Path, objects: ObjectStore) -> BuildKey:
    """Make one of them an artifact of a store; ``cubin`` is the file with its code."""
    details = Details(arch=arch, launch=RECORDS[name], resources=(), compiler="NVRTC", cuda=(13, 0))
    key = BuildKey(f"{name}-{arch}".ljust(40, "0"))
    manifest = Manifest(
        kernel=name,
        target=f"cuda:{arch}",
        fingerprint="by hand",
        build=key,
        binary=key,
        files={CUBIN_FILE: objects.put_bytes(cubin.read_bytes())},
        details=msgspec.json.encode(details).decode(),
    )
    publish(manifest, objects)
    return key
