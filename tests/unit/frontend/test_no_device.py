"""TileLang as kernels are elaborated with it where there is no GPU.

All tests look at one fresh process, since importing TileLang is part of the story.
"""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T


@T.macro
def tell(x):
    T.print(x, msg="inside")


@T.prim_func
def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as bx:
        x = T.alloc_fragment((8,), "float32")
        T.copy(X, x); T.print(x[0], msg="first"); T.print(x[1], msg="second")
        # T.print(x[2]) is a comment
        T.device_assert(x[0] < 1)
        tell(x[3])
        T.copy(x, Y)
"""

SCRIPT = """
import json
import os
from pathlib import Path

from tileyard.frontend.no_device import assume_target, on_import

on_import(
    "tilelang.cuda.target",
    lambda module: vars(module).update(check_cuda_availability=lambda: False),
)


def ask(question):
    try:
        return question()
    except (AssertionError, RuntimeError):
        return "unknown"


with assume_target():
    import torch

    assumed = [ask(torch.cuda.get_device_name)]
    from tilelang.carver.arch.driver import get_num_sms
capability = torch.cuda.get_device_capability
try:
    with assume_target():
        assumed += [ask(torch.cuda.get_device_capability), ask(get_num_sms)]
        raise KeyError("the kernel's own")
except KeyError:
    pass
assert torch.cuda.get_device_capability is capability
after = [ask(capability), ask(get_num_sms)]

os.environ["TILELANG_DEFAULT_TARGET"] = '{"kind":"cuda","arch":"sm_80"}'
with assume_target():
    named = [ask(torch.cuda.get_device_name), ask(torch.cuda.get_device_capability), ask(get_num_sms)]
del os.environ["TILELANG_DEFAULT_TARGET"]

import kernel
from tileyard.frontend.tilelang import lower_prim_func
from tileyard.ir.walk import number_statements

lowered = lower_prim_func(kernel.main)
lines = [
    f"{stmt.__struct_config__.tag} {Path(lowered.lines[number].file).name}:{lowered.lines[number].line}"
    for number, stmt in number_statements(lowered.program)
]
print(json.dumps({"assumed": assumed, "after": after, "named": named, "lines": lines}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """What such a process says."""
    folder = tmp_path_factory.mktemp("no_device")
    (folder / "kernel.py").write_text(KERNEL)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TILELANG_DEFAULT_TARGET": ""}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[object]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_lines_are_the_callers_and_assertions_stay_without_cuda(
    told: dict[str, list[object]],
) -> None:
    """Several calls on one line, comments and macros of the user's: each statement has its own line."""
    expected = ["copy 14", "print 14", "print 14", "assert 16", "let 6", "print 7", "copy 18"]
    assert [str(line).replace("kernel.py:", "") for line in told["lines"]] == expected


def test_code_that_asks_for_the_gpu_hears_of_the_assumed_one(told: dict[str, list[object]]) -> None:
    """Without a GPU and a named target, while a file is imported or a kernel elaborated; also if it fails."""
    assert told["assumed"] == ["NVIDIA H100", [9, 0], 132]
    assert told["after"] == ["unknown", "unknown"]


def test_code_that_asks_for_the_gpu_hears_the_truth_where_a_target_is_named(
    told: dict[str, list[object]],
) -> None:
    """Whoever names a target knows which GPU is meant."""
    assert told["named"] == ["unknown", "unknown", "unknown"]
