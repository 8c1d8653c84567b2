"""Cubins as files: what a small one says of its functions, and damaged ones."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.base.errors import DamagedError
from tileyard.ir.nodes import Const, Program, Var
from tileyard.targets.cuda.launching import LaunchRecord
from tileyard.targets.cuda.resources import Parameter, list_facts, read_cubin
from tileyard.targets.cuda.sass import KINDS, count_instructions
from tileyard.targets.own_sources import PADDING, Resources
from tileyard.targets.registry import find_needs

SOURCE = b"""
struct Wide { char bytes[128]; };
extern "C" __global__ void scale(float *x, bool is_negative, long long n, short last) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = (is_negative ? -2.0f : 2.0f) * tile[63 - threadIdx.x] + n + last;
}
extern "C" __global__ void copy(const __grid_constant__ Wide from, int *to) { *to = from.bytes[7]; }
"""


@pytest.fixture(scope="module")
def cubin() -> bytes:
    """Two functions for 8.0."""
    return build("sm_80")


def build(architecture: str) -> bytes:
    """The two functions for an architecture."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(SOURCE, b"small.cu", 0, [], [])
    flags = [f"--gpu-architecture={architecture}".encode()]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    assert int(status) == 0
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    data = bytes(size)
    nvrtc.nvrtcGetCUBIN(program, data)
    nvrtc.nvrtcDestroyProgram(program)
    return data


@pytest.mark.slow
def test_functions_say_what_they_take(cubin: bytes) -> None:
    """Parameters stand where C puts them; shared memory is the array's."""
    copy, scale = read_cubin(cubin)
    expected = [(0, 8), (8, 1), (16, 8), (24, 2)]
    assert [function.symbol for function in (copy, scale)] == ["copy", "scale"]
    assert [(one.offset, one.size) for one in scale.parameters] == expected
    assert (scale.parameter_bytes, scale.shared_bytes, scale.stack_bytes) == (26, 256, 0)
    assert copy.parameters == (
        Parameter(index=0, offset=0, size=128),
        Parameter(index=1, offset=128, size=8),
    )
    assert scale.registers > 4
    assert len(scale.code) % 16 == 0


@pytest.mark.slow
def test_what_the_system_takes_is_no_static_shared_memory() -> None:
    """From sm_90 on a function's section begins with the KiB that the system takes of each block."""
    copy, scale = read_cubin(build("sm_90a"))
    assert (copy.shared_bytes, scale.shared_bytes) == (0, 256)


@pytest.mark.slow
def test_instructions_are_counted_by_kind(cubin: bytes) -> None:
    """A load and a store of global and of shared memory, a barrier, and every instruction once."""
    _, scale = read_cubin(cubin)
    mix = count_instructions(scale.code, 8)
    expected = {"global": 2, "shared": 2, "sync": 1}
    assert {kind: mix[kind] for kind in expected} == expected
    assert mix["float"] > 0
    assert sum(mix.values()) == len(scale.code) // 16
    assert list(mix.values()) == sorted(mix.values(), reverse=True)


def test_every_kind_is_of_its_own() -> None:
    """No number is of two kinds; what warps do among lanes has a kind, as moves and padding have."""
    numbers = [number for kind in KINDS.values() for number in kind]
    assert len(numbers) == len(set(numbers))
    # MOV, SHFL, NOP, and what is not an instruction
    code = b"".join(word.to_bytes(16, "little") for word in (0x7A02, 0x7589, 0x7918, 0x7FFF))
    expected = {"move": 1, "lanes": 1, PADDING: 1, "other": 1}
    assert count_instructions(code, 9) == expected


def test_one_number_means_other_things_later() -> None:
    """What multiplies halves on 8.0 and 9.0 adds integers on 12.0."""
    code = (0x7835).to_bytes(16, "little")
    expected = [{"half": 1}, {"half": 1}, {"integer": 1}]
    assert [count_instructions(code, major) for major in (8, 9, 12)] == expected


def test_unknown_instructions_are_others() -> None:
    """A number that is not in the table is counted, and named no kind."""
    expected = {"other": 2}
    assert count_instructions((0x1FF).to_bytes(16, "little") * 2, 9) == expected


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no cubin at all", b"\x7fELF" + b"\xff" * 200])
def test_what_is_no_cubin_is_damaged(data: bytes) -> None:
    """Anything else than an ELF file is refused as damaged."""
    expected = "not a sound cubin"
    with pytest.raises(DamagedError, match=expected):
        read_cubin(data)


@pytest.mark.slow
@pytest.mark.parametrize("field", [slice(0, 4), slice(24, 32), slice(32, 40)])
def test_sections_that_lie_nowhere_are_refused(cubin: bytes, field: slice) -> None:
    """A section whose name, place or size is beyond everything makes the file a damaged one."""
    table, size = int.from_bytes(cubin[40:48], "little"), 64
    expected = 0
    for begin in range(table, len(cubin) - size + 1, size):
        damaged = bytearray(cubin)
        place = slice(begin + field.start, begin + field.stop)
        damaged[place] = b"\xff" * (field.stop - field.start)
        try:
            read_cubin(bytes(damaged))
        except DamagedError:
            expected += 1
    assert expected > 0


@pytest.mark.slow
@given(st.data())
def test_damaged_cubins_are_read_or_refused(cubin: bytes, data: st.DataObject) -> None:
    """Whatever bytes are changed or cut off, nothing but DamagedError is raised."""
    damaged = bytearray(cubin[: data.draw(st.integers(len(cubin) // 2, len(cubin)))])
    # The header and the table of sections, which stand first and last, decide how the rest is read.
    places = st.integers(0, 63) | st.integers(0, len(damaged) - 1)
    for place in data.draw(st.lists(places, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    expected = DamagedError
    with contextlib.suppress(expected):
        read_cubin(bytes(damaged))


def test_facts_are_of_the_function_with_the_most() -> None:
    """Memory of a call is summed up; what the call decides is left out, and nothing else is missing."""
    one = Resources(
        symbol="a",
        registers=64,
        spilled_bytes=0,
        stack_bytes=8,
        shared_bytes=1024,
        code_bytes=2048,
        parameter_bytes=0,
        dynamic_shared_bytes=4096,
    )
    other = msgspec.structs.replace(one, registers=32, spilled_bytes=16, shared_bytes=0)
    sizes = (Const(256, "int64"), Const(128, "int64"))
    launch = LaunchRecord(
        signature=Program("k", (), (), (), (), (), ()), launches=(), workspaces=sizes
    )
    facts = list_facts([one, other], launch)
    assert facts == {
        "registers": 64,
        "spilled_bytes": 16,
        "stack_bytes": 8,
        "shared_bytes": 5120,
        "code_bytes": 2048,
        "workspace_bytes": 384,
    }
    assert tuple(facts) == find_needs("cuda").facts
    other = msgspec.structs.replace(other, dynamic_shared_bytes=None)
    launch = msgspec.structs.replace(launch, workspaces=(*sizes, Var("n", "int64")))
    assert facts.keys() - list_facts([one, other], launch) == {"shared_bytes", "workspace_bytes"}
