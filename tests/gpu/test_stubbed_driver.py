"""Artifacts loaded, bound and launched with the driver library stubbed: nothing here runs on a GPU.

What is shown is what the driver was told to do, by the stub's own record of it.
"""

import importlib.util
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gpu.conftest import CLIENT, Ask

from tileyard.devices.cuda import has_driver

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
    ),
]


def launched(line: str) -> tuple[str, list[bytes]]:
    """A launch up to its parameters, and the bytes of each of these."""
    text, _, params = line.partition(" params=")
    return text, [bytes.fromhex(one) for one in params.split(",")]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_launches_are_those_of_the_record_for_this_shape(ask: Ask, arch: str) -> None:
    """Driver stubbed: two launches in order, numbers as the kernels take them, one workspace for both."""
    answer = ask("once", f"scale-{arch}", ARCH=arch[3:5])
    expected = {"poisoned": True, "shape": [1000], "heavy": []}
    assert json.loads(answer.output) == expected, answer.errors
    (first, one), (second, two) = map(launched, answer.lines("launch"))
    sizes = "grid=8,1,1 block=128,1,1 shared=0 cluster=1,1,1"
    assert (first, second) == (f"scale_first {sizes}", f"scale_second {sizes}")
    assert one[1] == two[0]
    assert len({one[0], one[1], two[1]}) == 3
    assert one[2:] == [struct.pack("<i", 1000)]
    assert two[2:] == [struct.pack("<b", -3), struct.pack("<f", 0.5), struct.pack("<i", 1000)]
    assert answer.lines("attribute") == ["6=1"]


def test_a_descriptor_is_passed_by_value(ask: Ask) -> None:
    """Driver stubbed: the map is of the tensor's own address; shared memory and cluster are as recorded."""
    answer = ask("once", "mapped-sm_90a")
    (line,) = answer.lines("launch")
    text, (descriptor, a, b) = launched(line)
    expected = "mapped grid=4,2,1 block=128,1,1 shared=98304 cluster=2,1,1"
    assert text == expected
    assert len(descriptor) == 128
    assert descriptor[:8] == a != b
    assert answer.lines("map") == ["dtype=7 rank=2 dim0=64 box0=32 swizzle=3"]
    assert answer.lines("attribute") == ["2=1"]


def test_a_descriptor_is_encoded_once_and_aimed_at_each_tensor(ask: Ask) -> None:
    """Driver stubbed: each launch has its own call's descriptor and addresses, also after a refused one."""
    answer = ask("aims", "mapped-sm_90a")
    told = json.loads(answer.output)
    expected = [("a", "b"), ("c", "b"), ("c", "b")]
    found = []
    for line in answer.lines("launch"):
        _, (descriptor, first, second) = launched(line)
        assert descriptor[:8] == first
        found.append((first, second))
    assert found == [
        (struct.pack("<Q", told[one]), struct.pack("<Q", told[other])) for one, other in expected
    ]
    assert len(answer.lines("map")) == 1
    (message,) = told["said"]
    assert message == "B begins at an address that is not a multiple of 16 bytes"


def test_inputs_that_cannot_change_are_uploaded_once(ask: Ask) -> None:
    """Driver stubbed: one upload for three launches, and one per launch with an array that may change."""
    answer = ask("uploads", "scale-sm_90a")
    expected = 1 + 2 + 5  # the poison of five outputs has the same size
    assert answer.lines("upload").count("4000") == expected, answer.errors


@pytest.mark.parametrize(
    ("offset", "where", "far"), [(-4, "before", 4), (4000, "behind", 1), (4095, "behind", 96)]
)
def test_a_stray_write_is_found(ask: Ask, offset: int, where: str, far: int) -> None:
    """Driver stubbed: it writes one byte beside an output, which is named, with the distance."""
    answer = ask("sticky", "scale-sm_90a", STRAY=f"scale_second:1:{offset}")
    message = (
        f"scale wrote outside B: 1 bytes {where} it were changed, the nearest {far} bytes away"
    )
    expected = [["KernelFault", message]] * 2
    assert json.loads(answer.output) == expected, answer.errors


