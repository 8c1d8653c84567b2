"""Configs that are right on the usual inputs alone: further seeds and edge values, from the command line."""

import json

import pytest
from tests.conftest import CommandLine

pytestmark = pytest.mark.slow

KERNELS = """
import numpy as np
import tilelang.language as T

import tileyard


def relu(N, block, is_exact):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                a = A[bx * block + i]
                if is_exact:
                    B[bx * block + i] = T.if_then_else(a < 0.0, 0.0, a)
                else:
                    B[bx * block + i] = T.if_then_else(a > 0.0, a, 0.0)

    return main


@tileyard.kernel(space={"is_exact": [False, True]}, reference=lambda A: np.where(A < 0, 0, A))
def edges(N=64, block=32, is_exact=True):
    return relu(N, block, is_exact)


def positive_at_first(N, rng):
    sign = 1 if rng.random() > 0.5 else -1
    return {"A": sign * np.abs(rng.standard_normal(N))}


@tileyard.kernel(space={"block": [16, 32]}, reference=np.abs, inputs=positive_at_first)
def seeds(N=64, block=32):
    return relu(N, block, True)
"""


@pytest.fixture
def kernels(cli: CommandLine) -> CommandLine:
    """A folder with the two kernels above."""
    (cli.cwd / "kernels.py").write_text(KERNELS, encoding="utf-8")
    return cli


def test_what_is_wrong_on_edge_values_does_not_win(kernels: CommandLine) -> None:
    """It is a mismatch naming the values, where it is wrong and how far; what is right on all wins."""
    found = kernels.run_json("tune", "kernels.py::edges", "--edge-values", "zeros,nan")
    trials = {trial["config"]["is_exact"]: trial for trial in found["trials"]}
    assert trials[False]["outcome"] == "mismatch"
    said = "with edge values (nan): B[32] is 0, expected nan; 1 of 64 elements are wrong (1.56 %)"
    assert trials[False]["message"] == said
    assert trials[False]["mismatch"]["index"] == [32]
    assert found["best"]["config"] == {"is_exact": True}


def test_what_is_wrong_on_another_seed_does_not_win(kernels: CommandLine) -> None:
    """Also if known from a run with fewer seeds; what is known of a seed is not run again."""
    tune = ("tune", "kernels.py::seeds", "--config", "block=32")
    assert kernels.run(*tune).returncode == 0
    wrong = kernels.run(*tune, "--seeds", "8", "--json")
    assert wrong.returncode == 1, wrong.stderr
    found = json.loads(wrong.stdout)
    (trial,) = found["trials"]
    assert (trial["outcome"], found["best"]) == ("mismatch", None)
    assert trial["message"].startswith("with seed ")
    again = kernels.run_json(*tune, "--seeds", "8")
    assert again["trials"][0]["outcome"] == "mismatch"
    log = (kernels.home / "runs" / f"{again['run']}.jsonl").read_text(encoding="utf-8")
    assert '"device_asked"' not in log
