"""TileLang as kernels are elaborated with it where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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

LOWER = """
from tileyard.frontend.no_device import adjust_tilelang
from tileyard.frontend.no_device import on_import

on_import(
    "tilelang.cuda.target",
    lambda module: vars(module).update(check_cuda_availability=lambda: False),
)
adjust_tilelang()

from pathlib import Path

import kernel
from tileyard.frontend.tilelang import lower_prim_func
from tileyard.ir.walk import number_statements

lowered = lower_prim_func(kernel.main)
for number, stmt in number_statements(lowered.program):
    where = lowered.lines[number]
    print(stmt.__struct_config__.tag, f"{Path(where.file).name}:{where.line}")
"""


@pytest.mark.slow
def test_lines_are_the_callers_and_assertions_stay_without_cuda(tmp_path: Path) -> None:
    """Several calls on one line, comments and macros of the user's: each statement has its own line."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    done = subprocess.run(
        [sys.executable, "-c", LOWER], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    expected = ["copy 14", "print 14", "print 14", "assert 16", "let 6", "print 7", "copy 18"]
    told = done.stdout.replace("kernel.py:", "").splitlines()
    assert told == expected, done.stderr


ASK = """
from tileyard.frontend.no_device import assume_target


def ask(question):
    try:
        return question()
    except (AssertionError, RuntimeError):
        return "unknown"


with assume_target():
    import torch

    print(ask(torch.cuda.get_device_name))
    from tilelang.carver.arch.driver import get_num_sms
capability = torch.cuda.get_device_capability
try:
    with assume_target():
        print(ask(torch.cuda.get_device_capability), ask(get_num_sms))
        raise KeyError("the kernel's own")
except KeyError:
    pass
assert torch.cuda.get_device_capability is capability
print(ask(capability), ask(get_num_sms))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("", ["NVIDIA H100", "(9, 0) 132", "unknown unknown"]),
        ('{"kind":"cuda","arch":"sm_80"}', ["unknown", "unknown unknown", "unknown unknown"]),
    ],
)
def test_code_that_asks_for_the_gpu_hears_of_the_assumed_one(named: str, told: list[str]) -> None:
    """Where there is none and none is named, and while a file is imported or a kernel elaborated; also if that fails."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TILELANG_DEFAULT_TARGET": named}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == told, done.stderr