@pytest.mark.parametrize(
    ("number", "name"),
    [(700, "ILLEGAL_ADDRESS"), (716, "MISALIGNED_ADDRESS"), (719, "LAUNCH_FAILED")],
)
def test_an_error_that_sticks_has_cudas_name(ask: Ask, number: int, name: str) -> None:
    """Driver stubbed: it fails as if a kernel had, and then for ever; both are told to be a lost context."""
    answer = ask("sticky", "scale-sm_90a", FAULT=f"scale_second:{number}")
    first, second = json.loads(answer.output)
    expected = ["ContextLostError", f"scale: CUDA_ERROR_{name} (cuStreamSynchronize)"]
    assert first == expected
    assert second[0] == expected[0]
    assert f"CUDA_ERROR_{name}" in second[1]


@pytest.mark.parametrize(
    ("variables", "artifact", "expected"),
    [
        ({"FREE": "8000"}, "scale-sm_90a", r"MemoryError: the kernel's arrays take 0\.0\d+ MiB, .* left"),
        ({"DRIVER": "12040"}, "scale-sm_90a", "BindError: .* CUDA 13.0, and the driver knows CUDA 12.4"),
        ({"ARCH": "80"}, "scale-sm_90a", "BindError: .* sm_90a and runs on .* 9.0; .* has 8.0"),
        ({"ARCH": "100"}, "scale-sm_90a", "BindError: .* has 10.0"),
        ({"ARCH": "90"}, "scale-sm_80", "BindError: .* 8.0 or a later 8.x; .* has 9.0"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_in_one_line(
    ask: Ask, variables: dict[str, str], artifact: str, expected: str
) -> None:
    """Driver stubbed: nothing was allocated or launched until then."""
    answer = ask("once", artifact, **variables)
    refused = json.loads(answer.output)["refused"]
    assert re.match(expected, refused), refused
    assert "\n" not in refused
    assert answer.lines("alloc") + answer.lines("launch") == []


@pytest.mark.skipif(has_driver(), reason="there is a driver")
def test_without_a_driver_it_says_so(bare: Path) -> None:
    """The driver is not even stubbed here: that there is none is one line."""
    command = [sys.executable, str(CLIENT), str(bare), "once", "scale-sm_90a"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    expected = "ToolMissingError: there is no NVIDIA driver here: no libcuda.so.1"
    assert json.loads(done.stdout)["refused"] == expected


def test_samples_are_taken_as_the_policy_says(ask: Ask) -> None:
    """Driver stubbed: 130 calls of two launches in a row, as graphs of 64, or each from an empty cache."""
    plain = ask("times", "scale-sm_90a", "plain")
    assert len(plain.lines("launch")) == 2 * 2 * 130
    graph = ask("times", "scale-sm_90a", "graph")
    assert graph.lines("captured") == ["128"]
    assert graph.lines("replay") == ["128"] * (1 + 2 * 3)
    cold = ask("times", "scale-sm_90a", "flush")
    l2_bytes = 1 << 20
    assert cold.lines("fill").count(str(2 * l2_bytes)) == 1 + 2 * 64
    assert len(cold.lines("launch")) == 2 * 2 * 64


def test_the_callable_takes_arrays_of_any_framework(ask: Ask) -> None:
    """Driver stubbed: outputs made, streams waited for on the device, descriptors only for new addresses."""
    answer = ask("call", "mapped-sm_90a")
    expected = {
        "shape": [1000, 64],
        "typestr": "<f4",
        "results": [None, None, None],
        "streams": [1],
    }
    assert json.loads(answer.output) == expected, answer.errors
    assert len(answer.lines("launch")) == 4
    assert len(answer.lines("map") + answer.lines("aimed")) == 3
    assert answer.lines("upload") == []


def test_the_callable_refuses_what_does_not_fit(ask: Ask) -> None:
    """Driver stubbed: shared memory, dtype, shape, strides, alignment, kind and count, each in its words."""
    answer = ask("refusals", "mapped-sm_90a")
    expected = [
        "B is written, and shares memory with A",
        "A is float32, the array <f2",
        "A has shape (1000, 64), the array (1000, 32)",
        "A is not contiguous",
        "A begins at an address that is not a multiple of 16 bytes",
        "A is an array on a GPU, not list",
        "mapped takes 1 or 2 arguments, not 3",
    ]
    assert json.loads(answer.output) == expected, answer.errors
    assert answer.lines("launch") == []
