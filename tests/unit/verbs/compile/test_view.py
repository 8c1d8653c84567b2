"""Launch records for people."""

from tileyard.ir.nodes import Buffer, Const, Op, Program, Scalar, Tensor, Var
from tileyard.targets.cuda.launching import (
    KernelLaunch,
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorMap,
    TensorParam,
    WorkspaceParam,
)
from tileyard.verbs.compile.view import describe_launch

M = Var("m", "int32")
SCALE = Var("scale", "float32")
ONE, TWO, SIZE = Const(1, "int32"), Const(2, "int32"), Const(64, "int32")
A = Tensor(Buffer("A", "float16", (M, SIZE), "global"), "in")
B = Tensor(Buffer("B", "float16", (M, SIZE), "global"), "out")
SIGNATURE = Program(
    name="copy", params=(A, B, Scalar(SCALE)), dims=(M,), grid=(), threads=(), buffers=(), body=()
)


def make_map(*, kind: str = "tiled", dtype: int = 6, swizzle: int = 3) -> TensorMap:
    """A descriptor of A."""
    return TensorMap(
        kind="tiled" if kind == "tiled" else "im2col",
        param=0,
        dtype=dtype,
        dims=(SIZE, M),
        strides=(Const(128, "int32"),),
        element_strides=(ONE, ONE),
        interleave=0,
        swizzle=swizzle,
        l2_promotion=2,
        oob_fill=0,
        box=(SIZE, TWO) if kind == "tiled" else (),
        channels=None if kind == "tiled" else SIZE,
        pixels=None if kind == "tiled" else TWO,
        lower_corner=() if kind == "tiled" else (Const(-1, "int32"),),
        upper_corner=() if kind == "tiled" else (ONE,),
    )


def make_record(*maps: TensorMap) -> LaunchRecord:
    """One launch with an argument of each kind."""
    launch = KernelLaunch(
        symbol="copy_kernel",
        grid=(Op("floordiv", (M, TWO), "int32"), ONE, ONE),
        block=(Const(128, "int32"), ONE, ONE),
        shared_bytes=Const(4096, "int32"),
        cluster=(TWO, ONE, ONE),
        cooperative=True,
        arguments=(
            MapParam(map=0),
            TensorParam(param=1),
            ScalarParam(value=SCALE, dtype="float32"),
            WorkspaceParam(workspace=0),
        ),
    )
    return LaunchRecord(
        signature=SIGNATURE,
        launches=(launch,),
        maps=maps,
        workspaces=(Op("mul", (M, TWO), "int32"),),
    )


def test_sizes_are_formulas_over_the_dimensions() -> None:
    """Every size that depends on the call is told as a formula, every argument by what it is."""
    shown = "\n".join(describe_launch(make_record(make_map())))
    expected = """
workspace 0: m * 2 bytes

launch 1: copy_kernel
  grid     m // 2 x 1 x 1
  block    128 x 1 x 1
  cluster  2 x 1 x 1
  shared   4096 bytes dynamic
  cooperative: all of its blocks run at once
  argument 0: map 0, 128 bytes by value
  argument 1: address of B
  argument 2: float32 scale
  argument 3: address of workspace 0

map 0: tiled TMA descriptor of A
  type             FLOAT16
  dimensions       64 x m, the innermost first
  strides          128 bytes, from the second on
  box              64 x 2
  element strides  1 x 1
  interleave       NONE
  swizzle          128B
  L2 promotion     L2_128B
  outside it reads NONE"""
    assert shown.partition("\n")[2] == expected.removeprefix("\n")


def test_corners_take_the_place_of_a_box() -> None:
    """A descriptor for images is told by its corners, channels and pixels."""
    lines = list(describe_launch(make_record(make_map(kind="im2col"))))
    expected = [
        "  lower corner     -1",
        "  upper corner     1",
        "  channels         64",
        "  pixels           2",
    ]
    start = lines.index(expected[0])
    assert lines[start : start + 4] == expected
    assert not any("box" in line for line in lines)


def test_numbers_without_a_name_are_shown() -> None:
    """A number of a later driver's, for which there is no name here, is shown as it is."""
    lines = list(describe_launch(make_record(make_map(dtype=99, swizzle=77))))
    expected = {"  type             number 99", "  swizzle          number 77"}
    assert expected <= set(lines)
