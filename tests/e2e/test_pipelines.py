"""Kernels behind our own pipeline, built for a GPU: what is printed, compared with, and refused."""

import json
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.gpu_builds import share_headers

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore

pytestmark = pytest.mark.slow

KERNEL = '''
"""A product whose loop is pipelined."""

import tilelang.language as T

import tileyard


@tileyard.kernel(shapes={"small": {"M": 128, "N": 128, "K": 256}})
def gemm(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(K // 32, num_stages=3):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


@tileyard.kernel(shapes={"small": {"M": 64, "N": 64}})
def sums(M, N):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((M, N), "float32")
            T.copy(A, a)
            T.cumsum(a, dim=1)
            T.copy(a, B)

    return main
'''


IN_UNIT_TESTS = pytest.mark.sweep(0)
"""``tests/unit/verbs/tune/plan/test_space.py`` has these refusals, too."""


@pytest.fixture
def place(cli: CommandLine, gpu_caches: Path) -> CommandLine:
    """A folder with the file of kernels."""
    (cli.cwd / "k.py").write_text(KERNEL)
    share_headers(cli.home, gpu_caches)
    return cli


def test_what_our_pipeline_made_is_printed(place: CommandLine) -> None:
    """The lowered source has versions and issued copies; a config and its build key have the pipeline. What
    TileLang's own has built has no such source.
    """
    how = ("compile", "k.py::gemm", "--target", "cuda:sm_80", "--pipeline")
    done = place.run(*how, "tileyard", "--emit", "tilelang")
    assert done.returncode == 0, done.stderr
    assert "a = T.alloc_shared((3, 64, 32)" in done.stdout
    assert '"no_implicit_async_commit_wait": 1' in done.stdout
    configs = ("--config", "pipeline=tileyard,tilelang")
    both = (*how[:-1], *configs, "--compile-workers", "1")
    ours, theirs = json.loads(place.run(*both, "--json").stdout)["configs"]
    assert (ours["config"], theirs["config"]) == (
        {"pipeline": "tileyard"},
        {"pipeline": "tilelang"},
    )
    assert (ours["outcome"], theirs["outcome"]) == ("passed", "passed")
    assert ours["build"] != theirs["build"]
    objects = ObjectStore(place.home / "objects")
    artifacts = [find_artifact(one["build"], objects) for one in (ours, theirs)]
    has_source = [one is not None and "kernel.py" in one.manifest.files for one in artifacts]
    assert has_source == [True, False]


@pytest.mark.sweep(0)  # by default: test_static.py with pass options
def test_pipelines_are_the_sides_of_a_comparison(place: CommandLine) -> None:
    """A kernel is compared with itself; one that ours cannot write has failed there, by name and line."""
    sides = ("pipeline=tilelang", "pipeline=tileyard")
    how = ("--target", "cuda:sm_80", "--compile-workers", "1", "--json")
    done = place.run("static", *sides, "k.py", *how)
    rows = {row["case"]: row for row in json.loads(done.stdout)["rows"]}
    gemm, sums = (rows[f"{name}/small/config-1"] for name in ("gemm", "sums"))
    assert gemm["verdict"] in ("unchanged", "changed"), gemm
    assert "cumsum is in no Program at" in sums["head_message"]
    line = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "T.cumsum" in text)
    assert f"k.py:{line}, so" in sums["head_message"]
    assert not sums["base_message"]


@pytest.mark.parametrize(
    ("target", "pipeline", "expected"),
    [
        pytest.param(
            "cuda:sm_120", "tileyard", "there is no pipeline for cuda:sm_120", marks=IN_UNIT_TESTS
        ),
        pytest.param("cuda:sm_80", "swift", "there is no pipeline 'swift'", marks=IN_UNIT_TESTS),
        ("cpu", "tileyard", "takes no pass options, so it cannot heed the pipeline"),
    ],
)
def test_a_pipeline_that_is_not_there_is_one_line(
    place: CommandLine, target: str, pipeline: str, expected: str
) -> None:
    """Said of the architecture, of the name, or of the target that has none."""
    done = place.run("compile", "k.py::gemm", "--target", target, "--pipeline", pipeline)
    assert done.returncode in (1, 2)
    assert expected in " ".join((done.stdout + done.stderr).split())
