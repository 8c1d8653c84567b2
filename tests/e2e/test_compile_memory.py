"""``tileyard compile`` with kernels on which a compiler wants more memory than a compile worker may take."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import KERNELS
from tests.e2e.gpu_builds import make_place

pytestmark = pytest.mark.slow

FAULTS = str(KERNELS / "gpu_faults.py")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, gpu_caches: Path) -> dict[str, Any]:
    """Two configs that share a compilation, by their fault: what is wrong kills the worker of both."""
    cli = make_place(tmp_path_factory.mktemp("memory"), gpu_caches)
    configs = ("--config", "fault=memory,none", "--config", "block=64")
    options = ("--compile-workers", "1", "--group-size", "2", "-o", "well.tyb")
    result = cli.run_json("compile", FAULTS, "--target", "cuda:sm_90a", *configs, *options)
    for one in result["configs"]:
        one["log"] = (cli.home / one["log"]).read_text() if one["log"] else ""
    return result


@pytest.fixture(scope="module")
def blamed(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The configs by their fault."""
    return {one["config"]["fault"]: one for one in result["configs"]}


def test_who_eats_memory_is_told_alone(blamed: dict[str, dict[str, Any]]) -> None:
    """A config that makes the compiler want too much ends as such; the other of its group is built."""
    expected = {"memory": "out_of_memory", "none": "passed"}
    assert {fault: one["outcome"] for fault, one in blamed.items()} == expected


def test_the_limit_is_told(blamed: dict[str, dict[str, Any]]) -> None:
    """The message says how much a compile worker may take, the log what the compiler said last."""
    expected = "it could not allocate within its limit of "
    assert expected in blamed["memory"]["message"]
    assert "LLVM ERROR: out of memory" in blamed["memory"]["log"]


def test_a_bundle_that_nobody_can_check_is_told(result: dict[str, Any]) -> None:
    """A kernel without a reference gives a bundle without results to compare with, and one line says so."""
    expected = "add_one has no reference: results of this bundle cannot be checked"
    assert any(note.startswith(expected) for note in result["notes"]), result["notes"]
