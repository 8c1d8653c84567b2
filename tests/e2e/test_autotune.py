"""Files written for TileLang's tuner, with only the import changed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.warm_script import run_script

pytestmark = pytest.mark.slow

CHAIN = """
import tilelang.language as T
import torch
from tileyard import AutoTuner, set_autotune_inputs


def scale(n, factor):
    def kernel(block=None, wrong=None):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
            with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * (factor + wrong)

        return main

    return kernel


def chain(configs, **profile):
    tuner = AutoTuner.from_kernel(scale(256, 3), configs)
    return tuner.set_compile_args(out_idx=[-1]).set_profile_args(ref_prog=lambda A: A * 3, **profile)


configs = [dict(block=block, wrong=wrong) for wrong in (1, 0) for block in (32, 64)]
result = chain(configs).run(warmup=2, rep=9)
assert result.config["wrong"] == 0 and result.latency > 0 and result.ref_latency > 0, result
assert "float" in result.libcode and result.func.attrs["global_symbol"] == "kernel"
a = torch.randn(256)
assert torch.equal(result.kernel(a), a * 3) and result.kernel.config == result.config
assert result.kernel.get_profiler()._get_inputs()[0].shape == (256,)

own = chain(configs, manual_check_prog=lambda ours, theirs: None).run(use_pipeline=False)
assert own.config in configs
for wrong in (
    lambda: chain(configs[:2]).run(),
    lambda: chain(configs).run(early_stop=True, early_stop_factor=0.5),
    lambda: chain(configs, backend="cupti").run(),
    lambda: chain([dict(blok=1)]).run(),
    lambda: chain(configs).run(benchmark_devices=["cpu:7000"]),
):
    try:
        wrong()
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__, error)
with set_autotune_inputs(torch.zeros(8)):
    tuner = chain(configs)
try:
    tuner.run()
except ValueError as error:
    print(error)
"""

DECORATED = """
import tileyard
import tilelang
import tilelang.language as T
import torch


@tileyard.autotune(configs=lambda n: [dict(block=block) for block in (32, n)], ref_prog=lambda A: A + 1)
@tilelang.jit(out_idx=[1])
def plus(n, block=16):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1

    return main


@tileyard.autotune(configs=[dict(block=32), dict(block=64)])
@tilelang.jit
def eager(A, block: int = 32):
    n = T.const("n")
    A: T.Tensor[[n], "float32"]
    B = T.empty((n,), "float32")
    with T.Kernel(n // block, threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2
    return B


if __name__ == "__main__":
    a = torch.randn(128)
    assert torch.equal(plus(128)(a), a + 1) and plus(128) is plus(128)
    assert plus(128, block=16).latency is None  # there was nothing to tune
    assert torch.equal(eager(a), a * 2)
    print("tuned", plus(128).config["block"])
"""


RACE = (
    CHAIN.partition("configs = [")[0]
    + """
configs = [dict(block=block, wrong=wrong) for wrong in (1, 0) for block in (32, 64)]
result = chain(configs).run()
assert result.config["wrong"] == 0 and result.latency > 0 and result.ref_latency > 0, result
assert torch.equal(result.kernel(torch.ones(256)), torch.full((256,), 3.0)) and "float" in result.libcode
try:
    chain(configs[:2]).run()
except RuntimeError as error:
    print("right" if "output 0 is wrong in" in str(error) else error)
"""
)

FOR_GPUS = (
    CHAIN.partition("def chain(")[0]
    + """
configs = [dict(block=block, wrong=0) for block in (32, 64, 128, 256)]
tuner = AutoTuner.from_kernel(scale(256, 3), configs)
tuner.set_compile_args(out_idx=[-1], target={"kind": "cuda", "arch": "sm_90a"})
print(tuner.set_profile_args(skip_check=True).run(warmup=5, rep=500, use_pipeline=False).config["block"])
"""
)
EXEC = ("-m", "tileyard", "exec")
DEVICE = """[[device]]
name = "cuda:{number}"
id = "recorded-{number}"
identity = "recorded"
"""


@pytest.fixture
def run(tmp_path: Path, cli: CommandLine) -> Callable[..., str]:
    """Runs a script in a home of its own, in a fresh Python behind a command, to a good end: its output."""

    def run(text: str, *before: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(text)
        if not before:
            done = run_script(cli, script)
        elif before == EXEC:
            done = cli.run("exec", str(script))
        else:
            done = subprocess.run(
                [sys.executable, *before, str(script)],
                cwd=tmp_path,
                env=cli.environment(),
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_a_chain_of_tilelangs_tunes_here(run: Callable[..., str]) -> None:
    """Wrong configs never win; what makes no sense is one line, of the class that TileLang raises."""
    says = run(CHAIN).splitlines()
    expected = [
        "NothingWonError none of 2 configs of kernel passed: ",
        "ChainError early_stop_factor=0.5 is below 1",
        "ChainError backend='cupti' cannot time kernels for cpu (choose one of event, wall)",
        "ChainError config 0 of kernel has 'blok', which is not a parameter (its parameters: block, wrong)",
        "ChainError benchmark_devices: there is no device 'cpu:7000'",
        "input A of kernel has the shape (8,), the kernel takes (256)",
    ]
    assert [line[: len(start)] for line, start in zip(says, expected, strict=True)] == expected


def test_decorated_kernels_tune_when_they_are_called(run: Callable[..., str]) -> None:
    """Lazy and eager ones, with configs from a function; a file tunes alike under exec and by its name."""
    for before in ((), EXEC):
        assert run(DECORATED, *before).splitlines()[-1].startswith("tuned ")


def test_a_process_that_holds_the_device_races_its_configs(run: Callable[..., str]) -> None:
    """No study can lease what its caller holds; wrong configs do not win there either."""
    holding = ("-m", "tileyard", "lease", "--devices", "cpu", "--", sys.executable)
    assert run(RACE, *holding).splitlines()[-1] == "right"


@pytest.mark.usefixtures("one_core")
def test_a_gpu_target_is_tuned_on_all_gpus(run: Callable[..., str], cli: CommandLine) -> None:
    """Without being asked; recorded times decide which block wins, and all is built before the first run."""
    cli.env |= {
        "TILEYARD_PLUGINS": "cuda=tests.e2e.recorded_target:RecordedTarget",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    cli.home.mkdir()
    declared = "".join(DEVICE.format(number=number) for number in range(2))
    (cli.home / "devices.toml").write_text(declared, encoding="utf-8")
    block = int(run(FOR_GPUS))
    trials = json.loads(cli.run("trials", "--json").stdout)
    medians = {one["config"]["block"]: one["measurement"]["median_ns"] for one in trials}
    assert block == min(medians, key=lambda name: medians[name])
    assert len(medians) == 4
    assert {one["device"] for one in trials} == {"cuda:0", "cuda:1"}
